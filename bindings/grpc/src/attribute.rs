//! Attributes of handles and sessions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use kumi_call_client::Resources;
use kumi_idl::Order;

use crate::code::{Code, Failure, guard};
use crate::handle::{GrpcFunctionHandle, Handle, HandleRequest, handle_at};
use crate::runtime::current;

/// `grpc_handle_attr_t_np`. The library owns the texts.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcHandleAttributes {
    server: *mut c_char,
    routine: *mut c_char,
    timeout_ms: c_int,
    order: c_int,
    threads: c_int,
    memory: u64,
}

/// `grpc_session_attr_t_np`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcSessionAttributes {
    timeout_ms: c_int,
    priority: c_int,
    threads: c_int,
    memory: u64,
}

fn time(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().filter(|time| *time > 0).map(Duration::from_millis)
}

fn milliseconds(time: Option<Duration>) -> c_int {
    time.map_or(0, |time| c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX))
}

/// What a program asks for; 0: nothing.
fn resources(threads: c_int, memory: u64) -> Result<Option<Resources>, Failure> {
    let threads = u32::try_from(within(threads, c_int::MAX)?).unwrap_or_default();
    Ok(Resources::new(threads, memory))
}

/// The numbers of [`resources`].
fn asked(resources: Option<Resources>) -> (c_int, u64) {
    let threads = resources.and_then(|asked| asked.threads()).map_or(0, NonZeroU32::get);
    let memory = resources.and_then(|asked| asked.memory()).map_or(0, NonZeroU64::get);
    // It came from a program as a number of C.
    (c_int::try_from(threads).unwrap_or(c_int::MAX), memory)
}

impl GrpcSessionAttributes {
    /// Those of calls with a handle.
    pub fn of(handle: &Handle) -> GrpcSessionAttributes {
        let (threads, memory) = asked(handle.resources);
        let timeout_ms = milliseconds(handle.timeout);
        GrpcSessionAttributes { timeout_ms, priority: 0, threads, memory }
    }

    /// Threads and memory for the call: each that of the handle unless it is given here.
    ///
    /// # Errors
    /// The number of threads is negative.
    pub fn resources(&self, of_handle: Option<Resources>) -> Result<Option<Resources>, Failure> {
        let (threads, memory) = asked(of_handle);
        let or = |given: c_int| if given == 0 { threads } else { given };
        resources(or(self.threads), if self.memory == 0 { memory } else { self.memory })
    }

    /// Time limit of the call; `None`: that of the handle.
    pub fn time(&self) -> Option<Duration> {
        time(self.timeout_ms)
    }

    /// Its priority among the user's calls that wait at a metaserver.
    ///
    /// # Errors
    /// It is out of range.
    pub fn priority(&self) -> Result<u8, Failure> {
        let priority = within(self.priority, MOST_PRIORITY)?;
        Ok(u8::try_from(priority).unwrap_or_default())
    }
}

impl GrpcHandleAttributes {
    /// A description of the handle that they define.
    ///
    /// # Errors
    /// They name no routine, or a name is not UTF-8.
    pub fn wanted(&self) -> Result<HandleRequest, Failure> {
        let text = |pointer: *mut c_char| {
            // SAFETY: `set` of this library made it.
            let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) });
            let text = text.map(|text| text.to_str().map(str::to_owned)).transpose();
            text.map_err(|_| Failure::argument("an attribute is not in UTF-8"))
        };
        let none = || Failure::argument("the attributes name no routine");
        Ok(HandleRequest {
            address: text(self.server)?,
            routine: text(self.routine)?.ok_or_else(none)?,
            order: match self.order {
                1 => Some(Order::Row),
                2 => Some(Order::Column),
                _ => None,
            },
            timeout: time(self.timeout_ms),
            resources: resources(self.threads, self.memory)?,
        })
    }

    /// The attributes of a handle.
    pub fn of(handle: &Handle) -> GrpcHandleAttributes {
        let text = |text: &str| CString::new(text).map_or(std::ptr::null_mut(), CString::into_raw);
        let order = match handle.order {
            None => 0,
            Some(Order::Row) => 1,
            Some(Order::Column) => 2,
        };
        let (threads, memory) = asked(handle.resources);
        GrpcHandleAttributes {
            server: text(&handle.address),
            routine: text(&handle.routine),
            timeout_ms: milliseconds(handle.timeout),
            order,
            threads,
            memory,
        }
    }

    /// Frees its texts.
    fn clear(&mut self) {
        for text in [&mut self.server, &mut self.routine] {
            replace(text, std::ptr::null_mut());
        }
    }

    fn name(&mut self, name: c_int) -> Option<&mut *mut c_char> {
        match name {
            HOSTNAME => Some(&mut self.server),
            FUNCNAME => Some(&mut self.routine),
            _ => None,
        }
    }

    fn number(&mut self, name: c_int) -> Option<&mut c_int> {
        match name {
            SESSION_TIMEOUT_MS => Some(&mut self.timeout_ms),
            ORDER => Some(&mut self.order),
            THREADS => Some(&mut self.threads),
            _ => None,
        }
    }
}

