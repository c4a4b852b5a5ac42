//! Services that a rank has by itself, under a number that is reserved for them, and the quick ways of their programs.

use kumi_net::SharedBytes;

use crate::context::Context;
use crate::error::Error;
use crate::service::outbox::{Outbox, Way};
use crate::service::{PhantomData, RESERVED_FROM, Service, ServiceHandle, resume_unwind};

/// A number that only one library has, which makes its service whenever a rank wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservedService(pub(super) u16);

impl ReservedService {
    /// The endpoints of the libfabric provider.
    pub const FABRIC: ReservedService = ReservedService(u16::MAX);
    /// Tests of this library.
    pub const TEST: ReservedService = ReservedService(RESERVED_FROM);
}

impl Context {
    /// Makes a service with a reserved number at this rank. No other rank takes part, and the library's thread serves it, for
    /// ranks of this node, too.
    ///
    /// A message that comes before stays with its sender, and so does what that rank sends behind it. One that comes after the
    /// service's end is dropped. Then there may be another one with this number.
    ///
    /// # Errors
    /// [`Error::ServiceTaken`] if this rank serves the number already; [`Error::Attach`] if there can be no thread to serve it;
    /// [`Error::Fault`], [`Error::Io`].
    pub fn serve_locally<S: Service>(
        &self,
        number: ReservedService,
        service: S,
    ) -> Result<ServiceHandle<'_, S>, Error> {
        let mut guard = self.channel.lock()?;
        let number = guard.handler().services.add_reserved(number, Box::new(service))?;
        drop(guard);
        // From here on it goes whatever happens.
        let handle = ServiceHandle { context: self, number, _service: PhantomData };
        self.serve_same_node()?;
        // Takes what was refused before.
        self.channel.lock()?.progress()?;
        Ok(handle)
    }
}

impl<S: Service> ServiceHandle<'_, S> {
    /// Sends a message made of `header` and `payload` to this service at a rank, if it can leave at once: it is written where
    /// its target reads it, or where it is sent from. False, and nothing is sent, if an earlier message to that rank waits or
    /// there is no room. The own rank's service gets its message before this returns.
    ///
    /// # Errors
    /// [`Error::BadRank`]; [`Error::ServiceMessageTooLong`] if it does not fit one frame ([`Outbox::max_frame_payload`]);
    /// [`Error::ServicePanicked`] if the service has panicked before; [`Error::Fault`], [`Error::Io`].
    pub fn try_send(
        &self,
        to: u32,
        header: &[u8],
        payload: SharedBytes<'_>,
    ) -> Result<bool, Error> {
        let mut guard = self.context.channel.lock()?;
        guard.expect_send(to);
        let engine = guard.handler();
        engine.check_fault()?;
        engine.services.check(self.number)?;
        let (length, most) = (header.len() + payload.len(), engine.max_service_frame());
        if length > most {
            return Err(Error::ServiceMessageTooLong { length, most });
        }
        let own = to == engine.me;
        let mut outbox = Outbox::new(Way::Channel(guard.lend()), self.number);
        let sent = if own {
            outbox.send_to_self(&[header], payload).map(|()| true)
        } else {
            outbox.send_now(to, &[header], payload)
        };
        outbox.finish()?;
        sent
    }

    /// Bytes of a message that fits one frame to any rank. They never change.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn max_frame_payload(&self) -> Result<usize, Error> {
        Ok(self.context.channel.lock()?.handler().max_service_frame())
    }

    /// Takes what has arrived and sends what is due, without waiting: for a program that calls this again and again. True if
    /// this call has taken something. Other threads, the library's own among them, may have taken what the program waits for:
    /// look at the service, whatever this says. Where only ranks of this node send, the network is looked at once in 16 calls.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::Io`].
    pub fn poll(&self) -> Result<bool, Error> {
        let mut guard = self.context.channel.lock()?;
        guard.handler().check_fault()?;
        Ok(guard.poll()?)
    }

    /// As [`Self::poll`] and then [`Self::call`], but the channel is locked once.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn poll_then<T>(
        &self,
        call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T,
    ) -> Result<T, Error> {
        let mut guard = self.context.channel.lock()?;
        guard.poll()?;
        let result = self.call_locked(&mut guard, call)?;
        // The panic goes on when others can have the channel.
        drop(guard);
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}
