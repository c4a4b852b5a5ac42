//! Callbacks of the program, and files, as arguments of calls. A callback's arguments go to `kumi.call` as
//! values and bytes by parameter; its results come back in the same form.

use std::path::PathBuf;

use kumi_call_client::{Arg, Callback, CallbackArgs, FileArgument};
use kumi_idl::{ArgumentForm, Scalar, Type};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyComplex, PyList, PyString, PyTuple};

use crate::buffer::Input;
use crate::call::scalar;

/// A function as an argument.
pub fn function(callable: Py<PyAny>) -> Arg<'static> {
    Arg::Callback(Callback::new(move |args| {
        Python::attach(|py| {
            let called = call(callable.bind(py), args);
            // The package keeps the exception; the server gets its message.
            called.map_err(|error| error.value(py).to_string())
        })
    }))
}

fn call(callable: &Bound<'_, PyAny>, args: &mut CallbackArgs<'_>) -> PyResult<()> {
    let py = callable.py();
    let (values, shapes) = (PyList::empty(py), PyList::empty(py));
    let mut arrays = Vec::new();
    for (index, argument) in args.plan().arguments.iter().enumerate() {
        let sizes: Vec<u64> = argument.axes.iter().map(|axis| axis.size).collect();
        shapes.append(PyTuple::new(py, sizes)?)?;
        let is_array = matches!(argument.form, ArgumentForm::Array(..));
        arrays.push(is_array);
        let value = if is_array && argument.mode.is_sent() {
            PyByteArray::new(py, args.bytes(index)).into_any()
        } else if let Some(value) = args.scalar_at(index) {
            match value {
                Scalar::I64(value) => value.into_pyobject(py)?.into_any(),
                Scalar::U64(value) => value.into_pyobject(py)?.into_any(),
                Scalar::F64(value) => value.into_pyobject(py)?.into_any(),
                Scalar::Complex(real, imaginary) => {
                    PyComplex::from_doubles(py, real, imaginary).into_any()
                }
            }
        } else {
            args.text_at(index).into_pyobject(py)?
        };
        values.append(value)?;
    }
    let names: Vec<String> = args.declared().params.iter().map(|one| one.name.clone()).collect();
    let returned: Vec<(usize, Bound<'_, PyAny>)> = callable.call1((values, shapes))?.extract()?;
    for (index, value) in returned {
        let wrong = |text: String| crate::error::wrong_type(format!("`{}`: {text}", names[index]));
        if arrays[index] {
            let input = Input::of(&value, "an array")?;
            let bytes = args.bytes_mut(index);
            if input.shared().len() != bytes.len() {
                return Err(wrong(format!(
                    "{} bytes are not {}",
                    input.shared().len(),
                    bytes.len()
                )));
            }
            input.shared().copy_to(bytes);
        } else if let Ok(text) = value.cast::<PyString>() {
            args.set_text(&names[index], text.to_str()?).map_err(wrong)?;
        } else {
            args.set(&names[index], scalar(&value)?).map_err(wrong)?;
        }
    }
    Ok(())
}

/// The paths of a file, if the parameter is one.
pub fn file(pair: &Bound<'_, PyTuple>, ty: Option<&Type>) -> PyResult<Option<Arg<'static>>> {
    if ty != Some(&Type::File) {
        return Ok(None);
    }
    let (from, to): (Option<PathBuf>, Option<PathBuf>) = pair.extract()?;
    Ok(Some(Arg::File(FileArgument { from, to })))
}
