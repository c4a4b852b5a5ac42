//! Interruption: how the program ends a call that waits.
//!
//! A signal does not end a wait: it may come while the wait spins, or just before it blocks. So a
//! separate thread makes the waiting thread ask the program from time to time. The state of the call
//! stays as it is meanwhile.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use kumi_net::{ChannelWaker, Guard, Wait, spawn_without_signals};

use crate::context::Context;
use crate::engine::Engine;
use crate::error::Error;

/// The program's question, and the thread that has it asked.
pub(crate) struct InterruptHook {
    ask: Mutex<Box<dyn Fn() -> bool + Send>>,
    shared: Arc<InterruptState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct InterruptState {
    /// Calls that have begun to drive the channel, and those of them that are over.
    begun: AtomicU64,
    over: AtomicU64,
    /// Rises when the calls are to ask.
    due: AtomicU64,
    stop: AtomicBool,
}

thread_local! {
    /// Waits of this thread do not ask the program.
    static UNINTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`; waits in it do not ask the program whether to go on (see [`Context::interruptible`]). For waits in the middle of any
/// instruction of the program, as in a page fault: it may hold what its answer needs, or be in its answer already.
pub fn uninterrupted<R>(body: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            UNINTERRUPTED.set(self.0);
        }
    }
    let _before = Before(UNINTERRUPTED.replace(true));
    body()
}

impl Context {
    /// Lets waiting calls ask the program now and then whether to go on: between `every` and twice
    /// that. If `ask` returns true, the call ends with [`Error::Interrupted`]. For languages whose
    /// signal handlers run only between calls. It cannot be turned off; a second call changes nothing.
    ///
    /// After an interruption these calls have done nothing: a receive, a wait for a notification, a
    /// completion or a record, and an append that waits for room in a mapped piece (see
    /// [`crate::Window`]). The next matching receive gets the message that came meanwhile or began to.
    /// Only a message longer than the interrupted receive's buffer is lost.
    ///
    /// Other calls, collective ones above all, may end half-way. Afterwards every call that
    /// communicates fails with [`Error::Fault`], unless the ranks
    /// [get in step again](Context::will_renew_collectives) after collectives.
    ///
    /// `ask` runs in the thread that waits, in one at a time; the context is not to be used in it.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no further thread.
    pub fn interruptible(
        &self,
        every: Duration,
        ask: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), Error> {
        if self.interrupts.get().is_some() {
            return Ok(());
        }
        let shared = Arc::<InterruptState>::default();
        let body = {
            let (shared, waker) = (Arc::clone(&shared), self.channel.waker());
            move || remind(&shared, &waker, every)
        };
        let thread = Some(spawn_without_signals("kumi-ask", body)?);
        let ask: Mutex<Box<dyn Fn() -> bool + Send>> = Mutex::new(Box::new(ask));
        // Another thread may have been faster: then this one's helper ends with its hook.
        drop(self.interrupts.set(InterruptHook { ask, shared, thread }));
        Ok(())
    }

    /// Drives the channel until `attempt` gives something. If the program ends it, others may have seen
    /// a part of the call's effects, so no other call can follow.
    pub(crate) fn drive<R>(
        &self,
        wait: Wait,
        attempt: impl FnMut(&mut Guard<'_, Engine>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let result = self.await_only(wait, attempt);
        if matches!(result, Err(Error::Interrupted)) {
            self.half_way()?;
        }
        result
    }

    fn half_way(&self) -> Result<(), Error> {
        let text = "an earlier call was interrupted half-way: end the program";
        self.channel.lock()?.handler().fault.get_or_insert_with(|| text.into());
        Ok(())
    }

    /// As [`Context::drive`], for a collective that waits for a message: only other ranks are out of step with it
    /// ([`Context::renew_collectives`]).
    pub(crate) fn drive_collective<R>(
        &self,
        wait: Wait,
        attempt: impl FnMut(&mut Guard<'_, Engine>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let result = self.await_only(wait, attempt);
        if matches!(result, Err(Error::Interrupted))
            && !self.channel.lock()?.handler().renews_collectives
        {
            self.half_way()?;
        }
        result
    }

    /// As [`Context::drive`], for calls that only wait: when the program ends them, nothing has
    /// happened.
    pub(crate) fn await_only<R>(
        &self,
        wait: Wait,
        attempt: impl FnMut(&mut Guard<'_, Engine>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        self.await_until(wait, None, attempt)
    }

    /// The same; `attempt` is also called when the clock has reached `latest`, and ends the wait then.
    pub(crate) fn await_until<R>(
        &self,
        wait: Wait,
        latest: Option<u64>,
        mut attempt: impl FnMut(&mut Guard<'_, Engine>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut counted = CountedWait { context: self, counts: false };
        let mut attempt = |guard: &mut Guard<'_, Engine>| {
            if let Some(fault) = &guard.handler().fault {
                return Err(Error::Fault(fault.clone()));
            }
            let result = attempt(guard)?;
            if result.is_some() == counted.counts {
                counted.change(guard.handler());
            }
            Ok(result)
        };
        let hook = self.interrupts.get().filter(|_| !UNINTERRUPTED.get());
        let Some(InterruptHook { ask, shared, .. }) = hook else {
            return self.channel.wait_with(wait, latest, attempt);
        };
        let _call = ActiveCall::begin(shared);
        // The waits between the program's questions are one.
        let _one = kumi_net::one_wait();
        // The program may name its call when it is asked.
        let _description = kumi_net::keep_description();
        let mut asked = shared.due.load(Relaxed);
        loop {
            let done = self.channel.wait_with(wait, latest, |guard| match attempt(guard)? {
                Some(result) => Ok(Some(Some(result))),
                None if shared.due.load(Relaxed) != asked => Ok(Some(None)),
                None => Ok::<_, Error>(None),
            })?;
            let Some(done) = done else {
                asked = shared.due.load(Relaxed);
                // The channel is free meanwhile: the program may take its time.
                if ask.lock().unwrap_or_else(PoisonError::into_inner)() {
                    return Err(Error::Interrupted);
                }
                continue;
            };
            return Ok(done);
        }
    }
}

/// While it lives a call drives the channel.
struct ActiveCall<'s>(&'s InterruptState);

impl ActiveCall<'_> {
    fn begin(state: &InterruptState) -> ActiveCall<'_> {
        state.begun.fetch_add(1, SeqCst);
        ActiveCall(state)
    }
}

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, SeqCst);
    }
}

/// A call that waits, among those of all threads.
struct CountedWait<'c> {
    context: &'c Context,
    counts: bool,
}

impl CountedWait<'_> {
    #[cold]
    fn change(&mut self, engine: &mut Engine) {
        self.counts = !self.counts;
        engine.waits = if self.counts { engine.waits + 1 } else { engine.waits - 1 };
        engine.mailbox.keeps_all = engine.waits > 1;
    }
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken, and nothing comes any more.
        if self.counts
            && let Ok(mut guard) = self.context.channel.lock()
        {
            self.change(guard.handler());
        }
    }
}

fn remind(shared: &InterruptState, waker: &ChannelWaker, every: Duration) {
    let mut seen = 0;
    while !shared.stop.load(Acquire) {
        park_timeout(every);
        let (over, begun) = (shared.over.load(SeqCst), shared.begun.load(SeqCst));
        // One call that has lasted since the last look, or several of which one may have.
        let active = begun - over;
        if active > 1 || active == 1 && begun == seen {
            shared.due.fetch_add(1, Relaxed);
            waker.serve();
        }
        seen = begun;
    }
}

impl fmt::Debug for InterruptHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptHook").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for InterruptHook {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing that panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::AtomicU32;

    use kumi_net::Delivery;

    use super::*;
    use crate::{Source, Tag};

    const SOON: Duration = Duration::from_millis(1);

    /// A job of one rank whose waits end when they ask for the third time.
    fn impatient() -> (Context, Arc<AtomicU32>) {
        let context = Context::init_singleton().expect("singleton");
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let ask = move || count.fetch_add(1, Relaxed) == 2;
        context.interruptible(SOON, ask).expect("a thread");
        (context, asked)
    }

    /// While a question is being answered, another wait of this thread asks nothing.
    #[test]
    fn a_wait_inside_of_an_answer_asks_nobody_if_it_is_uninterrupted() {
        let context: &'static Context =
            Box::leak(Box::new(Context::init_singleton().expect("singleton")));
        let window: &'static crate::Window<'_> =
            Box::leak(Box::new(context.window(1024).expect("window")));
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let ask = move || {
            count.fetch_add(1, Relaxed);
            // Raises the counter after a time in which it would be asked again.
            let put = std::thread::spawn(|| {
                std::thread::sleep(10 * SOON);
                window.put_notify(0, 0, b"x", 7).expect("put");
            });
            uninterrupted(|| window.wait_notify(7, 1).expect("not interrupted"));
            put.join().expect("the put");
            true
        };
        context.interruptible(SOON, ask).expect("a thread");
        assert!(matches!(window.wait_notify(0, 1), Err(Error::Interrupted)));
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[test]
    fn a_wait_that_is_interrupted_has_done_nothing() {
        let (context, asked) = impatient();
        let window = context.window(1024).expect("window");
        let fifo = window.fifo(0, 64, 1).expect("FIFO");
        let completion = context.completion().expect("completion");
        let mut buffer = [0; 4];
        let waits: [&mut dyn FnMut() -> Result<(), Error>; 3] = [
            &mut || context.recv(Source::Any, Tag::Any, &mut buffer).map(drop),
            &mut || window.wait_notify(0, 1).map(drop),
            &mut || fifo.pop_vec().map(drop),
        ];
        for wait in waits {
            asked.store(0, Relaxed);
            assert!(matches!(wait(), Err(Error::Interrupted)));
            assert_eq!(asked.load(Relaxed), 3);
        }
        context.send(0, 1, b"abcd").expect("send");
        let received = context.recv(Source::Any, Tag::Any, &mut buffer).expect("receive");
        assert_eq!((received.len, &buffer), (4, b"abcd"));
        window.append(0, 0, b"record").expect("append");
        assert_eq!(fifo.pop_vec().expect("pop"), (0, b"record".to_vec()));
        completion.wait(0).expect("nothing to wait for");
        drop(fifo);
        drop(window);
        drop(completion);
        context.finalize().expect("end");
    }

    thread_local! {
        static HERE: RefCell<Option<Rc<Context>>> = const { RefCell::new(None) };
    }

    /// Receives, and meanwhile `come` happens; then the program ends the receive.
    fn interrupted(come: fn(&Context), buffer: &mut [u8]) -> Rc<Context> {
        let context = Rc::new(Context::init_singleton().expect("singleton"));
        HERE.set(Some(Rc::clone(&context)));
        // In the place of the handler thread, which may be as quick.
        let ask = move || {
            HERE.take().is_some_and(|context| {
                come(&context);
                true
            })
        };
        context.interruptible(SOON, ask).expect("a thread");
        let result = context.recv(Source::Any, Tag::Is(1), buffer);
        assert!(matches!(result, Err(Error::Interrupted)));
        context
    }

    #[test]
    fn what_comes_while_the_program_is_asked_is_not_lost() {
        let mut buffer = [0; 8];
        let come = |context: &Context| {
            for (tag, data) in [(1, "first"), (2, "second"), (1, "third")] {
                context.send(0, tag, data.as_bytes()).expect("send");
            }
        };
        let context = interrupted(come, &mut buffer);
        for right in ["first", "second", "third"] {
            let (received, data) = context.recv_vec(Source::Any, Tag::Any).expect("receive");
            assert_eq!((received.len, data), (right.len(), right.as_bytes().to_vec()));
        }
        let context = Rc::into_inner(context).expect("the last one");
        context.finalize().expect("end");
    }

    #[test]
    fn what_has_begun_to_come_is_not_lost() {
        let mut buffer = [0; 8];
        let come = |context: &Context| {
            let mut guard = context.channel.lock().expect("channel");
            let taken = guard.handler().mailbox.first(0, 1, 8, &b"abc"[..]);
            assert_eq!(taken, Ok(Delivery::Taken));
        };
        let context = interrupted(come, &mut buffer);
        buffer = *b"________";
        let mut guard = context.channel.lock().expect("channel");
        guard.handler().mailbox.part(0, &b"defgh"[..]).expect("part");
        drop(guard);
        assert_eq!(&buffer, b"________");
        context.recv(Source::Any, Tag::Any, &mut buffer).expect("receive");
        assert_eq!(&buffer, b"abcdefgh");
        let context = Rc::into_inner(context).expect("the last one");
        context.finalize().expect("end");
    }

    #[test]
    fn after_a_call_that_was_interrupted_half_way_nothing_follows() {
        let (context, _) = impatient();
        let result = context.drive(Wait::Frames, |_| Ok(None::<()>));
        assert!(matches!(result, Err(Error::Interrupted)));
        assert!(matches!(context.progress(), Err(Error::Fault(text)) if text.contains("half-way")));
        context.finalize().expect("end");
    }

    #[test]
    fn a_context_can_move_to_another_thread() {
        let (context, asked) = impatient();
        let wait = move || {
            let result = context.recv(Source::Any, Tag::Any, &mut []);
            assert!(matches!(result, Err(Error::Interrupted)));
            context.finalize().expect("end");
        };
        std::thread::spawn(wait).join().expect("no panic");
        assert_eq!(asked.load(Relaxed), 3);
    }

    #[test]
    fn calls_that_do_not_wait_are_not_asked() {
        let context = Context::init_singleton().expect("singleton");
        context.interruptible(SOON, || panic!("asked")).expect("a thread");
        for _ in 0..100 {
            context.send(0, 1, b"abcd").expect("send");
            context.recv(Source::Any, Tag::Any, &mut [0; 4]).expect("receive");
        }
        context.finalize().expect("end");
    }
}
