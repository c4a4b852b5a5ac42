//! Collectives as requests: the same schedules, carried out in rounds by whoever drives the channel.

use std::ptr::NonNull;
use std::sync::Arc;

use kumi_net::{SharedBytes, SharedBytesMut};

use crate::collective::execute::Memory;
use crate::collective::kind::CollectiveKind;
use crate::collective::reduction::{NoReduction, Reduction};
use crate::collective::same_length;
use crate::collective::scalar::{Scalar, bytes, bytes_mut};
use crate::collective::schedule::{Call, Limits, Step, Topology, plan};
use crate::context::Context;
use crate::error::Error;
use crate::group::tag::Collective;
use crate::group::{CallUnderWay, Group};
use crate::request::schedule::{Round, Schedule, Steps};
use crate::request::{Report, RequestHandle};

/// A schedule under way.
struct RunningCollective<T, R> {
    steps: Vec<Step>,
    at: usize,
    /// Rank of each member; none if they are those of the job.
    ranks: Option<Arc<[u32]>>,
    tag: i32,
    place: Place<T>,
    scratch: Vec<T>,
    op: R,
    /// Bytes of the messages of the round that is under way.
    expected: Vec<usize>,
    /// The group counts it as under way as long as this is there.
    under_way: CallUnderWay,
}

impl<T: Scalar, R: Reduction<T> + Send> Schedule for RunningCollective<T, R> {
    fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
        self.under_way.begun();
        for (given, needed) in steps.received().iter().zip(self.expected.drain(..)) {
            same_length("the data of another rank (in bytes)", *given, needed)?;
        }
        while let Some(step) = self.steps.get(self.at).copied() {
            let memory = self.memory();
            match step {
                Step::Copy { from, into } => memory.write(into).copy_from(memory.read(from)),
                Step::Combine { into, other, other_first } => {
                    memory.combine(&self.op, into, other, other_first)?;
                }
                _ => {
                    self.begin(steps);
                    return Ok(Round::Started);
                }
            }
            self.at += 1;
        }
        let Place { output, work, .. } = &self.place;
        if !work.is_empty() && !output.is_empty() {
            output.copy_from(bytes(work));
        }
        self.under_way.done();
        Ok(Round::Over)
    }

    fn lent(&self) -> [(usize, usize); 2] {
        let Place { input, output, .. } = &self.place;
        [(input.as_ptr().addr(), input.len()), (output.as_ptr().addr(), output.len())]
    }
}

impl<T: Scalar, R: Reduction<T> + Send> RunningCollective<T, R> {
    fn memory(&mut self) -> Memory<'static> {
        // SAFETY: a vector of the schedule's own, which does not move. No step is under way while another reference is used.
        let scratch = unsafe { SharedBytesMut::from(bytes_mut(&mut self.scratch)).lend() };
        let Place { input, output, work } = &mut self.place;
        let output = match work.is_empty() {
            true => *output,
            // SAFETY: as above.
            false => unsafe { SharedBytesMut::from(bytes_mut(work)).lend() },
        };
        Memory { input: *input, output, scratch, shared: None, element: size_of::<T>() }
    }

    fn rank_of(&self, member: u32) -> u32 {
        self.ranks.as_ref().map_or(member, |ranks| ranks[member as usize])
    }

    /// Begins the step that is next, and those like it that follow: several sends, or several receives.
    fn begin(&mut self, steps: &mut Steps<'_>) {
        let memory = self.memory();
        let first = self.steps.get(self.at).map(std::mem::discriminant);
        while let Some(step) = self.steps.get(self.at).copied()
            && first == Some(std::mem::discriminant(&step))
        {
            self.at += 1;
            match step {
                Step::Send { to, from } => self.send(steps, to, memory.read(from)),
                Step::Receive { from, into } => self.receive(steps, from, memory.write(into)),
                Step::Exchange { to, out, from, into } => {
                    self.receive(steps, from, memory.write(into));
                    self.send(steps, to, memory.read(out));
                    return;
                }
                Step::Copy { .. } | Step::Combine { .. } => return,
            }
        }
    }

    fn send(&self, steps: &mut Steps<'_>, to: u32, data: SharedBytes<'_>) {
        // SAFETY: memory of this schedule or of its starter, which stays as long as it.
        unsafe { steps.send(self.rank_of(to), self.tag, data) };
    }

    fn receive(&mut self, steps: &mut Steps<'_>, from: u32, into: SharedBytesMut<'_>) {
        self.expected.push(into.len());
        // SAFETY: as for `send`.
        unsafe { steps.receive(self.rank_of(from), self.tag, into) };
    }
}

