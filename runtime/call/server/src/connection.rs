//! Connection of a client to the server.

mod admission;
mod callbacks;
mod files;
mod handshake;
mod held;
mod objects;
mod shared_memory;
mod termination;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use kumi_rpc::{
    Failure, MOST_UNREAD, Resources, ResultHead, SendPiece, Server, ServerEvent, Step, Ticket,
    TraceContext,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::arenas::Block;
use super::callback_requests::CallbackRequest;
use super::held_results;
use super::local_peer::LocalPeer;
use super::owner::Caller;
use super::slots::output::CapturedOutput;
use super::slots::{FinishedCall, ObjectEvent, ReadyCall};
use crate::held::Gaps;
use crate::layout::Layout;
use crate::native::{self, Source, Target};
use crate::tls::TlsSession;
use crate::values::GivenValues;
use callbacks::{Callbacks, room};
use files::{FilesByStream, coming, file_of};
use held::IncomingHeldArray;
use kumi_call_access::{HandshakePermit, evicted};
use objects::Objects;
use shared_memory::SharedMemory;

/// Bytes read at once when their destination is not known.
const INPUT: usize = 64 << 10;
/// Most connections to other servers at a time for one client.
const FETCHES: usize = 8;
/// How long a client has to read the reason before the connection closes.
const PATIENCE: Duration = Duration::from_secs(10);
/// First byte of a client that does not speak TLS.
const FIRST: u8 = b'k';

/// Unread answers in bytes beyond which the server takes no more requests of the client. One more answer
/// still fits the protocol's limit.
const UNREAD: usize = MOST_UNREAD / 2;

/// Stage of a call.
enum CallStage {
    /// Its arguments are arriving.
    Receiving(Box<ReadyCall>, GivenValues),
    /// An array that is to be held is arriving.
    Holding(Box<IncomingHeldArray>),
    /// It waits or runs.
    Running(u64),
    /// Its results are being written, with this many bytes of arrays.
    Sending(Layout, Rc<Block>, u64),
    /// A held array is being written: its memory, offset and length.
    SendingHeld(Rc<Block>, usize, u64),
}

/// Why input that has arrived is not processed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputPause {
    /// It is processed.
    None,
    /// It waits until the client has read more answers.
    Unread,
    /// It waits until other connections had a turn.
    NextTurn,
}

/// What the arguments of a call still wait for besides the client's frames.
struct IncomingArguments {
    gaps: BTreeMap<u16, Gaps>,
    /// Arrays that servers hold are being gathered.
    gathering: Option<AbortHandle>,
    /// The client has sent its part.
    ready: bool,
}

/// End of a gathering: the stream, the call's number and the result.
type GatherResult = (u32, u64, Result<(), Failure>);

struct Connection {
    shared: Rc<Shared>,
    /// The TLS session, if the connection is encrypted.
    secured: Option<Box<TlsSession>>,
    /// The client should have begun with TLS and has not.
    open: bool,
    rpc: Server,
    /// The unprocessed input is `begin..end` of the buffer.
    input: Vec<u8>,
    begin: usize,
    end: usize,
    /// Bytes of input that are needed before anything can be done.
    needed: usize,
    calls: HashMap<u32, CallStage>,
    /// Functions that routines have called.
    callbacks: Callbacks,
    /// Files that go back, and the buffer for reading them.
    outgoing: FilesByStream,
    read: Vec<u8>,
    incoming: HashMap<u32, IncomingArguments>,
    /// Calls that go on if the client vanishes.
    surviving: HashSet<u32>,
    /// Memory that the client maps.
    sharing: SharedMemory,
    gathered: UnboundedSender<GatherResult>,
    /// Permits of this client to fetch from other servers.
    fetches: Rc<Semaphore>,
    /// Number of this connection. Memory and held arrays record it.
    number: u64,
    /// The earliest deadline of calls whose arguments are arriving; too early if that call has gone.
    coming: Option<Instant>,
    pause: InputPause,
    finished: UnboundedSender<FinishedCall>,
    callback_requests: UnboundedSender<CallbackRequest>,
    /// The client's objects, and the receiver of their events.
    objects: Objects,
    news: UnboundedSender<ObjectEvent>,
    caller: Caller,
    /// The client has not identified itself yet.
    handshake_permit: Option<HandshakePermit>,
    /// Counts this as one of the server's connections.
    counted: bool,
    /// The stream of the next call, with its ticket and pass from a metaserver.
    ticket: Option<(u32, Ticket, String)>,
    /// What the client has said of the next call.
    announced: AnnouncedCall,
    /// The client is being told why, and nothing more is read.
    closing: bool,
}

