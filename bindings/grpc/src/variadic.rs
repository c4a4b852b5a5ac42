//! Functions that take any number of arguments. Stable Rust can call such functions but not define them, so they are in
//! `variadic.c`. A shared library exports only Rust symbols; so the names that programs see are jumps in this file.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use kumi_idl::{Element, Mode, Param, Scalar};

use crate::argument::{PassedValue, is_passed};
use crate::attribute::GrpcSessionAttributes;
use crate::call::{CallMode, PreparedCall};
use crate::code::{Code, guard};
use crate::handle::GrpcFunctionHandle;
use crate::object::GrpcObjectHandle;
use crate::transaction::{GrpcTransaction, record};

/// How C passes an argument behind `...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Int = 1,
    Unsigned,
    Int64,
    UInt64,
    Double,
    FloatComplex,
    DoubleComplex,
    Address,
}

impl Kind {
    fn of(param: &Param) -> Kind {
        let Some(element) = param.scalar().filter(|_| param.mode == Mode::In) else {
            return Kind::Address;
        };
        match element {
            // Smaller types are promoted.
            Element::I8 | Element::I16 | Element::I32 | Element::U8 | Element::U16 => Kind::Int,
            Element::U32 => Kind::Unsigned,
            Element::I64 => Kind::Int64,
            Element::U64 => Kind::UInt64,
            Element::F32 | Element::F64 => Kind::Double,
            Element::C64 => Kind::FloatComplex,
            Element::C128 => Kind::DoubleComplex,
        }
    }

    /// The argument.
    ///
    /// # Safety
    /// It was stored as this kind.
    unsafe fn given(self, passed: &VariadicValue) -> PassedValue<'static> {
        // SAFETY: the field is the one that was stored, as the caller promises.
        unsafe {
            match self {
                Kind::Int | Kind::Int64 => PassedValue::Number(Scalar::I64(passed.integer)),
                Kind::Unsigned | Kind::UInt64 => PassedValue::Number(Scalar::U64(passed.natural)),
                Kind::Double => PassedValue::Number(Scalar::F64(passed.parts[0])),
                Kind::FloatComplex | Kind::DoubleComplex => {
                    PassedValue::Number(Scalar::Complex(passed.parts[0], passed.parts[1]))
                }
                Kind::Address => PassedValue::Address(passed.address),
            }
        }
    }
}

/// `union variadic_value` of `variadic.c`.
#[repr(C)]
#[derive(Clone, Copy)]
union VariadicValue {
    integer: i64,
    natural: u64,
    parts: [f64; 2],
    address: *mut c_void,
}

/// State of `variadic.c` while it collects arguments.
struct VariadicCall {
    prepared: PreparedCall,
    kinds: Vec<Kind>,
}

/// Tells how the arguments of a function handle's routine, or of an object handle's method, are passed.
///
/// # Safety
/// Called by `variadic.c`: the places are writable. The handle has the stated kind, and is null or readable. The method is
/// null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_grpc_prepare(
    is_method: c_int,
    handle: *const c_void,
    method: *const c_char,
    place: *mut *mut c_void,
    kinds: *mut *const u8,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let prepared = unsafe {
            match is_method {
                0 => PreparedCall::of(handle.cast()),
                _ => PreparedCall::of_method(handle.cast(), method),
            }
        }?;
        let passed = prepared.known().params.iter().filter(|param| is_passed(param));
        let list: Vec<Kind> = passed.map(Kind::of).collect();
        let collecting = Box::new(VariadicCall { prepared, kinds: list });
        // SAFETY: as the caller promises. The list does not move while the box lives.
        unsafe {
            kinds.write(collecting.kinds.as_ptr().cast());
            count.write(collecting.kinds.len());
            place.write(Box::into_raw(collecting).cast());
        }
        Ok(Code::NoError)
    })
}

/// Calls with the collected arguments.
///
/// # Safety
/// Called by `variadic.c`, once with the result of [`kumi_grpc_prepare`] and the stated number of arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_grpc_start(
    collecting: *mut c_void,
    passed: *const VariadicValue,
    is_session: c_int,
    session: *mut c_int,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        // SAFETY: the same promises.
        let (prepared, given) = unsafe { collected(collecting, passed) };
        let way = if is_session == 0 { CallMode::Wait } else { CallMode::Session(session) };
        // SAFETY: null or readable as `grpc.h` asks of the program; the rest as it asks too.
        unsafe { prepared.call(&given, &way, attributes.as_ref()) }
    })
}

