//! Limit on the connections of a port that have not authenticated yet.
//!
//! A stranger can open connections and say nothing. Each has [`crate::link::HANDSHAKE`] to introduce itself, and
//! where more wait than may, the oldest goes: one that belongs here needs some milliseconds, so it is rarely
//! that one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::link::LinkError;

/// Most connections of a port that wait to be known.
pub(crate) const MAX_PENDING_HANDSHAKES: usize = 256;

/// The connections of a port that are not known yet, oldest first.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    most: usize,
    next: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// A connection that is not known yet.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    limiter: Rc<HandshakeLimit>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl HandshakeLimit {
    /// A door before which at most so many wait.
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, next: Cell::default(), waiting: RefCell::default() })
    }

    /// Somebody has come; the one who has waited longest goes if there are too many.
    pub(crate) fn admit(self: &Rc<Self>) -> HandshakePermit {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.most
            && let Some((_, oldest)) = waiting.pop_front()
        {
            // Who has just become known does not mind.
            let _ = oldest.send(());
        }
        let number = self.next.replace(self.next.get() + 1);
        let (displace, displaced) = oneshot::channel();
        waiting.push_back((number, displace));
        HandshakePermit { limiter: Rc::clone(self), number, displaced }
    }
}

impl HandshakePermit {
    /// Waits until it is known what it is, or it has to go.
    pub(crate) async fn complete<T>(
        mut self,
        introduction: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        tokio::select! {
            biased;
            _ = &mut self.displaced => Err(LinkError::Displaced),
            known = introduction => known,
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut waiting = self.limiter.waiting.borrow_mut();
        // They came in the order of their numbers.
        if let Ok(at) = waiting.binary_search_by_key(&self.number, |permit| permit.0) {
            waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(limiter: &HandshakeLimit) -> Vec<u64> {
        limiter.waiting.borrow().iter().map(|permit| permit.0).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_goes_and_who_is_known_does_not_count() {
        let limiter = HandshakeLimit::new(2);
        let never = std::future::pending::<Result<(), LinkError>>;
        let (first, second) = (limiter.admit(), limiter.admit());
        // Known: nobody has to go for the third.
        assert!(second.complete(async { Ok(()) }).await.is_ok());
        let third = limiter.admit();
        assert_eq!(waiting(&limiter), [0, 2]);
        let fourth = limiter.admit();
        assert!(matches!(first.complete(never()).await, Err(LinkError::Displaced)));
        assert_eq!(waiting(&limiter), [2, 3]);
        drop(third);
        // A place that became free, whatever the reason.
        let fifth = limiter.admit();
        assert_eq!(waiting(&limiter), [3, 4]);
        let failed = fourth.complete(async { Err::<(), _>(LinkError::Closed) }).await;
        assert!(matches!(failed, Err(LinkError::Closed)));
        drop(fifth);
        assert!(waiting(&limiter).is_empty());
    }
}
