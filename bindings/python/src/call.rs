//! Calls of routines on servers. `kumi.call` checks dtypes and shapes and makes the arrays of results. This
//! module holds buffers and lends them to `kumi-call`, without the interpreter's lock.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumi_call_client::{
    Arg, Array, ArrayMut, CallError, CallOutput, CallWatch, LentBytes, LentBytesMut, Options,
    Outcome, Remote, RemoteArray, RemoteCall, RemoteCanceller, Resources, Shape, TraceContext,
    remaining, trace_calls, trace_context,
};
use kumi_idl::{Element, Order, Scalar, Type};
use kumi_rpc::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::buffer::{Input, Output};
use crate::callback;
use crate::error::{Failure, keep_signal, wrong_type};
use crate::held::NativeHeld;
use crate::logs::NativeLogSources;
use crate::object::NativeObject;
use crate::target::{self, InferredSizes, Target};

/// A connection to a server.
#[pyclass(frozen)]
pub struct NativeClient {
    client: Remote,
}

/// Receives what routines print.
#[pyclass(frozen)]
pub struct NativeOutput {
    pub output: CallOutput,
}

#[pymethods]
impl NativeOutput {
    #[new]
    fn new() -> NativeOutput {
        NativeOutput { output: CallOutput::new() }
    }

    /// What has come, and whether something is missing.
    fn take<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, bool) {
        let printed = self.output.take();
        (PyBytes::new(py, &printed.bytes), printed.is_cut)
    }
}

/// A call that is under way, and the memory that it uses.
#[pyclass(frozen)]
pub struct NativeCall {
    // Lives until this is dropped, and ends before the buffers: dropping it ends all writing to them.
    call: Mutex<Option<RemoteCall>>,
    /// Not under the lock, which a waiting thread holds.
    canceller: RemoteCanceller,
    watch: CallWatch,
    _buffers: Mutex<(Vec<Input>, Vec<Output>)>,
}

impl Drop for NativeCall {
    fn drop(&mut self) {
        let mut call = self.call.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Without the interpreter's lock: a thread that holds the connection's lock may wait for it.
        Python::try_attach(|py| py.detach(|| drop(call.take())));
    }
}

pub fn failure(error: &CallError) -> Failure {
    let text = error.to_string();
    // After several attempts, the last failure decides the exception's class.
    let kind = match error {
        CallError::Attempts { last, .. } => last,
        other => other,
    };
    match kind {
        CallError::Connect { .. } | CallError::NotLeading { .. } => {
            Failure::of_call("ConnectError", text)
        }
        CallError::Lost(_) => Failure::of_call("ConnectionLostError", text),
        CallError::RoutineNotFound(_) => Failure::of_call("RoutineNotFound", text),
        CallError::Argument { .. }
        | CallError::NoPriority(_)
        | CallError::Address(_)
        | CallError::NotMetaserver(_)
        | CallError::Environment { .. } => Failure::of_call("ArgumentError", text),
        CallError::TooLarge(_) => Failure::of_call("TooLargeError", text),
        CallError::Busy(_) => Failure::of_call("BusyError", text),
        CallError::Crashed { detail, .. } => {
            Failure::of_call("CrashedError", text).with("detail", *detail)
        }
        CallError::TimedOut(_) => Failure::of_call("TimedOutError", text),
        CallError::Cancelled(_) => Failure::of_call("CancelledError", text),
        CallError::NoServer { .. } => Failure::of_call("NoServerError", text),
        CallError::NotRunnable(_) => Failure::of_call("NotRunnableError", text),
        CallError::Callback(_) => Failure::of_call("CallbackError", text),
        CallError::File(_) => Failure::of_call("FileError", text),
        CallError::NotPermitted(_) => Failure::of_call("NotPermittedError", text),
        CallError::Expired(_) => Failure::of_call("ExpiredError", text),
        CallError::Tls { .. } => Failure::of_call("TlsError", text),
        CallError::Status { value, .. } => {
            Failure::of_call("StatusError", text).with("status", *value)
        }
        CallError::Raised { .. } => Failure::of_call("RaisedError", text),
        CallError::ObjectLost(_) => Failure::of_call("ObjectLostError", text),
        CallError::HeldElsewhere(_) => Failure::of_call("HeldElsewhereError", text),
        CallError::NotHeld { .. } | CallError::HeldLost { .. } => {
            Failure::of_call("HeldLostError", text)
        }
        CallError::HeldFull(_) | CallError::NoResources(_) => {
            Failure::of_call("TooLargeError", text)
        }
        _ => Failure::of_call("CallError", text),
    }
}

/// Whether a Python signal handler has raised an exception; the call then raises that one.
pub fn interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            keep_signal(error);
            true
        }
    })
}

