//! Arguments that lie at servers, and results that stay there.

use std::time::{Duration, Instant};

use kumi_rpc::{FetchRequest, HeldArrayName, HeldArrayPart, HeldResult, VoucherSupport};

use super::answer_handle::AnswerHandle;
use super::link::{Answer, Link};
use super::{Array, ArrayMut, CallError, Client, Number};
use crate::lent::{LentBytesMut, bytes_of_mut};

/// An array of which servers have parts, or that is to stay at the server.
#[derive(Debug, Default)]
pub struct RemoteArray<'a> {
    /// What is sent: whose bytes no part has. Without it the parts must be the whole array.
    pub from: Option<Array<'a>>,
    /// Parts that servers have, in ascending order; offsets count bytes of what travels.
    pub parts: Vec<HeldArrayPart>,
    /// Where the result is to come to. Without it, it stays at the server alone.
    pub to: Option<ArrayMut<'a>>,
    /// How the result is to stay at the server.
    pub keep: Option<HeldResult>,
}

impl<'a> RemoteArray<'a> {
    /// An argument that a server holds: the one that is called, if `server` is empty.
    #[must_use]
    pub fn held(name: HeldArrayName, bytes: u64, server: &str) -> RemoteArray<'a> {
        let part = HeldArrayPart {
            offset: 0,
            length: bytes,
            name,
            from: 0,
            server: server.to_owned(),
            voucher: String::new(),
        };
        RemoteArray { parts: vec![part], ..RemoteArray::default() }
    }

    /// A result that stays at the server for so long, and does not come back.
    #[must_use]
    pub fn stays(name: HeldArrayName, lifetime: Duration) -> RemoteArray<'a> {
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        let keep = HeldResult { name, lifetime_ms, sent: false, survives: false };
        RemoteArray { keep: Some(keep), ..RemoteArray::default() }
    }
}

impl Client {
    /// Fetches numbers of an array that the server holds, from the byte `offset` on.
    ///
    /// # Errors
    /// [`CallError`]; the array is not held, or is shorter.
    pub fn fetch<T: Number>(
        &self,
        name: HeldArrayName,
        offset: u64,
        to: &mut [T],
    ) -> Result<(), CallError> {
        self.fetch_bytes(name, offset, LentBytesMut::slice(bytes_of_mut(to)), None)
    }

    /// Fetches bytes of an array that the server holds.
    ///
    /// # Errors
    /// [`CallError`]; the array is not held, or is shorter, or does not come in time.
    pub fn fetch_bytes(
        &self,
        name: HeldArrayName,
        offset: u64,
        to: LentBytesMut,
        time: Option<Duration>,
    ) -> Result<(), CallError> {
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let head = FetchRequest { name, offset, length: to.length() as u64 };
        let mut ticket: AnswerHandle<&Link> = Link::fetch(&*self.link, &head, to, deadline)?;
        match ticket.wait(deadline, &|| false)? {
            Ok(Answer::Done(..)) => Ok(()),
            Ok(_) => Err(CallError::Server("the server answered something else".to_owned())),
            Err(failure) => Err(CallError::of(failure, "")),
        }
    }

    /// Asks for a voucher for an array that the server holds: with that in a part of an argument ([`HeldArrayPart::voucher`]) another
    /// server gets the array though this one wants to know who asks. It is good for so long at most, and for nothing else.
    ///
    /// # Errors
    /// [`CallError`]; the array is not held, or the server has not heard of vouchers.
    pub fn vouch(
        &self,
        name: HeldArrayName,
        lifetime: Duration,
        time: Option<Duration>,
    ) -> Result<String, CallError> {
        if self.vouchers() == VoucherSupport::Unknown {
            let text = format!("`{}` is of a version that gives no vouchers", self.server());
            return Err(CallError::Server(text));
        }
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        let mut ticket = Link::vouch(&*self.link, name, lifetime_ms, deadline)?;
        match ticket.wait(deadline, &|| false)? {
            Ok(Answer::Voucher(voucher)) => Ok(voucher),
            Ok(_) => Err(CallError::Server("the server answered something else".to_owned())),
            Err(failure) => Err(CallError::of(failure, "")),
        }
    }

    /// What the server has to do with vouchers.
    pub(crate) fn vouchers(&self) -> VoucherSupport {
        self.server.vouchers
    }

    /// Ends the connection, for all who share it: their calls fail, and the server ends those that are not to survive
    /// it.
    pub fn disconnect(&self) {
        self.link.end("it was ended here");
    }

    /// Has the server hold these arrays no longer. It does not answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn let_go(&self, names: &[HeldArrayName]) -> Result<(), CallError> {
        if names.is_empty() { Ok(()) } else { self.link.let_go(names) }
    }
}
