//! How ranks get in step again after collectives that were interrupted.

use std::sync::atomic::Ordering::Relaxed;

use crate::context::Context;
use crate::error::Error;

impl Context {
    /// Says that the program gets the ranks in step again: a collective, or the making of a window, that is interrupted
    /// while it waits for a message leaves other calls alone (see [`Context::interruptible`]).
    ///
    /// Collectives and windows to be made are out of step with the other ranks then, until all have called
    /// [`Context::renew_collectives`]. Groups beside the job's own stay so: the program makes them anew.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn will_renew_collectives(&self) -> Result<(), Error> {
        self.channel.lock()?.handler().renews_collectives = true;
        Ok(())
    }

    /// How many collectives of the job's group this rank has begun; the number wraps around.
    #[must_use]
    pub fn collectives_begun(&self) -> u32 {
        self.group().state().calls_begun()
    }

    /// Gets in step with the other ranks: the next collective of the job's group has the number after `begun`, and
    /// messages of earlier ones are dropped. Collectives that are requests are given up.
    ///
    /// All ranks call it with the same number, not below what [`Context::collectives_begun`] says at any of them. Between,
    /// on each side of this call, all of them have waited for each other by other means than collectives; and before that
    /// each has called [`Context::flush_all`].
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn renew_collectives(&self, begun: u32) -> Result<(), Error> {
        self.group().state().renew(begun);
        let mut guard = self.channel.lock()?;
        guard.progress()?;
        let engine = guard.handler();
        engine.check_fault()?;
        engine.mailbox.drop_own();
        Ok(())
    }
}

impl super::GroupState {
    fn calls_begun(&self) -> u32 {
        self.calls.load(Relaxed)
    }

    fn renew(&self, begun: u32) {
        self.calls.store(begun, Relaxed);
        self.under_way.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kumi_net::Wait;

    use super::*;
    use crate::group::tag::{Collective, tag};
    use crate::message::mailbox::MatchPattern;
    use crate::{Source, Tag};

    /// Waits of this job of one rank end soon.
    fn impatient() -> Context {
        let context = Context::init_singleton().expect("singleton");
        context.interruptible(Duration::from_millis(1), || true).expect("a thread");
        context
    }

    fn receive(context: &Context, tag: i32) -> Result<(), Error> {
        let wanted = MatchPattern { from: Source::Rank(0), tag: Tag::Is(tag) };
        context.recv_any(wanted, (&mut [0u8; 2][..]).into()).map(drop)
    }

    fn barrier(call: u32) -> i32 {
        tag(0, call, Collective::Barrier, 0)
    }

    #[test]
    fn after_an_interrupted_collective_the_ranks_get_in_step() {
        let context = impatient();
        context.will_renew_collectives().expect("will");
        let begun = context.collectives_begun();
        // A message of another collective came, and that of this one does not come.
        context.send_any(0, barrier(begun + 3), &b"ab"[..]).expect("send");
        context.send(0, 5, b"cd").expect("send");
        let wait = receive(&context, barrier(begun + 1));
        assert!(matches!(wait, Err(Error::Interrupted)), "{wait:?}");
        context.flush_all().expect("flush");
        context.renew_collectives(begun + 7).expect("in step");
        assert_eq!(context.collectives_begun(), begun + 7);
        // The program's own messages are there, and nothing else.
        let mut buffer = [0; 2];
        let status = context.recv(Source::Any, Tag::Any, &mut buffer).expect("receive");
        assert_eq!((status.tag, &buffer), (5, b"cd"));
        assert_eq!(context.channel.lock().expect("channel").handler().mailbox.unread(), 0);
        context.barrier().expect("barrier");
        context.finalize().expect("end");
    }

    #[test]
    fn other_interruptions_end_all_communication() {
        let context = impatient();
        let wait = receive(&context, barrier(1));
        assert!(matches!(wait, Err(Error::Interrupted)), "{wait:?}");
        assert!(matches!(context.progress(), Err(Error::Fault(_))), "nobody will renew");
        context.finalize().expect("end");
        let context = impatient();
        context.will_renew_collectives().expect("will");
        let wait = context.drive(Wait::Frames, |_| Ok(None::<()>));
        assert!(matches!(wait, Err(Error::Interrupted)));
        assert!(matches!(context.renew_collectives(1), Err(Error::Fault(_))));
        context.finalize().expect("end");
    }
}