/// The seconds that are left of the call for which this thread runs a function, or this process a routine.
#[pyfunction]
pub fn call_remaining() -> PyResult<Option<f64>> {
    let left = remaining().map_err(|error| failure(&error))?;
    Ok(left.map(|left| left.as_secs_f64()))
}

/// The place in a trace of the calls that this thread begins.
#[pyfunction]
pub fn call_traceparent() -> Option<String> {
    trace_context().map(|context| context.to_string())
}

/// Sets the place in a trace of the calls that this thread begins. `None`: that of the environment. Returns what was set.
#[pyfunction]
pub fn set_call_traceparent(text: Option<&str>) -> PyResult<Option<String>> {
    let context = text.map(|text| TraceContext::parse(text.as_bytes())).transpose();
    let context = context.map_err(|error| {
        Failure::of_call("ArgumentError", format!("`{}`: {error}", text.unwrap_or_default()))
    })?;
    Ok(trace_calls(context).map(|before| before.to_string()))
}

impl NativeClient {
    /// The target of its calls.
    pub fn remote(&self) -> Remote {
        self.client.clone()
    }
}

#[pymethods]
impl NativeClient {
    /// Connects. Token and authorities that are not given come from the environment.
    #[staticmethod]
    fn connect(
        py: Python<'_>,
        address: &str,
        token: Option<String>,
        seconds: f64,
        ca: Option<PathBuf>,
        file_bytes: Option<u64>,
    ) -> PyResult<NativeClient> {
        let mut options = Options::from_env().map_err(|error| failure(&error))?;
        options.file_bytes = file_bytes.unwrap_or(options.file_bytes);
        options.connect_time = duration(seconds)?;
        options.token = token.unwrap_or(options.token);
        options.ca = ca.or(options.ca);
        let client = py.detach(|| Remote::connect(address, &options));
        Ok(NativeClient { client: client.map_err(|error| failure(&error))? })
    }

    /// Whether the other side is a metaserver, which chooses servers and runs no calls.
    fn is_metaserver(&self) -> bool {
        matches!(self.client, Remote::Grid(_))
    }

    /// The same connection, whose calls send what their routines print to this receiver.
    fn printing(&self, output: &NativeOutput) -> NativeClient {
        NativeClient { client: self.client.with_output(&output.output) }
    }

    /// The same connection, whose calls and objects ask for so many threads and bytes of memory. Both 0: for nothing.
    fn asking(&self, threads: u32, memory: u64) -> NativeClient {
        let client = &self.client;
        NativeClient {
            client: match Resources::new(threads, memory) {
                Some(resources) => client.with_resources(resources),
                None => client.clone(),
            },
        }
    }

    /// Whether the connection to a server is lost, so that nothing can be sent over it. Connections to
    /// metaservers are renewed.
    fn is_lost(&self, py: Python<'_>) -> bool {
        py.detach(|| self.client.is_lost())
    }

    /// The server's name.
    fn server(&self) -> String {
        self.client.server()
    }

    /// Names of routines.
    fn names(&self, py: Python<'_>, part: &str) -> PyResult<Vec<String>> {
        Ok(py.detach(|| self.client.names(part)).map_err(|error| failure(&error))?)
    }

    /// The servers that keep logs of the user's calls.
    fn log_sources(&self, py: Python<'_>) -> PyResult<NativeLogSources> {
        NativeLogSources::of(py, &self.client)
    }

    /// A routine's description as JSON.
    fn describe(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        target::describe(py, &self.client, name)
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
        target::fit(py, &self.client, name, scalars, &shapes)
    }

    /// [`target::start`], through a metaserver with this priority.
    fn start(
        &self,
        py: Python<'_>,
        name: &str,
        args: &Bound<'_, PyList>,
        seconds: Option<f64>,
        priority: u8,
    ) -> PyResult<NativeCall> {
        let client = self.client.with_priority(priority).map_err(|error| failure(&error))?;
        target::start(py, &client, name, args, seconds)
    }

    /// [`target::call`], through a metaserver with this priority.
    fn call<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        args: &Bound<'py, PyList>,
        seconds: Option<f64>,
        priority: u8,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client.with_priority(priority).map_err(|error| failure(&error))?;
        target::call(py, &client, name, args, seconds)
    }

    /// Makes an object of a class, with a time limit in seconds; a metaserver chooses the server by this
    /// priority.
    fn object(
        &self,
        py: Python<'_>,
        name: &str,
        seconds: Option<f64>,
        priority: u8,
    ) -> PyResult<NativeObject> {
        let client = self.client.with_priority(priority).map_err(|error| failure(&error))?;
        let time = seconds.map(duration).transpose()?;
        let object = py.detach(|| client.object_within(name, time, &interrupted));
        Ok(NativeObject::new(object.map_err(|error| failure(&error))?))
    }
}

