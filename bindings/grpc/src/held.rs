//! Arrays that a server holds: results that stay there, as arguments of later calls.
//!
//! Through a metaserver the client names and places them ([`HeldArray`]), and calls that read them run at their server.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumi_call_client::{
    Arg, CallError, Client, HeldArray, LentBytes, LentBytesMut, Remote, RemoteArray,
};
use kumi_idl::{Argument, ArgumentForm, Element, Order};
use kumi_rpc::HeldArrayName;

use crate::address::is_reserved;
use crate::attribute::place;
use crate::code::{Code, Failure, guard};
use crate::handle::{GrpcFunctionHandle, handle_at};
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
    location: Location,
    /// Its length.
    bytes: u64,
    /// As the routine had it that made it; `None`: the program sent it, and C tells no types.
    form: Option<Form>,
    /// The number of its connection.
    connection: u64,
}

/// Where an array is.
enum Location {
    /// At the server of a connection, by this name.
    Server(NamedArray),
    /// At the server that a metaserver chose for the call that made it.
    Placed(HeldArray),
}

/// An array at the server of a connection.
struct NamedArray {
    client: Client,
    name: HeldArrayName,
}

/// What is known of an array's elements.
#[derive(Clone, Copy)]
struct Form {
    element: Element,
    order: Order,
    /// Whether more than one of its dimensions is larger than 1, so that the order matters.
    has_order: bool,
}

impl std::fmt::Debug for StoredArray {
    /// Without the name, which is the permission to read it.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StoredArray").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for NamedArray {
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

/// The failure of whoever wants an array whose connection is lost.
fn connection_lost() -> Failure {
    let text = "the array is not at the server any more: its connection was lost; call again what makes it";
    Failure::new(Code::HeldLost, text)
}

impl NamedArray {
    fn fetch(&self, to: LentBytesMut, time: Option<Duration>) -> Result<(), Failure> {
        if self.client.is_lost() {
            return Err(connection_lost());
        }
        Ok(self.client.fetch_bytes(self.name, 0, to, time, &|| false)?)
    }
}

impl Location {
    /// A place for a new result of a call over this connection.
    ///
    /// # Errors
    /// The system gives no random bytes for a name.
    fn new(runtime: &Runtime, connection: &Connection) -> Result<Location, Failure> {
        Ok(match &connection.client {
            Remote::Server(client) => {
                let (client, name) = (client.clone(), runtime.held_name()?);
                Location::Server(NamedArray { client, name })
            }
            Remote::Grid(_) => Location::Placed(HeldArray::new()),
        })
    }

