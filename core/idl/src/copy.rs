//! Copies of array sections between memory orders, and between arrays and packed bytes.

use alloc::vec::Vec;

use crate::model::Order;
use crate::plan::{Argument, ArgumentForm};
use crate::section::Axis;

/// The error that memory does not have the planned size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} bytes were given for an array of {expected}")]
pub struct WrongLength {
    /// Bytes of the plan.
    pub expected: u64,
    /// Bytes that were given.
    pub given: u64,
}

impl Argument {
    /// The order in which the routine has the elements.
    #[must_use]
    pub fn order(&self) -> Order {
        match self.form {
            ArgumentForm::Array(_, order) => order,
            _ => Order::Row,
        }
    }

    /// Packs the section of `array`, whose memory order is `order`, into `packed`.
    ///
    /// # Errors
    /// [`WrongLength`] when `array` does not have [`Argument::bytes`] or `packed` not those of the section.
    pub fn gather(&self, array: &[u8], order: Order, packed: &mut [u8]) -> Result<(), WrongLength> {
        self.check(array.len(), packed.len())?;
        if packed.is_empty() {
            return Ok(());
        }
        let mut walk = self.walk(order).ok_or_else(|| self.too_long(array.len()))?;
        walk.swap();
        walk.copy(array, packed);
        Ok(())
    }

    /// Unpacks a section into `array`, whose memory order is `order`. The other elements of `array` stay unchanged.
    ///
    /// # Errors
    /// [`WrongLength`] when `array` does not have [`Argument::bytes`] or `packed` not those of the section.
    pub fn scatter(
        &self,
        packed: &[u8],
        array: &mut [u8],
        order: Order,
    ) -> Result<(), WrongLength> {
        self.check(array.len(), packed.len())?;
        if packed.is_empty() {
            return Ok(());
        }
        let walk = self.walk(order).ok_or_else(|| self.too_long(array.len()))?;
        walk.copy(packed, array);
        Ok(())
    }

    fn check(&self, array: usize, packed: usize) -> Result<(), WrongLength> {
        let pairs = [(self.bytes, array), (self.section.bytes(), packed)];
        for (expected, given) in pairs {
            if usize::try_from(expected) != Ok(given) {
                return Err(WrongLength { expected, given: given as u64 });
            }
        }
        Ok(())
    }

    /// The error for axes with more bytes than memory can have.
    fn too_long(&self, given: usize) -> WrongLength {
        let elements = self.axes.iter().fold(1_u64, |count, axis| count.saturating_mul(axis.size));
        WrongLength { expected: elements, given: given as u64 }
    }

    /// The copy from a nonempty packed section to an array of this order; `None`: it is no array, or too large for this
    /// machine.
    fn walk(&self, order: Order) -> Option<StridedCopy> {
        let (element, own) = match self.form {
            ArgumentForm::Scalar(element) => (element, Order::Row),
            ArgumentForm::Array(element, order) => (element, order),
            ArgumentForm::Text { .. } | ArgumentForm::File | ArgumentForm::Callback => return None,
        };
        let size = usize::try_from(element.size()).ok()?;
        let mut walk = StridedCopy { size, from: 0, to: 0, axes: Vec::new() };
        let packed = strides(&self.axes, own, size, |axis| axis.count)?;
        let array = strides(&self.axes, order, size, |axis| axis.size)?;
        for ((axis, from), to) in self.axes.iter().zip(packed).zip(array) {
            walk.to += usize::try_from(axis.start).ok()? * to;
            let count = usize::try_from(axis.count).ok()?;
            if count > 1 {
                let step = usize::try_from(axis.step).ok()?;
                walk.axes.push(CopyLoop { count, from, to: step * to });
            }
        }
        walk.arrange();
        Some(walk)
    }
}

/// Bytes from one element to the next along each axis.
fn strides(
    axes: &[Axis],
    order: Order,
    size: usize,
    length: impl Fn(&Axis) -> u64,
) -> Option<Vec<usize>> {
    let mut strides: Vec<usize> = axes.iter().map(|_| size).collect();
    let mut stride = size;
    for fast in 0..axes.len() {
        let index = if order == Order::Row { axes.len() - 1 - fast } else { fast };
        strides[index] = stride;
        stride = stride.checked_mul(usize::try_from(length(&axes[index])).ok()?)?;
    }
    Some(strides)
}

