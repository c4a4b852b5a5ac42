//! Arrays that a server holds: results that stay there, as arguments of later calls.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumi_call_client::{Arg, Array, CallError, Client, LentBytesMut, Remote, RemoteArray, Shape};
use kumi_idl::{Argument, ArgumentForm, Element, Order};
use kumi_rpc::HeldArrayName;

use crate::attribute::place;
use crate::code::{Code, Failure, guard};
use crate::runtime::{Connection, Runtime, current, lock};

/// The server may have a lower limit.
const LIFETIME: Duration = Duration::MAX;

/// `grpc_held_array_t_np`: stands for an array at a server, once it has one.
#[derive(Debug, Default)]
pub struct GrpcHeldArray {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stored: Option<Arc<StoredArray>>,
    /// A call that is not over makes the next array.
    is_claimed: bool,
}

/// An array at a server, which drops it with the last reference.
pub struct StoredArray {
    client: Client,
    name: HeldArrayName,
    /// Its length.
    bytes: u64,
    /// As the routine had it that made it.
    element: Element,
    order: Order,
    /// Whether more than one of its dimensions is larger than 1, so that the order matters.
    has_order: bool,
    /// The number of its connection.
    connection: u64,
}

impl std::fmt::Debug for StoredArray {
    /// Without the name, which is the permission to read it.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StoredArray").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for StoredArray {
    fn drop(&mut self) {
        // With its connection the array goes by itself.
        let _lost: Result<(), CallError> = self.client.let_go(&[self.name]);
    }
}

/// A result of a call that is to stay. Dropped without [`ClaimedResult::settle`], the call has failed: what was held before
/// stays.
#[derive(Debug)]
pub struct ClaimedResult {
    array: Arc<GrpcHeldArray>,
    stored: Option<Arc<StoredArray>>,
}

impl ClaimedResult {
    /// The call has made the array: it replaces the one that was held before.
    pub fn settle(mut self) {
        let stored = self.stored.take();
        let before = std::mem::replace(&mut lock(&self.array.state).stored, stored);
        // Without the lock: this sends.
        drop(before);
    }
}

impl Drop for ClaimedResult {
    fn drop(&mut self) {
        lock(&self.array.state).is_claimed = false;
    }
}

/// An argument that the server of a call holds, or a result that stays there.
pub struct HeldArgument {
    /// The argument.
    pub arg: Arg<'static>,
    /// The array that is read; the server has to hold it until the call has begun.
    pub read: Option<Arc<StoredArray>>,
    /// The result that stays.
    pub made: Option<ClaimedResult>,
}

fn lost(why: &str) -> Failure {
    let text = format!("the array is not at the server any more: {why}; call again what makes it");
    Failure::new(Code::HeldLost, text)
}

impl StoredArray {
    /// Whether a call over this connection can have it as this argument.
    ///
    /// # Errors
    /// It cannot.
    fn check(&self, connection: &Connection, argument: &Argument) -> Result<(), Failure> {
        if self.client.is_lost() {
            return Err(lost("its connection was lost"));
        }
        if self.connection != connection.number {
            let text = "is an array at the server of another connection: fetch it, or call there";
            return Err(Failure::argument(text));
        }
        let (element, order) = form(argument)?;
        if element != self.element {
            let text = format!("has elements of {}, the routine wants {element}", self.element);
            return Err(Failure::argument(text));
        }
        if self.bytes != argument.bytes {
            let text = format!("has {} bytes, the routine wants {}", self.bytes, argument.bytes);
            return Err(Failure::argument(text));
        }
        if self.has_order && order != self.order {
            let text = "is in another memory order than the routine wants: fetch it";
            return Err(Failure::argument(text));
        }
        Ok(())
    }

    fn argument(&self) -> RemoteArray<'static> {
        if self.bytes > 0 {
            return RemoteArray::held(self.name, self.bytes, "");
        }
        // An array without elements has no parts.
        let shape = Shape { element: self.element, dims: None, order: self.order };
        RemoteArray { from: Some(Array::bytes(&[], shape)), ..RemoteArray::default() }
    }
}

/// Type and memory order of an array.
fn form(argument: &Argument) -> Result<(Element, Order), Failure> {
    match argument.form {
        ArgumentForm::Array(element, order) => Ok((element, order)),
        _ => Err(Failure::argument("is no array")),
    }
}

/// Whether the memory order of an argument matters.
fn has_order(argument: &Argument) -> bool {
    argument.axes.iter().filter(|axis| axis.size > 1).count() > 1
}

