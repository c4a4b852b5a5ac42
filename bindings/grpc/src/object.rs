//! Object handles: an object of a class at a server.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use kumi_call_client::{CallError, KnownRoutine, Object};

use crate::attribute::{GrpcHandleAttributes, GrpcSessionAttributes, place};
use crate::code::{Code, Failure, guard};
use crate::handle::{Handle, HandleRequest, first, numbers, wanted, write_numbers};
use crate::runtime::{Connection, Runtime, current, lock};

/// `grpc_object_handle_t_np`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcObjectHandle {
    /// Its number in the table of objects; the upper half marks object handles.
    number: u64,
}

/// The upper half of the numbers of object handles.
pub const OBJECTS: u64 = 0x6b75_6d6f << 32;

/// An object at a server. It ends with this handle and the last session on it.
pub struct ObjectHandle {
    /// Its class and address, which sessions keep after its end.
    pub handle: Arc<Handle>,
    /// The object itself.
    pub object: Object,
    /// The connection that created it: its own, or one to a metaserver. The object survives the loss of the latter.
    pub connection: Connection,
}

fn invalid() -> Failure {
    let text = "this is no object handle, or it was destructed";
    Failure::new(Code::InvalidFunctionHandle, text)
}

/// The object at an address of the program.
///
/// # Safety
/// `handle` is null or can be read.
pub unsafe fn object_at(
    runtime: &Runtime,
    handle: *const GrpcObjectHandle,
) -> Result<Arc<ObjectHandle>, Failure> {
    // SAFETY: null or readable, as the caller promises.
    let number = unsafe { handle.as_ref() }.ok_or_else(invalid)?.number;
    lock(&runtime.objects).get(number).ok_or_else(invalid)
}

impl ObjectHandle {
    /// Makes an object at the first server that can; `place` is the handle's address in the program.
    fn make(
        runtime: &Runtime,
        wanted: &HandleRequest,
        place: usize,
    ) -> Result<ObjectHandle, Failure> {
        let time = wanted.timeout.or(runtime.config.timeout);
        let (address, (connection, object)) = first(runtime, wanted, |address| {
            runtime.ask(address, |client| {
                let asking = wanted.resources.map(|asked| client.with_resources(asked));
                let client = asking.as_ref().unwrap_or(client);
                client.object_within(&wanted.routine, time, &|| false)
            })
        })?;
        let handle = Arc::new(wanted.handle(runtime, &address, true, place));
        Ok(ObjectHandle { handle, object, connection })
    }

    /// A method's description.
    ///
    /// # Errors
    /// Its class has no such method, or the object has certainly ended.
    pub fn method(&self, runtime: &Runtime, method: &str) -> Result<Arc<KnownRoutine>, Failure> {
        // A known end means that nothing is sent, so the call has certainly not run.
        if self.object.is_lost() {
            return Err(self.lost(runtime));
        }
        let known = self.object.interface(method).map_err(|error| match error {
            CallError::Lost(_) => self.lost(runtime),
            error => error.into(),
        })?;
        // A name with points may belong to a method of another class.
        if known.class != self.object.class() {
            let (name, class) = (&known.name, self.object.class());
            let text = format!("`{name}` is no method of `{class}`, of which the object is");
            return Err(Failure::argument(text));
        }
        Ok(known)
    }

    fn lost(&self, runtime: &Runtime) -> Failure {
        let Handle { address, routine, .. } = &*self.handle;
        if self.connection.client.is_lost() {
            runtime.lost(address, &self.connection);
        }
        let text = format!(
            "this object of `{routine}`, made at {address}, is no more: a call of it crashed, was cancelled or was too late while it ran, or \
             the connection is lost: make another"
        );
        Failure::new(Code::ObjectLost, text)
    }
}

