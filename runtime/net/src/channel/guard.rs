//! Guard of a channel: the right of the thread that holds its lock.

use std::marker::PhantomData;

use crate::channel::core::{ChannelCore, Handler};
use crate::channel::protocol::HoldBack;
use crate::channel::{ChannelError, Shared};
use crate::segment::attachment::Attachment;
use crate::shared_bytes::CopySource;
use crate::wait::Wait;

/// How much of long data [`Guard::send`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRoom {
    /// Frames that there is room for now.
    pub frames: usize,
    /// Frames of full length that one system call puts on the wire.
    pub run: usize,
    /// Frames that are missing to such a run, if others wait for company or a run is under way. Otherwise none: what is
    /// queued leaves at once.
    pub missing: Option<usize>,
}

/// The right to drive the channel, until it is dropped.
///
/// It names the channel and holds no reference into what the lock protects: the handler thread may take that over as soon
/// as the lock is back. Each method borrows the core anew, for as long as the guard is borrowed.
///
/// [`Channel::wait`](crate::Channel::wait) lends a guard to each attempt and keeps its own. So an attempt that puts the
/// guard of another channel into its place does not change which channel the wait drives.
pub struct Guard<'c, H: Handler> {
    pub(crate) shared: &'c Shared<H>,
    /// The lock goes back with this guard: not with one that another guard lends.
    owns_lock: bool,
    /// It stays with the thread that took the lock.
    _not_send: PhantomData<*const ()>,
}

impl<H: Handler> std::fmt::Debug for Guard<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("attachment", &self.shared.attachment).finish_non_exhaustive()
    }
}

impl<H: Handler> Drop for Guard<'_, H> {
    fn drop(&mut self) {
        if self.owns_lock {
            self.shared.handover.leave_main(self.shared.wait_set.get());
        }
    }
}

impl<'c, H: Handler> Guard<'c, H> {
    /// Takes the lock.
    #[inline]
    pub(crate) fn take(shared: &'c Shared<H>) -> Guard<'c, H> {
        shared.enter();
        Guard { shared, owns_lock: true, _not_send: PhantomData }
    }

    /// The same right for a shorter time, in which this guard cannot be used.
    #[inline]
    pub fn lend(&mut self) -> Guard<'_, H> {
        Guard { shared: self.shared, owns_lock: false, _not_send: PhantomData }
    }

    /// The core.
    #[inline]
    pub(crate) fn core(&mut self) -> &mut ChannelCore<H> {
        // SAFETY: this thread holds the lock as long as the guard, or the one that lent it, exists. Both are borrowed
        // for the whole time, so nobody else of this thread gets a reference meanwhile.
        unsafe { &mut *self.shared.core() }
    }

    /// The core, and where this rank is.
    #[inline]
    fn parts(&mut self) -> (&mut ChannelCore<H>, &'c Attachment) {
        let attachment = &self.shared.attachment;
        (self.core(), attachment)
    }

    /// The core, to look at.
    #[inline]
    pub(crate) fn core_ref(&self) -> &ChannelCore<H> {
        // SAFETY: as in `core`; shared references come only from borrows of the same guard.
        unsafe { &*self.shared.core() }
    }
}