    /// `array`, of which this is the value that is sent.
    fn sent_as(&self, array: RemoteArray<'static>, bytes: u64) -> RemoteArray<'static> {
        match self {
            Location::Server(named) => {
                RemoteArray { parts: RemoteArray::held(named.name, bytes, "").parts, ..array }
            }
            Location::Placed(held) => array.held_as(held),
        }
    }

    /// `array`, of which the result stays here.
    fn kept_as(&self, array: RemoteArray<'static>) -> RemoteArray<'static> {
        match self {
            Location::Server(named) => {
                RemoteArray { keep: RemoteArray::stays(named.name, LIFETIME).keep, ..array }
            }
            Location::Placed(held) => array.staying_as(held),
        }
    }
}

impl StoredArray {
    /// Whether a call over this connection can have it as this argument.
    ///
    /// # Errors
    /// It cannot.
    fn check(&self, connection: &Connection, argument: &Argument) -> Result<(), Failure> {
        // What a metaserver has placed the call itself checks: its error names the server.
        if let Location::Server(named) = &self.location
            && named.client.is_lost()
        {
            return Err(connection_lost());
        }
        if self.connection != connection.number {
            let text = "is an array at the server of another connection: fetch it, or call there";
            return Err(Failure::argument(text));
        }
        if self.bytes != argument.bytes {
            let text = format!("has {} bytes, the routine wants {}", self.bytes, argument.bytes);
            return Err(Failure::argument(text));
        }
        Ok(())
    }
}

impl Form {
    fn of(argument: &Argument) -> Result<Form, Failure> {
        let ArgumentForm::Array(element, order) = argument.form else {
            return Err(Failure::argument("is no array"));
        };
        let has_order = argument.axes.iter().filter(|axis| axis.size > 1).count() > 1;
        Ok(Form { element, order, has_order })
    }

    /// Whether an array can be an argument of this form.
    fn check(&self, wanted: Form) -> Result<(), Failure> {
        if wanted.element != self.element {
            let text =
                format!("has elements of {}, the routine wants {}", self.element, wanted.element);
            return Err(Failure::argument(text));
        }
        if self.has_order && wanted.order != self.order {
            let text = "is in another memory order than the routine wants: fetch it";
            return Err(Failure::argument(text));
        }
        Ok(())
    }
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
        let form = Form::of(argument)?;
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
            stored.form.map_or(Ok(()), |own| own.check(form))?;
        }
        let mut remote = RemoteArray::default();
        if let Some(read) = &read {
            remote = read.location.sent_as(remote, read.bytes);
        }
        let mut made = None;
        if mode.is_returned() {
            let location = Location::new(runtime, connection)?;
            remote = location.kept_as(remote);
            let (bytes, connection) = (argument.bytes, connection.number);
            made =
                Some(self.claim(StoredArray { location, bytes, form: Some(form), connection })?);
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

/// Why an array of the program does not stay at a server that a metaserver chooses.
const NOT_SENT: &str = "the array has no server: a metaserver chooses servers for calls only; let a call make the held array, or use a handle of one \
     server";

/// Checks that there can be so many bytes at an address of the program.
fn check_memory(address: *const c_void, bytes: usize, what: &str) -> Result<(), Failure> {
    if address.is_null() && bytes > 0 {
        return Err(Failure::null(what));
    }
    match is_reserved(address) {
        true => Err(Failure::argument(format!("{what} is a held array or a receiver of output"))),
        false => Ok(()),
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
        place.write(runtime.held.add(GrpcHeldArray::default())?);
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
fn named(mut failure: Failure) -> Failure {
    failure.detail.insert_str(0, "the held array ");
    failure
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_held_array_put_np(
    array: *const GrpcHeldArray,
    handle: *const GrpcFunctionHandle,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        let array = held_at(&runtime, array)?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let handle = unsafe { handle_at(&runtime, handle) }?;
        check_memory(from, bytes, "the memory of the array")?;
        let connection = runtime.connection(&handle.address)?;
        let (form, number) = (None, connection.number);
        let location = Location::new(&runtime, &connection)?;
        let claimed =
            array.claim(StoredArray { location, bytes: bytes as u64, form, connection: number });
        let claimed = claimed.map_err(named)?;
        let Some(Location::Server(made)) = claimed.stored.as_ref().map(|stored| &stored.location)
        else {
            return Err(Failure::argument(NOT_SENT));
        };
        // SAFETY: not null unless it is empty; nobody writes there until this returns, as `grpc.h` asks.
        let from = unsafe { LentBytes::new(from.cast(), bytes) };
        let sent = made.client.hold_bytes(made.name, from, LIFETIME, handle.timeout, &|| false);
        if matches!(sent, Err(CallError::Lost(_))) {
            runtime.lost(&handle.address, &connection);
        }
        sent?;
        claimed.settle();
        Ok(Code::NoError)
    })
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
        check_memory(to, bytes, "the memory for the array")?;
        // SAFETY: not null unless it is empty; the program lends so many bytes until this returns, as `grpc.h` asks.
        let to = unsafe { LentBytesMut::new(to.cast(), bytes) };
        let time = runtime.config.timeout;
        match &stored.location {
            Location::Server(named) => named.fetch(to, time)?,
            Location::Placed(held) => held.fetch_bytes(0, to, time, &|| false)?,
        }
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
