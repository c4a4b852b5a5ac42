//! Matched probes: messages that a program looks at before it receives them, and that nobody else gets meanwhile.

use kumi_net::{SharedBytesMut, Wait};

use crate::context::{AwaitedCleanup, Context};
use crate::error::Error;
use crate::message::mailbox::{
    MailboxEntry, MatchPattern, MessageStatus, ReceiveBuffer, Source, Tag,
};

/// A message that only its holder can receive. Dropped, it is there for everybody again, at its old place in the order.
#[derive(Debug)]
pub struct ClaimedMessage<'c> {
    context: &'c Context,
    entry: MailboxEntry,
    status: MessageStatus,
}

impl Context {
    /// Waits for a message without receiving it.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`].
    pub fn await_message(&self, from: Source, tag: Tag) -> Result<MessageStatus, Error> {
        let wanted = self.wanted(from, tag)?;
        self.await_kept(wanted, |context| {
            Ok(context.channel.lock()?.handler().mailbox.probe(wanted))
        })
    }

    /// Takes hold of a message that has come, or has begun to. No other receive gets it.
    ///
    /// # Errors
    /// As [`Context::await_message`].
    pub fn claim(&self, from: Source, tag: Tag) -> Result<Option<ClaimedMessage<'_>>, Error> {
        self.check_handlers()?;
        let wanted = self.wanted(from, tag)?;
        self.channel.lock()?.progress()?;
        self.claim_now(wanted)
    }

    /// As [`Context::claim`], and waits for such a message.
    ///
    /// # Errors
    /// As [`Context::await_message`].
    pub fn await_claim(&self, from: Source, tag: Tag) -> Result<ClaimedMessage<'_>, Error> {
        let wanted = self.wanted(from, tag)?;
        self.await_kept(wanted, |context| context.claim_now(wanted))
    }

    fn claim_now(&self, wanted: MatchPattern) -> Result<Option<ClaimedMessage<'_>>, Error> {
        let mut guard = self.channel.lock()?;
        let mailbox = &mut guard.handler().mailbox;
        let Some(entry) = mailbox.claim_kept(wanted) else { return Ok(None) };
        let status = mailbox.matched(entry);
        Ok(status.map(|(status, _)| ClaimedMessage { context: self, entry, status }))
    }

    /// Waits until there is a message that fits, and looks; again if another thread was faster.
    fn await_kept<'c, R>(
        &'c self,
        wanted: MatchPattern,
        look: impl Fn(&'c Context) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        self.check_handlers()?;
        let over = AwaitedCleanup(self);
        loop {
            self.await_only(Wait::Frames, |guard| {
                let mailbox = &mut guard.handler().mailbox;
                mailbox.awaited = wanted.only_rank();
                Ok(mailbox.probe(wanted).map(drop))
            })?;
            if let Some(found) = look(self)? {
                drop(over);
                return Ok(found);
            }
        }
    }
}

impl ClaimedMessage<'_> {
    /// Sender, tag and length.
    #[must_use]
    pub fn status(&self) -> MessageStatus {
        self.status
    }

    /// Receives it. If the buffer is too small it gets the beginning, and the message is consumed.
    ///
    /// # Errors
    /// [`Error::Truncated`], and those of waits: the rest of the message may still have to come.
    pub fn receive(self, into: &mut [u8]) -> Result<MessageStatus, Error> {
        self.receive_shared(into.into())
    }

    /// As [`ClaimedMessage::receive`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`ClaimedMessage::receive`].
    pub fn receive_shared(self, into: SharedBytesMut<'_>) -> Result<MessageStatus, Error> {
        let (status, data) = self.receive_vec()?;
        let fits = data.len().min(into.len());
        into.slice(0, fits).copy_from(&data[..fits]);
        if fits == data.len() { Ok(status) } else { Err(Error::Truncated { needed: status.len }) }
    }

    /// Receives it.
    ///
    /// # Errors
    /// Those of waits: the rest of the message may still have to come.
    pub fn receive_vec(self) -> Result<(MessageStatus, Vec<u8>), Error> {
        let context = self.context;
        context.check_handlers()?;
        let over = AwaitedCleanup(context);
        let result = context.await_only(Wait::Frames, |guard| {
            let mailbox = &mut guard.handler().mailbox;
            mailbox.awaited = Some(self.status.from);
            Ok(mailbox.take(self.entry))
        });
        drop(over);
        match result? {
            (status, ReceiveBuffer::Grown(data)) => Ok((status, data)),
            (_, ReceiveBuffer::Lent(_)) => Err(Error::Fault("a receive came back changed".into())),
        }
    }
}

impl Drop for ClaimedMessage<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken. A message that was received is not there any more.
        if !self.context.is_copy()
            && let Ok(mut guard) = self.context.channel.lock()
        {
            guard.handler().withdraw(self.entry);
        }
    }
}
