//! Connection of a client or a server to the metaserver.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use kumi_broker::ServerId;
use kumi_call_wire::context::Span;
use kumi_rpc::{
    ClientHello, Code, Failure, FrameStep, MetaserverEvent, ServerRegistration, Ticket,
    TraceContext,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::catalogue::RoutineOffer;
use super::dispatcher::Dispatcher;
use super::members::CompleteRegistration;
use super::peer::{Peer, network};
use super::view;
use crate::socket::Socket;
use kumi_call_access::{HandshakePermit, evicted};

/// How long a peer has to identify itself, and to read the last message to it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Unwritten bytes at which nothing more is read.
const BACKLOG: usize = 1 << 20;
/// Unwritten bytes at which the connection is closed.
const MOST_BACKLOG: usize = 32 << 20;
/// Most routines, and most bytes of descriptions, in a registration.
const MOST_OFFERS: (usize, usize) = (4096, 64 << 20);
/// Most tickets in a registration.
const MOST_HOLDS: usize = 1 << 20;

/// A registration that is still arriving.
struct PendingRegistration {
    register: ServerRegistration,
    offers: Vec<RoutineOffer>,
    bytes: usize,
    holds: Vec<Ticket>,
    left: usize,
}

struct Connection {
    dispatcher: Rc<RefCell<Dispatcher>>,
    peer: Rc<Peer>,
    greeted: bool,
    /// The peer should have begun with TLS and has not.
    open: bool,
    /// The peer has not identified itself.
    handshake_permit: Option<HandshakePermit>,
    coming: Option<PendingRegistration>,
    server: Option<ServerId>,
    /// The stream of the next request for a place, with its place in a trace.
    traced: Option<(u32, TraceContext)>,
}

/// Serves a connection until the peer leaves or breaks the protocol.
pub async fn run(
    dispatcher: Rc<RefCell<Dispatcher>>,
    (socket, open): (Socket, bool),
    from: Option<IpAddr>,
    handshake_permit: Option<HandshakePermit>,
) {
    let peer = {
        let mut dispatcher = dispatcher.borrow_mut();
        dispatcher.connections += 1;
        let id = dispatcher.number();
        Rc::new(Peer::new(id, from, dispatcher.config.streams))
    };
    let mut connection = Connection {
        dispatcher: Rc::clone(&dispatcher),
        peer: Rc::clone(&peer),
        greeted: false,
        open,
        handshake_permit,
        coming: None,
        server: None,
        traced: None,
    };
    if let Err(error) = connection.serve(socket).await {
        tracing::debug!(%error, "a connection ended");
    }
    let mut dispatcher = dispatcher.borrow_mut();
    dispatcher.connections -= 1;
    if let Some(server) = connection.server {
        dispatcher.away(server, &peer);
    }
    dispatcher.leave(&peer);
}

impl Connection {
    async fn serve(&mut self, socket: Socket) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(socket);
        let patience = sleep(PATIENCE);
        tokio::pin!(patience);
        let (mut input, mut out, mut written) = (Vec::new(), Vec::new(), 0);
        let (mut was_closing, mut has_paused) = (false, false);
        loop {
            if written == out.len() {
                out.clear();
                written = 0;
            }
            out.append(self.peer.rpc.borrow_mut().out());
            let left = out.len() - written;
            let closing = self.peer.closing.get();
            if closing && !std::mem::replace(&mut was_closing, closing) {
                patience.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
            }
            if closing && left == 0 {
                return timeout(PATIENCE, writer.flush()).await?;
            }
            if left > MOST_BACKLOG {
                return Err(io::Error::other("it does not read"));
            }
            if has_paused && !closing && left < BACKLOG {
                has_paused = self.process_input(&mut input);
                // Others have their turn, also if the peer reads as fast as it asks.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                read = reader.read_buf(&mut input), if !closing && left < BACKLOG => {
                    if read? == 0 {
                        return Ok(());
                    }
                    has_paused = self.process_input(&mut input);
                }
                count = writer.write(&out[written..]), if left > 0 => {
                    let count = count?;
                    if count == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    written += count;
                }
                () = evicted(self.handshake_permit.as_ref()) => return Ok(()),
                () = self.peer.wake.notified() => {}
                () = &mut patience, if !self.greeted || closing => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Processes the input. Short questions have long answers: it pauses when the peer has to read first, and returns whether
    /// it has.
    fn process_input(&mut self, input: &mut Vec<u8>) -> bool {
        let (mut begin, mut has_paused) = (0, false);
        while !self.peer.closing.get() {
            has_paused = self.peer.rpc.borrow_mut().out().len() >= BACKLOG;
            if has_paused {
                break;
            }
            let step = self.peer.rpc.borrow_mut().step(&input[begin..]);
            match step {
                Ok(FrameStep::More(_)) => break,
                Ok(FrameStep::Event(count, event)) => {
                    begin += count;
                    if let Some(event) = event {
                        self.take(event);
                    }
                }
                Err(error) => self.refuse(&error.to_string()),
            }
        }
        input.drain(..begin);
        // Releases the buffer after a long frame, since most are short.
        if input.is_empty() && input.capacity() > 4096 {
            *input = Vec::new();
        }
        has_paused
    }

    /// The peer broke the protocol.
    fn refuse(&mut self, why: &str) {
        tracing::debug!(why, "the protocol was broken");
        self.dispatcher.borrow_mut().counters.hostile += 1;
        self.peer.end(Failure::new(Code::Protocol, 0, why));
    }

    /// The peer may not do what it asks for.
    fn reject(&mut self, failure: Failure) {
        tracing::warn!(from = ?self.peer.from, "a server was refused: {}", failure.text);
        self.dispatcher.borrow_mut().counters.refused += 1;
        self.peer.end(failure);
    }

    fn greet(&mut self, hello: &ClientHello) {
        self.greeted = true;
        let peer = &self.peer;
        let admitted = self.dispatcher.borrow().admit(peer, hello, self.open);
        if let Err(failure) = admitted {
            tracing::debug!(from = ?peer.from, "somebody was refused: {}", failure.text);
            self.dispatcher.borrow_mut().counters.refused += 1;
            peer.tell(|rpc| rpc.refuse(failure));
            return peer.close();
        }
        self.handshake_permit = None;
        *peer.site.borrow_mut() = match hello.site.as_str() {
            "" => network(peer.from),
            site => site.to_owned(),
        };
        peer.program.borrow_mut().clone_from(&hello.program);
        let dispatcher = self.dispatcher.borrow();
        if let Some(failure) = dispatcher.refusal() {
            peer.rpc.borrow_mut().refuse(failure);
            return peer.close();
        }
        if !peer.rpc.borrow_mut().welcome(hello, &dispatcher.config.name) {
            peer.close();
        }
        peer.wake.notify_one();
    }

    fn take(&mut self, event: MetaserverEvent) {
        let dispatcher = Rc::clone(&self.dispatcher);
        let mut dispatcher = dispatcher.borrow_mut();
        let peer = Rc::clone(&self.peer);
        // A trace is for a request that follows directly.
        let traced = self.traced.take();
        match event {
            MetaserverEvent::Trace(stream, context) => self.traced = Some((stream, context)),
            MetaserverEvent::Hello(hello) => {
                drop(dispatcher);
                self.greet(&hello);
            }
            MetaserverEvent::Interface(stream, name) => dispatcher.describe(&peer, stream, name),
            MetaserverEvent::List(stream, part) => dispatcher.list(&peer, stream, &part),
            MetaserverEvent::Place(stream, placing) => {
                let traced = traced.filter(|(of, _)| *of == stream);
                match traced.map(|(_, context)| Span::new(context)).transpose() {
                    Ok(span) => dispatcher.place(&peer, stream, placing, span),
                    Err(error) => {
                        let text = format!("there is no number for a span: {error}");
                        peer.fail(stream, &Failure::new(Code::Busy, 0, text));
                    }
                }
            }
            MetaserverEvent::Cancel(stream) => dispatcher.cancel(&peer, stream),
            MetaserverEvent::AttemptReport(stream, over) => dispatcher.over(&peer, stream, &over),
            MetaserverEvent::AttemptReason(ticket, text) => dispatcher.reason(&peer, ticket, &text),
            MetaserverEvent::Status(stream) => match dispatcher.check(&peer) {
                Ok(()) => {
                    let json = view::json_for(&dispatcher, peer.user.borrow().as_ref());
                    peer.tell(|rpc| rpc.state(stream, &json));
                }
                Err(failure) => peer.fail(stream, &failure),
            },
            MetaserverEvent::Logs(stream, request) => match dispatcher.log_servers(&peer, &request)
            {
                Ok(json) => peer.tell(|rpc| rpc.state(stream, &json)),
                Err(failure) => peer.fail(stream, &failure),
            },
            member => {
                drop(dispatcher);
                self.member(member);
            }
        }
    }

    /// Handles an event of a server.
    fn member(&mut self, event: MetaserverEvent) {
        let register = matches!(event, MetaserverEvent::Register(_));
        if register == (self.server.is_some() || self.coming.is_some()) {
            return self.refuse("a server must register once, before anything else");
        }
        match (event, self.server) {
            (MetaserverEvent::Register(register), _) => {
                let offers = self.dispatcher.borrow().may_offer(&self.peer);
                if let Err(failure) = offers {
                    return self.reject(failure);
                }
                let left = usize::from(register.offers);
                if left == 0 || left > MOST_OFFERS.0 {
                    return self.refuse("a server offers no routines, or too many");
                }
                let (offers, holds) = (Vec::new(), Vec::new());
                self.coming = Some(PendingRegistration { register, offers, bytes: 0, holds, left });
            }
            (MetaserverEvent::Offer(hash, json), None) => self.offer(hash, json),
            (MetaserverEvent::Report(report), Some(id)) => {
                self.dispatcher.borrow_mut().report(id, report);
            }
            (MetaserverEvent::TicketState(ticket, fate), Some(id)) => {
                self.dispatcher.borrow_mut().told(id, ticket, fate);
            }
            (MetaserverEvent::AskAddress(address), Some(_)) => {
                let is_known = self.dispatcher.borrow().has_server_at(&address);
                self.peer.tell(|rpc| rpc.address_state(&address, is_known));
            }
            (MetaserverEvent::Leave, Some(id)) => self.dispatcher.borrow_mut().withdraw(id),
            (MetaserverEvent::Pong, Some(id)) => self.dispatcher.borrow_mut().heard(id),
            (MetaserverEvent::RunningTickets(tickets), None) => self.holds(&tickets),
            _ => self.refuse("a server sent a message out of turn"),
        }
    }

    fn offer(&mut self, hash: u64, json: String) {
        let Some(coming) = &mut self.coming else { return };
        coming.bytes += json.len();
        let offered = RoutineOffer::read(hash, json).filter(|_| coming.bytes <= MOST_OFFERS.1);
        match (offered, coming.left.checked_sub(1)) {
            (Some(offered), Some(left)) => {
                coming.offers.push(offered);
                coming.left = left;
                self.complete();
            }
            _ => self.refuse("a malformed description, or more descriptions than announced"),
        }
    }

    fn holds(&mut self, tickets: &[Ticket]) {
        let Some(coming) = &mut self.coming else { return };
        if coming.holds.len() + tickets.len() > MOST_HOLDS {
            return self.refuse("a server holds too many tickets");
        }
        coming.holds.extend_from_slice(tickets);
    }

    /// The registration is complete.
    fn complete(&mut self) {
        if let Some(PendingRegistration { register, offers, holds, .. }) =
            self.coming.take_if(|coming| coming.left == 0)
        {
            let registers = self.dispatcher.borrow().may_register(&self.peer, &register);
            if let Err(failure) = registers {
                return self.reject(failure);
            }
            let registration = CompleteRegistration { register, offers, holds };
            let id = self.dispatcher.borrow_mut().register(&self.peer, registration);
            self.server = Some(id);
        }
    }
}
