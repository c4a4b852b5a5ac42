//! Schedules: operations of several sends and receives that go on by themselves, such as collectives that a program
//! waits for later.
//!
//! A schedule runs in rounds. Whoever drives the channel begins the next round when all steps of the one before have
//! ended: a thread that waits, or the handler thread while the program computes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumi_net::{Delivery, SharedBytes, SharedBytesMut};
use kumi_proto::Rank;

use crate::context::Context;
use crate::engine::Engine;
use crate::error::{Error, panic_text};
use crate::message::mailbox::{MatchPattern, ReceiveBuffer, Source, Tag};
use crate::request::outgoing::{Operation, Unsent};
use crate::request::table::{PendingRequest, ReportTo, Request, RequestEnd, Target};
use crate::request::{Report, RequestHandle};

/// Work that goes on in rounds.
pub(crate) trait Schedule: Send {
    /// Begins the next round: called once at first, then whenever all sends and receives of the round before have ended.
    /// Local work happens here. Runs under the channel's lock and never waits.
    ///
    /// # Errors
    /// The error that ends the request. What was started is released. So it is after a panic, which is
    /// [`Error::OperationPanicked`] to the waiter.
    fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error>;

    /// Where the program's memory that it uses begins, and how many bytes there are.
    fn lent(&self) -> [(usize, usize); 2] {
        [(0, 0); 2]
    }
}

/// What a round has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// The next begins when the steps started now have ended; at once if there are none.
    Started,
    /// Everything is done.
    Over,
}

/// A schedule under way.
pub(crate) struct RunningSchedule {
    /// Not here while it runs a round.
    schedule: Option<Box<dyn Schedule>>,
    /// Places of the steps under way.
    steps: Vec<u32>,
    /// Bytes of the messages of this round, in the order of its receives.
    lengths: Vec<usize>,
    failed: Option<Error>,
}

impl std::fmt::Debug for RunningSchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningSchedule").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// What a schedule starts its steps by.
pub(crate) struct Steps<'e> {
    engine: &'e mut Engine,
    place: u32,
    /// Of the round before.
    received: Vec<usize>,
    /// Why a step could not be started.
    failed: Option<Error>,
}

/// Mark of a step that receives nothing.
const NO_MESSAGE: u32 = u32::MAX;

