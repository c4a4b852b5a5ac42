//! Atomic operations on elements of memory, as `rdma/fi_atomic.h` numbers and defines them.
//!
//! They are applied under the channel's lock, so each is atomic to all others of libfabric on this rank's memory. The program's own
//! instructions on the same memory at the same time are not excluded, as with most fabrics.

/// Most bytes of one call's elements.
pub(super) const MOST_BYTES: usize = 4096;

/// [`kumi_messaging::header::AtomicHeader::kind`] of operations that change memory and give nothing back.
pub(super) const UPDATE: u8 = 0;
/// Of those that give back what was there.
pub(super) const FETCH: u8 = 1;
/// Of those that compare, and give back what was there.
pub(super) const COMPARE: u8 = 2;

/// The operation that changes nothing.
pub(super) const READ: u8 = 10;
const WRITE: u8 = 11;

/// A type of elements. Each operation is none if the type does not have it.
trait Element: Copy {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    /// What replaces the value there.
    fn combine(self, operand: Self, op: u8) -> Option<Self>;
    /// What replaces the value there, which is compared with another one.
    fn exchange(self, operand: Self, compare: Self, op: u8) -> Option<Self>;
}

/// The operands' order is the manual's: the compare value on the left.
macro_rules! exchange_ordered {
    ($self:ident, $operand:ident, $compare:ident, $op:ident, $masked:expr) => {{
        let replaces = match $op {
            12 => $compare == $self,
            13 => $compare != $self,
            14 => $compare <= $self,
            15 => $compare < $self,
            16 => $compare >= $self,
            17 => $compare > $self,
            18 => return $masked,
            _ => return None,
        };
        Some(if replaces { $operand } else { $self })
    }};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<$type>();
            fn read(bytes: &[u8]) -> Self {
                <$type>::from_ne_bytes(std::array::from_fn(|at| bytes[at]))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            fn combine(self, operand: Self, op: u8) -> Option<Self> {
                let (old, new) = (self != 0, operand != 0);
                Some(match op {
                    0 => self.min(operand),
                    1 => self.max(operand),
                    2 => self.wrapping_add(operand),
                    3 => self.wrapping_mul(operand),
                    4 => (old | new).into(),
                    5 => (old & new).into(),
                    6 => self | operand,
                    7 => self & operand,
                    8 => (old ^ new).into(),
                    9 => self ^ operand,
                    READ => self,
                    WRITE => operand,
                    _ => return None,
                })
            }
            fn exchange(self, operand: Self, compare: Self, op: u8) -> Option<Self> {
                exchange_ordered!(self, operand, compare, op, Some((operand & compare) | (self & !compare)))
            }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<$type>();
            fn read(bytes: &[u8]) -> Self {
                <$type>::from_ne_bytes(std::array::from_fn(|at| bytes[at]))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            fn combine(self, operand: Self, op: u8) -> Option<Self> {
                let (old, new) = (self != 0.0, operand != 0.0);
                Some(match op {
                    0 => self.min(operand),
                    1 => self.max(operand),
                    2 => self + operand,
                    3 => self * operand,
                    4 => (old | new).into(),
                    5 => (old & new).into(),
                    8 => (old ^ new).into(),
                    READ => self,
                    WRITE => operand,
                    _ => return None,
                })
            }
            fn exchange(self, operand: Self, compare: Self, op: u8) -> Option<Self> {
                exchange_ordered!(self, operand, compare, op, None)
            }
        }
    )*};
}
floats!(f32, f64);

/// Real and imaginary part.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Complex<T>(T, T);

macro_rules! complex {
    ($($type:ty),*) => {$(
        impl Element for Complex<$type> {
            const BYTES: usize = 2 * size_of::<$type>();
            fn read(bytes: &[u8]) -> Self {
                let (real, imaginary) = bytes.split_at(size_of::<$type>());
                Complex(<$type>::read(real), <$type>::read(imaginary))
            }
            fn write(self, bytes: &mut [u8]) {
                let (real, imaginary) = bytes.split_at_mut(size_of::<$type>());
                self.0.write(real);
                self.1.write(imaginary);
            }
            fn combine(self, operand: Self, op: u8) -> Option<Self> {
                let zero = Complex(0.0, 0.0);
                let (old, new) = (self != zero, operand != zero);
                let truth = |set: bool| Complex(set.into(), 0.0);
                Some(match op {
                    2 => Complex(self.0 + operand.0, self.1 + operand.1),
                    3 => Complex(
                        self.0 * operand.0 - self.1 * operand.1,
                        self.0 * operand.1 + self.1 * operand.0,
                    ),
                    4 => truth(old | new),
                    5 => truth(old & new),
                    8 => truth(old ^ new),
                    READ => self,
                    WRITE => operand,
                    _ => return None,
                })
            }
            fn exchange(self, operand: Self, compare: Self, op: u8) -> Option<Self> {
                match op {
                    12 => Some(if compare == self { operand } else { self }),
                    13 => Some(if compare != self { operand } else { self }),
                    _ => None,
                }
            }
        }
    )*};
}
complex!(f32, f64);

/// Applies an operation to all elements: what replaces them.
fn apply_to<E: Element>(op: u8, kind: u8, before: &[u8], operands: &[u8]) -> Option<Vec<u8>> {
    if !before.len().is_multiple_of(E::BYTES) {
        return None;
    }
    let (operand, compare) = match kind {
        COMPARE => operands.split_at_checked(before.len())?,
        _ => (operands, &operands[..0]),
    };
    // A read has no operand.
    let operand = if op == READ && operand.is_empty() { before } else { operand };
    if operand.len() != before.len() || (kind == COMPARE && compare.len() != before.len()) {
        return None;
    }
    let mut after = vec![0; before.len()];
    for at in (0..before.len()).step_by(E::BYTES) {
        let element = |bytes: &[u8]| E::read(&bytes[at..at + E::BYTES]);
        let new = match kind {
            COMPARE => element(before).exchange(element(operand), element(compare), op)?,
            _ => element(before).combine(element(operand), op)?,
        };
        new.write(&mut after[at..at + E::BYTES]);
    }
    Some(after)
}

