//! Function handles: a routine at a server.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use kumi_idl::Order;

use crate::argument::text;
use crate::attribute::GrpcHandleAttributes;
use crate::code::{Code, Failure, guard};
use crate::runtime::{Runtime, current, lock};

/// `grpc_function_handle_t`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcFunctionHandle {
    /// In the table of handles; its upper half says that it is one.
    number: u64,
}

/// What stands for a handle's number in C; memory that was never initialised hardly looks like this.
const MARK: u64 = 0x6b75_6d69 << 32;

/// A routine at a server.
#[derive(Debug)]
pub struct Handle {
    /// The server.
    pub address: String,
    /// The routine.
    pub routine: String,
    /// How the caller's arrays lie; `None`: as the routine has them.
    pub order: Option<Order>,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// Where the program has it, for `grpc_get_handle`; nothing is read or written there.
    pub place: usize,
}

/// Handles by number.
#[derive(Default)]
pub struct Handles {
    next: u32,
    handles: HashMap<u64, Arc<Handle>>,
}

impl Handles {
    fn add(&mut self, handle: Handle) -> Result<u64, Failure> {
        let full = || Failure::new(Code::OtherErrorCode, "there are too many function handles");
        self.next = self.next.checked_add(1).ok_or_else(full)?;
        let number = MARK | u64::from(self.next);
        self.handles.insert(number, Arc::new(handle));
        Ok(number)
    }
}

/// The handle at a place of the program.
///
/// # Safety
/// `handle` is null or can be read.
pub unsafe fn handle_at(
    runtime: &Runtime,
    handle: *const GrpcFunctionHandle,
) -> Result<Arc<Handle>, Failure> {
    let invalid = || Failure::from(Code::InvalidFunctionHandle);
    // SAFETY: null or readable, as the caller promises.
    let number = unsafe { handle.as_ref() }.ok_or_else(invalid)?.number;
    lock(&runtime.handles).handles.get(&number).cloned().ok_or_else(invalid)
}

/// What a new handle should be.
pub struct Wanted {
    /// The server; `None`: the first that has the routine.
    pub address: Option<String>,
    /// The routine.
    pub routine: String,
    /// How the caller's arrays lie.
    pub order: Option<Order>,
    /// How long a call may take; `None`: as the configuration says.
    pub timeout: Option<Duration>,
}

/// The first server that has the routine.
fn find(runtime: &Runtime, wanted: &Wanted) -> Result<String, Failure> {
    let mut failure: Option<Failure> = None;
    let named = wanted.address.as_slice();
    let servers = if named.is_empty() { runtime.config.servers.as_slice() } else { named };
    for address in servers {
        match runtime.known(address, &wanted.routine) {
            Ok(_) => return Ok(address.clone()),
            // That a server lacks it says more than that another cannot be reached.
            Err(new) => {
                let kept = failure.as_ref().map(|failure| failure.code);
                if kept.is_none_or(|code| code == Code::ServerNotFound) {
                    failure = Some(new);
                }
            }
        }
    }
    Err(failure.unwrap_or_else(|| Code::ServerNotFound.into()))
}

/// Makes handles at `count` places.
///
/// # Safety
/// `handles` is null or can be written.
pub unsafe fn create(
    handles: *mut GrpcFunctionHandle,
    count: usize,
    wanted: &Wanted,
) -> Result<Code, Failure> {
    let runtime = current()?;
    if handles.is_null() {
        return Err(Code::InvalidFunctionHandle.into());
    }
    let address = find(&runtime, wanted)?;
    for index in 0..count {
        let place = handles.wrapping_add(index);
        let number = lock(&runtime.handles).add(Handle {
            address: address.clone(),
            routine: wanted.routine.clone(),
            order: wanted.order,
            timeout: wanted.timeout.or(runtime.config.timeout),
            place: place.expose_provenance(),
        })?;
        // SAFETY: one of `count` handles that can be written, as the caller promises.
        unsafe { place.write(GrpcFunctionHandle { number }) };
    }
    Ok(Code::NoError)
}

/// What a handle of these names should be.
///
/// # Safety
/// The names are null or texts of C.
unsafe fn wanted(server: *const c_char, routine: *const c_char) -> Result<Wanted, Failure> {
    // SAFETY: as the caller promises.
    let routine = unsafe { text(routine, "the routine's name") }?.to_owned();
    let address = if server.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { text(server, "the server's name") }?.to_owned())
    };
    Ok(Wanted { address, routine, order: None, timeout: None })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_default(
    handle: *mut GrpcFunctionHandle,
    routine: *const c_char,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_function_handle_array_default_np(handle, 1, routine) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_init(
    handle: *mut GrpcFunctionHandle,
    server: *const c_char,
    routine: *const c_char,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_function_handle_array_init_np(handle, 1, server, routine) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_destruct(handle: *mut GrpcFunctionHandle) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_function_handle_array_destruct_np(handle, 1) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_array_default_np(
    handles: *mut GrpcFunctionHandle,
    count: usize,
    routine: *const c_char,
) -> c_int {
    guard(|| {
        current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { create(handles, count, &wanted(std::ptr::null(), routine)?) }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_array_init_np(
    handles: *mut GrpcFunctionHandle,
    count: usize,
    server: *const c_char,
    routine: *const c_char,
) -> c_int {
    guard(|| {
        current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { create(handles, count, &wanted(server, routine)?) }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_array_destruct_np(
    handles: *mut GrpcFunctionHandle,
    count: usize,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        let mut table = lock(&runtime.handles);
        for index in 0..count {
            let place = handles.wrapping_add(index);
            // SAFETY: null or one of `count` handles, as `grpc.h` asks of the caller.
            let number = unsafe { place.as_ref() }.map(|handle| handle.number);
            let gone = number.and_then(|number| table.handles.remove(&number));
            gone.ok_or_else(|| Failure::from(Code::InvalidFunctionHandle))?;
        }
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_get_handle(
    place: *mut *mut GrpcFunctionHandle,
    session: c_int,
) -> c_int {
    guard(|| {
        let session = current()?.sessions.any(session)?;
        if place.is_null() {
            return Err(Failure::null("the place for the handle"));
        }
        let handle = std::ptr::with_exposed_provenance_mut(session.handle.place);
        // SAFETY: not null, and writable as `grpc.h` asks.
        unsafe { place.write(handle) };
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_array_init_with_attr_np(
    handles: *mut GrpcFunctionHandle,
    count: usize,
    attributes: *const GrpcHandleAttributes,
) -> c_int {
    guard(|| {
        current()?;
        // SAFETY: null or readable as `grpc.h` asks.
        let attributes =
            unsafe { attributes.as_ref() }.ok_or_else(|| Failure::null("the attributes"))?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { create(handles, count, &attributes.wanted()?) }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_init_with_attr_np(
    handle: *mut GrpcFunctionHandle,
    attributes: *const GrpcHandleAttributes,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_function_handle_array_init_with_attr_np(handle, 1, attributes) }
}
