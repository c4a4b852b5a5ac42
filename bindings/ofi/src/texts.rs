//! Texts for the program: of errors, and copies into its buffers.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use crate::abi;

/// Writes as much of a text as there is room for, with a zero at the end. Gives the bytes that all of it needs.
///
/// # Safety
/// `out` is NULL or has `room` bytes.
pub unsafe fn give(text: &str, out: *mut c_char, room: usize) -> usize {
    if !out.is_null() && room > 0 {
        let written = text.len().min(room - 1);
        // SAFETY: so many bytes and the zero fit.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), written);
            out.add(written).write(0);
        }
    }
    text.len() + 1
}

/// What an error means.
fn meaning(error: c_int) -> String {
    let own = match u32::try_from(error.abs()).unwrap_or(0) {
        abi::FI_EOTHER => "an error inside of the provider; standard error says which",
        abi::FI_ETOOSMALL => "the buffer is too small",
        abi::FI_EOPBADSTATE => "not in this state of the object",
        abi::FI_EAVAIL => "an error waits to be read",
        abi::FI_EBADFLAGS => "flags that the provider does not know",
        abi::FI_ENOEQ => "no event queue is bound",
        abi::FI_ENOCQ => "no completion queue or counter is bound",
        abi::FI_ETRUNC => "the message is longer than its receive; give a larger buffer",
        abi::FI_ENOKEY => "the key names no memory that may be used so",
        abi::FI_ENOAV => "no address vector is bound",
        abi::FI_EOVERRUN => "a queue ran over",
        abi::FI_ENORX => "the receiver has no room",
        _ => return std::io::Error::from_raw_os_error(error.abs()).to_string(),
    };
    own.to_owned()
}

thread_local! {
    static LATEST: RefCell<CString> = RefCell::default();
}

/// `fi_cq_strerror` and `fi_eq_strerror`: the text, also in `out`. The result holds until this thread's next call.
///
/// # Safety
/// `out` is NULL or has `room` bytes.
pub unsafe fn of_error(error: c_int, out: *mut c_char, room: usize) -> *const c_char {
    let text = meaning(error);
    // SAFETY: as promised.
    unsafe { give(&text, out, room) };
    LATEST.with_borrow_mut(|latest| {
        *latest = CString::new(text).unwrap_or_default();
        latest.as_ptr()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_its_room() {
        let mut out = [1_i8 as c_char; 4];
        // SAFETY: `out` has four bytes.
        assert_eq!(unsafe { give("abcdef", out.as_mut_ptr(), 4) }, 7);
        assert_eq!(out, [b'a' as c_char, b'b' as c_char, b'c' as c_char, 0]);
        // SAFETY: NULL.
        assert_eq!(unsafe { give("ab", std::ptr::null_mut(), 9) }, 3);
    }

    #[test]
    fn errors_of_libfabric_and_of_the_system_have_texts() {
        assert!(meaning(265).contains("longer than its receive"));
        assert!(meaning(-22).contains("nvalid"));
    }
}
