//! Values of scalar parameters.

use alloc::vec::Vec;
use core::fmt;

use crate::model::Element;

/// A scalar value, wide enough for every element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A number.
    F64(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// This value in the form that belongs to `element`: [`Scalar::I64`] for signed integers, [`Scalar::U64`] for
    /// unsigned ones, and so on. `None` when the element cannot hold it: an integer out of its range or beyond what
    /// a floating-point number counts exactly, a number with a fraction for an integer, a complex one for a real.
    #[must_use]
    pub fn fit(self, element: Element) -> Option<Scalar> {
        match element {
            Element::I8 | Element::I16 | Element::I32 | Element::I64 => {
                self.integer().filter(|value| in_range(*value, element)).map(Scalar::I64)
            }
            Element::U8 | Element::U16 | Element::U32 => {
                let value = self.integer().filter(|value| in_range(*value, element))?;
                u64::try_from(value).ok().map(Scalar::U64)
            }
            Element::U64 => match self {
                Scalar::I64(value) => u64::try_from(value).ok().map(Scalar::U64),
                Scalar::U64(_) => Some(self),
                Scalar::F64(_) | Scalar::Complex(..) => None,
            },
            Element::F32 | Element::F64 => {
                self.real().filter(|value| holds(*value, element)).map(Scalar::F64)
            }
            Element::C64 | Element::C128 => {
                let (real, imaginary) = match self {
                    Scalar::Complex(real, imaginary) => (real, imaginary),
                    other => (other.real()?, 0.0),
                };
                let fits = holds(real, element) && holds(imaginary, element);
                fits.then_some(Scalar::Complex(real, imaginary))
            }
        }
    }

    /// The value as a signed integer, when it is one.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        match self {
            Scalar::I64(value) => Some(value),
            Scalar::U64(value) => i64::try_from(value).ok(),
            Scalar::F64(_) | Scalar::Complex(..) => None,
        }
    }

    /// The value as a real number, if a double holds it exactly.
    #[must_use]
    pub fn real(self) -> Option<f64> {
        match self {
            Scalar::I64(value) => exact(value),
            Scalar::U64(value) => i64::try_from(value).ok().and_then(exact),
            Scalar::F64(value) => Some(value),
            Scalar::Complex(..) => None,
        }
    }

    /// Appends the value as a little-endian `element`. False: it does not fit, and nothing is appended.
    #[must_use]
    pub fn encode(self, element: Element, into: &mut Vec<u8>) -> bool {
        let Some(value) = self.fit(element) else { return false };
        match value {
            Scalar::I64(value) => push_integer(into, &value.to_le_bytes(), element),
            Scalar::U64(value) => push_integer(into, &value.to_le_bytes(), element),
            Scalar::F64(value) => push_real(into, value, element),
            Scalar::Complex(real, imaginary) => {
                push_real(into, real, element);
                push_real(into, imaginary, element);
            }
        }
        true
    }

    /// The value of an `element`'s little-endian bytes; `None` when their number is not the element's size.
    #[must_use]
    pub fn decode(element: Element, bytes: &[u8]) -> Option<Scalar> {
        Some(match element {
            Element::I8 => Scalar::I64(i8::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::I16 => Scalar::I64(i16::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::I32 => Scalar::I64(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::I64 => Scalar::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            Element::U8 => Scalar::U64(u8::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::U16 => Scalar::U64(u16::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::U32 => Scalar::U64(u32::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::U64 => Scalar::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            Element::F32 => Scalar::F64(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            Element::F64 => Scalar::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            Element::C64 => {
                let (real, imaginary) = halves(bytes)?;
                Scalar::Complex(
                    f32::from_le_bytes(real).into(),
                    f32::from_le_bytes(imaginary).into(),
                )
            }
            Element::C128 => {
                let (real, imaginary) = halves(bytes)?;
                Scalar::Complex(f64::from_le_bytes(real), f64::from_le_bytes(imaginary))
            }
        })
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::I64(value) => write!(f, "{value}"),
            Scalar::U64(value) => write!(f, "{value}"),
            Scalar::F64(value) => write!(f, "{value:?}"),
            Scalar::Complex(real, imaginary) => write!(f, "({real:?}, {imaginary:?})"),
        }
    }
}

/// The value of a text in an expression: the code of its first character as a capital; 0 if it is empty. So `transa == 'T' ? k : m`
/// treats `T` and `t` alike, as Fortran libraries do.
#[must_use]
pub fn letter(text: &str) -> Scalar {
    Scalar::U64(text.bytes().next().map_or(0, |first| first.to_ascii_uppercase().into()))
}

fn in_range(value: i64, element: Element) -> bool {
    match element {
        Element::I8 => i8::try_from(value).is_ok(),
        Element::I16 => i16::try_from(value).is_ok(),
        Element::I32 => i32::try_from(value).is_ok(),
        Element::U8 => u8::try_from(value).is_ok(),
        Element::U16 => u16::try_from(value).is_ok(),
        Element::U32 => u32::try_from(value).is_ok(),
        _ => true,
    }
}

/// Whether a finite value stays finite in the element.
fn holds(value: f64, element: Element) -> bool {
    let single = matches!(element, Element::F32 | Element::C64);
    !single || !value.is_finite() || (value as f32).is_finite()
}

fn exact(value: i64) -> Option<f64> {
    const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;
    (value.unsigned_abs() <= EXACT).then_some(value as f64)
}

fn push_integer(into: &mut Vec<u8>, bytes: &[u8; 8], element: Element) {
    let size = usize::try_from(element.size()).unwrap_or(bytes.len());
    into.extend_from_slice(&bytes[..size]);
}

fn push_real(into: &mut Vec<u8>, value: f64, element: Element) {
    if matches!(element, Element::F32 | Element::C64) {
        into.extend_from_slice(&(value as f32).to_le_bytes());
    } else {
        into.extend_from_slice(&value.to_le_bytes());
    }
}

fn halves<const N: usize>(bytes: &[u8]) -> Option<([u8; N], [u8; N])> {
    let (real, imaginary) = bytes.split_at_checked(N)?;
    Some((real.try_into().ok()?, imaginary.try_into().ok()?))
}
