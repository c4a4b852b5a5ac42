//! How arguments are passed to functions that are known by description only: their types for libffi.
#![forbid(unsafe_code)]

use kumi_idl::{Element, Mode, Param, Type};
use libffi::middle::Type as Native;

/// How the parameters of a function are passed.
///
/// # Errors
/// A parameter that cannot be passed.
pub fn passed(params: &[Param], fortran: bool) -> Result<Vec<Native>, &'static str> {
    let each = params.iter().map(|param| match &param.ty {
        Type::File => Err("it calls back with a file"),
        Type::Callback(_) => Err("it calls back with a function"),
        Type::String if fortran => Err("it calls back with a text from Fortran"),
        Type::Number(Element::C64 | Element::C128) if by_value(param, fortran) => {
            Err("it calls back with a complex number by value")
        }
        Type::Number(element) if by_value(param, fortran) => Ok(number(*element)),
        Type::String | Type::Number(_) => Ok(Native::pointer()),
    });
    each.collect()
}

/// Whether a parameter of a function is passed by value.
#[must_use]
pub fn by_value(param: &Param, fortran: bool) -> bool {
    !fortran && param.scalar().is_some() && param.mode == Mode::In
}

/// The type of a number.
#[must_use]
pub fn number(element: Element) -> Native {
    match element {
        Element::I8 => Native::i8(),
        Element::I16 => Native::i16(),
        Element::I32 => Native::i32(),
        Element::I64 => Native::i64(),
        Element::U8 => Native::u8(),
        Element::U16 => Native::u16(),
        Element::U32 => Native::u32(),
        Element::U64 => Native::u64(),
        Element::F32 => Native::f32(),
        Element::F64 => Native::f64(),
        Element::C64 => Native::c32(),
        Element::C128 => Native::c64(),
    }
}
