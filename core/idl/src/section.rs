//! Sections of arrays, as runs of bytes.

use alloc::vec::Vec;

/// A dimension of an array, and the elements of it that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements.
    pub size: u64,
    /// The first element that is sent.
    pub start: u64,
    /// Number of elements that are sent.
    pub count: u64,
    /// The step between them, at least 1.
    pub step: u64,
}

impl Axis {
    /// An axis whose elements are all sent.
    #[must_use]
    pub fn whole(size: u64) -> Axis {
        Axis { size, start: 0, count: size, step: 1 }
    }
}

/// A run of bytes of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Offset in the array.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub length: u64,
}

/// The part of an array that is sent, in the memory order of the routine. All numbers are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    first: u64,
    run: u64,
    /// Count and stride of the dimensions beyond a run, the fastest first.
    outer: Vec<(u64, u64)>,
    bytes: u64,
}

impl Section {
    /// A section of elements of `size` bytes; the fastest axis comes first. The array must have fewer than 2^63 bytes, and each
    /// axis' last element must be within its size.
    pub(crate) fn new<'a>(size: u64, fastest_first: impl Iterator<Item = &'a Axis>) -> Section {
        let mut section = Section { first: 0, run: size, outer: Vec::new(), bytes: size };
        let mut stride = size;
        for axis in fastest_first {
            if axis.count == 0 {
                return Section::default();
            }
            section.first += axis.start * stride;
            section.bytes *= axis.count;
            if axis.count > 1 {
                // The inner run fills the stride: repetitions are contiguous.
                if section.outer.is_empty() && axis.step == 1 && section.run == stride {
                    section.run *= axis.count;
                } else {
                    section.outer.push((axis.count, axis.step * stride));
                }
            }
            stride *= axis.size;
        }
        section
    }

    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The runs in the routine's order. Runs within a dimension are not contiguous.
    #[must_use]
    pub fn runs(&self) -> Runs<'_> {
        let left = self.bytes.checked_div(self.run).unwrap_or(0);
        let at = self.outer.iter().map(|_| 0).collect();
        Runs { section: self, at, offset: self.first, left }
    }

    /// The single run of a contiguous section, which needs no packing; `None`: it has several runs or none.
    #[must_use]
    pub fn single(&self) -> Option<Run> {
        let single = self.outer.is_empty() && self.bytes > 0;
        single.then_some(Run { offset: self.first, length: self.run })
    }
}

/// The runs of a [`Section`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    section: &'a Section,
    at: Vec<u64>,
    offset: u64,
    left: u64,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        self.left = self.left.checked_sub(1)?;
        let run = Run { offset: self.offset, length: self.section.run };
        for (at, (count, stride)) in self.at.iter_mut().zip(&self.section.outer) {
            *at += 1;
            self.offset += stride;
            if *at < *count {
                break;
            }
            self.offset -= *at * stride;
            *at = 0;
        }
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}