/// A collective that goes on by itself. It keeps the data meanwhile.
///
/// If it is dropped before its end, it is given up: this member takes part no more, and others may wait for ever.
#[derive(Debug)]
pub struct CollectiveRequest<'c, T> {
    context: &'c Context,
    handle: RequestHandle,
    output: Vec<T>,
    /// Is read until the end.
    _input: Vec<T>,
}

impl<T> CollectiveRequest<'_, T> {
    /// Its handle, for tests and for waits of several. (After a wait for it by its handle, [`CollectiveRequest::wait`] is
    /// refused.)
    #[must_use]
    pub fn handle(&self) -> RequestHandle {
        self.handle
    }

    /// Waits until this member's part is over; the result.
    ///
    /// # Errors
    /// Those of the collective, and of [`Context::wait`].
    pub fn wait(mut self) -> Result<Vec<T>, Error> {
        self.context.wait(self.handle)?;
        Ok(std::mem::take(&mut self.output))
    }
}

impl<T> Drop for CollectiveRequest<'_, T> {
    fn drop(&mut self) {
        if !self.context.is_copy() {
            // If it was waited for it is not there any more.
            let _ = self.context.release(self.handle);
        }
    }
}

/// The memory of a call.
struct Place<T> {
    input: SharedBytes<'static>,
    output: SharedBytesMut<'static>,
    /// Memory of the schedule's own in place of the output, which gets a copy at the end unless it is empty.
    work: Vec<T>,
}

/// Collectives that return at once. Members begin them in the same order as all others of the group. They go on while the
/// program computes; up to 128 of a group are under way at a time.
impl<'c> Group<'c> {
    /// Begins a collective of a vector in place, which the request keeps.
    fn start_in_place<T: Scalar>(
        &self,
        kind: CollectiveKind<'_>,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let call = self.call_of(kind, 0, data.len())?;
        self.start(call, op, Vec::new(), data)
    }

    /// The same of data that is sent, with a result of so many elements.
    fn start_apart<T: Scalar>(
        &self,
        kind: CollectiveKind<'_>,
        op: impl Reduction<T> + Send + 'static,
        send: Vec<T>,
        received: usize,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let call = self.call_of(kind, send.len(), received)?;
        self.start(call, op, send, room(received)?)
    }

