//! The entry of the library, and what it tells the core of itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{self, fi_provider};
use crate::{errors, fabric, getinfo};

/// Name by which programs ask for the provider.
pub const NAME: &CStr = c"kumi";
/// Version of the provider.
pub const VERSION: u32 = abi::version(0, 1);
/// The interface that the core is told. It asks providers only for what programs were written for, if the provider knows that version. All
/// versions of the second have what the headers of 1.17 declare, and more behind it.
const NEWEST: u32 = abi::version(2, 99);

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
        fi_version: NEWEST,
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
