//! Limit on the connections of a port that have not authenticated yet.
//!
//! A stranger can open connections and send nothing. Each connection has [`crate::link::HANDSHAKE`] to
//! authenticate. If too many wait, the limit closes the oldest: a legitimate connection needs only some
//! milliseconds, so it is rarely the oldest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::link::LinkError;

/// Most connections of a port that have not authenticated.
pub(crate) const MAX_PENDING_HANDSHAKES: usize = 256;

/// The connections of a port that have not authenticated yet, oldest first.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    most: usize,
    next: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// Place of a connection that has not authenticated yet.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    limiter: Rc<HandshakeLimit>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl HandshakeLimit {
    /// A limit of `most` connections.
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, next: Cell::default(), waiting: RefCell::default() })
    }

    /// Admits a connection. If there are too many, the oldest is displaced.
    pub(crate) fn admit(self: &Rc<Self>) -> HandshakePermit {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.most
            && let Some((_, oldest)) = waiting.pop_front()
        {
            // The oldest may just have authenticated; then nobody listens any more.
            let _ = oldest.send(());
        }
        let number = self.next.replace(self.next.get() + 1);
        let (displace, displaced) = oneshot::channel();
        waiting.push_back((number, displace));
        HandshakePermit { limiter: Rc::clone(self), number, displaced }
    }
}

impl HandshakePermit {
    /// Waits for the handshake, or until the connection is displaced.
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
        // The queue is in the order of the numbers.
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
