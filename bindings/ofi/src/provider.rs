//! The entry of the library, and what it tells the core of itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{self, fi_provider};
use crate::{errors, fabric, getinfo};

/// Name by which programs ask for the provider.
pub const NAME: &CStr = c"kumi";
/// Version of the provider.
pub const VERSION: u32 = abi::version(0, 1);
/// What is told to a core that does not tell its own version.
const OLDEST: u32 = abi::version(1, abi::FI_MINOR_VERSION as u32);

static PROVIDER: AtomicPtr<fi_provider> = AtomicPtr::new(std::ptr::null_mut());

/// Called by libfabric when it has loaded the library. The core writes into what it gets.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let known = PROVIDER.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    errors::tell_panics_in_one_line();
    let provider = Box::into_raw(Box::new(fi_provider {
        version: VERSION,
        fi_version: core_version(),
        context: abi::fi_context::default(),
        name: NAME.as_ptr(),
        getinfo: Some(getinfo::getinfo),
        fabric: Some(fabric::open),
        cleanup: Some(cleanup),
    }));
    match PROVIDER.compare_exchange(
        std::ptr::null_mut(),
        provider,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => provider,
        Err(other) => {
            // SAFETY: `Box::into_raw` gave it above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(provider) });
            other
        }
    }
}

/// The core unloads nothing that we would have to end before: the process's engine ends with the process.
unsafe extern "C" fn cleanup() {
    crate::engine::Engine::release_unused();
}

/// A core refuses providers that were made for less than its own version.
fn core_version() -> u32 {
    // SAFETY: the name is a string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fi_version".as_ptr()) };
    if symbol.is_null() {
        return OLDEST;
    }
    // SAFETY: `fi_version` is libfabric's and has had this type since its first version.
    let fi_version =
        unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> u32>(symbol) };
    // SAFETY: it takes nothing and reads a constant.
    unsafe { fi_version() }.max(OLDEST)
}
