//! Services: state machines of a library above, which take messages of other ranks in whichever thread drives the channel. So
//! they serve other ranks while the program computes.

pub(crate) mod arrived;
mod engine;
mod local;
pub(crate) mod outbox;
pub(crate) mod table;
mod transfer;
pub(crate) mod unsent;

use kumi_net::{Description, WaitKind};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::time::Duration;

use kumi_net::{Guard, Wait};
use kumi_proto::Rank;

use crate::collective;
use crate::context::{AwaitedCleanup, Context};
use crate::engine::Engine;
use crate::error::Error;
pub use crate::service::arrived::ArrivedMessage;
pub use crate::service::local::ReservedService;
pub use crate::service::outbox::Outbox;
use crate::service::outbox::Way;
use crate::service::table::Panic;

/// Bytes of the longest message to a service.
pub const SERVICE_MESSAGE_BYTES: usize = 16 << 20;

/// A state machine that takes messages of other ranks.
///
/// It runs under the channel's lock, in whatever thread drives the channel, also while the program computes. Meanwhile this
/// rank communicates with nobody, so each call should be short.
pub trait Service: Any + Send {
    /// Takes a whole message of another rank, or of this one. Messages of one rank come in their order, whatever service they
    /// are for.
    ///
    /// It must not block, and must not use the context or anything that belongs to it: that would wait for itself. Nor may it
    /// touch memory whose faults the program handles: the library's thread takes no signals, so a fault there ends the process.
    ///
    /// A panic ends the service at this rank: what this call has sent is forgotten, and further messages are dropped. The
    /// program's next call that reports panics of signal handlers returns [`Error::ServicePanicked`], and so does every later
    /// call by the service's handle.
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox<'_>);

    /// Takes a message that came in one frame, or from this rank, from where it lies. True: it is taken. False:
    /// [`Service::message`] gets a copy of it. The rules are those of [`Service::message`].
    fn arrived(
        &mut self,
        from: u32,
        message: &ArrivedMessage<'_>,
        outbox: &mut Outbox<'_>,
    ) -> bool {
        let _ = (from, message, outbox);
        false
    }

    /// A transfer that this service began with this token ([`Outbox::get`], [`Outbox::put`]) has ended. Its memory is the
    /// service's again. If it was refused: [`Error::Refused`]. The rules are those of [`Service::message`].
    fn transferred(&mut self, token: u64, result: Result<(), Error>, outbox: &mut Outbox<'_>) {
        let _ = (token, result, outbox);
    }
}

/// Reserved services have numbers from here on.
pub(crate) const RESERVED_FROM: u16 = 0xfff0;

/// A service of this rank, for all threads of the program. When it is dropped the service is gone here, and messages that come
/// for it are dropped. So synchronise before, if others expect answers.
pub struct ServiceHandle<'c, S: Service> {
    context: &'c Context,
    number: u16,
    /// Threads share the handle and not the service: each has it alone under the channel's lock.
    _service: PhantomData<fn() -> S>,
}

impl<S: Service> fmt::Debug for ServiceHandle<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceHandle").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Context {
    /// Makes a service. All ranks call this in the same order; when it returns every rank has the service. From then on it is
    /// served while the program computes, for ranks of this node, too.
    ///
    /// ```
    /// use kumi_mem::{Context, Outbox, Service};
    ///
    /// /// Counts what comes and sends nothing.
    /// struct Count(usize);
    /// impl Service for Count {
    ///     fn message(&mut self, _from: u32, message: &[u8], _outbox: &mut Outbox) {
    ///         self.0 += message.len();
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// let context = Context::init_singleton()?;
    /// let service = context.serve_with(Count(0))?;
    /// let next = (context.rank() + 1) % context.ranks();
    /// service.call(|_, outbox| outbox.send(next, b"four".to_vec()))??;
    /// assert_eq!(service.wait(&[], |count, _| (count.0 >= 4).then_some(count.0))?, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ServiceRefused`] at all ranks if one of them cannot serve it;
    /// [`Error::TooManyServices`]; [`Error::Attach`] at a rank that can have no thread to serve it; [`Error::Fault`],
    /// [`Error::Io`].
    pub fn serve_with<S: Service>(&self, service: S) -> Result<ServiceHandle<'_, S>, Error> {
        let number = self.channel.lock()?.handler().services.add(Box::new(service))?;
        // From here on it goes whatever happens.
        let handle = ServiceHandle { context: self, number, _service: PhantomData };
        let served = self.serve_same_node();
        // Nobody goes on before all have the service, and are served.
        let told = collective::all_words(self, [u64::from(served.is_err())])?;
        served?;
        match (0..).zip(told).find(|(_, [failed])| *failed != 0) {
            None => Ok(handle),
            Some((rank, _)) => {
                let reason = "it can have no thread that serves others while its program computes";
                Err(Error::ServiceRefused { rank, reason })
            }
        }
    }
}

