//! What a routine may know of its call, as environment variables of its process.
//!
//! Memory for a variable is given to C's environment once, and then changed in place. So the list of variables does not
//! change from call to call, and a thread that a routine has left may read it at any time. Without a context they are empty.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use kumi_call_wire::context::{DEADLINE, TRACE_PARENT};

use crate::slot_protocol::CallContext;

unsafe extern "C" {
    fn putenv(text: *mut c_char) -> c_int;
    fn getenv(name: *const c_char) -> *mut c_char;
}

/// Bytes of a variable with its name and its end.
const ROOM: usize = 96;

/// A variable of the environment.
struct Variable {
    name: &'static CStr,
    text: [AtomicU8; ROOM],
}

static DEADLINE_VARIABLE: Variable = Variable::new(DEADLINE);
static TRACE_VARIABLE: Variable = Variable::new(TRACE_PARENT);

impl Variable {
    const fn new(name: &'static CStr) -> Variable {
        Variable { name, text: [const { AtomicU8::new(0) }; ROOM] }
    }

    /// The bytes of the value.
    fn value(&self) -> &[AtomicU8] {
        &self.text[self.name.to_bytes().len() + 1..]
    }

    /// Sets the value.
    fn set(&self, value: &str) -> io::Result<()> {
        if value.len() >= self.value().len() || value.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (place, byte) in self.value().iter().zip(value.as_bytes().iter().chain([&0])) {
            place.store(*byte, Ordering::Relaxed);
        }
        if self.is_there() {
            return Ok(());
        }
        let name = self.name.to_bytes().iter().chain(b"=");
        for (place, byte) in self.text.iter().zip(name) {
            place.store(*byte, Ordering::Relaxed);
        }
        // SAFETY: the text ends with a zero, since its last byte is always zero, and it is there for ever. It may change,
        // as its bytes are atomics.
        match unsafe { putenv(self.text.as_ptr().cast::<c_char>().cast_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the environment has this memory. A routine may have set or removed the variable.
    fn is_there(&self) -> bool {
        // SAFETY: the name is a C string. As C has it for every reader, a thread that a routine has left must not add variables
        // now; a routine that does so breaks its own process only.
        let found = unsafe { getenv(self.name.as_ptr()) };
        std::ptr::eq(found.cast_const().cast(), self.value().as_ptr())
    }
}

/// Shows the context of a call to its routine. The default takes the former one away; before any library is opened it
/// makes the variables, as nobody reads them then.
///
/// # Errors
/// The environment has no memory.
pub fn show_context(context: &CallContext) -> io::Result<()> {
    DEADLINE_VARIABLE.set(&context.deadline_ns.map_or_else(String::new, |ns| ns.to_string()))?;
    TRACE_VARIABLE.set(&context.trace.map_or_else(String::new, |trace| trace.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_its_last_value() {
        static VARIABLE: Variable = Variable::new(c"KUMI_TEST_OF_CONTEXT");
        let shown = || std::env::var("KUMI_TEST_OF_CONTEXT").ok();
        assert_eq!(shown(), None);
        VARIABLE.set("a longer value").expect("memory");
        assert_eq!(shown().as_deref(), Some("a longer value"));
        VARIABLE.set("short").expect("memory");
        assert_eq!(shown().as_deref(), Some("short"));
        VARIABLE.set("").expect("memory");
        assert_eq!(shown().as_deref(), Some(""));
        VARIABLE.set(&"x".repeat(ROOM)).expect_err("it is too long");
        assert_eq!(shown().as_deref(), Some(""));
        // The children of a process get it.
        VARIABLE.set("inherited").expect("memory");
        let command = std::process::Command::new("printenv").arg("KUMI_TEST_OF_CONTEXT").output();
        assert_eq!(command.expect("printenv").stdout, b"inherited\n");
    }
}