/// What of a type is asked for.
struct Query<'b> {
    op: u8,
    kind: u8,
    before: &'b [u8],
    operands: &'b [u8],
}

fn for_type(datatype: u8, query: &Query<'_>) -> Option<Vec<u8>> {
    let apply = match datatype {
        0 => apply_to::<i8>,
        1 => apply_to::<u8>,
        2 => apply_to::<i16>,
        3 => apply_to::<u16>,
        4 => apply_to::<i32>,
        5 => apply_to::<u32>,
        6 => apply_to::<i64>,
        7 => apply_to::<u64>,
        8 => apply_to::<f32>,
        9 => apply_to::<f64>,
        10 => apply_to::<Complex<f32>>,
        11 => apply_to::<Complex<f64>>,
        // The processor's long double has no type here.
        _ => return None,
    };
    apply(query.op, query.kind, query.before, query.operands)
}

/// Applies an operation: what replaces `before`. None: there is no such operation for this type, or the lengths are wrong.
/// `operands`: one for each element, none for reads; then a compare value for each, if the operation compares.
pub(super) fn apply(
    datatype: u8,
    op: u8,
    kind: u8,
    before: &[u8],
    operands: &[u8],
) -> Option<Vec<u8>> {
    if kind > COMPARE || (kind == UPDATE && op == READ) {
        return None;
    }
    for_type(datatype, &Query { op, kind, before, operands })
}

/// Bytes of an element, and how many a call may have, if there is this operation on this type.
pub(super) fn count(datatype: u8, op: u8, kind: u8) -> Option<(usize, usize)> {
    let bytes = *[1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16].get(usize::from(datatype))?;
    let operands = vec![0; if kind == COMPARE { 2 * bytes } else { bytes }];
    apply(datatype, op, kind, &vec![0; bytes], &operands)?;
    Some((bytes, MOST_BYTES / bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_i32(op: u8, kind: u8, before: i32, operands: &[i32]) -> Option<i32> {
        let operands: Vec<u8> = operands.iter().flat_map(|operand| operand.to_ne_bytes()).collect();
        apply(4, op, kind, &before.to_ne_bytes(), &operands).map(|after| i32::read(&after))
    }

    #[test]
    fn integers_have_all_operations() {
        let results: Vec<_> = (0..12).map(|op| of_i32(op, FETCH, -6, &[3])).collect();
        let expected = [-6, 3, -3, -18, 1, 1, -6 | 3, -6 & 3, 0, -6 ^ 3, -6, 3];
        assert_eq!(results, expected.map(Some));
        assert_eq!(of_i32(2, UPDATE, i32::MAX, &[1]), Some(i32::MIN), "sums wrap");
        assert_eq!(of_i32(READ, FETCH, 5, &[]), Some(5));
        assert_eq!(
            (
                of_i32(READ, UPDATE, 5, &[1]),
                of_i32(12, FETCH, 5, &[1]),
                of_i32(2, COMPARE, 5, &[1, 1])
            ),
            (None, None, None)
        );
    }

    #[test]
    fn exchanges_compare_in_the_manual_s_order() {
        for (op, replaced) in [
            (12, [false, true, false]),
            (13, [true, false, true]),
            (14, [true, true, false]),
            (15, [true, false, false]),
            (16, [false, true, true]),
            (17, [false, false, true]),
        ] {
            for (compare, replaced) in [4, 5, 6].into_iter().zip(replaced) {
                let expected = if replaced { 9 } else { 5 };
                assert_eq!(
                    of_i32(op, COMPARE, 5, &[9, compare]),
                    Some(expected),
                    "{op} with {compare}"
                );
            }
        }
        assert_eq!(of_i32(18, COMPARE, 0b0101, &[0b0011, 0b0110]), Some(0b0011));
    }

    #[test]
    fn floats_and_complex_numbers_have_theirs() {
        let f64s = |values: &[f64]| {
            values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>()
        };
        assert_eq!(
            apply(9, 3, UPDATE, &f64s(&[1.5, 2.0]), &f64s(&[2.0, 4.0])),
            Some(f64s(&[3.0, 8.0]))
        );
        assert_eq!(
            apply(11, 3, FETCH, &f64s(&[1.0, 2.0]), &f64s(&[3.0, 4.0])),
            Some(f64s(&[-5.0, 10.0]))
        );
        for op in [6, 7, 9] {
            assert_eq!(
                (count(9, op, UPDATE), count(11, op, UPDATE)),
                (None, None),
                "no bits: {op}"
            );
        }
        assert_eq!((count(11, 0, UPDATE), count(11, 12, COMPARE)), (None, Some((16, 256))));
        assert_eq!(
            (count(9, 18, COMPARE), count(12, 2, UPDATE), count(7, 18, COMPARE)),
            (None, None, Some((8, 512)))
        );
    }

    #[test]
    fn wrong_lengths_change_nothing() {
        assert_eq!(apply(4, 2, UPDATE, &[0; 6], &[0; 6]), None);
        assert_eq!(apply(4, 2, UPDATE, &[0; 8], &[0; 4]), None);
        assert_eq!(apply(4, 12, COMPARE, &[0; 4], &[0; 7]), None);
        assert_eq!(apply(4, 12, COMPARE, &[0; 4], &[0; 3]), None);
        assert_eq!(apply(4, 2, 3, &[0; 4], &[0; 4]), None);
    }
}