impl Steps<'_> {
    /// Bytes of the messages that came in the round before, in the order of its receives. One longer than its buffer was cut.
    pub(crate) fn received(&self) -> &[usize] {
        &self.received
    }

    /// Sends a message with a tag of the library's own.
    ///
    /// # Safety
    /// The data stays as [`SharedBytes::new`] demands until the schedule has begun its next round, has ended or was
    /// released.
    pub(crate) unsafe fn send(&mut self, to: Rank, tag: i32, data: SharedBytes<'_>) {
        if to == self.engine.me {
            return self.send_to_self(tag, data);
        }
        let target = Target { rank: to, ..Target::default() };
        let Some(place) = self.step(target, PendingRequest::Departure, NO_MESSAGE) else { return };
        let operation = Operation::Message { tag: tag.cast_unsigned(), total: data.len() as u64 };
        // SAFETY: the caller's promise; a step that is released has its data copied.
        let unsent = unsafe { Unsent::new(place, operation, data) };
        if let Some(request) = self.engine.requests.get_mut(place) {
            request.unsent = true;
        }
        self.engine.outgoing.add(to, unsent);
    }

    /// Receives a message with a tag of the library's own.
    ///
    /// # Safety
    /// The memory stays as [`SharedBytesMut::new`] demands until the schedule has begun its next round, has ended or was
    /// released.
    pub(crate) unsafe fn receive(&mut self, from: Rank, tag: i32, into: SharedBytesMut<'_>) {
        let order = self.running().map_or(0, |running| {
            running.lengths.push(0);
            running.lengths.len() as u32 - 1
        });
        let target = Target { rank: from, ..Target::default() };
        let Some(place) = self.step(target, PendingRequest::Nothing, order) else { return };
        let wanted = MatchPattern { from: Source::Rank(from), tag: Tag::Is(tag) };
        // SAFETY: the caller's promise.
        let buffer = ReceiveBuffer::Lent(unsafe { into.lend() });
        self.engine.post_receive(place, wanted, buffer);
    }

    fn send_to_self(&mut self, tag: i32, data: SharedBytes<'_>) {
        let (me, mailbox) = (self.engine.me, &mut self.engine.mailbox);
        // The library's own messages are few, and their receives are sure to come.
        mailbox.awaited_too.push(me);
        let taken = mailbox.first(me, tag, data.len() as u64, data);
        mailbox.awaited_too.pop();
        if !matches!(taken, Ok(Delivery::Taken)) {
            self.failed = Some(Error::Unread { bytes: data.len() });
        }
        self.engine.receives_ended();
    }

    fn running(&mut self) -> Option<&mut RunningSchedule> {
        running_at(self.engine, self.place)
    }

    fn step(&mut self, target: Target, pending: PendingRequest, order: u32) -> Option<u32> {
        let report = ReportTo::Schedule(self.place, order);
        match self.engine.requests.add(Request::new(target, pending, report)) {
            Ok(place) => {
                self.running()?.steps.push(place);
                Some(place)
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

fn running_at(engine: &mut Engine, place: u32) -> Option<&mut RunningSchedule> {
    match &mut engine.requests.get_mut(place)?.pending {
        PendingRequest::Rounds(running) => Some(running),
        _ => None,
    }
}

impl Engine {
    /// Schedules can go on.
    pub(crate) fn schedules_are_due(&self) -> bool {
        !self.due_schedules.is_empty()
    }

    /// Runs the rounds that are due.
    pub(crate) fn run_schedules(&mut self) {
        while let Some(place) = self.due_schedules.pop() {
            // A schedule that was released may have left its place to another.
            let due = |running: &&mut RunningSchedule| running.steps.is_empty();
            let Some(running) = running_at(self, place).filter(due) else { continue };
            let Some(mut schedule) = running.schedule.take() else { continue };
            let received = std::mem::take(&mut running.lengths);
            let mut steps = Steps { engine: self, place, received, failed: None };
            // A panic of the program's operation would end whoever drives the channel, the handler thread too.
            let round = catch_unwind(AssertUnwindSafe(|| schedule.round(&mut steps)));
            let panicked = |panic: Box<dyn Any + Send>| {
                Err(Error::OperationPanicked { text: panic_text(&*panic) })
            };
            let round = round.unwrap_or_else(panicked);
            let failed = steps.failed.take();
            let round = failed.map_or(round, Err);
            let Some(running) = running_at(self, place) else { continue };
            running.schedule = Some(schedule);
            let round = running.failed.take().map_or(round, Err);
            match round {
                Ok(Round::Over) => self.end_schedule(place, RequestEnd::Done),
                Ok(Round::Started) if running.steps.is_empty() => self.due_schedules.push(place),
                Ok(Round::Started) => {}
                Err(error) => self.end_schedule(place, RequestEnd::Failed(error)),
            }
        }
    }

    /// A step of a schedule has ended.
    pub(crate) fn step_ended(&mut self, (schedule, order): (u32, u32), step: u32, end: RequestEnd) {
        let Some(running) = running_at(self, schedule) else { return };
        running.steps.retain(|place| *place != step);
        let length = match end {
            RequestEnd::Received(status) => Some(status.len),
            RequestEnd::Failed(Error::Truncated { needed }) => Some(needed),
            RequestEnd::Failed(error) => {
                running.failed.get_or_insert(error);
                None
            }
            _ => None,
        };
        if let (Some(length), Some(place)) = (length, running.lengths.get_mut(order as usize)) {
            *place = length;
        }
        // While the round still starts steps, its end decides.
        if running.schedule.is_none() || !running.steps.is_empty() && running.failed.is_none() {
            return;
        }
        match running.failed.take() {
            None => self.due_schedules.push(schedule),
            Some(error) => self.end_schedule(schedule, RequestEnd::Failed(error)),
        }
    }

    fn end_schedule(&mut self, place: u32, end: RequestEnd) {
        let steps = running_at(self, place).map(|running| std::mem::take(&mut running.steps));
        self.release_all(steps.unwrap_or_default());
        self.end_request(place, end);
    }

    /// Gives the memory of a schedule's steps back.
    pub(crate) fn release_all(&mut self, places: Vec<u32>) {
        for place in places {
            self.release(place);
        }
    }

    /// The program waits for a request; if it is a schedule, for messages of these ranks.
    pub(crate) fn await_steps(&mut self, place: u32) {
        let Some(request) = self.requests.get(place) else { return };
        if let PendingRequest::Rounds(running) = &request.pending {
            let ranks = running.steps.iter().filter_map(|step| self.awaited_by(*step));
            self.mailbox.awaited_too.extend(ranks.collect::<Vec<_>>());
        }
    }
}

impl RunningSchedule {
    pub(crate) fn take_steps(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.steps)
    }
}

impl Context {
    /// Starts a schedule as a request. After an error nothing of it has begun. What the channel says of its first messages
    /// is told by the calls that wait, since some of these may have left.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::TooManyRequests`], [`Error::ForeignCompletion`].
    ///
    /// # Safety
    /// Memory that the schedule's steps name outside of itself stays as they demand until the request has ended or was
    /// released.
    pub(crate) unsafe fn start_schedule(
        &self,
        schedule: Box<dyn Schedule>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let report = self.report_to(report)?;
        let (lent, steps, lengths, failed) = (schedule.lent(), Vec::new(), Vec::new(), None);
        let running = RunningSchedule { schedule: Some(schedule), steps, lengths, failed };
        let pending = PendingRequest::Rounds(Box::new(running));
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        engine.check_fault()?;
        let request = Request { lent, ..Request::new(Target::default(), pending, report) };
        let place = engine.add_request(request)?;
        let handle = engine.requests.handle(place);
        engine.due_schedules.push(place);
        let _ = guard.progress();
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;

    use super::*;
    use crate::request::Outcome;

    const TAG: i32 = -77;

    /// Sends messages of rising length to the own rank, one more each round, and receives them into a buffer of two bytes.
    struct Growing {
        rounds: u32,
        seen: Arc<Mutex<Vec<Vec<usize>>>>,
        buffer: Vec<u8>,
        fails: bool,
    }

    impl Schedule for Growing {
        fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
            let mut seen = self.seen.lock().expect("no panic");
            seen.push(steps.received().to_vec());
            let round = seen.len() as u32;
            if round > self.rounds {
                return if self.fails { Err(Error::BadTag { tag: 5 }) } else { Ok(Round::Over) };
            }
            for length in 0..round {
                let into = SharedBytesMut::from(&mut self.buffer[..2]);
                // SAFETY: the schedule has the buffer, and looks at it only between rounds.
                unsafe {
                    steps.receive(0, TAG, into);
                    steps.send(0, TAG, into.shared().slice(0, (length as usize).min(2)));
                }
            }
            Ok(Round::Started)
        }
    }

    fn begin(
        context: &Context,
        rounds: u32,
        fails: bool,
    ) -> (RequestHandle, Arc<Mutex<Vec<Vec<usize>>>>) {
        let seen = Arc::<Mutex<Vec<Vec<usize>>>>::default();
        let growing = Growing { rounds, seen: Arc::clone(&seen), buffer: vec![0; 2], fails };
        // SAFETY: it names only memory of its own.
        let handle = unsafe { context.start_schedule(Box::new(growing), Report::Handle) };
        (handle.expect("begun"), seen)
    }

    #[test]
    fn rounds_follow_each_other_and_know_what_came() {
        let context = Context::init_singleton().expect("a job of one");
        let (handle, seen) = begin(&context, 3, false);
        assert_eq!(context.wait(handle).expect("over"), Outcome::Done);
        let right: Vec<Vec<usize>> = vec![vec![], vec![0], vec![0, 1], vec![0, 1, 2]];
        assert_eq!(*seen.lock().expect("no panic"), right);
        assert_eq!(context.requests().expect("channel"), 0);
        context.finalize().expect("end");
    }

    #[test]
    fn the_error_of_a_round_is_the_requests() {
        let context = Context::init_singleton().expect("a job of one");
        let (handle, _) = begin(&context, 1, true);
        assert!(matches!(context.wait(handle), Err(Error::BadTag { tag: 5 })));
        assert_eq!(context.requests().expect("channel"), 0);
        context.finalize().expect("end");
    }

    /// Begins a receive, then panics.
    struct Panics(Vec<u8>);

    impl Schedule for Panics {
        fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
            // SAFETY: as above.
            unsafe { steps.receive(0, TAG - 2, SharedBytesMut::from(&mut self.0[..])) };
            panic!("in a round");
        }
    }

    #[test]
    fn a_panic_of_a_round_ends_its_request_alone() {
        let context = Context::init_singleton().expect("a job of one");
        let (other, _) = begin(&context, 2, false);
        // SAFETY: it names only memory of its own.
        let handle =
            unsafe { context.start_schedule(Box::new(Panics(vec![0; 9])), Report::Handle) };
        let told = context.wait(handle.expect("begun"));
        let panicked =
            matches!(&told, Err(Error::OperationPanicked { text }) if text == "in a round");
        assert!(panicked, "{told:?}");
        assert_eq!(context.wait(other).expect("over"), Outcome::Done);
        assert_eq!(context.requests().expect("channel"), 0);
        context.finalize().expect("end");
    }

    /// Waits for a message that never comes.
    struct Waits(Vec<u8>);

    impl Schedule for Waits {
        fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
            // SAFETY: as above.
            unsafe { steps.receive(0, TAG - 1, SharedBytesMut::from(&mut self.0[..])) };
            Ok(Round::Started)
        }
    }

    #[test]
    fn a_schedule_that_is_released_takes_its_receives_back() {
        let context = Context::init_singleton().expect("a job of one");
        // SAFETY: it names only memory of its own.
        let handle = unsafe { context.start_schedule(Box::new(Waits(vec![0; 9])), Report::Handle) };
        let handle = handle.expect("begun");
        assert!(context.test(handle).expect("channel").is_none());
        assert!(!context.cancel(handle).expect("channel"), "it has begun");
        context.release(handle).expect("there");
        assert!(matches!(context.wait(handle), Err(Error::StaleRequest { .. })));
        assert_eq!(context.requests().expect("channel"), 0);
        context.finalize().expect("end");
    }
}
