//! Unreachable peers: this machine does not let packets go to them, because of a firewall, a prohibited
//! route, or a wrong address.
//!
//! For a while that is a loss like others, since firewalls are loaded anew and routes come back. When it lasts, waiting would be
//! in vain for as long as it does.

use std::io;

use kumi_proto::Rank;

use crate::channel::ChannelError;
use crate::channel::core::{ChannelCore, Handler};

/// How long packets to a peer are refused before it counts as unreachable, in microseconds: from the
/// first refusal to the last, with nothing sent and no [`GAP`] in between.
const PATIENCE: u64 = 5_000_000;

/// Refusals further apart, in microseconds, say nothing of the time between them. Lost packets are
/// resent several times a second, so nobody tried.
const GAP: u64 = 1_000_000;

#[derive(Debug)]
struct RefusedPeer {
    to: Rank,
    /// When it began, and when it was met last.
    first: u64,
    last: u64,
    /// The kernel's code.
    code: i32,
}

/// The peers to which the last packets were refused.
#[derive(Debug)]
pub(crate) struct UnreachablePeers {
    bars: Vec<RefusedPeer>,
    pub(crate) patience: u64,
}

impl UnreachablePeers {
    pub(crate) fn new() -> UnreachablePeers {
        UnreachablePeers { bars: Vec::new(), patience: PATIENCE }
    }

    /// Packets to `to` have left.
    #[inline]
    pub(crate) fn left(&mut self, to: Rank) {
        if !self.bars.is_empty() {
            self.bars.retain(|bar| bar.to != to);
        }
    }

    /// Packets to `to` were refused.
    #[cold]
    pub(crate) fn refused(&mut self, now: u64, to: Rank, code: i32) {
        match self.bars.iter_mut().find(|bar| bar.to == to) {
            Some(bar) => {
                if now.saturating_sub(bar.last) > GAP {
                    bar.first = now;
                }
                (bar.last, bar.code) = (now, code);
            }
            None => self.bars.push(RefusedPeer { to, first: now, last: now, code }),
        }
    }

    /// # Errors
    /// [`ChannelError::Unreachable`] if some peer has been so for long.
    #[inline]
    fn check(&self) -> Result<(), ChannelError> {
        if self.bars.is_empty() {
            return Ok(());
        }
        let long = |bar: &&RefusedPeer| bar.last - bar.first >= self.patience;
        match self.bars.iter().find(long) {
            Some(bar) => {
                let reason = io::Error::from_raw_os_error(bar.code);
                Err(ChannelError::Unreachable { to: bar.to, reason })
            }
            None => Ok(()),
        }
    }
}

impl<H: Handler> ChannelCore<H> {
    /// For who waits: whether there is a peer that cannot be reached.
    ///
    /// # Errors
    /// [`ChannelError::Unreachable`].
    #[inline]
    pub(crate) fn check_unreachable(&self) -> Result<(), ChannelError> {
        self.remote.as_ref().map_or(Ok(()), |remote| remote.unreachable.check())
    }
}

#[cfg(test)]
mod tests;