    fn start<T: Scalar>(
        &self,
        call: (Collective, Call<'_>),
        op: impl Reduction<T> + Send + 'static,
        input: Vec<T>,
        mut output: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let place = bytes(&input);
        // SAFETY: the request keeps both vectors, which do not move, and touches them no more before it is over or released.
        let handle = unsafe {
            let input = SharedBytes::new(NonNull::from(place).cast(), place.len());
            let output = SharedBytesMut::from(bytes_mut(&mut output)).lend();
            let place = Place { input, output, work: Vec::new() };
            self.start_at(call, place, op, Report::Handle)
        }?;
        Ok(CollectiveRequest { context: self.context(), handle, output, _input: input })
    }

    /// Begins a collective of memory by its address, for the bindings of other languages. `input` and `output` are what the
    /// function of this name takes and gives; a broadcast has an output only. Only reductions look at `op`.
    ///
    /// [`Group::reduce`], [`Group::allreduce`] and the scans are in place if `input` is empty. Otherwise it is combined, and
    /// the result, if this member has one, is copied to `output`; both may be the same memory.
    ///
    /// # Errors
    /// Those of that function which are known at once, [`Error::OutOfMemory`], and those of [`Group::start_barrier`].
    ///
    /// # Safety
    /// Until the request has ended or was released, the bytes of `input` and `output` stay as [`SharedBytes::new`] and
    /// [`SharedBytesMut::new`] demand. Those of a reduction in place are elements of `T` and aligned, and nobody else uses
    /// them: so they are no window's.
    pub unsafe fn start_shared<T: Scalar>(
        &self,
        kind: CollectiveKind<'_>,
        input: SharedBytes<'_>,
        output: SharedBytesMut<'_>,
        op: impl Reduction<T> + Send + 'static,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let (sent, received) = (input.len() / size_of::<T>(), output.len() / size_of::<T>());
        // SAFETY: the caller's promise.
        let (input, output) = unsafe {
            let start = NonNull::new_unchecked(input.as_ptr().cast_mut());
            (SharedBytes::new(start, input.len()), output.lend())
        };
        let combined = self.has_result(kind).filter(|_| sent > 0);
        let place = match (kind, combined) {
            (CollectiveKind::ReduceScatter | CollectiveKind::ReduceScatterEach { .. }, _) => {
                Place { input, output, work: room(received)? }
            }
            (_, Some(here)) => {
                let output = if here { output } else { SharedBytesMut::default() };
                same_length(
                    "the receive buffer",
                    output.len(),
                    if here { input.len() } else { 0 },
                )?;
                let mut work = room(sent)?;
                input.copy_to(bytes_mut(&mut work));
                Place { input: SharedBytes::default(), output, work }
            }
            (_, None) => Place { input, output, work: Vec::new() },
        };
        let (sent, received) = if combined.is_some() { (0, sent) } else { (sent, received) };
        let call = self.call_of(kind, sent, received)?;
        // SAFETY: the caller's promise.
        unsafe { self.start_at(call, place, op, report) }
    }

    /// Whether this member gets the result of a reduction that can be in place; none for other collectives.
    fn has_result(&self, kind: CollectiveKind<'_>) -> Option<bool> {
        match kind {
            CollectiveKind::Reduce { root } => Some(self.member() == root),
            CollectiveKind::Allreduce | CollectiveKind::Scan => Some(true),
            CollectiveKind::ExclusiveScan => Some(self.member() > 0),
            _ => None,
        }
    }

    /// # Safety
    /// As [`Group::start_shared`]; the output is that of a reduction in place unless there is work.
    unsafe fn start_at<T: Scalar, R: Reduction<T> + Send + 'static>(
        &self,
        (what, call): (Collective, Call<'_>),
        place: Place<T>,
        op: R,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        op.combine(&mut [], &[])?;
        // To ask the others now could mean to wait for them. Whether it is known is the same at all members.
        let flat;
        let topology = match self.known_topology() {
            Some(topology) => topology,
            None => {
                flat = Topology::new((0..self.members()).map(u64::from));
                &flat
            }
        };
        let number = self.next_call()?;
        let tag = self.tag_of(number, what, call.root());
        let commutative = op.is_commutative();
        // Calls that overlap cannot share one piece of memory.
        let limits = Limits { element: size_of::<T>(), shares: false, commutative };
        let schedule = plan(call, topology, self.member(), limits);
        let running = RunningCollective {
            steps: schedule.steps,
            at: 0,
            ranks: self.ranks(),
            tag,
            place,
            scratch: vec![T::default(); schedule.scratch],
            op,
            expected: Vec::new(),
            under_way: self.call_under_way(number),
        };
        // SAFETY: the caller's promise.
        let handle = unsafe { self.context().start_schedule(Box::new(running), report) }?;
        // Only now: after a start that failed the next one has this number, as it has at the other members.
        self.count_call(number);
        Ok(handle)
    }

    /// As [`Group::barrier`].
    ///
    /// # Errors
    /// [`Error::TooManyRequests`], [`Error::Fault`], as of all that return at once.
    pub fn start_barrier(&self, report: Report<'_>) -> Result<RequestHandle, Error> {
        let (input, output) = (SharedBytes::default(), SharedBytesMut::default());
        let place = Place::<u8> { input, output, work: Vec::new() };
        // SAFETY: no memory.
        unsafe { self.start_at((Collective::Barrier, Call::Barrier), place, NoReduction, report) }
    }

    /// As [`Group::broadcast`]; the others give a vector of the same length.
    ///
    /// # Errors
    /// Those of [`Group::broadcast`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_broadcast<T: Scalar>(
        &self,
        root: u32,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_in_place(CollectiveKind::Broadcast { root }, NoReduction, data)
    }

