//! Functions of the client as C function pointers that a routine can call.
//!
//! A thread that calls one of them owns the channel to the server until the function has returned. So calls
//! from several threads run one after the other.

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumi_call_ffi::{by_value, passed};
use kumi_idl::{Argument, ArgumentForm, Mode, Scalar, Type};
use kumi_rpc::{CallbackReturn, Value};
use libffi::low::ffi_cif;
use libffi::middle::{Cif, Closure, Type as Native};

use super::{Arena, receive_with_descriptor, send_with_descriptor};
use crate::callback::{Function, Places, functions};
use crate::slot_protocol::{MOST, Order, Reply};
use crate::values::GivenValues;

/// State shared by all functions of a routine.
struct CallbackChannel {
    socket: Option<OwnedFd>,
    /// Whether the routine runs.
    open: bool,
    /// Number of the present or latest run.
    run: u64,
    /// Most bytes of one call of a function.
    most: u64,
    exchange: Option<Arena>,
}

/// A process runs one routine, one call at a time.
static LINE: Mutex<CallbackChannel> =
    Mutex::new(CallbackChannel { socket: None, open: false, run: 0, most: 0, exchange: None });

fn line() -> MutexGuard<'static, CallbackChannel> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables callbacks over this socket, with at most this many bytes each.
pub fn open_callback_channel(socket: OwnedFd, most: u64) {
    let mut line = line();
    line.socket = Some(socket);
    line.most = most;
}

/// Marks the beginning or the end of a run. At the end it waits for callbacks of other threads.
pub fn routine_runs(runs: bool) {
    let mut line = line();
    line.open = runs;
    line.run += u64::from(runs);
    if !runs {
        // The server keeps the same memory, and counts it.
        line.exchange.take_if(|arena| arena.length() > KEPT);
    }
}

/// The number of the present run.
pub fn this_run() -> u64 {
    line().run
}

/// Calls a function, only during this run of the routine. `places` returns the addresses of its arguments,
/// which may take this many bytes.
///
/// # Errors
/// The run is over, the arguments do not fit, or the server is gone.
///
/// # Safety
/// The addresses must be those of the function's arguments as its declaration has them, and valid until this
/// returns.
pub(super) unsafe fn call_in(
    run: u64,
    function: &Function,
    places: &mut dyn FnMut(u64) -> Result<Vec<*mut u8>, String>,
) -> Result<(), String> {
    let mut line = line();
    if !line.open || line.run != run {
        return Err("the call that it belongs to is over".to_owned());
    }
    let addresses = places(line.most)?;
    exchange(&mut line, function, &addresses)
}

/// A function, and how to call it.
struct ClosureContext {
    function: Function,
    fortran: bool,
}