/// A loop of a copy: its count, and its strides on both sides in bytes.
#[derive(Debug, Clone, Copy)]
struct CopyLoop {
    count: usize,
    from: usize,
    to: usize,
}

/// A copy between two layouts.
#[derive(Debug)]
struct StridedCopy {
    /// Bytes that are contiguous on both sides.
    size: usize,
    from: usize,
    to: usize,
    /// The loops, the innermost last.
    axes: Vec<CopyLoop>,
}

/// Elements along each side of a block: two of them fit a first-level cache.
const BLOCK: usize = 32;

impl StridedCopy {
    fn swap(&mut self) {
        core::mem::swap(&mut self.from, &mut self.to);
        for axis in &mut self.axes {
            core::mem::swap(&mut axis.from, &mut axis.to);
        }
        self.arrange_loops();
    }

    /// Merges loops that are contiguous on both sides, then orders the loops.
    fn arrange(&mut self) {
        while let Some(joined) =
            self.axes.iter().position(|axis| axis.from == self.size && axis.to == self.size)
        {
            self.size *= self.axes.remove(joined).count;
        }
        self.arrange_loops();
    }

    /// Puts the loop with the smallest target stride last, and the one with the smallest source stride before it.
    fn arrange_loops(&mut self) {
        self.axes.sort_by_key(|axis| core::cmp::Reverse(axis.to));
        let Some(inner) = self.axes.len().checked_sub(1) else { return };
        let least = (0..inner).min_by_key(|index| self.axes[*index].from);
        if let Some(least) = least {
            let axis = self.axes.remove(least);
            self.axes.insert(inner - 1, axis);
        }
    }

    fn copy(&self, source: &[u8], target: &mut [u8]) {
        let (outer, inner) = self.axes.split_at(self.axes.len().saturating_sub(2));
        let once = CopyLoop { count: 1, from: 0, to: 0 };
        let (slow, fast) = match inner {
            [] => (once, once),
            [fast] => (once, *fast),
            [slow, fast, ..] => (*slow, *fast),
        };
        let mut at: Vec<usize> = outer.iter().map(|_| 0).collect();
        let (mut from, mut to) = (self.from, self.to);
        loop {
            self.plane(&source[from..], &mut target[to..], slow, fast);
            let mut done = true;
            for (at, axis) in at.iter_mut().zip(outer).rev() {
                *at += 1;
                from += axis.from;
                to += axis.to;
                if *at < axis.count {
                    done = false;
                    break;
                }
                from -= *at * axis.from;
                to -= *at * axis.to;
                *at = 0;
            }
            if done {
                return;
            }
        }
    }

    /// Runs two loops in blocks, so that a transposition touches a cache line once for each block.
    fn plane(&self, source: &[u8], target: &mut [u8], slow: CopyLoop, fast: CopyLoop) {
        match self.size {
            1 => blocks::<1>(source, target, slow, fast),
            2 => blocks::<2>(source, target, slow, fast),
            4 => blocks::<4>(source, target, slow, fast),
            8 => blocks::<8>(source, target, slow, fast),
            16 => blocks::<16>(source, target, slow, fast),
            size => {
                for i in 0..slow.count {
                    for j in 0..fast.count {
                        let from = i * slow.from + j * fast.from;
                        let to = i * slow.to + j * fast.to;
                        target[to..to + size].copy_from_slice(&source[from..from + size]);
                    }
                }
            }
        }
    }
}

fn blocks<const N: usize>(source: &[u8], target: &mut [u8], slow: CopyLoop, fast: CopyLoop) {
    for rows in (0..slow.count).step_by(BLOCK) {
        let rows = rows..slow.count.min(rows + BLOCK);
        for columns in (0..fast.count).step_by(BLOCK) {
            let columns = columns..fast.count.min(columns + BLOCK);
            for i in rows.clone() {
                for j in columns.clone() {
                    let from = i * slow.from + j * fast.from;
                    let to = i * slow.to + j * fast.to;
                    let value: [u8; N] =
                        *source[from..].first_chunk().expect("the plan's lengths were checked");
                    target[to..to + N].copy_from_slice(&value);
                }
            }
        }
    }
}