/// What a client says directly before a call, each for a stream.
#[derive(Debug, Default)]
struct AnnouncedCall {
    /// It wants what the routine prints.
    listens: Option<u32>,
    /// The call's place in a trace.
    traced: Option<(u32, TraceContext)>,
    /// The threads and the memory that it asks for the call, or for an object.
    resources: Option<(u32, Resources)>,
}

/// Whether a client begins a call or an object, or says something of the next one.
fn is_of_call(event: &ServerEvent) -> bool {
    matches!(
        event,
        ServerEvent::Listen(_)
            | ServerEvent::Trace(..)
            | ServerEvent::Resources(..)
            | ServerEvent::Ticket(..)
            | ServerEvent::Call(..)
            | ServerEvent::Create(..)
    )
}

/// Receivers of a connection for events from the rest of the server.
struct ConnectionInputs<'a> {
    ends: &'a mut UnboundedReceiver<FinishedCall>,
    asked: &'a mut UnboundedReceiver<CallbackRequest>,
    arrivals: &'a mut UnboundedReceiver<GatherResult>,
    news: &'a mut UnboundedReceiver<ObjectEvent>,
}

/// Serves a client until it leaves or breaks the protocol. Its calls end with it.
pub async fn run(
    shared: &Rc<Shared>,
    socket: OwnedFd,
    secured: Option<TlsSession>,
    handshake_permit: HandshakePermit,
    origin: (Option<LocalPeer>, bool),
) -> io::Result<()> {
    let socket = native::watch(socket)?;
    let (finished, mut ends) = unbounded_channel();
    let (callback_requests, mut asked) = unbounded_channel();
    let (gathered, mut arrivals) = unbounded_channel();
    let (news, mut told_of_objects) = unbounded_channel();
    let mut connection = Connection {
        shared: Rc::clone(shared),
        secured: secured.map(Box::new),
        open: false,
        rpc: Server::new(shared.config.streams),
        input: vec![0; INPUT],
        begin: 0,
        end: 0,
        needed: 1,
        calls: HashMap::new(),
        incoming: HashMap::new(),
        surviving: HashSet::new(),
        sharing: SharedMemory::of(origin),
        gathered,
        fetches: Rc::new(Semaphore::new(FETCHES)),
        number: shared.pool.borrow_mut().number(),
        coming: None,
        pause: InputPause::None,
        callbacks: HashMap::new(),
        outgoing: HashMap::new(),
        read: Vec::new(),
        finished,
        callback_requests,
        objects: Objects::new(),
        news,
        caller: Caller::default(),
        handshake_permit: Some(handshake_permit),
        counted: false,
        ticket: None,
        announced: AnnouncedCall::default(),
        closing: false,
    };
    let inputs = ConnectionInputs {
        ends: &mut ends,
        asked: &mut asked,
        arrivals: &mut arrivals,
        news: &mut told_of_objects,
    };
    let result = connection.serve(&socket, inputs).await;
    let survivors = connection.leave();
    if survivors > 0 {
        tokio::task::spawn_local(held_results::outlive(Rc::clone(shared), ends, survivors));
    }
    if let Some(secured) = &mut connection.secured {
        secured.close(socket.get_ref().as_fd());
    }
    result
}

