//! Function handles: a routine at a server.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumi_call_client::{CallOutput, Resources};
use kumi_idl::Order;

use crate::argument::text;
use crate::attribute::GrpcHandleAttributes;
use crate::code::{Code, Failure, guard};
use crate::runtime::{Runtime, current, lock};

/// `grpc_function_handle_t`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcFunctionHandle {
    /// Its number in the table of handles; the upper half marks function handles.
    number: u64,
}

/// Upper half of the numbers of function handles; uninitialised memory hardly contains it.
pub const FUNCTIONS: u64 = 0x6b75_6d69 << 32;

/// A routine at a server, or the class of an object there.
#[derive(Debug)]
pub struct Handle {
    /// The server.
    pub address: String,
    /// The routine or class.
    pub routine: String,
    /// Whether this is the handle of an object.
    pub is_object: bool,
    /// Memory order of the caller's arrays; `None`: the routine's.
    pub order: Option<Order>,
    /// Time limit of a call.
    pub timeout: Option<Duration>,
    /// Threads and memory for which calls ask, or for which the object asked.
    pub resources: Option<Resources>,
    /// Where what the routine prints goes, for calls that begin from now on.
    pub output: Mutex<Option<CallOutput>>,
    /// The handle's address in the program, for queries about sessions; the library never reads or writes there.
    pub place: usize,
}

/// Handles of one kind by number.
pub struct Table<T> {
    /// Upper half of their numbers, which differs between kinds.
    mark: u64,
    next: u32,
    handles: HashMap<u64, Arc<T>>,
}

impl<T> Table<T> {
    /// An empty table.
    pub fn new(mark: u64) -> Table<T> {
        Table { mark, next: 0, handles: HashMap::new() }
    }

    /// Adds all of them, or none. Returns their numbers.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, made: Vec<T>) -> Result<Vec<u64>, Failure> {
        let last = u32::try_from(made.len()).ok().and_then(|count| self.next.checked_add(count));
        let Some(last) = last else {
            return Err(Failure::new(Code::OtherErrorCode, "there are too many handles"));
        };
        let numbers: Vec<u64> =
            (self.next..last).map(|before| self.mark | (u64::from(before) + 1)).collect();
        self.next = last;
        self.handles.extend(numbers.iter().copied().zip(made.into_iter().map(Arc::new)));
        Ok(numbers)
    }

    /// Looks up a handle.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.handles.get(&number).cloned()
    }

    /// Removes all of these; none if one is missing or named twice.
    pub fn remove(&mut self, numbers: &[u64]) -> Option<Vec<Arc<T>>> {
        let different: HashSet<&u64> = numbers.iter().collect();
        let there = numbers.iter().all(|number| self.handles.contains_key(number));
        if !there || different.len() < numbers.len() {
            return None;
        }
        Some(numbers.iter().filter_map(|number| self.handles.remove(number)).collect())
    }
}

/// The numbers in the program's array of handles.
///
/// # Safety
/// `handles` is null or readable for `count` handles.
pub unsafe fn numbers(handles: *const u64, count: usize) -> Option<Vec<u64>> {
    if handles.is_null() {
        return None;
    }
    // SAFETY: not null; the rest is promised by the caller.
    Some((0..count).map(|index| unsafe { handles.add(index).read() }).collect())
}

/// Writes numbers to the program's array of handles.
///
/// # Safety
/// `handles` is writable for all numbers.
pub unsafe fn write_numbers(handles: *mut u64, numbers: &[u64]) {
    for (index, number) in numbers.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { handles.add(index).write(*number) };
    }
}

/// The handle at an address of the program.
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
    lock(&runtime.handles).get(number).ok_or_else(invalid)
}

/// Settings of a new handle.
pub struct HandleRequest {
    /// The server; `None`: the first that has the routine.
    pub address: Option<String>,
    /// The routine, or the class of an object.
    pub routine: String,
    /// Memory order of the caller's arrays.
    pub order: Option<Order>,
    /// Time limit of a call; `None`: that of the configuration.
    pub timeout: Option<Duration>,
    /// Threads and memory for which calls ask, or for which the object asks.
    pub resources: Option<Resources>,
}

impl HandleRequest {
    /// The handle for an address of the program.
    pub fn handle(
        &self,
        runtime: &Runtime,
        address: &str,
        is_object: bool,
        place: usize,
    ) -> Handle {
        Handle {
            address: address.to_owned(),
            routine: self.routine.clone(),
            is_object,
            order: self.order,
            timeout: self.timeout.or(runtime.config.timeout),
            resources: self.resources,
            output: Mutex::default(),
            place,
        }
    }
}

/// The answer of the first server that has the routine, and its address.
///
/// # Errors
/// No server has it.
pub fn first<T>(
    runtime: &Runtime,
    wanted: &HandleRequest,
    ask: impl Fn(&str) -> Result<T, Failure>,
) -> Result<(String, T), Failure> {
    let mut failure: Option<Failure> = None;
    let named = wanted.address.as_slice();
    let servers = if named.is_empty() { runtime.config.servers.as_slice() } else { named };
    for address in servers {
        match ask(address) {
            Ok(found) => return Ok((address.clone(), found)),
            // "No such routine" tells the user more than "cannot be reached".
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
    wanted: &HandleRequest,
) -> Result<Code, Failure> {
    let runtime = current()?;
    if handles.is_null() {
        return Err(Code::InvalidFunctionHandle.into());
    }
    let (address, _) = first(&runtime, wanted, |address| runtime.known(address, &wanted.routine))?;
    let made = (0..count).map(|index| {
        let place = handles.wrapping_add(index).expose_provenance();
        wanted.handle(&runtime, &address, false, place)
    });
    let numbers = lock(&runtime.handles).add(made.collect())?;
    // SAFETY: `count` handles can be written, as the caller promises; one is a number.
    unsafe { write_numbers(handles.cast(), &numbers) };
    Ok(Code::NoError)
}

/// Settings of a handle with these names.
///
/// # Safety
/// The names are null or C strings.
pub unsafe fn wanted(
    server: *const c_char,
    routine: *const c_char,
    what: &str,
) -> Result<HandleRequest, Failure> {
    // SAFETY: as the caller promises.
    let routine = unsafe { text(routine, what) }?.to_owned();
    let address = if server.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { text(server, "the server's name") }?.to_owned())
    };
    Ok(HandleRequest { address, routine, order: None, timeout: None, resources: None })
}

/// Name of the missing argument if a name is NULL.
const NAME: &str = "the routine's name";

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
        unsafe { create(handles, count, &wanted(std::ptr::null(), routine, NAME)?) }
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
        unsafe { create(handles, count, &wanted(server, routine, NAME)?) }
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
        // SAFETY: null or `count` handles, as `grpc.h` asks of the caller; one is a number.
        let numbers = unsafe { numbers(handles.cast(), count) };
        let gone = numbers.and_then(|numbers| lock(&runtime.handles).remove(&numbers));
        gone.ok_or_else(|| Failure::from(Code::InvalidFunctionHandle))?;
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
        if session.handle.is_object {
            let text = "it is a call on an object: ask grpc_object_handle_get_from_session_np";
            return Err(Failure::new(Code::InvalidSessionId, text));
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
