//! A client's connection.

mod callbacks;
mod files;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kumi_rpc::{CallHead, Code, Failure, Piece, ResultHead, Server, ServerEvent, Step};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::Shared;
use super::arenas::Block;
use super::asks::Asked;
use super::scratch::CallFiles;
use super::slots::{Ended, Job, submit};
use crate::layout::Layout;
use crate::native::{self, Source, Target};
use crate::values::Given;
use callbacks::{Callbacks, room};
use files::{OutgoingFiles, file_of};

/// Bytes that are read at once when it is not known where they belong.
const INPUT: usize = 64 << 10;
/// How long a client has to say who it is, and to read why nothing more is read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a call is.
enum Call {
    /// Its arguments come.
    Coming(Box<Job>, Given),
    /// It waits or runs.
    Runs(u64),
    /// Its results go.
    Going(Layout, Rc<Block>),
}

struct Connection {
    shared: Rc<Shared>,
    rpc: Server,
    /// What has come and is not done with: `begin..end` of it.
    input: Vec<u8>,
    begin: usize,
    end: usize,
    /// Bytes of input that are needed before there is anything to do.
    needed: usize,
    calls: HashMap<u32, Call>,
    /// Functions that routines have called.
    callbacks: Callbacks,
    /// Files that go back, and what is read of them.
    outgoing: OutgoingFiles,
    read: Vec<u8>,
    told: UnboundedSender<Ended>,
    asks: UnboundedSender<Asked>,
    greeted: bool,
    /// The client is told why, and then nothing more is read.
    closing: bool,
}

/// Serves a client until it goes, or breaks the protocol. Its calls end with it.
pub async fn run(shared: &Rc<Shared>, socket: OwnedFd) -> io::Result<()> {
    let socket = native::watch(socket)?;
    let (told, mut ends) = unbounded_channel();
    let (asks, mut asked) = unbounded_channel();
    let mut connection = Connection {
        shared: Rc::clone(shared),
        rpc: Server::new(shared.config.streams),
        input: vec![0; INPUT],
        begin: 0,
        end: 0,
        needed: 1,
        calls: HashMap::new(),
        callbacks: HashMap::new(),
        outgoing: HashMap::new(),
        read: Vec::new(),
        told,
        asks,
        greeted: false,
        closing: false,
    };
    let result = connection.serve(&socket, &mut ends, &mut asked).await;
    connection.leave();
    result
}

impl Connection {
    async fn serve(
        &mut self,
        socket: &AsyncFd<OwnedFd>,
        ends: &mut UnboundedReceiver<Ended>,
        asked: &mut UnboundedReceiver<Asked>,
    ) -> io::Result<()> {
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let shared = Rc::clone(&self.shared);
        let mut end = shared.end.subscribe();
        let mut open = true;
        loop {
            self.write(socket)?;
            if self.closing && open {
                open = false;
                patience.as_mut().reset(Instant::now() + PATIENCE);
            }
            let writes = !self.rpc.outbox().is_empty();
            if self.closing && !writes {
                return Ok(());
            }
            tokio::select! {
                ready = socket.readable(), if !self.closing => {
                    let mut ready = ready?;
                    match ready.try_io(|socket| self.read(socket)) {
                        Ok(Ok((0, _))) => return Ok(()),
                        // More would have come with it.
                        Ok(Ok((_, short))) => if short { ready.clear_ready(); },
                        Ok(Err(error)) => return Err(error),
                        Err(_would_block) => continue,
                    }
                    self.look();
                }
                ready = socket.writable(), if writes => {
                    let mut ready = ready?;
                    // Tried at the loop's begin; what the socket does not take clears this.
                    match ready.try_io(|socket| self.write_some(socket)) {
                        Ok(Ok(_)) | Err(_) => {}
                        Ok(Err(error)) => return Err(error),
                    }
                }
                asked = asked.recv() => if let Some(asked) = asked { self.asked(asked); },
                ended = ends.recv() => if let Some(ended) = ended { self.ended(ended); },
                () = &mut patience, if !self.greeted || self.closing => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                _ = end.wait_for(|end| *end), if open => self.end(),
            }
            while let Ok(ended) = ends.try_recv() {
                self.ended(ended);
            }
        }
    }