/// Takes the arguments of a call.
pub fn take(
    py: Python<'_>,
    target: &impl Target,
    name: &str,
    args: &Bound<'_, PyList>,
    seconds: Option<f64>,
) -> PyResult<BorrowedArguments> {
    let time = seconds.map(duration).transpose()?;
    let mut given = CallArguments { native: Vec::with_capacity(args.len()), texts: Vec::new() };
    let mut buffers = (Vec::new(), Vec::new());
    if args.is_empty() {
        return Ok(BorrowedArguments { given, buffers, time });
    }
    let known = py.detach(|| target.interface(name)).map_err(|error| failure(&error))?;
    let mut params = known.params.iter().filter(|param| kumi_call_client::is_given(param));
    for one in args.iter() {
        let param = params.next();
        let element = param.map(|param| &param.ty);
        let returned = param.is_some_and(|param| param.mode.is_returned());
        given.native.push(match one.cast::<PyTuple>() {
            Ok(pair) => CallArgument::Prepared(match callback::file(pair, element)? {
                Some(file) => file,
                None => arrays(pair, element, returned, &mut buffers)?,
            }),
            Err(_) if one.is_none() => CallArgument::Default,
            Err(_) if one.is_callable() => CallArgument::Prepared(callback::function(one.unbind())),
            Err(_) => match one.cast::<PyString>() {
                Ok(text) => {
                    given.texts.push(text.to_str()?.to_owned());
                    CallArgument::Text
                }
                Err(_) => CallArgument::Scalar(scalar(&one)?),
            },
        });
    }
    Ok(BorrowedArguments { given, buffers, time })
}

/// The arguments of a call, and the memory that they use.
pub struct BorrowedArguments {
    pub given: CallArguments,
    pub buffers: (Vec<Input>, Vec<Output>),
    pub time: Option<Duration>,
}

/// The arguments of a call.
pub struct CallArguments {
    native: Vec<CallArgument>,
    texts: Vec<String>,
}

impl CallArguments {
    /// As `kumi-call` takes them.
    pub fn args(self) -> Vec<Arg<'static>> {
        let mut texts = self.texts.into_iter();
        let args = self.native.into_iter().map(|one| match one {
            CallArgument::Default => Arg::Default,
            CallArgument::Scalar(scalar) => Arg::Scalar(scalar),
            CallArgument::Text => Arg::Text(texts.next().unwrap_or_default().into()),
            CallArgument::Prepared(arg) => arg,
        });
        args.collect()
    }
}

enum CallArgument {
    Default,
    Scalar(Scalar),
    Text,
    Prepared(Arg<'static>),
}

#[pymethods]
impl NativeCall {
    /// Waits for the end, at most this many seconds. Returns the values that come back beside arrays, each
    /// with the number of its parameter; `None`: the call is not over.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        seconds: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let time = seconds.map(duration).transpose()?;
        let outcome = py.detach(|| {
            let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
            let call = call.as_mut().ok_or(CallError::Interrupted)?;
            match time {
                None => call.wait(&interrupted).map(Some),
                Some(time) => call.wait_for(time, &interrupted),
            }
        });
        match outcome {
            Ok(outcome) => outcome.map(|outcome| values(py, outcome)).transpose(),
            Err(error) => raised(py, error),
        }
    }

    /// Whether it is over.
    fn is_over(&self, py: Python<'_>) -> bool {
        py.detach(|| self.watch.is_over())
    }

    /// Asks the server to end it.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.canceller.cancel()).map_err(|error| failure(&error).into())
    }
}

impl NativeCall {
    /// Arguments for a call that uses this memory.
    pub fn new(call: RemoteCall, buffers: (Vec<Input>, Vec<Output>)) -> NativeCall {
        let (canceller, watch) = (call.canceller(), call.watch());
        let (call, _buffers) = (Mutex::new(Some(call)), Mutex::new(buffers));
        NativeCall { call, canceller, watch, _buffers }
    }

    /// For waits for several calls.
    pub fn watch(&self) -> CallWatch {
        self.watch.clone()
    }
}

/// Raises the failure. A routine that has run and failed may have returned results nevertheless.
pub fn raised<T>(py: Python<'_>, error: CallError) -> PyResult<T> {
    let raised = PyErr::from(failure(&error));
    if let CallError::Status { outcome, .. } = error {
        raised.value(py).setattr("_values", values(py, *outcome)?)?;
    }
    Err(raised)
}