const HOSTNAME: c_int = 0;
const FUNCNAME: c_int = 4;
const SESSION_TIMEOUT_MS: c_int = 32;
/// `GRPC_SESSION_ATTR_PRIORITY_NP`, and the greatest value.
const PRIORITY: c_int = 33;
const MOST_PRIORITY: c_int = 9;
const ORDER: c_int = 33;
/// The same for handles and sessions.
const THREADS: c_int = 34;
const MEMORY: c_int = 35;
const SECONDS: c_int = 1;

fn replace(place: &mut *mut c_char, by: *mut c_char) {
    let old = std::mem::replace(place, by);
    if !old.is_null() {
        // SAFETY: only this library writes there, always the result of `CString::into_raw`.
        drop(unsafe { CString::from_raw(old) });
    }
}

fn copy(text: &CStr) -> *mut c_char {
    text.to_owned().into_raw()
}

fn no_attribute(name: c_int) -> Failure {
    Failure::argument(format!("{name} is no attribute that this library has"))
}

fn within(number: c_int, most: c_int) -> Result<c_int, Failure> {
    if (0..=most).contains(&number) {
        return Ok(number);
    }
    Err(Failure::argument(format!("{number} is no value of this attribute: 0 to {most} are")))
}

/// A number for C, which C gives back to be freed.
fn lend_number<T: Copy>(number: T) -> *mut c_void {
    // Not null: `malloc` of so few bytes practically never fails.
    // SAFETY: room for one number, or null; `malloc` aligns it for every number.
    unsafe {
        let place = libc::malloc(size_of::<T>()).cast::<T>();
        if !place.is_null() {
            place.write(number);
        }
        place.cast()
    }
}

/// The program's attributes.
///
/// # Safety
/// `pointer` is null, or points to initialised memory that nobody else uses during `'a`.
unsafe fn given<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null("the attributes"))
}