impl<S: Service> ServiceHandle<'_, S> {
    /// Runs `call` with the service under the channel's lock, and sends what that put into the outbox. What has no room now is
    /// sent by whoever drives the channel, in order. Never waits for another rank.
    ///
    /// `call` is bound as [`Service::message`] is. If it panics the panic goes on here, and the service is of no use any more.
    ///
    /// It may be called in a handler of a signal that the program's own access to memory has raised, as may [`Self::wait`]. Such
    /// memory must not be given to operations of the context: the signal would come while the channel is locked.
    ///
    /// # Errors
    /// [`Error::ServicePanicked`] if the service has panicked before; [`Error::Fault`], [`Error::Io`].
    pub fn call<T>(&self, call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T) -> Result<T, Error> {
        let mut guard = self.context.channel.lock()?;
        let result = self.call_locked(&mut guard, call)?;
        // The panic goes on when others can have the channel.
        drop(guard);
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// As [`Self::call`], also when a rank has broken the protocol and other calls return [`Error::Fault`]. Frames still arrive then,
    /// so a service may have to end what it does with its program's memory.
    ///
    /// # Errors
    /// [`Error::ServicePanicked`]; [`Error::Io`] if the channel is broken: then nothing arrives any more.
    pub fn call_after_fault<T>(
        &self,
        call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T,
    ) -> Result<T, Error> {
        let mut guard = self.context.channel.lock()?;
        let result = self.call_unchecked(&mut guard, call)?;
        drop(guard);
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn call_locked<T>(
        &self,
        guard: &mut Guard<'_, Engine>,
        call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T,
    ) -> Result<Result<T, Panic>, Error> {
        guard.handler().check_fault()?;
        self.call_unchecked(guard, call)
    }

    fn call_unchecked<T>(
        &self,
        guard: &mut Guard<'_, Engine>,
        call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T,
    ) -> Result<Result<T, Panic>, Error> {
        let mut outbox = Outbox::new(Way::Channel(guard.lend()), self.number);
        let result = outbox.call(call);
        if matches!(result, Ok(Ok(_))) {
            outbox.engine().services.changed(self.number);
        }
        outbox.finish()?;
        result
    }

    /// Waits until `ready` returns a value. It is asked at once, and again whenever the service may have changed: a message has
    /// come, another thread has called it, or another wait has got its value. What it puts into the outbox is sent each time.
    ///
    /// `ranks`: whom the value depends on; none: it may be anybody. What else comes from them is kept without a bound
    /// meanwhile, since what is waited for may be behind it.
    ///
    /// `ready` is bound as [`Service::message`] is, and a panic of it is as one of [`Self::call`]. As long as it returns
    /// nothing, other waits are not asked again because of it.
    ///
    /// # Errors
    /// As [`Self::call`]; [`Error::BadRank`]; [`Error::Interrupted`], after which the service is as `ready` and messages have
    /// left it.
    pub fn wait<T>(
        &self,
        ranks: &[u32],
        mut ready: impl FnMut(&mut S, &mut Outbox<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        ranks.iter().try_for_each(|rank| self.context.check_rank(*rank))?;
        let over = AwaitedCleanup(self.context);
        let wait = Description::of(WaitKind::Service, None).what(self.number.into());
        let _described = wait.enter();
        let mut seen = None;
        let result = self.context.await_only(Wait::Frames, |guard| {
            // Anew each time: the end of another thread's wait takes it away.
            guard.handler().await_ranks(ranks);
            self.ask(guard, &mut seen, &mut ready)
        });
        drop(over);
        result.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// As [`Self::wait`] for anybody, but none after `timeout`. The rank waits meanwhile as in any other wait: it is idle, and
    /// sleeps when that pays.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_for<T>(
        &self,
        timeout: Duration,
        mut ready: impl FnMut(&mut S, &mut Outbox<'_>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let latest = kumi_net::sys::now().saturating_add(timeout);
        let over = AwaitedCleanup(self.context);
        let wait = Description::of(WaitKind::Service, None).what(self.number.into());
        let _described = wait.enter();
        let mut seen = None;
        let result = self.context.await_until(Wait::Frames, Some(latest), |guard| {
            guard.handler().await_ranks(&[]);
            let asked = self.ask(guard, &mut seen, &mut ready)?;
            let late = asked.is_none() && kumi_net::sys::now() >= latest;
            Ok(asked.map(Some).or_else(|| late.then_some(None)))
        });
        drop(over);
        let result = result?;
        Ok(result.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))))
    }

    /// Asks `ready` as long as it changes the service itself, unless nothing has changed since it was asked last.
    fn ask<T>(
        &self,
        guard: &mut Guard<'_, Engine>,
        seen: &mut Option<u64>,
        mut ready: impl FnMut(&mut S, &mut Outbox<'_>) -> Option<T>,
    ) -> Result<Option<Result<T, Panic>>, Error> {
        let mut asked = None;
        let mut outbox = Outbox::new(Way::Channel(guard.lend()), self.number);
        while asked.is_none() {
            let changes = Some(outbox.engine().services.changes(self.number));
            if std::mem::replace(seen, changes) == changes {
                break;
            }
            match outbox.call(&mut ready).map(Result::transpose) {
                Ok(result) => asked = result,
                Err(error) => {
                    outbox.finish()?;
                    return Err(error);
                }
            }
            if matches!(asked, Some(Ok(_))) {
                outbox.engine().services.changed(self.number);
            }
            outbox.hand_on();
        }
        outbox.finish()?;
        Ok(asked)
    }
}

impl<S: Service> Drop for ServiceHandle<'_, S> {
    fn drop(&mut self) {
        // Without the lock the channel is broken or this process is a fork: nobody serves here any more.
        let Ok(mut guard) = self.context.channel.lock() else { return };
        let service = guard.handler().services.remove(self.number);
        guard.handler().release_transfers(self.number, |_| true);
        drop(guard);
        // Its own end may take long, and may use the context.
        drop(service);
        // Serving less needs no thread, so only a broken channel fails, and its next use says so.
        let _ = self.context.serve_same_node();
    }
}

impl Engine {
    /// The program waits for what these ranks send to a service, or anybody: messages that it may be behind are kept.
    fn await_ranks(&mut self, ranks: &[Rank]) {
        let mailbox = &mut self.mailbox;
        mailbox.awaits_anybody = ranks.is_empty();
        mailbox.awaited = ranks.first().copied();
        mailbox.awaited_too.clear();
        mailbox.awaited_too.extend_from_slice(ranks.get(1..).unwrap_or_default());
    }
}