impl Connection {
    async fn serve(
        &mut self,
        socket: &AsyncFd<OwnedFd>,
        inputs: ConnectionInputs<'_>,
    ) -> io::Result<()> {
        let ConnectionInputs { ends, asked, arrivals, news } = inputs;
        let patience = tokio::time::sleep(self.shared.config.hello_time);
        tokio::pin!(patience);
        let shared = Rc::clone(&self.shared);
        let mut end = shared.end.subscribe();
        let mut open = true;
        loop {
            self.advance(socket)?;
            if self.closing && open {
                open = false;
                patience.as_mut().reset(Instant::now() + PATIENCE);
            }
            let writes = self.writes();
            if self.closing && !writes {
                return Ok(());
            }
            tokio::select! {
                // Input that has arrived counts before the time limit.
                biased;
                _ = end.wait_for(|end| *end), if open => self.end(),
                () = evicted(self.handshake_permit.as_ref()) => return Ok(()),
                ready = socket.readable(), if !self.closing && self.pause == InputPause::None => {
                    let mut ready = ready?;
                    match ready.try_io(|socket| self.read(socket)) {
                        Ok(Ok((0, _))) => return Ok(()),
                        // A complete request would have brought more.
                        Ok(Ok((_, short))) => if short { ready.clear_ready(); },
                        Ok(Err(error)) => return Err(error),
                        Err(_would_block) => continue,
                    }
                    self.process_input(socket.get_ref());
                }
                ready = socket.writable(), if writes => {
                    let mut ready = ready?;
                    // Tried at the beginning of the loop; a full socket clears readiness.
                    match ready.try_io(|socket| self.write_some(socket)) {
                        Ok(Ok(_)) | Err(_) => {}
                        Ok(Err(error)) => return Err(error),
                    }
                }
                asked = asked.recv() => if let Some(asked) = asked { self.asked(asked); },
                () = sleep_until(self.coming.unwrap_or_else(Instant::now)), if self.coming.is_some() => {
                    self.end_late();
                }
                ended = ends.recv() => if let Some(ended) = ended { self.ended(ended); },
                news = news.recv() => if let Some(news) = news { self.object_event(news); },
                arrival = arrivals.recv() => if let Some(arrival) = arrival { self.arrived(arrival); },
                () = tokio::task::yield_now(), if self.pause == InputPause::NextTurn => self.process_input(socket.get_ref()),
                () = &mut patience, if self.handshake_permit.is_some() || self.closing => return Err(self.timeout_error()),
            }
            while let Ok(ended) = ends.try_recv() {
                self.ended(ended);
            }
        }
    }

    /// The client has sent or read nothing for too long.
    fn timeout_error(&self) -> io::Error {
        if !self.closing {
            self.shared.handshake_limit.silent();
        }
        io::ErrorKind::TimedOut.into()
    }