/// The functions of a routine, by parameter.
#[derive(Debug)]
pub struct Closures(Vec<(usize, Closure<'static>)>);

impl Closures {
    /// Makes the closures, in the calling convention of the routine's language.
    ///
    /// # Errors
    /// An argument that cannot be passed to a function.
    pub fn new(interface: &kumi_idl::Interface, fortran: bool) -> Result<Closures, &'static str> {
        let mut closures = Vec::new();
        for function in functions(interface) {
            let types = passed(&function.declared.params, fortran)?;
            let parameter = usize::from(function.parameter);
            let cif = Cif::new(types, Native::void());
            // Leaked on purpose: a process opens one routine for its whole life.
            let hook: &'static ClosureContext =
                Box::leak(Box::new(ClosureContext { function, fortran }));
            let closure = Closure::try_new(cif, called, hook);
            closures
                .push((parameter, closure.map_err(|_| "no function pointer can be made here")?));
        }
        Ok(Closures(closures))
    }

    /// The function pointer for a parameter. 0: the parameter takes none.
    pub fn address(&self, parameter: usize) -> usize {
        let found = self.0.iter().find(|(other, _)| *other == parameter);
        found.map_or(0, |(_, closure)| *closure.code_ptr() as *const c_void as usize)
    }
}

/// The entry point that the routine calls.
unsafe extern "C" fn called(
    _: &ffi_cif,
    _: &mut (),
    arguments: *const *const c_void,
    hook: &ClosureContext,
) {
    let mut line = line();
    if !line.open {
        eprintln!("kumi-call-slot: a function of the client was called after the routine's end");
        std::process::abort();
    }
    let params = &hook.function.declared.params;
    let addresses: Vec<*mut u8> = params
        .iter()
        .enumerate()
        .map(|(index, param)| {
            // SAFETY: libffi gives as many addresses as the closure's description has parameters.
            let argument = unsafe { *arguments.add(index) };
            if by_value(param, hook.fortran) {
                argument.cast_mut().cast()
            } else {
                // SAFETY: by the same description this argument is an address.
                unsafe { *argument.cast::<*mut u8>() }
            }
        })
        .collect();
    if let Err(why) = exchange(&mut line, &hook.function, &addresses) {
        let name = &hook.function.declared.name;
        let reply = Reply::Refused(format!("`{name}` cannot be called: {why}"));
        if let Some(socket) = &line.socket {
            // If it cannot be sent, the server is gone, and this process ends with it.
            let _gone = send_with_descriptor(socket.as_fd(), &reply.encode(), None);
        }
        // The server ends this process. The routine must not go on without an answer.
        loop {
            std::thread::park();
        }
    }
}

/// Sends the arguments, waits for the function, and copies its results to their places.
fn exchange(
    line: &mut CallbackChannel,
    function: &Function,
    addresses: &[*mut u8],
) -> Result<(), String> {
    let declared = &function.declared;
    let given = given(function, addresses)?;
    let head = CallbackReturn::values(&given.to_wire());
    let places =
        Places::new(declared, &given, head.len(), line.most).map_err(|failure| failure.text)?;
    for ((param, argument), address) in
        declared.params.iter().zip(&places.plan.arguments).zip(addresses)
    {
        if address.is_null() && argument.bytes > 0 && argument.mode != Mode::Work {
            return Err(format!("`{}` is a null pointer", param.name));
        }
    }
    let fresh = line.room(places.bytes()).map_err(|error| error.to_string())?;
    let (Some(arena), Some(socket)) = (&line.exchange, &line.socket) else {
        return Err("there is no channel to the server".to_owned());
    };
    arena.write(0, &head);
    for (index, argument) in places.plan.arguments.iter().enumerate() {
        if argument.mode.is_sent() {
            copy(argument, addresses[index], arena, places.array(index).start, true);
        }
    }
    let reply = Reply::Callback {
        parameter: function.parameter,
        head: head.len() as u64,
        bytes: arena.length() as u64,
    };
    let descriptor = fresh.then(|| arena.file());
    send_with_descriptor(socket.as_fd(), &reply.encode(), descriptor)
        .map_err(|error| error.to_string())?;
    let length = answer(socket).map_err(|error| error.to_string())?;
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(places.back.len());
    let values = CallbackReturn::values_of(&arena.read(places.back.start, length))
        .map_err(|error| error.to_string())?;
    for (index, value) in values {
        let index = usize::from(index);
        if let (Some(argument), Some(address)) =
            (places.plan.arguments.get(index), addresses.get(index))
        {
            put(argument, *address, &value);
        }
    }
    for (index, argument) in places.plan.arguments.iter().enumerate() {
        if argument.mode.is_returned() {
            copy(argument, addresses[index], arena, places.array(index).start, false);
        }
    }
    Ok(())
}

/// The scalars and texts that the routine passes.
fn given(function: &Function, addresses: &[*mut u8]) -> Result<GivenValues, String> {
    let mut given = GivenValues::nothing(&function.declared);
    for (index, (param, address)) in function.declared.params.iter().zip(addresses).enumerate() {
        if !param.mode.is_sent() || !(param.scalar().is_some() || param.ty == Type::String) {
            continue;
        }
        if address.is_null() {
            return Err(format!("`{}` is a null pointer", param.name));
        }
        if let Some(element) = param.scalar() {
            // SAFETY: by the description the routine gives a number of this type here.
            let bytes = unsafe {
                std::slice::from_raw_parts(address.cast_const(), element.size() as usize)
            };
            given.scalars[index] = Scalar::decode(element, bytes);
        } else {
            // SAFETY: by the description the routine gives a text that ends with a zero.
            let text = unsafe { CStr::from_ptr(address.cast::<c_char>()) };
            given.texts[index] = Some(text.to_string_lossy().into_owned());
        }
    }
    Ok(given)
}

/// Copies an array between the routine's memory and its packed form.
fn copy(argument: &Argument, address: *mut u8, arena: &Arena, packed: usize, out: bool) {
    if !matches!(argument.form, ArgumentForm::Array(..)) {
        return;
    }
    let mut at = packed;
    for run in argument.section.runs() {
        // Inside an array of the routine.
        let (offset, length) = (run.offset as usize, run.length as usize);
        let place = address.wrapping_add(offset);
        if out {
            // SAFETY: by the description the routine's array has so many bytes there.
            arena.write(at, unsafe { std::slice::from_raw_parts(place.cast_const(), length) });
        } else {
            let bytes = arena.read(at, length);
            // SAFETY: as above, and the routine expects it to be written; the vector is memory of its own.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, length) };
        }
        at += length;
    }
}

/// Copies a returned scalar or text to its place.
fn put(argument: &Argument, address: *mut u8, value: &Value) {
    let mut bytes = Vec::new();
    match (argument.form, value) {
        (ArgumentForm::Scalar(element), value) => {
            let scalar = crate::values::to_scalar(value);
            if !scalar.is_some_and(|scalar| scalar.encode(element, &mut bytes)) {
                return;
            }
        }
        (ArgumentForm::Text { capacity: Some(capacity) }, Value::Text(text)) => {
            if text.len() as u64 >= capacity {
                return;
            }
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        _ => return,
    }
    if argument.mode.is_returned() {
        // SAFETY: by the description the routine has memory for so many bytes there, which it expects to be written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
    }
}

/// Waits until the function has returned. Returns the bytes of the returned values.
fn answer(socket: &OwnedFd) -> io::Result<u64> {
    let mut buffer = vec![0; MOST];
    loop {
        match receive_with_descriptor(socket.as_fd(), &mut buffer, true) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => match Order::decode(&buffer[..length]) {
                Some(Order::Return(bytes)) => return Ok(bytes),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Longest exchange that is always kept for the next call.
pub const KEPT: usize = 1 << 20;

impl CallbackChannel {
    /// Makes sure of an exchange of at least this many bytes. Returns whether it is new, so that the server
    /// must be told.
    fn room(&mut self, bytes: usize) -> io::Result<bool> {
        let fits = |arena: &Arena| {
            arena.length() >= bytes && (arena.length() <= KEPT || arena.length() / 4 <= bytes)
        };
        if self.exchange.as_ref().is_some_and(fits) {
            return Ok(false);
        }
        self.exchange = None;
        self.exchange = Some(Arena::new(bytes)?);
        Ok(true)
    }
}
