//! Flush: waits until puts and messages have arrived. Fence: keeps their order.

use kumi_net::{Description, WaitKind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use kumi_net::Wait;
use kumi_proto::frame::NO_WINDOW;

use crate::context::Context;
use crate::engine::PlainFrame;
use crate::error::Error;

impl Context {
    /// Waits until all own puts to this rank have been applied, and its library has taken all messages
    /// to it. Its program need not have received them.
    ///
    /// Messages of that rank are kept meanwhile beyond `KUMI_UNEXPECTED_BYTES`, so two ranks may flush
    /// to each other before either receives. Three or more that flush in a circle, each with more bytes
    /// of messages to the next than that, wait for ever: one has to receive first.
    ///
    /// # Errors
    /// [`Error::Refused`] if a put since the last report was refused there.
    pub fn flush(&self, to: u32) -> Result<(), Error> {
        self.check_handlers()?;
        self.check_rank(to)?;
        self.drained(&[to])?;
        self.confirm(&[to])?;
        let mut guard = self.channel.lock()?;
        self.check_refused(&mut guard, to)
    }

    /// [`Context::flush`] for all ranks, at the same time.
    ///
    /// # Errors
    /// As [`Context::flush`]; the first of several.
    pub fn flush_all(&self) -> Result<(), Error> {
        self.check_handlers()?;
        let all: Vec<u32> = (0..self.ranks()).collect();
        self.confirm(&all)?;
        self.drained(&all)?;
        let mut first = Ok(());
        let mut guard = self.channel.lock()?;
        for rank in all {
            let done = self.check_refused(&mut guard, rank);
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// Keeps the order of operations on windows at a rank: those that this rank begins afterwards take effect there after all
    /// that it began before. Operations at other ranks are not ordered.
    ///
    /// It waits only where the ways differ: for frames to a rank of this node, which a later copy into mapped memory could
    /// overtake. Frames to other nodes keep their order, so there it does not wait. [`Context::flush`] waits in any case.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::HandlerPanicked`], [`Error::Fault`], [`Error::Io`]. Refused puts are not reported.
    pub fn fence(&self, to: u32) -> Result<(), Error> {
        self.check_handlers()?;
        self.check_rank(to)?;
        fence(SeqCst);
        if self.same_node(to) { self.fence_before_notify(to) } else { Ok(()) }
    }

    /// [`Context::fence`] for all ranks, at the same time: each keeps its own order.
    ///
    /// # Errors
    /// As [`Context::fence`].
    pub fn fence_all(&self) -> Result<(), Error> {
        self.check_handlers()?;
        fence(SeqCst);
        let near: Vec<u32> = (0..self.ranks()).filter(|rank| self.same_node(*rank)).collect();
        self.confirm(&near)
    }

    /// Waits until those of these ranks that are on this node have taken what lies in their rings.
    fn drained(&self, ranks: &[u32]) -> Result<(), Error> {
        let mapped = || ranks.iter().filter(|rank| self.same_node(**rank));
        if mapped().next().is_none() {
            return Ok(());
        }
        let _described = Description::of(WaitKind::Flush, None).enter();
        self.drive(Wait::Room, |guard| {
            // One after the other, as in `confirm`: the awaited answer may be behind messages of that
            // rank.
            let waits =
                |rank: &&u32| !guard.flushed(**rank) || !guard.handler().outgoing.is_free(**rank);
            let first = mapped().find(waits).copied();
            guard.handler().mailbox.awaited = first;
            Ok(first.is_none().then_some(()))
        })
    }

    /// Call this before an action in the memory of a rank of this node that signals earlier puts to it.
    /// Puts by frames, into memory that is not mapped, have to be in place.
    #[inline]
    pub(crate) fn fence_before_notify(&self, to: u32) -> Result<(), Error> {
        if self.unconfirmed(to) { self.confirm(&[to]) } else { Ok(()) }
    }

    /// Whether frames went to a rank of which no proof has come that they arrived.
    pub(crate) fn unconfirmed(&self, rank: u32) -> bool {
        let frames = &self.frames[rank as usize];
        frames.begun.load(Relaxed) != frames.confirmed.load(Relaxed)
    }

    /// Notes that a rank is put to by frames, so that refusals come later. Called before and after the frames are queued:
    /// another thread may ask for an answer in between, which says nothing of them.
    pub(crate) fn puts_to(&self, to: u32) {
        self.frames[to as usize].begun.fetch_add(1, Relaxed);
    }

    /// Asks those of these ranks to which frames went since the last proof for an answer, and
    /// waits for all answers. Frames of a pair are in order: when the answer comes, the rank has taken
    /// all earlier frames and sent its refusals.
    pub(crate) fn confirm(&self, ranks: &[u32]) -> Result<(), Error> {
        let mut unsent: Vec<u32> =
            ranks.iter().copied().filter(|rank| self.unconfirmed(*rank)).collect();
        let mut asked: Vec<(u32, u64, u64)> = Vec::new();
        let _described = Description::of(WaitKind::Flush, None).enter();
        self.drive(self.wait_for(&unsent), |guard| {
            while let Some(to) = unsent.last().copied() {
                let token = guard.handler().token();
                let frame = PlainFrame::GetRequest { token, window: NO_WINDOW, offset: 0, len: 0 };
                // Behind all that was begun before.
                if !guard.handler().outgoing.is_free(to) || !guard.send(to, &[&frame.header()])? {
                    break;
                }
                guard.handler().fences.push((to, token));
                // Under the channel's lock: all that is counted so far is before the question.
                asked.push((to, token, self.frames[to as usize].begun.load(Relaxed)));
                unsent.pop();
            }
            guard.transmit()?;
            let engine = guard.handler();
            // One after the other, as everything else that may hold an answer back.
            asked.retain(|&(to, token, begun)| {
                let waits = engine.fences.contains(&(to, token));
                if !waits {
                    self.frames[to as usize].confirmed.fetch_max(begun, Relaxed);
                }
                waits
            });
            engine.mailbox.awaited = asked.first().map(|fence| fence.0).or(unsent.last().copied());
            Ok((unsent.is_empty() && asked.is_empty()).then_some(()))
        })
    }
}
