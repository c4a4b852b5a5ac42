//! Functions of Python as routines: their descriptions, and the process of a call slot around an interpreter.
//!
//! `kumi-call` has the protocol with the server. `python/kumi/_slot.py` and `python/kumi/call/_serving.py`
//! convert a function's arguments and results.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use kumi_call_slot::{Arena, CallbackResult, ClientFunction, Hosted, Slot, run_hosted};
use kumi_idl::{Argument, ArgumentForm, Interface, Limits, Scalar, Type};
use kumi_rpc::Value;
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyComplex, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, ffi};

use crate::buffer::Input;
use crate::call;
use crate::error::Failure;

/// The canonical JSON of each routine in a description with this many routines; for a class, its methods.
#[pyfunction]
pub fn describe_routines(text: &str, count: usize) -> PyResult<Vec<String>> {
    let refused = |why: String| PyErr::from(Failure::of_call("DescriptionError", why));
    let parsed = kumi_idl::parse(text.as_bytes());
    let Some(module) = parsed.module else {
        let told = parsed.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
        return Err(refused(told.join("\n")));
    };
    let methods = module.classes.iter().flat_map(|class| &class.methods);
    let interfaces: Vec<&Interface> = module.interfaces.iter().chain(methods).collect();
    if interfaces.len() != count {
        return Err(refused(format!("{} routines are described", interfaces.len())));
    }
    let each = interfaces.into_iter().map(Interface::to_json);
    each.collect::<Result<_, _>>().map_err(|error| refused(error.to_string()))
}

/// Runs this process as a call slot until the server closes its socket, which is standard input. `load` is
/// called with a description, and returns the function for its calls. That function gets the memory of a call
/// and, for each parameter, its place, its bytes, and its value or shape. It returns `None`, or its
/// exception.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // As Python gives it.
pub fn run_slot(py: Python<'_>, load: Py<PyAny>) -> PyResult<()> {
    let run = || {
        run_hosted(&|interface, json| {
            let function =
                Python::attach(|py| load.call1(py, (json,))).map_err(|error| error.to_string())?;
            let interface = interface.clone();
            let hosted: Hosted<'_> = Box::new(move |arena, slots| {
                Python::attach(|py| run(py, &function, &interface, arena, slots))
            });
            Ok(hosted)
        })
    };
    py.detach(run).map_err(|error| PyOSError::new_err(error.to_string()))
}

fn run(
    py: Python<'_>,
    function: &Py<PyAny>,
    interface: &Interface,
    arena: &Arc<Arena>,
    slots: &[Slot],
) -> Result<(), String> {
    let mut scalars: Vec<Option<Scalar>> = Vec::with_capacity(slots.len());
    let mut texts: Vec<Option<String>> = Vec::with_capacity(slots.len());
    for (param, slot) in interface.params.iter().zip(slots) {
        let sent = param.mode.is_sent();
        let scalar = param.scalar().filter(|_| sent);
        scalars.push(
            scalar
                .and_then(|element| Scalar::decode(element, &arena.read(slot.offset, slot.bytes))),
        );
        let text = || String::from_utf8_lossy(&arena.read(slot.offset, slot.text)).into_owned();
        texts.push((sent && param.ty == Type::String).then(text));
    }
    // The server has planned this call within its own limits.
    let plan = interface.plan_with_texts(&scalars, &texts, &Limits { bytes: u64::MAX });
    let plan = plan.map_err(|error| error.to_string())?;
    let mut functions = ClientFunction::of_this_call(interface);
    let each = plan.arguments.iter().zip(slots).zip(scalars.into_iter().zip(texts)).enumerate();
    let given = each.map(|(index, ((argument, slot), (scalar, text)))| {
        let given = match argument.form {
            // In the call's folder, which the server made.
            ArgumentForm::File => {
                OsString::from_vec(arena.read(slot.offset, slot.text)).into_py_any(py)?
            }
            ArgumentForm::Callback => match functions.iter().position(|(at, _)| *at == index) {
                Some(at) => {
                    NativeFunction { function: functions.swap_remove(at).1 }.into_py_any(py)?
                }
                None => py.None(),
            },
            _ => given(py, argument, scalar, text)?,
        };
        (slot.offset, slot.bytes, given).into_py_any(py)
    });
    let ended = given.collect::<PyResult<Vec<_>>>().and_then(|given| {
        let memory = NativeMemory { arena: Arc::clone(arena) };
        function.call1(py, (memory, PyList::new(py, given)?))?.extract::<Option<String>>(py)
    });
    match ended {
        Ok(None) => Ok(()),
        Ok(Some(raised)) => Err(raised),
        Err(error) => Err(error.to_string()),
    }
}