impl<H: Handler> Guard<'_, H> {
    /// The layer above.
    pub fn handler(&mut self) -> &mut H {
        &mut self.core().handler
    }

    /// The layer above, to look at.
    #[must_use]
    pub fn handler_ref(&self) -> &H {
        &self.core_ref().handler
    }

    /// Queues one frame made of the parts; false if there is no room now. To another node it leaves
    /// with [`Guard::transmit`], so that a run of frames is sent by one call.
    ///
    /// # Errors
    /// [`ChannelError::NoRank`], [`ChannelError::Protocol`].
    pub fn send(&mut self, to: u32, parts: &[&[u8]]) -> Result<bool, ChannelError> {
        self.send_parts(to, parts, &[] as &[&[u8]])
    }

    /// As [`Guard::send`], with further parts, which may be shared memory.
    ///
    /// # Errors
    /// As [`Guard::send`].
    pub fn send_parts<S: CopySource>(
        &mut self,
        to: u32,
        head: &[&[u8]],
        data: &[S],
    ) -> Result<bool, ChannelError> {
        let (core, attachment) = self.parts();
        core.send(attachment, to, head, data)
    }

    /// As [`Guard::send`] to a rank of another node, without a copy of the frame's own: `write` makes it
    /// where it is to be. It gets room for the longest frame and says how long its own is.
    ///
    /// # Errors
    /// As [`Guard::send`].
    #[inline]
    pub fn send_remote_with(
        &mut self,
        to: u32,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<bool, ChannelError> {
        let (core, attachment) = self.parts();
        core.send_remote_with(attachment, to, write)
    }

    /// As [`Guard::send_remote_with`], of up to `count` frames: until `write` gives no more or there is no room. How many
    /// were queued.
    ///
    /// # Errors
    /// As [`Guard::send`].
    #[inline]
    pub fn send_remote_run(
        &mut self,
        to: u32,
        count: usize,
        write: impl FnMut(&mut [u8]) -> Option<usize>,
    ) -> Result<usize, ChannelError> {
        let (core, attachment) = self.parts();
        core.send_remote_run(attachment, to, count, write)
    }

    /// Whether a rank is on this node: what is sent to it is there at once, and needs no [`Guard::transmit`].
    #[inline]
    #[must_use]
    pub fn is_near(&self, to: u32) -> bool {
        self.shared.attachment.local_of(to).is_some()
    }

    /// A short frame to a rank follows at once: has the memory that it is written to come here meanwhile.
    #[inline]
    pub fn expect_send(&mut self, to: u32) {
        let (core, attachment) = self.parts();
        core.expect_send(attachment, to);
    }

    /// How much long data goes to a rank of another node now. A run is worth waiting for: filling every slot as soon as
    /// an ack frees it makes ever shorter runs, and as many acks.
    ///
    /// `None` for a rank of this node.
    #[must_use]
    pub fn room(&self, to: u32) -> Option<SendRoom> {
        let remote = self.core_ref().remote.as_ref()?;
        if self.shared.attachment.local_of(to).is_some() {
            return None;
        }
        let held = HoldBack::of(&remote.endpoint, to, remote.run);
        let (frames, missing) = (remote.endpoint.room(to), held.missing());
        Some(SendRoom { frames, run: held.run, missing })
    }

    /// Has `pad` lengthen the last frame to a rank of another node to `full` bytes, if it waits for company: then longer
    /// frames can leave in the same run. See [`kumi_proto::Endpoint::pad_last`].
    pub fn pad_last(&mut self, to: u32, full: usize, pad: impl FnOnce(&mut [u8], usize) -> bool) {
        let core = self.core();
        if core.holds_back()
            && let Some(remote) = &mut core.remote
        {
            remote.endpoint.pad_last(to, full, pad);
        }
    }

    /// Does several things of which a copy of this rank's files has all or none: frames sent, and what the program writes
    /// into its windows. A copy that is taken meanwhile is refused, so it had better not take long.
    ///
    /// What the handler does with a frame is always in a copy together with the frame's delivery.
    pub fn undivided<R>(&mut self, together: impl FnOnce(&mut Guard<'_, H>) -> R) -> R {
        let change = self.shared.attachment.change();
        let result = together(&mut self.lend());
        change.end();
        result
    }

    /// Tries again to answer ranks of this node whose rings were full.
    pub(crate) fn unblock(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        if core.blocked { core.service(attachment) } else { Ok(()) }
    }

    /// Puts queued frames on the wire.
    ///
    /// # Errors
    /// [`ChannelError::Io`].
    pub fn transmit(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        core.publish(attachment);
        core.transmit(attachment)
    }

    /// Has the handler hand out what it owes now, and puts it on the wire. Takes nothing that has arrived.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn answer(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        if core.handler.owes_answers() {
            core.answer(attachment)?;
            core.publish(attachment);
            core.transmit(attachment)?;
        }
        Ok(())
    }

    /// As [`Guard::transmit`], for a program that sends on without waiting. While packets to `to` are
    /// in flight, further ones are held back until one of these happens:
    ///
    /// - they fill a run, which leaves by one system call;
    /// - this rank waits or asks for progress;
    /// - the handler thread looks, at most a millisecond later.
    ///
    /// # Errors
    /// [`ChannelError::Io`].
    #[inline]
    pub fn transmit_soon(&mut self, to: u32) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        core.transmit_soon(attachment, to)
    }

    /// Takes what the socket gave. The attempt comes first: an ack can then be piggybacked on the
    /// program's next packet, instead of waiting for the handler thread's tick.
    pub(crate) fn take_datagrams<R, E: From<ChannelError>>(
        &mut self,
        attempt: &mut impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        let (core, attachment) = self.parts();
        core.take_datagrams(attachment);
        let result = attempt(&mut self.lend())?;
        if result.is_some() {
            let (core, attachment) = self.parts();
            if core.is_pressed() {
                core.service(attachment)?;
            }
            core.publish(attachment);
        }
        Ok(result)
    }

    /// Sends what is held back when a wait is over at once: the program may compute next. One for room
    /// belongs to a send, which decides itself.
    pub(crate) fn let_go(&mut self, wait: Wait) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        if wait == Wait::Room || !core.holds_back() {
            return Ok(());
        }
        core.transmit(attachment)
    }

    /// Takes what lies in the rings.
    pub(crate) fn drain_rings(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        core.drain_rings(attachment)
    }

    /// Hands out answers, acts on deadlines, and sends what is to be sent.
    pub(crate) fn service(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        core.service(attachment)
    }

    /// Takes what lies in the rings, then serves.
    pub(crate) fn drain_and_serve(&mut self) -> Result<(), ChannelError> {
        self.drain_rings()?;
        self.service()
    }

    /// Everything sent to this rank has been taken there.
    #[must_use]
    pub fn flushed(&self, to: u32) -> bool {
        let core = self.core_ref();
        match (self.shared.attachment.local_of(to), &core.remote) {
            (Some(local), _) => core.drained(local),
            (None, Some(remote)) => remote.endpoint.flushed(to),
            (None, None) => true,
        }
    }

    /// Takes all that has arrived, and sends what is due. Does not wait.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn progress(&mut self) -> Result<(), ChannelError> {
        let (core, attachment) = self.parts();
        // The caller may have had the channel for long: what is due is so by this clock.
        core.update_clock();
        let most = 2 * attachment.ring_bytes() / crate::channel::core::ENOUGH + 1;
        for _ in 0..most {
            core.drain_rings(attachment)?;
            if !core.ring_hint(attachment) {
                break;
            }
        }
        // Bounded: a flood must not keep the caller here.
        for _ in 0..64 {
            if !core.receive()? {
                break;
            }
            core.take_datagrams(attachment);
            core.service(attachment)?;
        }
        core.service(attachment)?;
        core.publish(attachment);
        Ok(())
    }
}