    /// Reads input: bytes of an array to their place, the rest into the buffer. Returns the number of bytes,
    /// and whether more would have fitted.
    fn read(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<(usize, bool)> {
        if self.secured.as_ref().is_some_and(|secured| secured.is_untouched())
            && native::begins_with(socket.get_ref(), FIRST)?
        {
            // A client without TLS gets the reason in plain text, the only form that it understands.
            (self.secured, self.open) = (None, true);
        }
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.begin > 0 {
            self.input.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.input.len() < self.needed {
            self.input.resize(self.needed, 0);
        }
        let mut straight = 0;
        let mut target = Target::None;
        if self.begin == self.end
            && let Ok(Step::Data(Some(place), length)) = self.rpc.step(&[])
            && let Some((arena, offset, length)) =
                room(&self.calls, &self.incoming, &self.callbacks, place, length)
        {
            straight = length;
            target = Target::Arena(arena, offset, length);
        }
        let room = self.input.len() - self.end + straight;
        let (socket, rest) = (socket.get_ref().as_fd(), &mut self.input[self.end..]);
        let count = match &mut self.secured {
            None => native::read(socket, target, rest, false)?,
            Some(secured) => secured.read(socket, target, rest)?,
        };
        let placed = count.min(straight);
        if placed > 0 {
            self.rpc.placed(placed);
        }
        self.end += count - placed;
        // There may be more decrypted input; only the session knows.
        Ok((count, count < room && self.secured.is_none()))
    }

    /// Writes, and processes input that had to wait for that.
    fn advance(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<()> {
        self.write(socket)?;
        while self.pause == InputPause::Unread && self.rpc.send_queue().waiting() < UNREAD {
            self.process_input(socket.get_ref());
            self.write(socket)?;
        }
        Ok(())
    }

    /// Processes input while the client reads its answers.
    fn process_input(&mut self, socket: &OwnedFd) {
        self.pause = InputPause::None;
        while !self.closing && self.pause == InputPause::None {
            if self.rpc.send_queue().waiting() >= UNREAD {
                self.pause = InputPause::Unread;
                return;
            }
            match self.rpc.step(&self.input[self.begin..self.end]) {
                Ok(Step::More(needed)) => {
                    self.needed = needed;
                    return;
                }
                Ok(Step::Event(consumed, event)) => {
                    self.begin += consumed;
                    match event {
                        Some(ServerEvent::Hello(hello)) => self.greet(&hello, socket),
                        Some(event) => self.take(event),
                        None => {}
                    }
                }
                Ok(Step::Data(place, length)) => {
                    let mut count = length.min(self.end - self.begin);
                    if count == 0 {
                        return;
                    }
                    if let Some(place) = place
                        && self.put_to_file(place, self.begin, count)
                    {
                    } else if let Some(place) = place
                        && let Some((arena, offset, fits)) =
                            room(&self.calls, &self.incoming, &self.callbacks, place, count)
                    {
                        count = fits;
                        arena.write(offset, &self.input[self.begin..self.begin + count]);
                    }
                    self.rpc.placed(count);
                    self.begin += count;
                }
                Err(error) => {
                    tracing::debug!(%error, "a client broke the protocol");
                    self.closing = true;
                }
            }
        }
    }

    fn take(&mut self, event: ServerEvent) {
        if !is_of_call(&event) {
            // What is said before a call or an object is for that only.
            (self.ticket, self.announced) = (None, AnnouncedCall::default());
        }
        match event {
            // Handled by `greet`.
            ServerEvent::Hello(_) => {}
            ServerEvent::Interface(stream, name) => match self.describe(&name) {
                Ok(offered) => self.rpc.describe(stream, offered.hash, &offered.json),
                Err(failure) => self.rpc.fail(stream, &failure),
            },
            ServerEvent::List(stream, part) => {
                let done = self.names(stream, &part);
                self.refuse(stream, done);
            }
            ServerEvent::Call(stream, head) => {
                let done = self.begin_call(stream, &head);
                self.refuse(stream, done);
            }
            ServerEvent::Listen(stream) => self.announced.listens = Some(stream),
            ServerEvent::Trace(stream, context) => self.announced.traced = Some((stream, context)),
            ServerEvent::Resources(stream, asked) => {
                self.announced.resources = Some((stream, asked));
            }
            ServerEvent::Ticket(stream, ticket, pass) => self.ticket = Some((stream, ticket, pass)),
            ServerEvent::Ready(stream) => self.ready(stream),
            ServerEvent::Cancel(stream) => self.cancel(stream),
            ServerEvent::Returned(stream, back) => self.returned(stream, back),
            ServerEvent::ReturnReady(stream) => self.back(stream),
            ServerEvent::Fetch(stream, head) => {
                let done = self.fetch(stream, &head);
                self.refuse(stream, done);
                self.written();
            }
            ServerEvent::Hold(stream, head) => {
                let done = self.hold(stream, &head);
                self.refuse(stream, done);
            }
            ServerEvent::Drop(_) if self.caller.is_bearer() => {}
            ServerEvent::Drop(names) => self.shared.let_go(&names, self.caller.owner()),
            ServerEvent::Vouch(stream, name, lifetime_ms) => {
                let done = self.vouch(stream, name, lifetime_ms);
                self.refuse(stream, done);
            }
            ServerEvent::Release(number) => self.released(number),
            ServerEvent::Logs(stream, request) => {
                let done = self.logs(stream, &request);
                self.refuse(stream, done);
                // An answer costs the server's only thread more than its question costs the client.
                self.pause = InputPause::NextTurn;
            }
            ServerEvent::Create(stream, class) => {
                let done = self.create(stream, &class);
                self.refuse(stream, done);
            }
        }
    }

    /// All that the client sends for a stream has arrived.
    fn ready(&mut self, stream: u32) {
        if let Some(incoming) = self.incoming.get_mut(&stream)
            && incoming.gathering.is_some()
        {
            incoming.ready = true;
        } else if matches!(self.calls.get(&stream), Some(CallStage::Holding(_))) {
            self.held(stream);
        } else {
            self.submit(stream);
        }
    }

    /// Fails a stream whose request cannot be carried out.
    fn refuse(&mut self, stream: u32, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.rpc.fail(stream, &failure);
        }
    }

    /// A call is over.
    fn ended(&mut self, ended: FinishedCall) {
        let FinishedCall { job, outcome } = ended;
        let ReadyCall { stream, offered, layout, block, files, retained, printed, .. } = *job;
        if let Some(printed) = printed {
            let CapturedOutput { bytes, is_cut } = printed.into_inner();
            self.rpc.printed(stream, &bytes, is_cut);
        }
        let most = self.shared.config.file_bytes;
        let outgoing = || match &files {
            Some(files) => files.outgoing(&offered.interface, most),
            None => Ok(Vec::new()),
        };
        let outcome = outcome.and_then(|times| outgoing().map(|files| (times, files)));
        self.surviving.remove(&stream);
        match outcome {
            Ok(((waited_ns, ran_ns), outgoing)) => {
                layout.pack(&offered.interface, &block.arena);
                let mut values = layout.results(&offered.interface, &block.arena);
                let mut sizes = match retained {
                    Some(retained) => retained.settle(&self.shared, &layout, &block),
                    None => layout.returned(),
                };
                let taken = self.sharing.taken(stream, &mut sizes);
                self.shared.count(|traffic| &traffic.in_memory, taken);
                self.send_files(stream, outgoing, &mut values, &mut sizes);
                let head = ResultHead { waited_ns, ran_ns, values };
                let bytes = taken + sizes.iter().map(|size| size.bytes).sum::<u64>();
                self.rpc.finish(stream, &head, &sizes);
                self.calls.insert(stream, CallStage::Sending(layout, block, bytes));
            }
            Err(failure) => {
                self.calls.remove(&stream);
                self.rpc.fail(stream, &failure);
                self.sharing.forget(stream);
                if let Some(retained) = retained {
                    retained.release(&self.shared);
                }
                self.shared.give(block);
            }
        }
        self.forget_callback(stream);
        self.written();
    }

    /// Whether there is anything to write.
    fn writes(&mut self) -> bool {
        !self.rpc.send_queue().is_empty()
            || self.secured.as_ref().is_some_and(|secured| secured.wants_write())
    }

    /// Writes until nothing is left or the socket is full.
    fn write(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<()> {
        while self.writes() {
            match self.write_some(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_some(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<usize> {
        let socket = socket.get_ref().as_fd();
        if self.rpc.send_queue().is_empty() {
            let flushed = self.secured.as_mut().map_or(Ok(true), |secured| secured.flush(socket));
            return if flushed? { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        if let Some(written) = self.write_file(socket) {
            let count = written?;
            self.rpc.send_queue().wrote(count);
            self.written();
            return Ok(count);
        }
        let memory = self.rpc.send_queue().descriptor();
        let descriptor = memory.and_then(|number| self.sharing.descriptor(number));
        let (calls, callbacks) = (&self.calls, &self.callbacks);
        let outgoing = &self.outgoing;
        let pieces = self.rpc.send_queue().pieces().map_while(|piece| match piece {
            SendPiece::Bytes(bytes) => Some(Source::Bytes(bytes)),
            SendPiece::Data(place, _) if file_of(outgoing, place).is_some() => None,
            SendPiece::Data(place, length) => match calls.get(&place.stream) {
                Some(CallStage::Sending(layout, block, _)) => {
                    let (offset, length) = layout.range(place.argument, place.offset, length);
                    Some(Source::Arena(&block.arena, offset, length))
                }
                // Inside the array: the range was checked.
                Some(CallStage::SendingHeld(block, begin, _)) => {
                    Some(Source::Arena(&block.arena, begin + place.offset as usize, length))
                }
                _ => callbacks.get(&place.stream).map(|called| {
                    let (arena, offset, length) = called.range(place, length);
                    Source::Arena(arena, offset, length)
                }),
            },
        });
        let count = match &mut self.secured {
            None => native::write_with(socket, pieces, descriptor)?,
            Some(secured) => secured.write(socket, pieces)?,
        };
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.rpc.send_queue().wrote(count);
        self.written();
        Ok(count)
    }
}
