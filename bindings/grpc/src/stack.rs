//! Argument stacks, with the names of three GridRPC systems, and calls with typed arguments.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

use crate::argument::PassedValue;
use crate::attribute::GrpcSessionAttributes;
use crate::call::{CallMode, PreparedCall};
use crate::code::{Code, Failure, guard};
use crate::handle::GrpcFunctionHandle;
use crate::object::GrpcObjectHandle;
use crate::typed::GrpcArgument;

/// `grpc_arg_stack_t`.
#[derive(Debug)]
pub struct GrpcArgStack {
    addresses: Vec<*mut c_void>,
    most: usize,
}

/// `GRPC_SESSIONID_VOID`.
const VOID: c_int = -1;

fn new(most: c_int) -> *mut GrpcArgStack {
    let mut made = std::ptr::null_mut();
    let _reported = guard(|| {
        let most = usize::try_from(most)
            .map_err(|_| Failure::argument("a stack has room for 0 or more arguments"))?;
        let stack = GrpcArgStack { addresses: Vec::new(), most };
        made = Box::into_raw(Box::new(stack));
        Ok(Code::NoError)
    });
    made
}

/// 0, or −1 after a failure, like these functions return.
fn zero(error: c_int) -> c_int {
    if error == 0 { 0 } else { -1 }
}

/// # Safety
/// `stack` is null or one that was made here.
unsafe fn push(stack: *mut GrpcArgStack, address: *mut c_void) -> c_int {
    zero(guard(|| {
        // SAFETY: as the caller promises.
        let stack = unsafe { stack.as_mut() }.ok_or_else(|| Failure::null("the stack"))?;
        if stack.addresses.len() >= stack.most {
            let text = format!("the stack has room for {} arguments", stack.most);
            return Err(Failure::argument(text));
        }
        stack.addresses.push(address);
        Ok(Code::NoError)
    }))
}

/// # Safety
/// `stack` is null or one that was made here.
unsafe fn pop(stack: *mut GrpcArgStack) -> *mut c_void {
    // SAFETY: as the caller promises.
    let address = unsafe { stack.as_mut() }.and_then(|stack| stack.addresses.pop());
    address.unwrap_or(std::ptr::null_mut())
}

/// # Safety
/// `stack` is null or one that was made here and is not used again.
unsafe fn destruct(stack: *mut GrpcArgStack) -> c_int {
    zero(guard(|| {
        if stack.is_null() {
            return Err(Failure::null("the stack"));
        }
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(stack) });
        Ok(Code::NoError)
    }))
}

/// The arguments on a stack.
///
/// # Safety
/// `stack` is null or one that was made here.
pub unsafe fn stacked(stack: *const GrpcArgStack) -> Result<Vec<PassedValue<'static>>, Failure> {
    // SAFETY: as the caller promises.
    let stack = unsafe { stack.as_ref() }.ok_or_else(|| Failure::null("the stack"))?;
    Ok(stack.addresses.iter().map(|address| PassedValue::Address(*address)).collect())
}

/// Arguments with their types.
///
/// # Safety
/// `arguments` is null or has so many during `'a`.
pub unsafe fn typed<'a>(
    arguments: *const GrpcArgument,
    count: usize,
) -> Result<Vec<PassedValue<'a>>, Failure> {
    let arguments = if count == 0 {
        &[]
    } else if arguments.is_null() {
        return Err(Failure::null("the arguments"));
    } else {
        // SAFETY: not null; as many as the caller says.
        unsafe { slice::from_raw_parts(arguments, count) }
    };
    Ok(arguments.iter().map(PassedValue::Typed).collect())
}

/// Calls with the arguments on a stack.
///
/// # Safety
/// As `grpc.h` says of `grpc_call_arg_stack`.
unsafe fn with_stack(
    prepare: impl FnOnce() -> Result<PreparedCall, Failure>,
    stack: *const GrpcArgStack,
    way: &CallMode,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        let prepared = prepare()?;
        // SAFETY: as the caller promises.
        let given = unsafe { stacked(stack) }?;
        // SAFETY: as the caller promises.
        unsafe { prepared.call(&given, way, attributes.as_ref()) }
    })
}

/// # Safety
/// As `grpc.h` says of `grpc_call_arg_stack`.
unsafe fn call(
    handle: *const GrpcFunctionHandle,
    stack: *const GrpcArgStack,
    way: &CallMode,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { with_stack(|| PreparedCall::of(handle), stack, way, attributes) }
}

/// # Safety
/// As `grpc.h` says of `grpc_call_arg_stack_async`.
unsafe fn begin(
    handle: *const GrpcFunctionHandle,
    stack: *const GrpcArgStack,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    let mut session = VOID;
    // SAFETY: the same promises.
    let error = unsafe { call(handle, stack, &CallMode::Session(&raw mut session), attributes) };
    if error == 0 { session } else { VOID }
}

macro_rules! dialect {
    ($new:ident, $push:ident, $pop:ident, $destruct:ident) => {
        /// See `grpc.h`.
        #[allow(non_snake_case)] // As the dialect has it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $new(most: c_int) -> *mut GrpcArgStack {
            new(most)
        }

        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says.
        #[allow(non_snake_case)] // As the dialect has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $push(stack: *mut GrpcArgStack, address: *mut c_void) -> c_int {
            // SAFETY: as `grpc.h` asks of the caller.
            unsafe { push(stack, address) }
        }

        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says.
        #[allow(non_snake_case)] // As the dialect has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pop(stack: *mut GrpcArgStack) -> *mut c_void {
            // SAFETY: as `grpc.h` asks of the caller.
            unsafe { pop(stack) }
        }

        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says.
        #[allow(non_snake_case)] // As the dialect has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destruct(stack: *mut GrpcArgStack) -> c_int {
            // SAFETY: as `grpc.h` asks of the caller.
            unsafe { destruct(stack) }
        }
    };
}