/// Values that came back beside arrays, each with the number of its parameter.
pub fn values(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyList>> {
    let values = PyList::empty(py);
    for (index, value) in outcome.values {
        values.append((index, self::value(py, value)?))?;
    }
    Ok(values)
}

pub fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| Failure::of_call("ArgumentError", format!("{seconds} s: {error}")).into())
}

/// Values that came back beside arrays.
pub fn value(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::I64(value) => value.into_pyobject(py)?.into_any(),
        Value::U64(value) => value.into_pyobject(py)?.into_any(),
        Value::F64(value) => value.into_pyobject(py)?.into_any(),
        Value::Complex(real, imaginary) => PyComplex::from_doubles(py, real, imaginary).into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::FileLength(bytes) => bytes.into_pyobject(py)?.into_any(),
    })
}

/// A number from Python.
pub fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    if value.cast::<PyInt>().is_ok() {
        let wide = || value.extract::<u64>().map(Scalar::U64);
        return value.extract::<i64>().map(Scalar::I64).or_else(|_| wide()).map_err(|_| {
            Failure::of_call("ArgumentError", "an integer has more than 64 bits").into()
        });
    }
    if value.cast::<PyFloat>().is_ok() {
        return value.extract().map(Scalar::F64);
    }
    if let Ok(complex) = value.cast::<PyComplex>() {
        return Ok(Scalar::Complex(complex.real(), complex.imag()));
    }
    Err(wrong_type(format!("{} is no number", value.get_type().name()?)))
}

/// Lends an array that is sent. `buffers` holds it as long as it is lent.
pub fn lent(array: &Bound<'_, PyAny>, buffers: &mut Vec<Input>) -> PyResult<LentBytes> {
    let input = Input::of(array, "an argument")?;
    let bytes = input.shared();
    // SAFETY: the caller holds the buffer as long as its call or transaction exists. The package's
    // documentation forbids writes meanwhile; bytes that change nevertheless are sent as before or after the
    // change.
    let lent = unsafe { LentBytes::new(bytes.as_ptr(), bytes.len()) };
    buffers.push(input);
    Ok(lent)
}

/// Lends an array that gets a result. `buffers` holds it as long as it is lent.
pub fn lent_mut(array: &Bound<'_, PyAny>, buffers: &mut Vec<Output>) -> PyResult<LentBytesMut> {
    let output = Output::lasting(array, "a result")?;
    let bytes = output.shared();
    // SAFETY: the caller holds the buffer as long as its call or transaction exists, and the array is for its
    // result.
    let lent = unsafe { LentBytesMut::new(bytes.as_ptr(), bytes.len()) };
    buffers.push(output);
    Ok(lent)
}

/// A result that nobody wants.
fn declined(from: Option<Array<'static>>) -> PyResult<RemoteArray<'static>> {
    RemoteArray::declined(from).map_err(|error| {
        Failure::of_call("CallError", format!("there is no random name: {error}")).into()
    })
}

/// The arrays of a pair; `buffers` holds them as long as the call exists. A result without a place is declined.
fn arrays(
    pair: &Bound<'_, PyTuple>,
    ty: Option<&Type>,
    returned: bool,
    buffers: &mut (Vec<Input>, Vec<Output>),
) -> PyResult<Arg<'static>> {
    let element = match ty {
        Some(Type::Number(element)) => *element,
        _ => Element::U8,
    };
    let shape = || Shape { element, dims: None, order: Order::Row };
    let (from, to) = (pair.get_item(0)?, pair.get_item(1)?);
    let (held, keep) = (from.cast::<NativeHeld>().ok(), to.cast::<NativeHeld>().ok());
    let mut sent = None;
    if held.is_none() && !from.is_none() {
        sent = Some(Array::lent(lent(&from, &mut buffers.0)?, shape()));
    }
    let mut back = None;
    if keep.is_none() && !to.is_none() {
        back = Some(ArrayMut::lent(lent_mut(&to, &mut buffers.1)?, shape()));
    }
    if held.is_some() || keep.is_some() {
        let (held, keep) = (held.map(|it| it.get()), keep.map(|it| it.get()));
        let mut array = NativeHeld::argument(held, sent, back, keep);
        if returned && array.to.is_none() && array.keep.is_none() {
            array.keep = declined(None)?.keep;
        }
        return Ok(Arg::Remote(Box::new(array)));
    }
    Ok(match (sent, back) {
        (from, None) if returned => Arg::Remote(Box::new(declined(from)?)),
        (Some(from), Some(to)) => Arg::InOut(from, to),
        (Some(from), None) => Arg::In(from),
        (None, Some(to)) => Arg::Out(to),
        (None, None) => Arg::Default,
    })
}
