//! Carries schedules out, with messages of the library's own.

use kumi_net::{Description, WaitKind};
use std::slice;

use kumi_net::{SharedBytes, SharedBytesMut};

use super::{exact, wanted};
use crate::collective::reduction::{NoReduction, Reduction};
use crate::collective::scalar::{Scalar, bytes, bytes_mut};
use crate::collective::schedule::{Call, Limits, Place, Schedule, Span, Step, plan, wants_memory};
use crate::error::Error;
use crate::group::Group;
use crate::group::memory::NodeMemory;
use crate::group::tag::Collective;

/// Bytes of memory shared by a node that are copied out at a time, to be combined.
const CHUNK: usize = 8 * 1024;

/// The memory of a schedule.
pub(super) struct Memory<'m> {
    /// Read only.
    pub(super) input: SharedBytes<'m>,
    pub(super) output: SharedBytesMut<'m>,
    pub(super) scratch: SharedBytesMut<'m>,
    pub(super) shared: Option<&'m NodeMemory>,
    /// Bytes of an element.
    pub(super) element: usize,
}

impl<'m> Memory<'m> {
    /// The bytes of a span, to be read.
    pub(super) fn read(&self, span: Span) -> SharedBytes<'m> {
        match span.place {
            Place::Input => self.input.slice(span.start * self.element, span.length * self.element),
            Place::Shared(member) => {
                let piece = self.shared.and_then(|memory| memory.read(member));
                let piece = piece.unwrap_or_else(|| panic!("member {member} shares no memory"));
                piece.slice(span.start * self.element, span.length * self.element)
            }
            _ => self.write(span).shared(),
        }
    }

    /// The bytes of a span, to be written.
    ///
    /// # Panics
    /// If they are not there or not to be written: a mistake in the schedule.
    pub(super) fn write(&self, span: Span) -> SharedBytesMut<'m> {
        let place = match span.place {
            Place::Output => self.output,
            Place::Scratch => self.scratch,
            Place::Shared(member) => {
                let piece = self.shared.and_then(|memory| memory.write(member));
                piece.unwrap_or_else(|| panic!("member {member} shares no memory"))
            }
            Place::Input => panic!("the input of a collective is read only"),
        };
        place.slice(span.start * self.element, span.length * self.element)
    }

    /// # Safety
    /// The elements are of `T`, nobody else uses them, and no other reference to them is used while this one is.
    unsafe fn elements<T: Scalar>(&self, span: Span) -> &'m mut [T] {
        assert!(matches!(span.place, Place::Output | Place::Scratch), "no place of one's own");
        let bytes = self.write(span);
        // SAFETY: inside of a slice of `T`, of which `span` counts the elements; the rest is the caller's promise.
        unsafe { slice::from_raw_parts_mut(bytes.as_ptr().cast(), span.length) }
    }

    pub(super) fn combine<T: Scalar>(
        &self,
        op: &impl Reduction<T>,
        into: Span,
        other: Span,
        other_first: bool,
    ) -> Result<(), Error> {
        let apart =
            into.place != other.place || into.end() <= other.start || other.end() <= into.start;
        assert!(apart, "elements are combined with themselves");
        // SAFETY: `Memory` is of slices of `T` that are borrowed for it, no receive is under way, and `other` is apart.
        let into_elements = unsafe { self.elements::<T>(into) };
        if let Place::Shared(_) = other.place {
            return combine_shared(op, into_elements, self.read(other));
        }
        // SAFETY: as above.
        let other_elements = unsafe { self.elements::<T>(other) };
        if other_first {
            op.combine(other_elements, into_elements)?;
            into_elements.copy_from_slice(other_elements);
            return Ok(());
        }
        op.combine(into_elements, other_elements)
    }
}

/// Bytes that others may write are combined from a private copy.
fn combine_shared<T: Scalar>(
    op: &impl Reduction<T>,
    into: &mut [T],
    other: SharedBytes<'_>,
) -> Result<(), Error> {
    let most = CHUNK / size_of::<T>();
    let mut copy = vec![T::default(); into.len().min(most)];
    for (at, part) in into.chunks_mut(most).enumerate() {
        let copy = &mut copy[..part.len()];
        other.slice(at * most * size_of::<T>(), size_of_val(copy)).copy_to(bytes_mut(copy));
        op.combine(part, copy)?;
    }
    Ok(())
}

impl Group<'_> {
    /// A collective that combines nothing.
    pub(crate) fn run<T: Scalar>(
        &self,
        what: Collective,
        call: Call<'_>,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        self.run_with(what, call, input, output, &NoReduction)
    }

    /// A collective.
    pub(crate) fn run_with<T: Scalar>(
        &self,
        what: Collective,
        call: Call<'_>,
        input: &[T],
        output: &mut [T],
        op: &impl Reduction<T>,
    ) -> Result<(), Error> {
        let kind = match call {
            Call::Barrier => WaitKind::Barrier,
            _ => WaitKind::Collective,
        };
        let _described = Description::of(kind, None).enter();
        let topology = self.topology()?;
        let tag = self.begin(what, call.root())?;
        let commutative = op.is_commutative();
        let mut limits = Limits { element: size_of::<T>(), shares: false, commutative };
        if wants_memory(call, topology, self.member(), limits) {
            limits.shares = self.shares_memory()?;
        }
        let schedule = plan(call, topology, self.member(), limits);
        self.carry_out_with(&schedule, tag, input, output, op)
    }

    pub(crate) fn carry_out<T: Scalar>(
        &self,
        schedule: &Schedule,
        tag: i32,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        self.carry_out_with(schedule, tag, input, output, &NoReduction)
    }

    /// Does the steps of a schedule, one after the other.
    fn carry_out_with<T: Scalar>(
        &self,
        schedule: &Schedule,
        tag: i32,
        input: &[T],
        output: &mut [T],
        op: &impl Reduction<T>,
    ) -> Result<(), Error> {
        let mut scratch = vec![T::default(); schedule.scratch];
        let from = bytes(input);
        let memory = Memory {
            // SAFETY: borrowed until this returns, and only read.
            input: unsafe { SharedBytes::new(std::ptr::NonNull::from(from).cast(), from.len()) },
            output: bytes_mut(output).into(),
            scratch: bytes_mut(&mut scratch).into(),
            shared: self.memory(),
            element: size_of::<T>(),
        };
        schedule.steps.iter().try_for_each(|step| self.step(*step, tag, &memory, op))
    }

    fn step<T: Scalar>(
        &self,
        step: Step,
        tag: i32,
        memory: &Memory<'_>,
        op: &impl Reduction<T>,
    ) -> Result<(), Error> {
        let context = self.context();
        match step {
            Step::Send { to, from } => context.send_any(self.rank_of(to)?, tag, memory.read(from)),
            Step::Receive { from, into } => {
                let (wanted, into) = (wanted(self.rank_of(from)?, tag), memory.write(into));
                exact(context.recv_any(wanted, into), into.len())
            }
            Step::Exchange { to, out, from, into } => {
                let (wanted, into) = (wanted(self.rank_of(from)?, tag), memory.write(into));
                let out = memory.read(out);
                exact(context.exchange(self.rank_of(to)?, tag, out, wanted, into), into.len())
            }
            Step::Copy { from, into } => {
                memory.write(into).copy_from(memory.read(from));
                Ok(())
            }
            Step::Combine { into, other, other_first } => {
                memory.combine(op, into, other, other_first)
            }
        }
    }
}
