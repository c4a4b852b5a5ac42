//! Objects of classes at servers.

use kumi_call_client::{CallError, Object};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::call::{NativeCall, NativeOutput, failure};
use crate::target::{self, InferredSizes};

/// An object of a class; calls on it keep it.
#[pyclass(frozen)]
pub struct NativeObject {
    // Lives until this is dropped.
    object: Option<Object>,
}

impl Drop for NativeObject {
    fn drop(&mut self) {
        let mut object = self.object.take();
        // Without the interpreter's lock: a thread that holds the connection's lock may wait for it.
        Python::try_attach(|py| py.detach(|| drop(object.take())));
    }
}

impl NativeObject {
    /// Runs an operation on an object that has not ended.
    pub fn new(object: Object) -> NativeObject {
        NativeObject { object: Some(object) }
    }

    fn object(&self) -> PyResult<&Object> {
        self.object.as_ref().ok_or_else(|| failure(&CallError::Interrupted).into())
    }
}

#[pymethods]
impl NativeObject {
    /// The name of the object's server.
    fn server(&self) -> PyResult<String> {
        Ok(self.object()?.server().to_owned())
    }

    /// Whether it has ended, as far as this client knows without waiting.
    fn is_lost(&self, py: Python<'_>) -> PyResult<bool> {
        let object = self.object()?;
        Ok(py.detach(|| object.is_lost()))
    }

    /// Ends the object and its running call.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let object = self.object()?;
        match py.detach(|| object.end()) {
            // With the connection the object has ended.
            Ok(()) | Err(CallError::Lost(_)) => Ok(()),
            Err(error) => Err(failure(&error).into()),
        }
    }

    /// The same object, whose calls send what their methods print to this receiver.
    fn printing(&self, output: &NativeOutput) -> PyResult<NativeObject> {
        Ok(NativeObject::new(self.object()?.with_output(&output.output)))
    }

    /// [`target::describe`], of a method.
    fn describe(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        target::describe(py, self.object()?, name)
    }

    /// [`target::fit`].
    #[allow(clippy::needless_pass_by_value)] // As Python gives it.
    fn fit(
        &self,
        py: Python<'_>,
        name: &str,
        scalars: &Bound<'_, PyList>,
        shapes: Vec<Option<Vec<u64>>>,
    ) -> PyResult<InferredSizes> {
        target::fit(py, self.object()?, name, scalars, &shapes)
    }

    /// [`target::start`].
    fn start(
        &self,
        py: Python<'_>,
        name: &str,
        args: &Bound<'_, PyList>,
        seconds: Option<f64>,
    ) -> PyResult<NativeCall> {
        target::start(py, self.object()?, name, args, seconds)
    }

    /// [`target::call`].
    fn call<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        args: &Bound<'py, PyList>,
        seconds: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        target::call(py, self.object()?, name, args, seconds)
    }
}
