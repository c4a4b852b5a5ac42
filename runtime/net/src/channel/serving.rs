//! Whether a channel is served while the program computes: its handler thread, and whether that looks at the rings.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::channel::core::Handler;
use crate::channel::handler_thread::start;
use crate::channel::priority::Thread;
use crate::channel::wait_set::HandlerWaitSet;
use crate::channel::{Channel, ChannelError};
use crate::segment::attachment::{AttachError, io_error};

impl<H: Handler> Channel<H> {
    /// The handler thread, if there is one. Whoever holds this alone starts it, and says what it serves.
    pub(super) fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_thread(
        &self,
        thread: &mut Option<JoinHandle<()>>,
    ) -> Result<(), AttachError> {
        let shared = &self.shared;
        let wire = {
            let guard = self.lock().map_err(|error| io_error("lock")(io::Error::other(error)))?;
            guard.core_ref().remote.as_ref().map_or([-1; 2], |remote| remote.wire.sleep_on())
        };
        let wait_set = HandlerWaitSet::new(wire, shared.attachment.own_bell())?;
        shared.wait_set.get_or_init(|| wait_set);
        *thread = Some(start(Arc::clone(shared), self.handler)?);
        self.handler.map_or(Ok(()), |handler| handler.apply(Thread::Main))
    }

    /// From now on, or no longer, what ranks of this node send is served while the program computes,
    /// as what comes from other nodes always is. Needed when they are to reach memory that they have not
    /// mapped.
    ///
    /// `wanted` decides it, and gets the layer above. Of several calls at the same time, the one that decides last counts.
    /// Call it without a [`Guard`](crate::Guard).
    ///
    /// # Errors
    /// [`AttachError`] if there can be no handler thread; as [`Channel::lock`].
    pub fn serve_rings<E: From<AttachError> + From<ChannelError>>(
        &self,
        wanted: impl FnOnce(&mut H) -> bool,
    ) -> Result<(), E> {
        if self.shared.forks.is_child() {
            // Another thread of the rank may have held the mutex when this process was made.
            return Err(ChannelError::Forked.into());
        }
        let mut thread = self.thread();
        let serve = wanted(self.lock()?.handler());
        if serve && thread.is_none() {
            self.start_thread(&mut thread)?;
        }
        self.shared.handover.set_serves_rings(serve, self.shared.wait_set.get());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Release};

    use crate::channel::core::AnswerSender;
    use crate::wait::spin::SpinMode;
    use crate::{Attachment, ChannelSettings, CopySource, Delivery};

    use super::*;

    /// Takes frames, of which none come.
    struct Taking;

    impl Handler for Taking {
        fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, _: S) -> Delivery {
            Delivery::Taken
        }
        fn answer(&mut self, _: usize, _: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
            Ok(())
        }
        fn owes_answers(&self) -> bool {
            false
        }
        fn unread(&self) -> u64 {
            0
        }
        fn refused(&self) -> u64 {
            0
        }
    }

    #[derive(Debug)]
    struct Failed;

    impl From<AttachError> for Failed {
        fn from(error: AttachError) -> Failed {
            panic!("{error}")
        }
    }

    impl From<ChannelError> for Failed {
        fn from(error: ChannelError) -> Failed {
            panic!("{error}")
        }
    }

    fn channel() -> Channel<Taking> {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
        Channel::start(attachment, None, settings, Taking).expect("start")
    }

    /// The first needs long, since it starts the handler thread; the second decides meanwhile.
    #[test]
    fn the_last_to_decide_is_the_last_to_say_so() {
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let (channel, decided) = (channel(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !decided.load(Acquire) {
                        std::thread::yield_now();
                    }
                    channel.serve_rings::<Failed>(|_| false).expect("served");
                });
                let first = channel.serve_rings::<Failed>(|_| {
                    decided.store(true, Release);
                    true
                });
                first.expect("served");
            });
            assert!(!channel.shared.handover.serves_rings());
        }
    }

    /// All threads that serve a channel have this reference to it.
    #[test]
    fn a_channel_has_one_handler_thread_whoever_asks_for_it() {
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let (channel, together) = (channel(), Barrier::new(2));
            let ask = || {
                together.wait();
                channel.serve_rings::<Failed>(|_| true).expect("served");
            };
            std::thread::scope(|scope| {
                scope.spawn(ask);
                ask();
            });
            assert_eq!(Arc::strong_count(&channel.shared), 2, "the channel and its thread");
        }
    }
}
