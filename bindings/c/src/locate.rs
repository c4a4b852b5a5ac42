//! The call of `kumi.h` in which a thread waits, found on its stack, for reports on programs that wait.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use kumi_mem::CallName;

/// Frames that are looked at.
const FRAMES: usize = 64;

/// What the system's loader knows of an address.
struct Place {
    /// Where the object with it begins.
    object: usize,
    /// The exported function with it.
    symbol: Option<&'static str>,
}

fn place(address: *const c_void) -> Option<Place> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; it writes the structure or says that it has not.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: zeroes are a value, and the call has filled it in.
    let info = unsafe { info.assume_init() };
    let name = info.dli_sname;
    // SAFETY: a name that ends with 0, in an object that is on this thread's stack and so stays loaded.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    let symbol = name.and_then(|name| name.to_str().ok());
    Some(Place { object: info.dli_fbase.addr(), symbol })
}

/// The function of this library that the program has called, and where the program goes on after it.
pub fn locate() -> Option<(CallName, u64)> {
    let own = place(locate as *const c_void)?.object;
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: it writes at most so many addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    let frames = frames.get(..usize::try_from(count).ok()?)?;
    let mut call = None;
    for frame in frames {
        match place(*frame) {
            Some(Place { object, symbol }) if object == own => {
                call = symbol.filter(|name| name.starts_with("kumi_")).or(call);
            }
            // The first that is not of this library.
            _ => return call.map(|name| (CallName::new(name), frame.addr() as u64)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_known_by_their_object() {
        let here = place(locate as *const c_void).expect("a place");
        let there = place(libc::getpid as *const c_void).expect("a place");
        assert_ne!(here.object, there.object);
        assert!(there.symbol.is_some_and(|name| name.contains("getpid")), "{:?}", there.symbol);
        assert!(place(std::ptr::null()).is_none());
    }

    #[test]
    fn a_thread_in_no_call_has_none() {
        assert_eq!(locate(), None);
    }
}
