//! Reports on errors and sessions.

use std::ffi::{c_char, c_double, c_int};
use std::io::Write;

use kumi_call_client::{TraceContext, TraceContextError, remaining, trace_calls};

use crate::argument::text;
use crate::code::{Code, Failure, guard, last_code, last_detail, report};
use crate::runtime::current;

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_error_string(error: c_int) -> *mut c_char {
    let code = Code::EVERY.iter().copied().find(|code| *code as c_int == error);
    // The standard's type; programs must not write there.
    code.unwrap_or(Code::UnknownErrorCode).name().as_ptr().cast_mut()
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_get_error(session: c_int) -> c_int {
    guard(|| exact(session).map(Code::standard))
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_get_error_np(session: c_int) -> c_int {
    guard(|| exact(session))
}

/// The outcome of a session; its failure becomes the thread's last failure.
fn exact(session: c_int) -> Result<Code, Failure> {
    let session = current()?.sessions.any(session)?;
    let failure = session.ended().and_then(|ended| ended.result.as_ref().err());
    Ok(failure.map_or(Code::NoError, |failure| {
        report(failure);
        failure.code
    }))
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_last_error_get_np() -> c_int {
    last_code() as c_int
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_last_error_text_np() -> *const c_char {
    last_detail()
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_perror_np(before: *const c_char) -> c_int {
    let code = last_code();
    guard(|| {
        let mut line = String::new();
        if !before.is_null() {
            // SAFETY: not null; a text as `grpc.h` asks.
            line = format!("{}: ", unsafe { text(before, "the text") }?);
        }
        // SAFETY: this thread's text, valid until its next failure.
        let detail = unsafe { std::ffi::CStr::from_ptr(last_detail()) }.to_string_lossy();
        let detail = if code == Code::NoError { code.text().into() } else { detail };
        line.push_str(&format!("{}: {detail}\n", code.name().to_string_lossy()));
        let written = std::io::stderr().write_all(line.as_bytes());
        written.map_err(|error| Failure::new(Code::OtherErrorCode, error.to_string()))?;
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// `seconds` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_remaining_np(seconds: *mut c_double) -> c_int {
    guard(|| {
        if seconds.is_null() {
            return Err(Failure::new(Code::InvalidArgument, "there is no place for the seconds"));
        }
        let left = remaining()?.map_or(f64::INFINITY, |left| left.as_secs_f64());
        // SAFETY: not null, writable as the caller promises.
        unsafe { seconds.write(left) };
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// `traceparent` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_traceparent_set_np(traceparent: *const c_char) -> c_int {
    guard(|| {
        let mut context = None;
        if !traceparent.is_null() {
            // SAFETY: not null; the rest is promised by the caller.
            let text = unsafe { text(traceparent, "the traceparent") }?;
            let wrong = |error: TraceContextError| {
                Failure::new(Code::InvalidArgument, format!("`{text}`: {error}"))
            };
            context = Some(TraceContext::parse(text.as_bytes()).map_err(wrong)?);
        }
        trace_calls(context);
        Ok(Code::NoError)
    })
}

/// `GRPC_TRACEPARENT_SIZE_NP`.
const TRACEPARENT_SIZE: usize = 56;

/// See `grpc.h`.
///
/// # Safety
/// `traceparent` is null or writable for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_traceparent_get_np(traceparent: *mut c_char, size: usize) -> c_int {
    guard(|| {
        if traceparent.is_null() || size < TRACEPARENT_SIZE {
            let text = format!("a traceparent needs room for {TRACEPARENT_SIZE} bytes");
            return Err(Failure::new(Code::InvalidArgument, text));
        }
        let context = trace_calls(None);
        trace_calls(context);
        let text = context.map_or_else(String::new, |context| context.to_string());
        debug_assert!(text.len() < TRACEPARENT_SIZE);
        // SAFETY: not null, and writable for more bytes than a context has, as the caller promises.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), traceparent.cast(), text.len());
            traceparent.add(text.len()).write(0);
        }
        Ok(Code::NoError)
    })
}

/// `grpc_session_info_t_np`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcSessionInfo {
    waited: f64,
    ran: f64,
    total: f64,
    sent: u64,
    returned: u64,
    error: c_int,
}

const EXECUTING: c_int = 1;
const DOWN: c_int = 2;
const DONE: c_int = 3;

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_info_get_np(
    session: c_int,
    info: *mut *mut GrpcSessionInfo,
    status: *mut c_int,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        let session = runtime.sessions.any(session)?;
        session.is_over(&runtime);
        let ended = session.ended();
        let code = ended.and_then(|ended| ended.result.as_ref().err()).map(|failure| failure.code);
        if !status.is_null() {
            let now = match (ended, code) {
                (None, _) => EXECUTING,
                (Some(_), None) => DONE,
                (Some(_), Some(_)) => DOWN,
            };
            // SAFETY: not null, writable as `grpc.h` asks.
            unsafe { status.write(now) };
        }
        if !info.is_null() {
            let times = ended.map(|ended| ended.times).unwrap_or_default();
            let made = Box::new(GrpcSessionInfo {
                waited: times.waited.as_secs_f64(),
                ran: times.ran.as_secs_f64(),
                total: times.total.as_secs_f64(),
                sent: session.bytes.0,
                returned: session.bytes.1,
                error: code.unwrap_or(Code::NoError) as c_int,
            });
            // SAFETY: not null, writable as `grpc.h` asks.
            unsafe { info.write(Box::into_raw(made)) };
        }
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_session_info_release_np(info: *mut GrpcSessionInfo) -> c_int {
    if !info.is_null() {
        // SAFETY: `grpc_session_info_get_np` made it, and it comes back once, as `grpc.h` asks.
        drop(unsafe { Box::from_raw(info) });
    }
    Code::NoError as c_int
}