    /// Reads what has come: bytes of an array to their place, the rest into the input. The number of bytes, and
    /// whether there was room for more.
    fn read(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<(usize, bool)> {
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
            && let Some((arena, offset, length)) = room(&self.calls, &self.callbacks, place, length)
        {
            straight = length;
            target = Target::Arena(arena, offset, length);
        }
        let room = self.input.len() - self.end + straight;
        let count =
            native::read(socket.get_ref().as_fd(), target, &mut self.input[self.end..], false)?;
        let placed = count.min(straight);
        if placed > 0 {
            self.rpc.placed(placed);
        }
        self.end += count - placed;
        Ok((count, count < room))
    }

    /// Looks at what has come.
    fn look(&mut self) {
        while !self.closing {
            match self.rpc.step(&self.input[self.begin..self.end]) {
                Ok(Step::More(needed)) => {
                    self.needed = needed;
                    return;
                }
                Ok(Step::Event(consumed, event)) => {
                    self.begin += consumed;
                    if let Some(event) = event {
                        self.take(event);
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
                            room(&self.calls, &self.callbacks, place, count)
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
        match event {
            ServerEvent::Hello(hello) => {
                let config = &self.shared.config;
                self.greeted = true;
                self.closing = !self.rpc.welcome(&hello, &config.name, config.call_bytes);
            }
            ServerEvent::Interface(stream, name) => match self.shared.registry.find(&name) {
                Some(offered) => self.rpc.describe(stream, offered.hash, &offered.json),
                None => self.unknown(stream, &name),
            },
            ServerEvent::List(stream, part) => {
                let names = self.shared.registry.names().filter(|name| name.contains(&part));
                self.rpc.names(stream, names);
            }
            ServerEvent::Call(stream, head) => {
                if let Err(failure) = self.begin_call(stream, &head) {
                    self.rpc.fail(stream, &failure);
                }
            }
            ServerEvent::Ready(stream) => {
                if let Some(Call::Coming(mut job, given)) = self.calls.remove(&stream) {
                    if let Some(files) = &mut job.files {
                        files.complete();
                    }
                    job.layout.arrange(&job.offered.interface, &given, &job.block.arena);
                    job.ready = Instant::now();
                    self.calls.insert(stream, Call::Runs(job.id));
                    submit(&self.shared, job);
                }
            }
            ServerEvent::Cancel(stream) => self.cancel(stream),
            ServerEvent::Returned(stream, back) => self.returned(stream, back),
            ServerEvent::Back(stream) => self.back(stream),
        }
    }

    fn unknown(&mut self, stream: u32, name: &str) {
        let text = self.shared.registry.unknown(name);
        self.rpc.fail(stream, &Failure::new(Code::NoSuchRoutine, 0, text));
    }

    /// Takes a call, or says why not; nothing is allocated before it is known to be within the limits.
    fn begin_call(&mut self, stream: u32, head: &CallHead) -> Result<(), Failure> {
        let shared = Rc::clone(&self.shared);
        let Some(offered) = shared.registry.find(&head.routine) else {
            let text = shared.registry.unknown(&head.routine);
            return Err(Failure::new(Code::NoSuchRoutine, 0, text));
        };
        if head.hash != offered.hash {
            let text = format!("the description of `{}` has changed", head.routine);
            return Err(Failure::new(Code::InterfaceChanged, 0, text));
        }
        let mut given = Given::from_wire(&offered.interface, &head.values)?;
        let files = CallFiles::new(
            &mut shared.scratch.borrow_mut(),
            &offered.interface,
            &mut given,
            shared.config.file_bytes,
        )?;
        let layout = Layout::new(&offered.interface, &given, shared.config.call_bytes)?;
        let mut pool = shared.pool.borrow_mut();
        let block = pool.arenas.take(layout.bytes).ok().flatten().ok_or_else(|| {
            let text = "the server has no memory left for the call's arguments; try again later";
            Failure::new(Code::Busy, i64::try_from(layout.bytes).unwrap_or(i64::MAX), text)
        })?;
        let id = pool.number();
        drop(pool);
        let mut sizes = layout.sent();
        sizes.extend(
            (0..).zip(&given.files).filter_map(|(argument, bytes)| {
                Some(kumi_rpc::Size { argument, bytes: (*bytes)? })
            }),
        );
        let job = Job {
            id,
            stream,
            offered: Arc::clone(offered),
            layout,
            block,
            files,
            deadline: self.deadline(head.timeout_ms),
            ready: Instant::now(),
            told: self.told.clone(),
            asks: self.asks.clone(),
        };
        self.calls.insert(stream, Call::Coming(Box::new(job), given));
        self.rpc.accept(stream, &sizes);
        Ok(())
    }

    fn deadline(&self, asked_ms: u32) -> Option<Instant> {
        let asked = (asked_ms > 0).then(|| Duration::from_millis(asked_ms.into()));
        let limit = self.shared.config.call_time;
        let least = asked.into_iter().chain(limit).min()?;
        Instant::now().checked_add(least)
    }

    fn cancel(&mut self, stream: u32) {
        match self.calls.get(&stream) {
            Some(Call::Coming(..)) => {
                if let Some(Call::Coming(job, _)) = self.calls.remove(&stream) {
                    let name = &job.offered.interface.name;
                    let text = format!("the call of `{name}` was cancelled");
                    self.rpc.fail(stream, &Failure::new(Code::Cancelled, 0, text));
                    self.shared.pool.borrow_mut().arenas.give(job.block);
                }
            }
            Some(Call::Runs(id)) => self.shared.pool.borrow_mut().cancel(*id, Code::Cancelled),
            Some(Call::Going(..)) | None => {}
        }
    }

    /// A call is over.
    fn ended(&mut self, ended: Ended) {
        let Ended { job, outcome } = ended;
        let Job { stream, offered, layout, block, files, .. } = *job;
        let most = self.shared.config.file_bytes;
        let outgoing = || match &files {
            Some(files) => files.outgoing(&offered.interface, most),
            None => Ok(Vec::new()),
        };
        let outcome = outcome.and_then(|times| outgoing().map(|files| (times, files)));
        match outcome {
            Ok(((waited_ns, ran_ns), outgoing)) => {
                layout.pack(&offered.interface, &block.arena);
                let mut values = layout.results(&offered.interface, &block.arena);
                let mut sizes = layout.returned();
                self.send_files(stream, outgoing, &mut values, &mut sizes);
                let head = ResultHead { waited_ns, ran_ns, values };
                self.rpc.finish(stream, &head, &sizes);
                self.calls.insert(stream, Call::Going(layout, block));
            }
            Err(failure) => {
                self.calls.remove(&stream);
                self.rpc.fail(stream, &failure);
                self.shared.pool.borrow_mut().arenas.give(block);
            }
        }
        self.forget_callback(stream);
        self.written();
    }

    /// Results that are written need their memory no more.
    fn written(&mut self) {
        while let Some(stream) = self.rpc.outbox().written() {
            self.rpc.ended(stream);
            if matches!(self.calls.get(&stream), Some(Call::Going(..)))
                && let Some(Call::Going(_, block)) = self.calls.remove(&stream)
            {
                self.shared.pool.borrow_mut().arenas.give(block);
                self.outgoing.remove(&stream);
            }
            self.forget_callback(stream);
        }
    }

    /// Writes until there is nothing more to write or the socket takes no more.
    fn write(&mut self, socket: &AsyncFd<OwnedFd>) -> io::Result<()> {
        while !self.rpc.outbox().is_empty() {
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
        if self.rpc.outbox().is_empty() {
            return Ok(0);
        }
        if let Some(written) = self.write_file(socket) {
            let count = written?;
            self.rpc.outbox().wrote(count);
            self.written();
            return Ok(count);
        }
        let (calls, callbacks) = (&self.calls, &self.callbacks);
        let outgoing = &self.outgoing;
        let pieces = self.rpc.outbox().pieces().map_while(|piece| match piece {
            Piece::Bytes(bytes) => Some(Source::Bytes(bytes)),
            Piece::Data(place, _) if file_of(outgoing, place).is_some() => None,
            Piece::Data(place, length) => match calls.get(&place.stream) {
                Some(Call::Going(layout, block)) => {
                    let (offset, length) = layout.range(place.argument, place.offset, length);
                    Some(Source::Arena(&block.arena, offset, length))
                }
                _ => callbacks.get(&place.stream).map(|called| {
                    let (arena, offset, length) = called.range(place, length);
                    Source::Arena(arena, offset, length)
                }),
            },
        });
        let count = native::write(socket.get_ref().as_fd(), pieces)?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.rpc.outbox().wrote(count);
        self.written();
        Ok(count)
    }

    /// The server ends: the client is told.
    fn end(&mut self) {
        let failure = Failure::new(Code::Ending, 0, "the server ends");
        if self.greeted {
            self.rpc.end(&failure);
        } else {
            self.rpc.refuse(failure);
        }
        self.closing = true;
    }

    /// The client has gone: so have its calls.
    fn leave(&mut self) {
        for (_, call) in self.calls.drain() {
            match call {
                Call::Coming(job, _) => self.shared.pool.borrow_mut().arenas.give(job.block),
                Call::Runs(id) => self.shared.pool.borrow_mut().cancel(id, Code::Cancelled),
                Call::Going(_, block) => self.shared.pool.borrow_mut().arenas.give(block),
            }
        }
    }
}
