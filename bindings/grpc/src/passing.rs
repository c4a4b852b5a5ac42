//! Files and callbacks as arguments.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use kumi_call_client::{Arg, FileArgument};
use kumi_idl::{Element, Mode, Param, Type};

use crate::argument::PassedValue;
use crate::c_function::CFunction;
use crate::code::{Code, guard};
use crate::typed::ArgumentKind;

/// `KUMI_GRPC_ADDRESS`.
const ADDRESS: u64 = 64;

thread_local! {
    /// The reason that a callback in this thread gave for its failure.
    static FAILED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a callback, and returns the reason it gave for its failure. The reason of an outer callback is kept. A reason that
/// was given outside of callbacks belongs to none.
fn watched(function: &mut dyn FnMut()) -> Result<(), String> {
    let outer = FAILED.take();
    function();
    let own = FAILED.replace(outer);
    own.map_or(Ok(()), Err)
}

/// See `grpc.h`.
///
/// # Safety
/// `why` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_callback_failed_np(why: *const c_char) -> c_int {
    guard(|| {
        let why = if why.is_null() {
            "it failed".to_owned()
        } else {
            // SAFETY: not null; the rest is promised by the caller.
            unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
        };
        // A thread that is ending runs no callbacks.
        let _ending = FAILED.try_with(|failed| *failed.borrow_mut() = Some(why));
        Ok(Code::NoError)
    })
}

/// The file of a parameter: its source, its destination, or both.
///
/// # Errors
/// The argument does not fit.
///
/// # Safety
/// An address is null or that of a C string; a typed argument has the type that it states.
pub unsafe fn file(param: &Param, given: PassedValue<'_>) -> Result<Arg<'static>, String> {
    let path = match given {
        PassedValue::Number(_) => return Err("is a file: its path is needed".to_owned()),
        PassedValue::Address(address) if address.is_null() => return Err("is NULL".to_owned()),
        PassedValue::Address(address) => {
            // SAFETY: not null; the rest is promised by the caller.
            unsafe { CStr::from_ptr(address.cast_const().cast()) }.to_bytes()
        }
        PassedValue::Typed(typed) => {
            let bytes = match typed.what() {
                Some(ArgumentKind::Text | ArgumentKind::Blanks) if !typed.data.is_null() => {
                    let count = usize::try_from(typed.count).unwrap_or(0);
                    // SAFETY: as the caller promises.
                    unsafe { slice::from_raw_parts(typed.data.cast_const().cast::<u8>(), count) }
                }
                _ => return Err("is a file: a text with its path is needed".to_owned()),
            };
            match typed.what() {
                Some(ArgumentKind::Blanks) => bytes.trim_ascii_end(),
                _ => bytes,
            }
        }
    };
    if path.is_empty() || path.contains(&0) {
        return Err("is a file: this is no path".to_owned());
    }
    let path = PathBuf::from(OsStr::from_bytes(path));
    Ok(Arg::File(match param.mode {
        Mode::In => FileArgument::from(path),
        Mode::Out => FileArgument::to(path),
        _ => FileArgument::both(path.clone(), path),
    }))
}

/// The callback of a parameter.
///
/// # Errors
/// The argument does not fit.
///
/// # Safety
/// An address is null or that of a function that `inner` declares, callable until the call is over.
pub unsafe fn function(inner: &[Param], given: PassedValue<'_>) -> Result<Arg<'static>, String> {
    let (address, context): (*mut c_void, _) = match given {
        PassedValue::Number(_) => return Err("is a function, a number was given".to_owned()),
        PassedValue::Address(address) => (address, None),
        PassedValue::Typed(typed) => match typed.what() {
            Some(ArgumentKind::Function) => {
                // SAFETY: as the caller promises.
                if let Some(types) = unsafe { typed.dims() } {
                    compare(inner, types)?;
                }
                (typed.data, typed.context())
            }
            _ => return Err("is a function, something else was given".to_owned()),
        },
    };
    if address.is_null() {
        return Err("is NULL".to_owned());
    }
    // SAFETY: not null; the rest is promised by the caller.
    let function = unsafe { CFunction::new(address, inner, context) };
    let function = function.map_err(|why| format!("cannot be called from C: {why}"))?;
    Ok(Arg::Callback(function.callback(watched)))
}

/// Compares a callback's arguments with its declaration; each is the number of an element type, and more for an address.
fn compare(inner: &[Param], types: &[u64]) -> Result<(), String> {
    if inner.len() != types.len() {
        let (declared, given) = (inner.len(), types.len());
        return Err(format!("is declared with {declared} arguments, and takes {given}"));
    }
    for (param, given) in inner.iter().zip(types) {
        let by_value = param.scalar().is_some() && param.mode == Mode::In;
        let element = match &param.ty {
            Type::Number(element) => *element,
            // A text: bytes.
            _ => Element::I8,
        };
        let index = Element::ALL.iter().position(|other| *other == element).unwrap_or_default();
        let wanted = index as u64 + if by_value { 0 } else { ADDRESS };
        if wanted != *given {
            let how = if by_value { "" } else { "the address of " };
            return Err(format!(
                "has another type: its argument `{}` is {how}{element}",
                param.name
            ));
        }
    }
    Ok(())
}