    /// As [`Group::reduce`]; the other members get their vectors back, used up.
    ///
    /// # Errors
    /// Those of [`Group::reduce`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_reduce<T: Scalar>(
        &self,
        root: u32,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_in_place(CollectiveKind::Reduce { root }, op, data)
    }

    /// As [`Group::allreduce`].
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let sum = context.group().start_allreduce(kumi_mem::Op::Sum, vec![1.5, 2.5])?;
    /// // The program computes.
    /// assert_eq!(sum.wait()?, [1.5, 2.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Group::allreduce`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_allreduce<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_in_place(CollectiveKind::Allreduce, op, data)
    }

    /// As [`Group::scan`].
    ///
    /// # Errors
    /// As [`Group::start_allreduce`].
    pub fn start_scan<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_in_place(CollectiveKind::Scan, op, data)
    }

    /// As [`Group::exclusive_scan`].
    ///
    /// # Errors
    /// As [`Group::start_allreduce`].
    pub fn start_exclusive_scan<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_in_place(CollectiveKind::ExclusiveScan, op, data)
    }

    /// As [`Group::gather`]; the result is empty at all members but the root.
    ///
    /// # Errors
    /// Those of [`Group::gather`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_gather<T: Scalar>(
        &self,
        root: u32,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let all = if self.member() == root { self.times_members(send.len()) } else { 0 };
        self.start_apart(CollectiveKind::Gather { root }, NoReduction, send, all)
    }

    /// As [`Group::scatter`], of blocks of this length; the data of all members but the root is not used.
    ///
    /// # Errors
    /// Those of [`Group::scatter`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_scatter<T: Scalar>(
        &self,
        root: u32,
        send: Vec<T>,
        block: usize,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.start_apart(CollectiveKind::Scatter { root }, NoReduction, send, block)
    }

    /// As [`Group::allgather`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and those of [`Group::start_barrier`].
    pub fn start_allgather<T: Scalar>(
        &self,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let all = self.times_members(send.len());
        self.start_apart(CollectiveKind::Allgather, NoReduction, send, all)
    }

    /// As [`Group::alltoall`].
    ///
    /// # Errors
    /// Those of [`Group::alltoall`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_alltoall<T: Scalar>(
        &self,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let all = send.len();
        self.start_apart(CollectiveKind::Alltoall, NoReduction, send, all)
    }

    /// As [`Group::reduce_scatter`].
    ///
    /// # Errors
    /// Those of [`Group::reduce_scatter`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_reduce_scatter<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let block = send.len() / self.members() as usize;
        self.start_apart(CollectiveKind::ReduceScatter, op, send, block)
    }
}

impl Context {
    /// Begins a barrier of all ranks and returns at once. The request is over when all ranks have begun theirs.
    ///
    /// # Errors
    /// As [`Group::start_barrier`].
    pub fn start_barrier(&self, report: Report<'_>) -> Result<RequestHandle, Error> {
        self.group().start_barrier(report)
    }
}

/// Memory for a result.
fn room<T: Scalar>(length: usize) -> Result<Vec<T>, Error> {
    let mut room = Vec::new();
    let bytes = length.saturating_mul(size_of::<T>()) as u64;
    let full = |_| Error::OutOfMemory { bytes, what: "the result of a collective" };
    room.try_reserve_exact(length).map_err(full)?;
    room.resize(length, T::default());
    Ok(room)
}