dialect!(
    grpc_arg_stack_new,
    grpc_arg_stack_push_arg,
    grpc_arg_stack_pop_arg,
    grpc_arg_stack_destruct
);
dialect!(grpc_stack_create, grpc_stack_push, grpc_stack_pop, grpc_stack_destruct);
dialect!(newArgStack, pushArg, popArg, destructArgStack);

macro_rules! calls {
    ($call:ident, $begin:ident) => {
        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $call(
            handle: *mut GrpcFunctionHandle,
            stack: *mut GrpcArgStack,
        ) -> c_int {
            // SAFETY: as `grpc.h` asks of the caller.
            unsafe { call(handle, stack, &CallMode::Wait, std::ptr::null()) }
        }

        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $begin(
            handle: *mut GrpcFunctionHandle,
            stack: *mut GrpcArgStack,
        ) -> c_int {
            // SAFETY: as `grpc.h` asks of the caller.
            unsafe { begin(handle, stack, std::ptr::null()) }
        }
    };
}

calls!(grpc_call_arg_stack, grpc_call_arg_stack_async);
calls!(grpc_call_argstack, grpc_call_argstack_async);

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_call_arg_stack_with_attr_np(
    handle: *mut GrpcFunctionHandle,
    attributes: *const GrpcSessionAttributes,
    stack: *mut GrpcArgStack,
) -> c_int {
    // SAFETY: as `grpc.h` asks of the caller.
    unsafe { call(handle, stack, &CallMode::Wait, attributes) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_call_arg_stack_async_with_attr_np(
    handle: *mut GrpcFunctionHandle,
    attributes: *const GrpcSessionAttributes,
    stack: *mut GrpcArgStack,
) -> c_int {
    // SAFETY: as `grpc.h` asks of the caller.
    unsafe { begin(handle, stack, attributes) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_invoke_arg_stack_np(
    handle: *mut GrpcObjectHandle,
    method: *const c_char,
    stack: *mut GrpcArgStack,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { grpc_invoke_arg_stack_with_attr_np(handle, method, std::ptr::null(), stack) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_invoke_arg_stack_with_attr_np(
    handle: *mut GrpcObjectHandle,
    method: *const c_char,
    attributes: *const GrpcSessionAttributes,
    stack: *mut GrpcArgStack,
) -> c_int {
    let prepare = || {
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { PreparedCall::of_method(handle, method) }
    };
    // SAFETY: as above.
    unsafe { with_stack(prepare, stack, &CallMode::Wait, attributes) }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_invoke_arg_stack_async_np(
    handle: *mut GrpcObjectHandle,
    method: *const c_char,
    session: *mut c_int,
    stack: *mut GrpcArgStack,
) -> c_int {
    // SAFETY: the same promises.
    unsafe {
        grpc_invoke_arg_stack_async_with_attr_np(handle, method, session, std::ptr::null(), stack)
    }
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_invoke_arg_stack_async_with_attr_np(
    handle: *mut GrpcObjectHandle,
    method: *const c_char,
    session: *mut c_int,
    attributes: *const GrpcSessionAttributes,
    stack: *mut GrpcArgStack,
) -> c_int {
    let prepare = || {
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { PreparedCall::of_method(handle, method) }
    };
    // SAFETY: as above.
    unsafe { with_stack(prepare, stack, &CallMode::Session(session), attributes) }
}

/// Calls with typed arguments.
///
/// # Safety
/// As `kumi_grpc_arguments.h` says.
unsafe fn with_arguments(
    prepare: impl FnOnce() -> Result<PreparedCall, Failure>,
    arguments: *const GrpcArgument,
    count: usize,
    way: &CallMode,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        let prepared = prepare()?;
        // SAFETY: as the caller promises.
        let given = unsafe { typed(arguments, count) }?;
        // SAFETY: as the header asks of the caller.
        unsafe { prepared.call(&given, way, attributes.as_ref()) }
    })
}

/// The header's flag for how a call is run.
fn way(is_session: c_int, session: *mut c_int) -> CallMode {
    if is_session == 0 { CallMode::Wait } else { CallMode::Session(session) }
}

/// See `kumi_grpc_arguments.h`.
///
/// # Safety
/// As that says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_grpc_call_arguments(
    handle: *mut GrpcFunctionHandle,
    arguments: *const GrpcArgument,
    count: usize,
    is_session: c_int,
    session: *mut c_int,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    let prepare = || {
        // SAFETY: as the header asks of the caller.
        unsafe { PreparedCall::of(handle) }
    };
    // SAFETY: as above.
    unsafe { with_arguments(prepare, arguments, count, &way(is_session, session), attributes) }
}

/// See `kumi_grpc_arguments.h`.
///
/// # Safety
/// As that says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_grpc_invoke_arguments(
    handle: *mut GrpcObjectHandle,
    method: *const c_char,
    arguments: *const GrpcArgument,
    count: usize,
    is_session: c_int,
    session: *mut c_int,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    let prepare = || {
        // SAFETY: as the header asks of the caller.
        unsafe { PreparedCall::of_method(handle, method) }
    };
    // SAFETY: as above.
    unsafe { with_arguments(prepare, arguments, count, &way(is_session, session), attributes) }
}