/// The program's place for a value.
///
/// # Safety
/// `pointer` is null, or writable and not used by anybody else during `'a`.
pub unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: as the caller promises; `MaybeUninit` may be anything before.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }.ok_or_else(|| Failure::null(what))
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_handle_attr_initialize_np(
    attributes: *mut GrpcHandleAttributes,
) -> c_int {
    guard(|| {
        current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(attributes, "the attributes") }?;
        let null = std::ptr::null_mut();
        place.write(GrpcHandleAttributes {
            server: null,
            routine: null,
            timeout_ms: 0,
            order: 0,
            threads: 0,
            memory: 0,
        });
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_handle_attr_destruct_np(
    attributes: *mut GrpcHandleAttributes,
) -> c_int {
    guard(|| {
        // SAFETY: null or initialised, as `grpc.h` asks.
        unsafe { given(attributes) }?.clear();
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_handle_attr_set_np(
    attributes: *mut GrpcHandleAttributes,
    name: c_int,
    value: *const c_void,
) -> c_int {
    guard(|| {
        // SAFETY: null or initialised, as `grpc.h` asks.
        let attributes = unsafe { given(attributes) }?;
        if value.is_null() {
            return Err(Failure::null("the attribute's value"));
        }
        if let Some(text) = attributes.name(name) {
            // SAFETY: for these names the value is a text, as `grpc.h` asks.
            replace(text, copy(unsafe { CStr::from_ptr(value.cast()) }));
            return Ok(Code::NoError);
        }
        if name == MEMORY {
            // SAFETY: for this name it is the address of a number of 64 bits.
            attributes.memory = unsafe { value.cast::<u64>().read_unaligned() };
            return Ok(Code::NoError);
        }
        let place = attributes.number(name).ok_or_else(|| no_attribute(name))?;
        // SAFETY: for the others it is the address of a number.
        let number = unsafe { value.cast::<c_int>().read_unaligned() };
        let most = if name == ORDER { 2 } else { c_int::MAX };
        *place = within(number, most)?;
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_handle_attr_get_np(
    attributes: *mut GrpcHandleAttributes,
    name: c_int,
    value: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(value, "the place for the attribute") }?;
        // SAFETY: null or initialised, as `grpc.h` asks.
        let attributes = unsafe { given(attributes) }?;
        let made = match attributes.name(name).map(|text| *text) {
            Some(text) if text.is_null() => std::ptr::null_mut(),
            // SAFETY: a text that this library made.
            Some(text) => unsafe { libc::strdup(text) }.cast(),
            None if name == MEMORY => lend_number(attributes.memory),
            None => lend_number(*attributes.number(name).ok_or_else(|| no_attribute(name))?),
        };
        place.write(made);
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_handle_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: null, or a result of `get`, from `malloc`.
    unsafe { libc::free(value) };
    Code::NoError as c_int
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_get_attr_np(
    handle: *const GrpcFunctionHandle,
    attributes: *mut GrpcHandleAttributes,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(attributes, "the attributes") }?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let handle = unsafe { handle_at(&runtime, handle) }?;
        place.write(GrpcHandleAttributes::of(&handle));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_initialize_np(
    handle: *const GrpcFunctionHandle,
    attributes: *mut GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(attributes, "the attributes") }?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let handle = unsafe { handle_at(&runtime, handle) }?;
        place.write(GrpcSessionAttributes::of(&handle));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_destruct_np(
    attributes: *mut GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        if attributes.is_null() {
            return Err(Failure::null("the attributes"));
        }
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_set_np(
    attributes: *mut GrpcSessionAttributes,
    name: c_int,
    value: *const c_void,
) -> c_int {
    guard(|| {
        // SAFETY: null or initialised, as `grpc.h` asks.
        let attributes = unsafe { given(attributes) }?;
        if value.is_null() {
            return Err(Failure::null("the attribute's value"));
        }
        if name == MEMORY {
            // SAFETY: the address of a number of 64 bits, as `grpc.h` asks.
            attributes.memory = unsafe { value.cast::<u64>().read_unaligned() };
            return Ok(Code::NoError);
        }
        if !matches!(name, SECONDS | SESSION_TIMEOUT_MS | PRIORITY | THREADS) {
            return Err(no_attribute(name));
        }
        // SAFETY: the address of a number, as `grpc.h` asks.
        let number = unsafe { value.cast::<c_int>().read_unaligned() };
        match name {
            PRIORITY => attributes.priority = within(number, MOST_PRIORITY)?,
            THREADS => attributes.threads = within(number, c_int::MAX)?,
            SECONDS => attributes.timeout_ms = within(number, c_int::MAX)?.saturating_mul(1000),
            _ => attributes.timeout_ms = within(number, c_int::MAX)?,
        }
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_get_np(
    attributes: *mut GrpcSessionAttributes,
    name: c_int,
    value: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(value, "the place for the attribute") }?;
        // SAFETY: null or initialised, as `grpc.h` asks.
        let attributes = unsafe { given(attributes) }?;
        let number = match name {
            MEMORY => {
                place.write(lend_number(attributes.memory));
                return Ok(Code::NoError);
            }
            // Rounded up, so that a positive limit never becomes 0, which means none.
            SECONDS => {
                attributes.timeout_ms.div_euclid(1000)
                    + c_int::from(attributes.timeout_ms % 1000 > 0)
            }
            SESSION_TIMEOUT_MS => attributes.timeout_ms,
            PRIORITY => attributes.priority,
            THREADS => attributes.threads,
            _ => return Err(no_attribute(name)),
        };
        place.write(lend_number(number));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_handle_attr_release_np(value) }
}
