//! Messages between pairs of ranks.

pub(crate) mod claim;
pub(crate) mod mailbox;
mod match_lists;
mod own_receives;
pub(crate) mod parts;

use kumi_net::trace::EventKind;
use kumi_net::{CopySource, Guard, SharedBytes, SharedBytesMut, Wait};
use kumi_net::{Description, WaitKind};
use kumi_proto::frame::{Frame, MESSAGE_BYTES, MESSAGE_PART_BYTES};

use crate::context::Context;
use crate::engine::Engine;
use crate::error::Error;
use crate::message::mailbox::{
    MailboxEntry, MatchPattern, MessageStatus, ReceiveBuffer, Source, Tag,
};

/// What a trace says of a message that was received.
fn told(status: &MessageStatus) -> (u32, i32, usize) {
    (status.from, status.tag, status.len)
}

impl Context {
    /// Sends a message. Returns when it is in the channel; the data may change then.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`], [`Error::Refused`] for earlier puts to this rank,
    /// [`Error::Unread`] for a message to the own rank that is too large to keep.
    pub fn send(&self, to: u32, tag: i32, data: &[u8]) -> Result<(), Error> {
        self.check_handlers()?;
        check_tag(tag)?;
        let told = |(): &()| (to, tag, data.len());
        self.traced(EventKind::ProgramSend, || self.send_any(to, tag, data), told)
    }

    /// As [`Context::send`], of bytes that others may write meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Context::send`].
    pub fn send_shared(&self, to: u32, tag: i32, data: SharedBytes<'_>) -> Result<(), Error> {
        self.check_handlers()?;
        check_tag(tag)?;
        let told = |(): &()| (to, tag, data.len());
        self.traced(EventKind::ProgramSend, || self.send_any(to, tag, data), told)
    }

    /// As [`Context::send`], with the library's own tags too.
    pub(crate) fn send_any(&self, to: u32, tag: i32, data: impl CopySource) -> Result<(), Error> {
        self.check_rank(to)?;
        if to == self.rank() {
            return self.send_to_self(tag, data);
        }
        // The library's own messages are steps of collectives: leaving one would leave the other ranks
        // waiting.
        let tells = tag >= 0;
        let (tag, total) = (tag.cast_unsigned(), data.len() as u64);
        self.send_frames(to, data, tells, None, |most, done| {
            let header = if done == 0 { MESSAGE_BYTES } else { MESSAGE_PART_BYTES };
            let data = data.slice(done, (data.len() - done).min(most - header));
            if done == 0 {
                Frame::Message { tag, total, data }
            } else {
                Frame::MessagePart { data }
            }
        })
    }

    /// Receives a message into a buffer.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`], [`Error::Truncated`] if the buffer is too small (the
    /// message is consumed then).
    pub fn recv(&self, from: Source, tag: Tag, buffer: &mut [u8]) -> Result<MessageStatus, Error> {
        self.recv_shared(from, tag, buffer.into())
    }

    /// As [`Context::recv`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Context::recv`].
    pub fn recv_shared(
        &self,
        from: Source,
        tag: Tag,
        buffer: SharedBytesMut<'_>,
    ) -> Result<MessageStatus, Error> {
        self.check_handlers()?;
        let wanted = self.wanted(from, tag)?;
        self.traced(EventKind::ProgramReceive, || self.recv_any(wanted, buffer), told)
    }

    /// As [`Context::recv`], with the library's own tags too.
    pub(crate) fn recv_any(
        &self,
        wanted: MatchPattern,
        buffer: SharedBytesMut<'_>,
    ) -> Result<MessageStatus, Error> {
        let mut posting = ReceiveGuard::into(self, wanted, buffer);
        let (received, _) = posting.finish()?;
        fits(received, buffer.len())
    }

    /// Receives a message of any length.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`].
    pub fn recv_vec(&self, from: Source, tag: Tag) -> Result<(MessageStatus, Vec<u8>), Error> {
        self.check_handlers()?;
        let wanted = self.wanted(from, tag)?;
        let mut posting = ReceiveGuard::new(self, wanted, ReceiveBuffer::Grown(Vec::new()));
        let receive = || match posting.finish()? {
            (received, ReceiveBuffer::Grown(vector)) => Ok((received, vector)),
            (_, ReceiveBuffer::Lent(_)) => Err(Error::Fault("a receive came back changed".into())),
        };
        self.traced(EventKind::ProgramReceive, receive, |(status, _)| told(status))
    }

    /// Sends one message and receives another, at the same time.
    ///
    /// # Errors
    /// Those of [`Context::send`] and [`Context::recv`].
    pub fn sendrecv(
        &self,
        to: u32,
        send_tag: i32,
        data: &[u8],
        from: Source,
        recv_tag: Tag,
        buffer: &mut [u8],
    ) -> Result<MessageStatus, Error> {
        self.check_handlers()?;
        check_tag(send_tag)?;
        self.exchange(to, send_tag, data, self.wanted(from, recv_tag)?, buffer.into())
    }

