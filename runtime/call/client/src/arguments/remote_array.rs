//! Arguments that servers hold, and results that stay at servers.

use std::io;
use std::time::{Duration, Instant};

use kumi_rpc::{
    FetchRequest, HeldArrayName, HeldArrayPart, HeldResult, HoldRequest, VoucherSupport,
};

use super::super::HeldNames;
use super::super::link::{Answer, Link};
use super::super::{Array, ArrayMut, CallError, Client, HeldArray, Number};
use crate::context;
use crate::lent::{Lend, LendMut, LentBytes, LentBytesMut, bytes_of, bytes_of_mut};

/// An array of which servers hold parts, or whose result stays at the server.
#[derive(Debug, Default)]
pub struct RemoteArray<'a> {
    /// The caller's array. Bytes that no part covers are sent from it. Without it, the parts must cover the
    /// whole array.
    pub from: Option<Array<'a>>,
    /// Parts that servers hold, in ascending order. Offsets count bytes of the array as it travels.
    pub parts: Vec<HeldArrayPart>,
    /// The caller's array for the result. Without it, the result only stays at the server.
    pub to: Option<ArrayMut<'a>>,
    /// How the result is kept at the server.
    pub keep: Option<HeldResult>,
    /// Through a metaserver: the array at a server whose value is sent, in place of all parts.
    pub held: Option<HeldArray>,
    /// Through a metaserver: the result stays, and this becomes the reference to it.
    pub stays: Option<HeldArray>,
}

impl<'a> RemoteArray<'a> {
    /// An argument that a server holds. An empty `server` means the server that is called.
    #[must_use]
    pub fn held(name: HeldArrayName, bytes: u64, server: &str) -> RemoteArray<'a> {
        let parts = vec![HeldArrayPart::whole(name, bytes, server)];
        RemoteArray { parts, ..RemoteArray::default() }
    }

    /// A result that stays at the server for this long and does not come back.
    #[must_use]
    pub fn stays(name: HeldArrayName, lifetime: Duration) -> RemoteArray<'a> {
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        let keep = HeldResult { name, lifetime_ms, sent: false, survives: false };
        RemoteArray { keep: Some(keep), ..RemoteArray::default() }
    }

    /// A result that nobody wants: it does not come back. `from` is sent if the routine reads the array.
    ///
    /// # Errors
    /// The system gives no random name.
    pub fn declined(from: Option<Array<'a>>) -> io::Result<RemoteArray<'a>> {
        // Servers that do not know this meaning of no lifetime hold the array for no time, under this name.
        let name = HeldNames::new()?.fresh();
        Ok(RemoteArray { from, ..RemoteArray::stays(name, Duration::ZERO) })
    }
}

impl Client {
    /// Fetches numbers of an array that the server holds, starting at byte `offset`.
    ///
    /// # Errors
    /// [`CallError`]: the server does not hold the array, or it is shorter.
    pub fn fetch<T: Number>(
        &self,
        name: HeldArrayName,
        offset: u64,
        to: &mut [T],
    ) -> Result<(), CallError> {
        self.fetch_bytes(name, offset, LentBytesMut::slice(bytes_of_mut(to)), None, &|| false)
    }

    /// Fetches bytes of an array that the server holds, until `interrupted`.
    ///
    /// # Errors
    /// [`CallError`]: the server does not hold the array, it is shorter, or it does not arrive in time. The time of a call
    /// around this one is a limit, too.
    pub fn fetch_bytes(
        &self,
        name: HeldArrayName,
        offset: u64,
        to: LentBytesMut,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let time = context::limit(time, "fetch")?;
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let head = FetchRequest { name, offset, length: to.length() as u64 };
        let mut ticket = self.link.fetch(&head, to, deadline)?;
        match ticket.wait(deadline, interrupted)? {
            Ok(Answer::Done(..)) => Ok(()),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// Sends numbers that the server then holds under this name, at most this long. They are an argument of later calls
    /// there: [`RemoteArray::held`].
    ///
    /// # Errors
    /// [`CallError`]: the server has no room, or does not know such arrays.
    pub fn hold<T: Number>(
        &self,
        name: HeldArrayName,
        numbers: &[T],
        lifetime: Duration,
    ) -> Result<(), CallError> {
        self.hold_bytes(name, LentBytes::slice(bytes_of(numbers)), lifetime, None, &|| false)
    }

    /// [`Client::hold`] of bytes in the order in which a routine wants them, with a time limit and until `interrupted`.
    ///
    /// # Errors
    /// [`CallError`]: as [`Client::hold`], or it took too long. The time of a call around this one is a limit, too.
    pub fn hold_bytes(
        &self,
        name: HeldArrayName,
        from: LentBytes,
        lifetime: Duration,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        if !self.server.holds_arrays {
            let text = format!(
                "`{}` is of a version that holds only results of calls: let a routine make the array there",
                self.server()
            );
            return Err(CallError::Server(text));
        }
        let time = context::limit(time, "hold")?;
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        let head = HoldRequest { name, lifetime_ms, bytes: from.length() as u64 };
        let mut ticket = self.link.hold(&head, from, (deadline, interrupted))?;
        match ticket.wait(deadline, interrupted)? {
            Ok(Answer::Done(..)) => Ok(()),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// Asks for a voucher for an array that the server holds. A part of an argument can carry it
    /// ([`HeldArrayPart::voucher`]). Another server may then fetch the array although this one checks identities.
    /// The voucher expires after the given time and permits nothing else.
    ///
    /// # Errors
    /// [`CallError`]: the server does not hold the array, or does not know vouchers.
    pub fn vouch(
        &self,
        name: HeldArrayName,
        lifetime: Duration,
        time: Option<Duration>,
    ) -> Result<String, CallError> {
        if self.server.vouchers == VoucherSupport::Unknown {
            let text = format!("`{}` is of a version that gives no vouchers", self.server());
            return Err(CallError::Server(text));
        }
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        let waits: (_, &dyn Fn() -> bool) = (deadline, &|| false);
        let mut ticket = Link::ask(&*self.link, waits, |rpc, out| {
            Ok(rpc.request_voucher(name, lifetime_ms, out))
        })?;
        match ticket.wait(deadline, &|| false)? {
            Ok(Answer::Voucher(voucher)) => Ok(voucher),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// Ends the connection for everybody who shares it. Their calls fail, and the server ends the calls that
    /// may not survive the connection.
    pub fn disconnect(&self) {
        self.link.end("it was ended here");
    }

    /// Tells the server to drop these arrays. The server does not answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn let_go(&self, names: &[HeldArrayName]) -> Result<(), CallError> {
        if names.is_empty() { Ok(()) } else { self.link.let_go(names) }
    }
}