impl GrpcHeldArray {
    /// The array as an argument of a call over this connection.
    ///
    /// # Errors
    /// The array, or the connection, does not fit.
    pub fn argument(
        self: &Arc<Self>,
        runtime: &Runtime,
        connection: &Connection,
        argument: &Argument,
    ) -> Result<HeldArgument, Failure> {
        let Remote::Server(client) = &connection.client else {
            let text = "is an array at a server, and a metaserver chooses the server of each call: use a handle of one server";
            return Err(Failure::argument(text));
        };
        let whole = |travels: u64| travels == argument.bytes;
        let mode = argument.mode;
        if !(mode.is_sent() && whole(argument.sent)
            || mode.is_returned() && whole(argument.returned))
        {
            let text = "travels in pieces, so it cannot be an array at the server";
            return Err(Failure::argument(text));
        }
        let read = mode.is_sent().then(|| self.stored()).transpose()?;
        if let Some(stored) = &read {
            stored.check(connection, argument)?;
        }
        let mut remote = read.as_ref().map_or_else(RemoteArray::default, |read| read.argument());
        let mut made = None;
        if mode.is_returned() {
            let (element, order) = form(argument)?;
            let name = runtime.held_name()?;
            let stored = StoredArray {
                client: client.clone(),
                name,
                bytes: argument.bytes,
                element,
                order,
                has_order: has_order(argument),
                connection: connection.number,
            };
            made = Some(self.claim(stored)?);
            remote.keep = RemoteArray::stays(name, LIFETIME).keep;
        }
        Ok(HeldArgument { arg: Arg::Remote(Box::new(remote)), read, made })
    }

    /// What it holds.
    fn stored(&self) -> Result<Arc<StoredArray>, Failure> {
        let state = lock(&self.state);
        state.stored.clone().ok_or_else(|| {
            Failure::argument(match state.is_claimed {
                true => "is the result of a call whose end was not reported: wait for it",
                false => "holds no array yet: no call has made it",
            })
        })
    }

    fn claim(self: &Arc<Self>, stored: StoredArray) -> Result<ClaimedResult, Failure> {
        let mut state = lock(&self.state);
        if state.is_claimed {
            return Err(Failure::argument("is already the result of a call that is not over"));
        }
        state.is_claimed = true;
        drop(state);
        Ok(ClaimedResult { array: Arc::clone(self), stored: Some(Arc::new(stored)) })
    }
}

/// The array at an address of the program.
fn held_at(runtime: &Runtime, array: *const GrpcHeldArray) -> Result<Arc<GrpcHeldArray>, Failure> {
    let found = runtime.held.find(array);
    found.ok_or_else(|| Failure::argument("this is no held array, or it was released"))
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_held_array_create_np(array: *mut *mut GrpcHeldArray) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(array, "the place for the held array") }?;
        place.write(runtime.held.add(GrpcHeldArray::default()));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_held_array_bytes_np(
    array: *const GrpcHeldArray,
    bytes: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(bytes, "the place for the length") }?;
        let stored = held_at(&*current()?, array)?.stored().map_err(named)?;
        place.write(usize::try_from(stored.bytes).unwrap_or(usize::MAX));
        Ok(Code::NoError)
    })
}

/// A failure that begins with what it is about.
fn named(failure: Failure) -> Failure {
    Failure::new(failure.code, format!("the held array {}", failure.detail))
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_held_array_fetch_np(
    array: *const GrpcHeldArray,
    to: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        let stored = held_at(&runtime, array)?.stored().map_err(named)?;
        if bytes as u64 != stored.bytes {
            let text =
                format!("the held array has {} bytes, there is room for {bytes}", stored.bytes);
            return Err(Failure::argument(text));
        }
        if to.is_null() && bytes > 0 {
            return Err(Failure::null("the memory for the array"));
        }
        if stored.client.is_lost() {
            return Err(lost("its connection was lost"));
        }
        // SAFETY: not null unless it is empty; the program lends so many bytes until this returns, as `grpc.h` asks.
        let to = unsafe { LentBytesMut::new(to.cast(), bytes) };
        stored.client.fetch_bytes(stored.name, 0, to, runtime.config.timeout)?;
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_held_array_release_np(array: *mut GrpcHeldArray) -> c_int {
    guard(|| {
        let runtime = current()?;
        held_at(&runtime, array)?;
        // With the last reference the server is told; a session that makes or reads it has one.
        drop(runtime.held.remove(array));
        Ok(Code::NoError)
    })
}
