//! The function of the package in which a thread waits, found on Python's stack, for reports on programs that wait.

use kumi_mem::CallName;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Names the call of this thread's wait, which is long, if it has no name yet.
pub fn tell(py: Python<'_>) {
    if kumi_mem::is_call_set() {
        return;
    }
    // Without a name the report says less.
    if let Ok(Some(name)) = outermost(py) {
        kumi_mem::set_call(CallName::new(&name));
    }
}

/// The function of the package that the program has called, as `Window.wait` or `kumi.recv`.
fn outermost(py: Python<'_>) -> PyResult<Option<String>> {
    let package = py.import("kumi")?.getattr("__file__")?;
    let package: String = package.extract()?;
    let folder = package.strip_suffix("__init__.py").unwrap_or(&package);
    let mut frame = py.import("sys")?.getattr("_getframe")?.call0()?;
    let mut name = None;
    while !frame.is_none() {
        let code = frame.getattr("f_code")?;
        let file = code.getattr("co_filename")?;
        if !file.cast::<PyString>()?.to_cow()?.starts_with(folder) {
            break;
        }
        // Python before 3.11 has the short name only.
        let called = code.getattr("co_qualname").or_else(|_| code.getattr("co_name"))?;
        name = Some(called.extract::<String>()?);
        frame = frame.getattr("f_back")?;
    }
    Ok(name.map(|name| if name.contains('.') { name } else { format!("kumi.{name}") }))
}
