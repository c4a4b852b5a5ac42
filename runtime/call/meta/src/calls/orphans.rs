//! Calls without a client: lost clients, and places to which no client comes.

use kumi_broker::{CallId, Event, Failure as Why, Time};
use kumi_rpc::AttemptState;

use super::super::dispatcher::{Dispatcher, OpenCall};
use super::super::peer::Peer;

/// How long a call without its client may run before the client must be back.
const ORPHAN: u64 = 30 * Time::SECOND;
/// How long a client may take to come back after its call has left the server.
const GONE: u64 = Time::SECOND;

impl Dispatcher {
    /// Tells servers to refuse clients that have not come for long, so that others get their places. A client
    /// whose arguments are arriving has come.
    pub fn expire_places(&mut self) {
        let now = self.now();
        let most = u64::try_from(self.config.start.as_nanos()).unwrap_or(u64::MAX);
        for open in self.calls.values_mut().filter(|open| !open.gone && !open.restored) {
            let Some(running) = &mut open.running else { continue };
            if running.awaited.is_none_or(|since| now.0.saturating_sub(since.0) <= most) {
                continue;
            }
            let member = self.members.get(&running.server);
            let Some(peer) = member.and_then(|member| member.peer.as_ref()) else { continue };
            // Asked again if there is no answer. A client that has come is no answer.
            running.awaited = Some(now);
            running.expires = Some(peer.id);
            peer.tell(|rpc| rpc.expire(running.ticket));
        }
    }

    /// A connection is closed. Its waiting calls end; its running calls may end while the client reconnects.
    pub fn leave(&mut self, peer: &Peer) {
        let now = self.now();
        self.startup_queue.leave(peer);
        let mut waits = Vec::new();
        for (call, open) in &mut self.calls {
            if open.peer.as_ref().is_none_or(|(other, _)| other.id != peer.id) {
                continue;
            }
            if let Some((_, stream)) = open.peer.take() {
                self.streams.remove(&(peer.id, stream));
            }
            match &open.running {
                None => waits.push(*call),
                Some(_) => open.orphan = Some(now),
            }
        }
        for call in waits {
            self.tell(Event::Cancel(CallId(call)));
        }
    }

    /// Ends a call that neither its client nor its server has any more.
    pub fn end_orphan(&mut self, call: u64) {
        let running = self.calls.get(&call).and_then(|open| open.running.as_ref());
        let Some(ticket) = running.map(|running| running.ticket) else { return };
        let fate = self.calls.get(&call).map_or(AttemptState::Unknown, |open| open.fate);
        match fate {
            AttemptState::Completed(ns) => {
                self.ran = ns as f64 / 1e9;
                self.keep_time(call, self.ran);
                return self.tell(Event::Ended(CallId(call), ticket.attempt, self.ran));
            }
            AttemptState::Crashed => {
                return self.tell(Event::Failed(CallId(call), ticket.attempt, Why::Routine));
            }
            AttemptState::Unknown | AttemptState::Accepted => {}
        }
        self.tell(Event::Cancel(CallId(call)));
        if self.stopping.remove(&ticket).is_some() {
            self.tell(Event::Cancelled(CallId(call), ticket.attempt));
        }
    }

    /// Ends calls whose clients have not come back.
    pub fn give_up_orphans(&mut self) {
        let now = self.now();
        let late = |open: &OpenCall| {
            let most = if open.gone { GONE } else { ORPHAN };
            open.orphan.is_some_and(|since| now.0.saturating_sub(since.0) > most)
        };
        for call in self.calls_that(late) {
            let restored = self.calls.get(&call).filter(|open| open.restored);
            let server = restored.and_then(|open| open.running.as_ref()).map(|it| it.server);
            let gone = self.calls.get(&call).is_some_and(|open| open.gone);
            match server {
                Some(server) => self.done(call, &kumi_broker::Outcome::Lost(server)),
                None if gone => self.end_orphan(call),
                None => self.tell(Event::Cancel(CallId(call))),
            }
        }
    }
}