/// Records a call with the collected arguments.
///
/// # Safety
/// Called by `variadic.c`, as [`kumi_grpc_start`] is.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_grpc_record(
    collecting: *mut c_void,
    passed: *const VariadicValue,
    transaction: *mut GrpcTransaction,
    number: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the same promises.
        let (prepared, given) = unsafe { collected(collecting, passed) };
        // SAFETY: as `grpc.h` asks of the program.
        unsafe { record(transaction, &prepared, &given, None, number) }
    })
}

/// A call and its arguments.
///
/// # Safety
/// The call came from [`kumi_grpc_prepare`] and comes here once, with the stated number of arguments.
unsafe fn collected(
    collecting: *mut c_void,
    passed: *const VariadicValue,
) -> (PreparedCall, Vec<PassedValue<'static>>) {
    // SAFETY: it came from `Box::into_raw` and comes back once.
    let collecting = unsafe { Box::from_raw(collecting.cast::<VariadicCall>()) };
    let VariadicCall { prepared, kinds } = *collecting;
    let given = kinds.iter().enumerate().map(|(index, kind)| {
        // SAFETY: there are as many arguments as kinds, each stored as its kind states.
        unsafe { kind.given(&*passed.add(index)) }
    });
    let given = given.collect();
    (prepared, given)
}

unsafe extern "C" {
    fn kumi_grpc_call(handle: *mut GrpcFunctionHandle, ...) -> c_int;
    fn kumi_grpc_call_async(handle: *mut GrpcFunctionHandle, session: *mut c_int, ...) -> c_int;
    fn kumi_grpc_call_with_attr(
        handle: *mut GrpcFunctionHandle,
        attributes: *const GrpcSessionAttributes,
        ...
    ) -> c_int;
    fn kumi_grpc_call_async_with_attr(
        handle: *mut GrpcFunctionHandle,
        session: *mut c_int,
        attributes: *const GrpcSessionAttributes,
        ...
    ) -> c_int;
    fn kumi_grpc_transaction_call(
        transaction: *mut c_void,
        number: *mut c_int,
        handle: *mut GrpcFunctionHandle,
        ...
    ) -> c_int;
    fn kumi_grpc_invoke(handle: *mut GrpcObjectHandle, method: *const c_char, ...) -> c_int;
    fn kumi_grpc_invoke_async(
        handle: *mut GrpcObjectHandle,
        method: *const c_char,
        session: *mut c_int,
        ...
    ) -> c_int;
    fn kumi_grpc_invoke_with_attr(
        handle: *mut GrpcObjectHandle,
        method: *const c_char,
        attributes: *const GrpcSessionAttributes,
        ...
    ) -> c_int;
    fn kumi_grpc_invoke_async_with_attr(
        handle: *mut GrpcObjectHandle,
        method: *const c_char,
        session: *mut c_int,
        attributes: *const GrpcSessionAttributes,
        ...
    ) -> c_int;
}

/// A jump: registers and stack are left as the caller made them.
macro_rules! jump {
    ($name:ident, $to:ident) => {
        /// See `grpc.h`.
        ///
        /// # Safety
        /// As `grpc.h` says. It is declared there with its arguments.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("jmp {}", sym $to);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("b {}", sym $to);
            #[cfg(target_arch = "riscv64")]
            naked_asm!("tail {}", sym $to);
        }
    };
}

jump!(grpc_call, kumi_grpc_call);
jump!(grpc_call_async, kumi_grpc_call_async);
jump!(grpc_call_with_attr_np, kumi_grpc_call_with_attr);
jump!(grpc_call_async_with_attr_np, kumi_grpc_call_async_with_attr);
jump!(grpc_transaction_call_np, kumi_grpc_transaction_call);
jump!(grpc_invoke_np, kumi_grpc_invoke);
jump!(grpc_invoke_async_np, kumi_grpc_invoke_async);
jump!(grpc_invoke_with_attr_np, kumi_grpc_invoke_with_attr);
jump!(grpc_invoke_async_with_attr_np, kumi_grpc_invoke_async_with_attr);
