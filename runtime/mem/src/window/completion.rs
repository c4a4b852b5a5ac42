//! Completion counters: how many of the own puts have arrived at their targets.

use kumi_net::{Description, WaitKind};
use std::collections::{HashMap, VecDeque};

use kumi_net::Wait;
use kumi_proto::Rank;

use crate::context::{AwaitedCleanup, Context};
use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::request::Outcome;
use crate::request::table::ReportTo;

/// Counts those puts of this rank that were given it (see [`OnPlacement`]): it rises by one when a put
/// is in place at its target.
///
/// It is an elastic memory barrier: waiting for it orders what follows behind these puts, to
/// whatever ranks, and behind no other. ([`Context::flush`] waits for everything.)
///
/// A refused put never counts; it is reported once for each target, by the next call of [`Completion::done`],
/// [`Completion::wait`] or [`Completion::wait_all`]. Dropping a completion does not undo its puts.
#[derive(Debug)]
pub struct Completion<'c> {
    context: &'c Context,
    number: u64,
}

/// Reports of a put's arrival.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnPlacement<'a> {
    /// This notification counter (0 to 63) of the window at the target rises by one.
    pub notify: Option<u32>,
    /// This counter of the caller rises by one.
    pub completion: Option<&'a Completion<'a>>,
}

impl Context {
    /// A new completion counter.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn completion(&self) -> Result<Completion<'_>, Error> {
        let number = self.channel.lock()?.handler().completions.open();
        Ok(Completion { context: self, number })
    }
}

impl Completion<'_> {
    /// How many puts are in place, without waiting.
    ///
    /// # Errors
    /// [`Error::Refused`] if a put since the last report was refused; [`Error::Fault`],
    /// [`Error::Io`].
    pub fn done(&self) -> Result<u64, Error> {
        self.context.progress()?;
        let mut guard = self.context.channel.lock()?;
        let counter_mut = guard.handler().completions.counter_mut(self.number);
        counter_mut.report()?;
        Ok(counter_mut.done)
    }

    /// Waits until so many puts are in place since the counter was made; returns how many are.
    ///
    /// # Errors
    /// As [`Completion::done`], and [`Error::NeverDone`] if there are not so many.
    pub fn wait(&self, at_least: u64) -> Result<u64, Error> {
        self.context.check_handlers()?;
        let over = AwaitedCleanup(self.context);
        let _described = Description::of(WaitKind::Flush, None).enter();
        let mut seen = None;
        let result = self.context.await_only(Wait::Frames, |guard| {
            let engine = guard.handler();
            let counter_mut = engine.completions.counter_mut(self.number);
            counter_mut.report()?;
            if counter_mut.done >= at_least {
                return Ok(Some(counter_mut.done));
            }
            if counter_mut.begun < at_least {
                return Err(Error::NeverDone { begun: counter_mut.begun, at_least });
            }
            // The awaited answer may be behind messages that nobody has received.
            engine.mailbox.awaited = engine.completions.awaited(self.number);
            // Once for each time that something may have changed it.
            let ends = Some(engine.ends);
            if std::mem::replace(&mut seen, ends) != ends {
                engine.await_reports(ReportTo::Counter(self.number));
            }
            Ok(None)
        });
        drop(over);
        result
    }

    /// Waits until all puts that were given this completion are in place.
    ///
    /// # Errors
    /// As [`Completion::done`].
    pub fn wait_all(&self) -> Result<(), Error> {
        let begun =
            self.context.channel.lock()?.handler().completions.counter_mut(self.number).begun;
        self.wait(begun).map(drop)
    }

    /// A put by frames that is to be counted.
    pub(crate) fn counted(&self, context: &Context) -> Result<CountedPut, Error> {
        self.check(context)?;
        let token = self.context.channel.lock()?.handler().token();
        Ok(CountedPut { counter: self.number, token })
    }

    /// The put has not been sent.
    pub(crate) fn abandon(&self, to: Rank, put: CountedPut) {
        // Without the lock the channel is broken, and nobody waits any more.
        if let Ok(mut guard) = self.context.channel.lock() {
            guard.handler().completions.abandon(to, put.token);
        }
    }

    /// A put that was in place at once.
    pub(crate) fn at_once(&self, context: &Context) -> Result<(), Error> {
        self.check(context)?;
        let mut guard = self.context.channel.lock()?;
        let counter_mut = guard.handler().completions.counter_mut(self.number);
        counter_mut.begun += 1;
        counter_mut.done += 1;
        Ok(())
    }

    /// Its number in the table.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it belongs to this context.
    pub(crate) fn check(&self, context: &Context) -> Result<(), Error> {
        if std::ptr::eq(self.context, context) { Ok(()) } else { Err(Error::ForeignCompletion) }
    }
}

