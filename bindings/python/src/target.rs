//! Calls of anything that has routines: servers, metaservers, and objects, whose routines are methods.

use std::sync::Arc;
use std::time::Duration;

use kumi_call_client::KnownRoutine;
use kumi_call_client::{Arg, CallError, Object, Remote, RemoteCall};
use kumi_idl::{Limits, PlanError, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::call::{NativeCall, failure, interrupted, raised, scalar, take, values};
use crate::error::Failure;

/// Scalars that follow from arrays, and shapes, both by parameter.
pub type InferredSizes = (Vec<Option<u64>>, Vec<Vec<u64>>);

/// A target of calls.
pub trait Target: Sync {
    /// A routine's description.
    fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError>;

    /// Limits of a call, as far as they are known.
    fn limits(&self) -> Limits;

    /// Begins a call.
    fn begin(
        &self,
        name: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<RemoteCall, CallError>;
}

impl Target for Remote {
    fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        Remote::interface(self, name)
    }

    fn limits(&self) -> Limits {
        Remote::limits(self)
    }

    fn begin(
        &self,
        name: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<RemoteCall, CallError> {
        Remote::begin(self, name, args, time, &interrupted)
    }
}

/// The routines of an object are its methods, by their own names.
impl Target for Object {
    fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        Object::interface(self, name)
    }

    fn limits(&self) -> Limits {
        Object::limits(self)
    }

    fn begin(
        &self,
        name: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<RemoteCall, CallError> {
        let call = Object::begin(self, name, args, time, &interrupted)?;
        Ok(RemoteCall::Server(Box::new(call)))
    }
}

/// A routine's description as JSON.
pub fn describe(py: Python<'_>, target: &impl Target, name: &str) -> PyResult<String> {
    let known = py.detach(|| target.interface(name)).map_err(|error| failure(&error))?;
    known.to_json().map_err(|error| Failure::of_call("CallError", error.to_string()).into())
}

/// Integers that follow from the shapes of the given arrays, and the shapes of all parameters of a call with
/// these arrays, scalars and texts. A scalar has an empty shape.
pub fn fit(
    py: Python<'_>,
    target: &impl Target,
    name: &str,
    scalars: &Bound<'_, PyList>,
    shapes: &[Option<Vec<u64>>],
) -> PyResult<InferredSizes> {
    let known = py.detach(|| target.interface(name)).map_err(|error| failure(&error))?;
    let mut texts: Vec<Option<String>> = Vec::with_capacity(scalars.len());
    let mut values: Vec<Option<Scalar>> = Vec::with_capacity(scalars.len());
    for given in scalars.iter() {
        let text = given.cast::<PyString>().ok().map(|text| text.extract()).transpose()?;
        let is_number = text.is_none() && !given.is_none();
        values.push(is_number.then(|| scalar(&given)).transpose()?);
        texts.push(text);
    }
    let shapes: Vec<Option<&[u64]>> = shapes.iter().map(Option::as_deref).collect();
    known.infer_sizes(&mut values, &shapes);
    let following = values.iter().map(|value| match value {
        Some(Scalar::U64(value)) => Some(*value),
        _ => None,
    });
    let following = following.collect();
    let plan = known.plan_with_texts(&values, &texts, &target.limits()).map_err(|error| {
        let class = match error {
            PlanError::TooLarge { .. } => "TooLargeError",
            _ => "ArgumentError",
        };
        Failure::of_call(class, format!("`{}`: {error}", known.name))
    })?;
    let sizes =
        |argument: &kumi_idl::Argument| argument.axes.iter().map(|axis| axis.size).collect();
    Ok((following, plan.arguments.iter().map(sizes).collect()))
}

/// Begins a call. Each parameter has one of these: `None` (the default), a number, a text, or a pair. A pair
/// holds arrays to send and to write to, contiguous in the routine's order, or paths. A callback is a
/// function of the values and shapes by parameter that returns pairs of a parameter and a value.
pub fn start(
    py: Python<'_>,
    target: &impl Target,
    name: &str,
    args: &Bound<'_, PyList>,
    seconds: Option<f64>,
) -> PyResult<NativeCall> {
    let taken = take(py, target, name, args, seconds)?;
    let call = py.detach(|| target.begin(name, taken.given.args(), taken.time));
    Ok(NativeCall::new(call.map_err(|error| failure(&error))?, taken.buffers))
}

/// Calls and waits for the end, without creating an object. Returns the values that come back beside arrays,
/// each with the number of its parameter.
pub fn call<'py>(
    py: Python<'py>,
    target: &impl Target,
    name: &str,
    args: &Bound<'py, PyList>,
    seconds: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let taken = take(py, target, name, args, seconds)?;
    // The call ends before its buffers.
    let outcome = py.detach(|| {
        let mut call = target.begin(name, taken.given.args(), taken.time)?;
        call.wait(&interrupted)
    });
    drop(taken.buffers);
    outcome.or_else(|error| raised(py, error)).and_then(|outcome| values(py, outcome))
}
