//! `libpmix`, loaded at run time.

use std::ffi::CStr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::ffi;

/// Where the library is looked for; the first name is by the loader's own search.
const NAMES: [&str; 2] = ["libpmix.so.2", "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"];

/// Names the library, for one that is elsewhere.
pub const VARIABLE: &str = "KUMI_LIBPMIX";

/// The functions that a server uses.
pub struct Pmix {
    pub init: Symbol<ffi::InitFn>,
    pub register_nspace: Symbol<ffi::RegisterNspaceFn>,
    pub register_client: Symbol<ffi::RegisterClientFn>,
    pub setup_fork: Symbol<ffi::SetupForkFn>,
    pub dmodex_request: Symbol<ffi::DmodexRequestFn>,
    pub generate_regex: Symbol<ffi::GenerateFn>,
    pub generate_ppn: Symbol<ffi::GenerateFn>,
    error_string: Symbol<ffi::ErrorStringFn>,
}

/// Loads it.
///
/// # Errors
/// The loader's reasons.
pub fn load() -> Result<Pmix, String> {
    let named = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    let names = match &named {
        Some(name) => vec![name.as_str()],
        None => NAMES.to_vec(),
    };
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: the library's constructors are those of PMIx, which may run at any time; there is one thread yet.
        match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return symbols(library).map_err(|error| error.to_string()),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

fn symbols(library: Library) -> Result<Pmix, libloading::Error> {
    // Its threads run until the process ends.
    let library = Box::leak(Box::new(library));
    // SAFETY: the types are those of `pmix_server.h`, and the library stays loaded.
    unsafe {
        Ok(Pmix {
            init: library.get(b"PMIx_server_init\0")?,
            register_nspace: library.get(b"PMIx_server_register_nspace\0")?,
            register_client: library.get(b"PMIx_server_register_client\0")?,
            setup_fork: library.get(b"PMIx_server_setup_fork\0")?,
            dmodex_request: library.get(b"PMIx_server_dmodex_request\0")?,
            generate_regex: library.get(b"PMIx_generate_regex\0")?,
            generate_ppn: library.get(b"PMIx_generate_ppn\0")?,
            error_string: library.get(b"PMIx_Error_string\0")?,
        })
    }
}

impl Pmix {
    /// What a status means.
    pub fn error(&self, status: ffi::Status) -> String {
        // SAFETY: the library returns a text that lives as long as it does, or none.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: it ends with a zero and nobody changes it.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}