/// The value of a sent scalar or text, or the shape of an array.
fn given(
    py: Python<'_>,
    argument: &Argument,
    scalar: Option<Scalar>,
    text: Option<String>,
) -> PyResult<Py<PyAny>> {
    if let ArgumentForm::Array(..) = argument.form {
        let shape: Vec<u64> = argument.axes.iter().map(|axis| axis.size).collect();
        return shape.into_py_any(py);
    }
    match (scalar, text) {
        (Some(Scalar::I64(value)), _) => value.into_py_any(py),
        (Some(Scalar::U64(value)), _) => value.into_py_any(py),
        (Some(Scalar::F64(value)), _) => value.into_py_any(py),
        (Some(Scalar::Complex(re, im)), _) => PyComplex::from_doubles(py, re, im).into_py_any(py),
        (None, text) => text.into_py_any(py),
    }
}

/// A function of the client, during a call.
#[pyclass(frozen)]
pub struct NativeFunction {
    function: ClientFunction,
}

#[pymethods]
impl NativeFunction {
    /// Calls it with inputs by parameter: numbers, texts, and pairs of a shape and a buffer. Returns the
    /// results, each with its parameter: numbers, texts, and pairs of a shape and bytes.
    fn call<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyList>,
    ) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let mut values = Vec::new();
        let mut arrays = Vec::new();
        for (index, one) in (0_u16..).zip(given.iter()) {
            let mut array = None;
            if let Ok(pair) = one.cast::<PyTuple>() {
                let bytes = Input::of(&pair.get_item(1)?, "an array")?.to_vec();
                array = Some((pair.get_item(0)?.extract::<Vec<u64>>()?, bytes));
            } else if let Ok(text) = one.cast::<PyString>() {
                values.push((index, Value::Text(text.to_str()?.to_owned())));
            } else if !one.is_none() {
                values.push((
                    index,
                    match call::scalar(&one)? {
                        Scalar::I64(value) => Value::I64(value),
                        Scalar::U64(value) => Value::U64(value),
                        Scalar::F64(value) => Value::F64(value),
                        Scalar::Complex(re, im) => Value::Complex(re, im),
                    },
                ));
            }
            arrays.push(array);
        }
        let back = py.detach(|| self.function.call(&values, &arrays));
        let back = back.map_err(PyValueError::new_err)?;
        let each = back.into_iter().map(|(index, one)| {
            let one = match one {
                CallbackResult::Value(value) => call::value(py, value)?,
                CallbackResult::Array((shape, bytes)) => {
                    (shape, PyByteArray::new(py, &bytes)).into_bound_py_any(py)?
                }
            };
            Ok((index, one))
        });
        each.collect()
    }
}

/// The memory of a call, as a buffer.
#[pyclass(frozen)]
pub struct NativeMemory {
    arena: Arc<Arena>,
}

#[pymethods]
impl NativeMemory {
    /// Shows the memory to Python.
    ///
    /// # Safety
    /// The interpreter calls it, with memory for a buffer in `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: std::ffi::c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no memory for the buffer"));
        }
        let arena = &slf.get().arena;
        let length = ffi::Py_ssize_t::try_from(arena.length())?;
        // SAFETY: the interpreter lets us fill `view`. The memory stays mapped as long as the arena exists.
        // The object holds the arena, and the view holds the object.
        let done = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), arena.begin().cast(), length, 0, flags)
        };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
