//! The functions that this library's stand before.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is needed first.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: a name that ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A C library has all of them, so this program has none that can be found: it is linked statically.
            let text = b"kumi: the C library's own functions are not found; link the program dynamically\n";
            // SAFETY: a plain system call on a text of that length.
            unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// The next function of a name, with its type.
macro_rules! next {
    ($name:literal: $type:ty) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::new($name);
        // SAFETY: the C library declares a function of this name with this type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(NEXT.address()) }
    }};
}
pub(crate) use next;

/// The C library declares these two in the same way as the first on 64-bit machines.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("pread64 and pwrite64 need offsets of their own here");