/// Makes objects at `count` places: all of them, or none.
///
/// # Safety
/// `handles` is null or can be written.
unsafe fn create(
    handles: *mut GrpcObjectHandle,
    count: usize,
    wanted: &HandleRequest,
) -> Result<Code, Failure> {
    let runtime = current()?;
    if handles.is_null() {
        return Err(invalid());
    }
    // If one cannot be made, the others end.
    let made = (0..count).map(|index| {
        let place = handles.wrapping_add(index).expose_provenance();
        ObjectHandle::make(&runtime, wanted, place)
    });
    let made: Vec<ObjectHandle> = made.collect::<Result<_, Failure>>()?;
    let numbers = lock(&runtime.objects).add(made)?;
    // SAFETY: `count` handles can be written, as the caller promises; one is a number.
    unsafe { write_numbers(handles.cast(), &numbers) };
    Ok(Code::NoError)
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_default_np(
    handle: *mut GrpcObjectHandle,
    class: *const c_char,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_object_handle_array_default_np(handle, 1, class) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_init_np(
    handle: *mut GrpcObjectHandle,
    server: *const c_char,
    class: *const c_char,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_object_handle_array_init_np(handle, 1, server, class) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_init_with_attr_np(
    handle: *mut GrpcObjectHandle,
    attributes: *const GrpcHandleAttributes,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_object_handle_array_init_with_attr_np(handle, 1, attributes) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_destruct_np(handle: *mut GrpcObjectHandle) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_object_handle_array_destruct_np(handle, 1) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_array_default_np(
    handles: *mut GrpcObjectHandle,
    count: usize,
    class: *const c_char,
) -> c_int {
    // SAFETY: the same promises; without a server the first that has the class is used.
    unsafe { grpc_object_handle_array_init_np(handles, count, std::ptr::null(), class) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_array_init_np(
    handles: *mut GrpcObjectHandle,
    count: usize,
    server: *const c_char,
    class: *const c_char,
) -> c_int {
    guard(|| {
        current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { create(handles, count, &wanted(server, class, "the class' name")?) }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_array_init_with_attr_np(
    handles: *mut GrpcObjectHandle,
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
pub unsafe extern "C" fn grpc_object_handle_array_destruct_np(
    handles: *mut GrpcObjectHandle,
    count: usize,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or `count` handles, as `grpc.h` asks of the caller; one is a number.
        let numbers = unsafe { numbers(handles.cast(), count) }.ok_or_else(invalid)?;
        // Dropped without the lock, because their servers are notified.
        let gone = lock(&runtime.objects).remove(&numbers);
        gone.ok_or_else(invalid)?;
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_is_ready_np(handle: *const GrpcObjectHandle) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let made = unsafe { object_at(&runtime, handle) }?;
        Ok(if made.object.is_lost() { Code::ObjectLost } else { Code::NoError })
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_get_attr_np(
    handle: *const GrpcObjectHandle,
    attributes: *mut GrpcHandleAttributes,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(attributes, "the attributes") }?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let made = unsafe { object_at(&runtime, handle) }?;
        place.write(GrpcHandleAttributes::of(&made.handle));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_initialize_with_object_handle_np(
    handle: *const GrpcObjectHandle,
    attributes: *mut GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(attributes, "the attributes") }?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let made = unsafe { object_at(&runtime, handle) }?;
        place.write(GrpcSessionAttributes::of(&made.handle));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_get_from_session_np(
    place: *mut *mut GrpcObjectHandle,
    session: c_int,
) -> c_int {
    guard(|| {
        let session = current()?.sessions.any(session)?;
        if place.is_null() {
            return Err(Failure::null("the place for the handle"));
        }
        if !session.handle.is_object {
            let text = "it is no call on an object: ask grpc_get_handle";
            return Err(Failure::new(Code::InvalidSessionId, text));
        }
        let handle = std::ptr::with_exposed_provenance_mut(session.handle.place);
        // SAFETY: not null, and writable as `grpc.h` asks.
        unsafe { place.write(handle) };
        Ok(Code::NoError)
    })
}