    /// As [`Context::sendrecv`], of and into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Context::sendrecv`].
    pub fn sendrecv_shared(
        &self,
        to: u32,
        send_tag: i32,
        data: SharedBytes<'_>,
        from: Source,
        recv_tag: Tag,
        buffer: SharedBytesMut<'_>,
    ) -> Result<MessageStatus, Error> {
        self.check_handlers()?;
        check_tag(send_tag)?;
        self.exchange(to, send_tag, data, self.wanted(from, recv_tag)?, buffer)
    }

    /// As [`Context::sendrecv`], with the library's own tags too.
    pub(crate) fn exchange(
        &self,
        to: u32,
        send_tag: i32,
        data: impl CopySource,
        wanted: MatchPattern,
        buffer: SharedBytesMut<'_>,
    ) -> Result<MessageStatus, Error> {
        self.check_rank(to)?;
        let mut posting = ReceiveGuard::into(self, wanted, buffer);
        posting.post()?;
        self.send_any(to, send_tag, data)?;
        let (received, _) = posting.finish()?;
        fits(received, buffer.len())
    }

    /// Looks for a message without receiving it or waiting for it.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`].
    pub fn probe(&self, from: Source, tag: Tag) -> Result<Option<MessageStatus>, Error> {
        self.check_handlers()?;
        let wanted = self.wanted(from, tag)?;
        let mut guard = self.channel.lock()?;
        guard.progress()?;
        Ok(guard.handler().mailbox.probe(wanted))
    }

    pub(crate) fn wanted(&self, from: Source, tag: Tag) -> Result<MatchPattern, Error> {
        if let Source::Rank(rank) = from {
            self.check_rank(rank)?;
        }
        if let Tag::Is(tag) = tag {
            check_tag(tag)?;
        }
        Ok(MatchPattern { from, tag })
    }
}

/// A receive; withdrawn when it is dropped before its end, since its buffer is then gone. It is never forgotten.
struct ReceiveGuard<'c> {
    context: &'c Context,
    wanted: MatchPattern,
    buffer: Option<ReceiveBuffer>,
    number: Option<MailboxEntry>,
}

impl<'c> ReceiveGuard<'c> {
    fn new(context: &'c Context, wanted: MatchPattern, buffer: ReceiveBuffer) -> ReceiveGuard<'c> {
        ReceiveGuard { context, wanted, buffer: Some(buffer), number: None }
    }

    /// Into memory that is borrowed longer than this value is there.
    fn into<'b: 'c>(
        context: &'c Context,
        wanted: MatchPattern,
        buffer: SharedBytesMut<'b>,
    ) -> ReceiveGuard<'c> {
        // SAFETY: the mailbox has it until the message has been taken or the receive withdrawn, at the latest when this
        // value is dropped.
        ReceiveGuard::new(context, wanted, ReceiveBuffer::Lent(unsafe { buffer.lend() }))
    }

    fn post(&mut self) -> Result<(), Error> {
        let mut guard = self.context.channel.lock()?;
        self.post_in(&mut guard);
        Ok(())
    }

    fn post_in(&mut self, guard: &mut Guard<'_, Engine>) {
        if let Some(buffer) = self.buffer.take() {
            self.number = Some(guard.handler().mailbox.post(self.wanted, buffer));
        }
    }

    /// Waits for the message.
    fn finish(&mut self) -> Result<(MessageStatus, ReceiveBuffer), Error> {
        let context = self.context;
        let awaited = self.wanted.only_rank();
        let own = matches!(self.wanted.tag, Tag::Is(tag) if tag < 0);
        let wanted = self.wanted.tag;
        let _described = (!own).then(|| {
            let description = Description::of(WaitKind::Message, awaited);
            match wanted {
                Tag::Is(tag) => description.what(u64::from(tag.unsigned_abs())),
                _ => description,
            }
            .enter()
        });
        let attempt = |guard: &mut Guard<'_, Engine>| {
            self.post_in(guard);
            let mailbox = &mut guard.handler().mailbox;
            let done = self.number.and_then(|number| mailbox.take(number));
            mailbox.awaited = if done.is_some() { None } else { awaited };
            if done.is_none()
                && own
                && let Some((rank, theirs, ours)) = mailbox.other_call(self.wanted)
            {
                return Err(Error::GroupDisagrees { rank, theirs, ours });
            }
            Ok(done)
        };
        // The library's own messages are parts of something that others do too.
        let result = match own {
            true => context.drive_collective(Wait::Frames, attempt),
            false => context.await_only(Wait::Frames, attempt),
        }?;
        self.number = None;
        Ok(result)
    }
}

impl Drop for ReceiveGuard<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut guard) = self.context.channel.lock()
        {
            guard.handler().withdraw(number);
            guard.handler().mailbox.awaited = None;
        }
    }
}

fn fits(received: MessageStatus, capacity: usize) -> Result<MessageStatus, Error> {
    if received.len <= capacity {
        Ok(received)
    } else {
        Err(Error::Truncated { needed: received.len })
    }
}

pub(crate) fn check_tag(tag: i32) -> Result<(), Error> {
    if tag >= 0 { Ok(()) } else { Err(Error::BadTag { tag }) }
}
