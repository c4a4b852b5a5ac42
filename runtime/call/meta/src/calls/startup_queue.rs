//! Queue of requests that arrive before the servers of an earlier metaserver are back.

use std::collections::HashMap;
use std::rc::Rc;

use kumi_broker::UserId;
use kumi_call_wire::context::Span;
use kumi_rpc::PlacementRequest;

use super::super::peer::Peer;

/// A request of a client.
#[derive(Debug)]
pub enum StartupRequest {
    /// A request for a place, and its span if it is in a trace.
    Place(PlacementRequest, Option<Span>),
    /// A request for the description of the routine with this name.
    Describe(String),
}

/// A queued request and its client.
#[derive(Debug)]
pub struct QueuedRequest {
    pub peer: Rc<Peer>,
    pub stream: u32,
    pub request: StartupRequest,
    user: UserId,
}

/// All queued requests, in order.
///
/// Invariant: no user has more requests than one user may have, and the total is within its limit.
#[derive(Debug)]
pub struct StartupQueue {
    most: usize,
    most_of_user: usize,
    waiters: Vec<QueuedRequest>,
    of_user: HashMap<UserId, usize>,
}

impl StartupQueue {
    /// A queue with a limit for all, and for one user.
    pub fn new(most: usize, most_of_user: usize) -> StartupQueue {
        StartupQueue { most, most_of_user, waiters: Vec::new(), of_user: HashMap::new() }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The queue is full; the text for the client.
    pub fn add(
        &mut self,
        peer: &Rc<Peer>,
        stream: u32,
        user: UserId,
        request: StartupRequest,
    ) -> Result<(), &'static str> {
        let own = self.of_user.get(&user).copied().unwrap_or(0);
        if self.waiters.len() >= self.most {
            return Err("too many calls wait for servers");
        }
        if own >= self.most_of_user {
            return Err("too many calls of this user wait for servers");
        }
        self.of_user.insert(user, own + 1);
        self.waiters.push(QueuedRequest { peer: Rc::clone(peer), stream, request, user });
        Ok(())
    }

    /// Takes all requests out.
    pub fn take(&mut self) -> Vec<QueuedRequest> {
        self.of_user.clear();
        std::mem::take(&mut self.waiters)
    }

    /// Takes the request of a connection's stream out.
    pub fn remove(&mut self, peer: &Peer, stream: u32) -> Option<QueuedRequest> {
        let its = |waiter: &QueuedRequest| waiter.peer.id == peer.id && waiter.stream == stream;
        let waiter = self.waiters.remove(self.waiters.iter().position(its)?);
        self.forget(waiter.user);
        Some(waiter)
    }

    /// Removes the requests of a closed connection.
    pub fn leave(&mut self, peer: &Peer) {
        let gone: Vec<QueuedRequest> =
            self.waiters.extract_if(.., |waiter| waiter.peer.id == peer.id).collect();
        gone.iter().for_each(|waiter| self.forget(waiter.user));
    }

    fn forget(&mut self, user: UserId) {
        if let Some(count) = self.of_user.get_mut(&user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_user.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_has_all_the_room() {
        let peers: Vec<Rc<Peer>> = (0..3).map(|id| Rc::new(Peer::new(id, None, 8))).collect();
        let mut startup_queue = StartupQueue::new(4, 2);
        let add = |startup_queue: &mut StartupQueue, peer: usize, stream, user| {
            startup_queue.add(
                &peers[peer],
                stream,
                UserId(user),
                StartupRequest::Describe(stream.to_string()),
            )
        };
        assert_eq!(add(&mut startup_queue, 0, 1, 7), Ok(()));
        // The user counts, not the connection.
        assert_eq!(add(&mut startup_queue, 1, 2, 7), Ok(()));
        assert!(add(&mut startup_queue, 1, 3, 7).is_err_and(|why| why.contains("of this user")));
        assert_eq!(add(&mut startup_queue, 2, 4, 8), Ok(()));
        assert_eq!(add(&mut startup_queue, 2, 5, 9), Ok(()));
        assert!(add(&mut startup_queue, 2, 6, 10).is_err());
        // A request that is removed makes room for others of its user.
        assert!(startup_queue.remove(&peers[0], 2).is_none());
        assert_eq!(startup_queue.remove(&peers[0], 1).map(|waiter| waiter.stream), Some(1));
        assert_eq!(add(&mut startup_queue, 0, 7, 7), Ok(()));
        startup_queue.leave(&peers[2]);
        assert_eq!(add(&mut startup_queue, 0, 8, 8), Ok(()));
        let order: Vec<u32> = startup_queue.take().iter().map(|waiter| waiter.stream).collect();
        assert_eq!(order, [2, 7, 8]);
        assert!(startup_queue.of_user.is_empty());
    }
}
