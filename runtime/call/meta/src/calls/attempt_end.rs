//! End of attempts, as clients and servers report it.

use kumi_broker::{CallId, Event, Failure as Why, ServerId, Time};
use kumi_rpc::{AttemptOutcome, AttemptReport, AttemptState, Ticket, Transfer};

use super::super::dispatcher::{Dispatcher, end_sending};
use super::super::peer::Peer;

/// How long a server may take to report the end of a call whose client has the results.
const WORD: u64 = 30 * Time::SECOND;
/// A client that kept a place longer than this without coming to the server has used up its turn.
const HELD: u64 = Time::SECOND;

impl Dispatcher {
    /// A client reports the end of an attempt.
    pub fn over(&mut self, peer: &Peer, stream: u32, over: &AttemptReport) {
        let Ticket { call, attempt } = over.ticket;
        let now = self.now();
        let Some(open) = self.calls.get_mut(&call) else { return };
        let own = match &open.peer {
            Some((other, at)) => other.id == peer.id && (*at == stream || stream == 0),
            None => self.users.name(open.request.user.0) == peer.user(),
        };
        if !own {
            return;
        }
        if open.restored {
            return self.over_restored(call, over);
        }
        let Some(running) =
            open.running.as_ref().filter(|running| running.ticket.attempt == attempt)
        else {
            // A report on an abandoned attempt. If the attempt ran anyway, no other is needed.
            if over.ended == AttemptOutcome::Done {
                self.tell(Event::Cancel(CallId(call)));
            }
            return;
        };
        let server = running.server;
        if over.ended == AttemptOutcome::Done && !open.gone {
            // The server decides whether and how long the attempt ran. A client could otherwise spoil the
            // estimates for everybody, or free a slot in which its routine still runs.
            open.client_report = Some((*over, now));
            return;
        }
        self.ended(call, over, server);
    }

    /// A client says why an attempt failed. Only the client of the call is heard.
    pub fn reason(&mut self, peer: &Peer, ticket: Ticket, text: &str) {
        let Some(open) = self.calls.get_mut(&ticket.call) else { return };
        let is_client = open.peer.as_ref().is_some_and(|(other, _)| other.id == peer.id);
        if let Some(running) = open.running.as_ref().filter(|running| running.ticket == ticket)
            && is_client
        {
            open.reasons.add(ticket.attempt, &running.name, &running.address, text);
        }
    }

    /// Ends the present attempt of a call, by the client's report and, if it ran, the server's.
    fn ended(&mut self, call: u64, over: &AttemptReport, server: ServerId) {
        let now = self.now();
        let Some(open) = self.calls.get_mut(&call) else { return };
        let Some(running) = open.running.as_mut() else { return };
        end_sending(&mut self.paths, Some(&mut *running));
        let sharers = running.sharers;
        let kept = running.awaited.is_some_and(|since| now.0.saturating_sub(since.0) > HELD);
        let from = open.request.site;
        // A late client finds its ticket used up: the server knows better what has run.
        let has_run = matches!(open.fate, AttemptState::Completed(_) | AttemptState::Crashed);
        let ran = match open.fate {
            AttemptState::Completed(ns) => Some(ns as f64 / 1e9),
            _ => None,
        };
        let (crashed, ticket) = (open.fate == AttemptState::Crashed, over.ticket);
        let (id, attempt) = (CallId(call), ticket.attempt);
        let (out, back) = (open.request.bytes_out, open.request.bytes_back);
        let moved =
            AttemptReport { out: most(over.out, out), back: most(over.back, back), ..*over };
        if let Some(to) = self.members.get(&server).map(|member| member.site)
            && over.ended == AttemptOutcome::Done
            && let Some(measured) = self.paths.observe(from, to, &moved, sharers)
        {
            self.measured(from, to, &measured);
        }
        self.ran = ran.unwrap_or_default();
        match over.ended {
            AttemptOutcome::Done if crashed => self.tell(Event::Failed(id, attempt, Why::Routine)),
            AttemptOutcome::Done => {
                if let Some(ran) = ran {
                    self.keep_time(call, ran);
                }
                self.tell(Event::Ended(id, attempt, ran.unwrap_or(f64::NAN)));
            }
            AttemptOutcome::NotBegun if !has_run => {
                self.forbid(ticket, server);
                let why = if kept { Why::Unclaimed } else { Why::NotBegun };
                self.tell(Event::Failed(id, attempt, why));
            }
            AttemptOutcome::NotBegun | AttemptOutcome::Broken => {
                self.forbid(ticket, server);
                self.tell(Event::Failed(id, attempt, Why::Broken));
            }
            AttemptOutcome::Failed => self.tell(Event::Failed(id, attempt, Why::Routine)),
        }
    }

    /// The server has reported the end of a call whose client has the results, or will not report it.
    pub fn end_reported(&mut self, call: u64) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        let client_report = open.client_report.take();
        let server = open.running.as_ref().map(|running| (running.server, running.ticket));
        if let (Some((over, _)), Some((server, ticket))) = (client_report, server)
            && over.ticket == ticket
        {
            self.ended(call, &over, server);
        }
    }

    /// Asks servers again for the ends of calls whose clients have the results. A server that stays silent
    /// for long is believed not to run them.
    pub fn ask_for_missing_reports(&mut self) {
        let now = self.now();
        let mut silent = Vec::new();
        for (call, open) in &self.calls {
            let (Some((_, since)), Some(running)) = (&open.client_report, &open.running) else {
                continue;
            };
            let waited = now.0.saturating_sub(since.0);
            if waited > WORD {
                silent.push(*call);
            } else if waited > Time::SECOND
                && let Some(peer) = self.peer_of(running.server)
            {
                peer.tell(|rpc| rpc.ask(running.ticket));
            }
        }
        silent.into_iter().for_each(|call| self.end_reported(call));
    }

    /// Tells the server that an attempt must not begin, or not go on.
    pub fn forbid(&self, ticket: Ticket, server: ServerId) {
        if let Some(peer) = self.peer_of(server) {
            peer.tell(|rpc| rpc.stop(ticket));
        }
    }
}

/// Limits a measurement to the announced bytes. A client could otherwise make a path look arbitrarily fast.
fn most(moved: Transfer, bytes: u64) -> Transfer {
    Transfer { bytes: moved.bytes.min(bytes), ..moved }
}