impl Drop for Completion<'_> {
    fn drop(&mut self) {
        if self.context.is_copy() {
            return;
        }
        // Without the lock the channel is broken and the tables are as good as gone.
        if let Ok(mut guard) = self.context.channel.lock() {
            guard.handler().completions.close(self.number);
        }
    }
}

/// A put by frames that a counter counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedPut {
    counter: u64,
    /// What its frames carry and its answer names; not 0.
    pub(crate) token: u64,
}

impl CountedPut {
    /// It begins, behind all that was begun before: call this under the lock under which it gets its place to send.
    pub(crate) fn begin(self, engine: &mut Engine, to: Rank) {
        engine.completions.begin(self.counter, to, self.token);
    }
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct CompletionCounter {
    /// Puts begun and not refused.
    begun: u64,
    done: u64,
    /// By target: how many, and why the first.
    refused: Vec<(Rank, u64, Refusal)>,
    /// Errors of requests.
    failed: Vec<Error>,
}

impl CompletionCounter {
    /// Tells once what a target refused.
    fn report(&mut self) -> Result<(), Error> {
        match (self.refused.pop(), self.failed.pop()) {
            (Some((rank, count, reason)), failed) => {
                self.failed.extend(failed);
                Err(Error::Refused { rank, count, reason })
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }
}

/// All counters of a rank, and the puts under way that they wait for.
#[derive(Debug, Default)]
pub(crate) struct CompletionTable {
    counters: HashMap<u64, CompletionCounter>,
    /// By target, in the order of sending: token, and who waits.
    under_way: HashMap<Rank, VecDeque<(u64, PutWaiter)>>,
    next: u64,
    /// Places of the requests whose puts are in place.
    pub(crate) placed: Vec<u32>,
}

/// Who waits for a put to be in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutWaiter {
    /// The counter with this number.
    Counter(u64),
    /// The request at this place.
    Request(u32),
}

impl CompletionTable {
    fn open(&mut self) -> u64 {
        self.next += 1;
        self.counters.insert(self.next, CompletionCounter::default());
        self.next
    }

    fn close(&mut self, number: u64) {
        self.counters.remove(&number);
    }

    fn counter_mut(&mut self, number: u64) -> &mut CompletionCounter {
        self.counters.entry(number).or_default()
    }

    fn begin(&mut self, number: u64, to: Rank, token: u64) {
        self.counter_mut(number).begun += 1;
        self.under_way.entry(to).or_default().push_back((token, PutWaiter::Counter(number)));
    }

    /// As `begin`, for a put that is a request.
    pub(crate) fn begin_request(&mut self, place: u32, to: Rank, token: u64) {
        self.under_way.entry(to).or_default().push_back((token, PutWaiter::Request(place)));
    }

    /// A request that this counter counts has begun.
    pub(crate) fn request_begun(&mut self, number: u64) {
        self.counter_mut(number).begun += 1;
    }

    /// A request that this counter counts is over.
    pub(crate) fn request_ended(&mut self, number: u64, end: Result<Outcome, Error>) {
        let Some(counter) = self.counters.get_mut(&number) else { return };
        match end {
            Ok(Outcome::Cancelled) => counter.begun -= 1,
            Ok(_) => counter.done += 1,
            Err(error) => {
                counter.begun -= 1;
                counter.failed.push(error);
            }
        }
    }

    /// No answer to this put counts any more.
    pub(crate) fn forget(&mut self, to: Rank, token: u64) {
        self.remove(to, token);
    }

