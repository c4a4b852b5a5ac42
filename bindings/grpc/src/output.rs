//! What routines print, for programs that ask for it.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use kumi_call_client::CallOutput;

use crate::attribute::place;
use crate::code::{Code, Failure, guard};
use crate::handle::{GrpcFunctionHandle, Handle, handle_at};
use crate::object::{GrpcObjectHandle, object_at};
use crate::runtime::{Runtime, current, lock};

/// `grpc_output_t_np`.
#[derive(Debug, Default)]
pub struct GrpcOutput {
    receiver: CallOutput,
    /// What the program took last, with a zero behind it.
    taken: Mutex<Vec<u8>>,
}

/// The receiver at an address of the program.
///
/// # Errors
/// There is none.
fn output_at(runtime: &Runtime, output: *const GrpcOutput) -> Result<Arc<GrpcOutput>, Failure> {
    let found = runtime.outputs.find(output);
    found.ok_or_else(|| Failure::argument("this is no receiver of output, or it was destructed"))
}

/// Sets the receiver of a handle's later calls; null: there is none.
fn listen(runtime: &Runtime, handle: &Handle, output: *const GrpcOutput) -> Result<Code, Failure> {
    let receiver = match output.is_null() {
        true => None,
        false => Some(output_at(runtime, output)?.receiver.clone()),
    };
    *lock(&handle.output) = receiver;
    Ok(Code::NoError)
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_output_np(
    handle: *const GrpcFunctionHandle,
    output: *mut GrpcOutput,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let handle = unsafe { handle_at(&runtime, handle) }?;
        listen(&runtime, &handle, output)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_object_handle_output_np(
    handle: *const GrpcObjectHandle,
    output: *mut GrpcOutput,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or readable, as `grpc.h` asks.
        let object = unsafe { object_at(&runtime, handle) }?;
        listen(&runtime, &object.handle, output)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_output_create_np(output: *mut *mut GrpcOutput) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(output, "the place for the receiver") }?;
        place.write(runtime.outputs.add(GrpcOutput::default()));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_output_take_np(
    output: *mut GrpcOutput,
    bytes: *mut *const c_char,
    length: *mut usize,
    is_cut: *mut c_int,
) -> c_int {
    guard(|| {
        let output = output_at(&*current()?, output)?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let bytes = unsafe { place(bytes, "the place for the output") }?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let length = unsafe { place(length, "the place for the length") }?;
        let printed = output.receiver.take();
        let mut taken = lock(&output.taken);
        *taken = printed.bytes;
        length.write(taken.len());
        taken.push(0);
        bytes.write(taken.as_ptr().cast());
        if !is_cut.is_null() {
            // SAFETY: not null, writable as `grpc.h` asks.
            unsafe { is_cut.write(c_int::from(printed.is_cut)) };
        }
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_output_destruct_np(output: *mut GrpcOutput) -> c_int {
    guard(|| {
        let runtime = current()?;
        output_at(&runtime, output)?;
        runtime.outputs.remove(output);
        Ok(Code::NoError)
    })
}
