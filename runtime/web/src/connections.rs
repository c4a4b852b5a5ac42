//! Who has how many connections.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::{Extensions, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

/// Most connections of a peer: as many as a `kumi web` carries.
pub(crate) const MOST_OF_PEER: usize = 64;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// A user of this machine, as the kernel knows it.
    User(u32),
    /// An address of the network.
    Address(IpAddr),
}

impl Peer {
    /// The user by whom a request comes; none if that is not known.
    pub(crate) fn user(extensions: &Extensions) -> Option<u32> {
        match extensions.get() {
            Some(Self::User(uid)) => Some(*uid),
            Some(Self::Address(_)) | None => None,
        }
    }
}

/// Connections of all peers to a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<BTreeMap<Peer, usize>>>);

/// A connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    of: Connections,
    peer: Peer,
}

impl Connections {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of this peer, unless it has too many.
    pub(crate) fn count(&self, peer: Peer) -> Option<CountedConnection> {
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        if *count >= MOST_OF_PEER {
            return None;
        }
        *count += 1;
        Some(CountedConnection { of: self.clone(), peer })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// The router for a connection: requests know whose it is.
#[derive(Clone, Debug)]
pub(crate) struct PeerService {
    router: TowerToHyperService<Router>,
    peer: Peer,
}

impl PeerService {
    pub(crate) fn new(router: Router, peer: Peer) -> Self {
        Self { router: TowerToHyperService::new(router), peer }
    }
}

impl Service<Request<Incoming>> for PeerService {
    type Response = Response;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_and_others_have_theirs() {
        let all = Connections::default();
        let mut own: Vec<_> =
            (0..MOST_OF_PEER).map(|_| all.count(Peer::User(7)).unwrap()).collect();
        assert!(all.count(Peer::User(7)).is_none());
        assert!(all.count(Peer::User(8)).is_some());
        own.pop();
        assert!(all.count(Peer::User(7)).is_some());
        drop(own);
        assert!(all.counts().is_empty());
    }
}