    fn abandon(&mut self, to: Rank, token: u64) {
        if let Some(PutWaiter::Counter(number)) = self.remove(to, token)
            && let Some(counter_mut) = self.counters.get_mut(&number)
        {
            counter_mut.begun -= 1;
        }
    }

    fn remove(&mut self, to: Rank, token: u64) -> Option<PutWaiter> {
        let puts = self.under_way.get_mut(&to)?;
        let at = puts.iter().position(|put| put.0 == token)?;
        puts.remove(at).map(|put| put.1)
    }

    /// A target says that puts up to this token are in place; false if it was not asked that.
    pub(crate) fn done(&mut self, from: Rank, token: u64) -> bool {
        let Some(puts) = self.under_way.get_mut(&from) else { return false };
        let Some(last) = puts.iter().position(|put| put.0 == token) else { return false };
        for (_, waiter) in puts.drain(..=last) {
            match waiter {
                PutWaiter::Counter(number) => {
                    if let Some(counter_mut) = self.counters.get_mut(&number) {
                        counter_mut.done += 1;
                    }
                }
                PutWaiter::Request(place) => self.placed.push(place),
            }
        }
        true
    }

    /// A target refused a put, or a part of one.
    pub(crate) fn refused(&mut self, from: Rank, token: u64, reason: Refusal) {
        if let Some(PutWaiter::Counter(number)) = self.remove(from, token)
            && let Some(counter_mut) = self.counters.get_mut(&number)
        {
            counter_mut.begun -= 1;
            match counter_mut.refused.iter_mut().find(|refused| refused.0 == from) {
                Some((_, count, _)) => *count += 1,
                None => counter_mut.refused.push((from, 1, reason)),
            }
        }
    }

    /// A rank that an answer for this counter is to come from.
    fn awaited(&self, number: u64) -> Option<Rank> {
        let waiter = PutWaiter::Counter(number);
        let waits = |puts: &VecDeque<(u64, PutWaiter)>| puts.iter().any(|put| put.1 == waiter);
        self.under_way.iter().find(|(_, puts)| waits(puts)).map(|(rank, _)| *rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stands_for_all_before_it_to_the_same_rank() {
        let mut table = CompletionTable::default();
        let (a, b) = (table.open(), table.open());
        for (token, to, number) in [(1, 7, a), (2, 8, a), (3, 7, b), (4, 7, a), (5, 7, b)] {
            table.begin(number, to, token);
        }
        assert!(table.done(7, 4));
        assert_eq!((table.counter_mut(a).done, table.counter_mut(b).done), (2, 1));
        assert_eq!((table.awaited(a), table.awaited(b)), (Some(8), Some(7)));
        assert!(!table.done(7, 4) && !table.done(8, 5) && !table.done(9, 1), "not asked");
        assert_eq!((table.counter_mut(a).done, table.counter_mut(b).done), (2, 1));
        assert!(table.done(8, 2) && table.done(7, 5));
        assert_eq!((table.counter_mut(a).done, table.counter_mut(b).done), (3, 2));
    }

    #[test]
    fn a_refused_put_is_reported_once_and_never_counts() {
        let mut table = CompletionTable::default();
        let number = table.open();
        for token in 1..=3 {
            table.begin(number, 7, token);
        }
        // Every frame of a refused put is refused.
        table.refused(7, 2, Refusal::Right);
        table.refused(7, 2, Refusal::Right);
        assert!(table.done(7, 3));
        assert_eq!((table.counter_mut(number).begun, table.counter_mut(number).done), (2, 2));
        let report = table.counter_mut(number).report();
        assert!(
            matches!(report, Err(Error::Refused { rank: 7, count: 1, reason: Refusal::Right })),
            "{report:?}"
        );
        assert!(table.counter_mut(number).report().is_ok());
        table.begin(number, 7, 4);
        table.abandon(7, 4);
        assert_eq!(table.counter_mut(number).begun, 2);
        table.begin(number, 7, 5);
        table.close(number);
        assert!(table.done(7, 5), "nobody counts it any more");
        assert!(table.counters.is_empty());
    }
}
