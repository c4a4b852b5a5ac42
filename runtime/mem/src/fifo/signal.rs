//! Signal ports: FIFOs whose records go to a handler of the program, on a thread of the port.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use kumi_net::layout::SIGNALS;
use kumi_net::{ChannelWaker, SharedBytesMut, spawn_without_signals, sys};

use crate::context::Context;
use crate::error::{Error, panic_text};
use crate::fifo::queue::{MARK_SIGNAL, Queue};
use crate::fifo::table::{FifoKey, made_room};
use crate::window::Window;

/// A record as a handler gets it.
#[derive(Debug, Clone, Copy)]
pub struct Signal<'s> {
    /// The rank that sent it.
    pub from: u32,
    /// The record, valid until the handler returns.
    pub data: &'s [u8],
}

/// Errors of handlers and services that the program has not been told yet.
#[derive(Debug, Default)]
pub(crate) struct HandlerFailures {
    any: AtomicBool,
    /// The first, and how many followed.
    first: Mutex<Option<(HandlerFailure, u64)>>,
}

#[derive(Debug)]
enum HandlerFailure {
    Panic { offset: u64, text: String },
    Damage { offset: u64 },
    Service { service: u16, text: String },
}

impl HandlerFailures {
    /// A service has panicked.
    pub(crate) fn add_service(&self, service: u16, text: &str) {
        self.add(HandlerFailure::Service { service, text: text.into() });
    }

    fn add(&self, failure: HandlerFailure) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert((failure, 0)).1 += 1;
        self.any.store(true, SeqCst);
    }
}

impl Context {
    /// Reports the errors of signal handlers and services since the last call.
    pub(crate) fn check_handlers(&self) -> Result<(), Error> {
        if !self.failures.any.load(SeqCst) {
            return Ok(());
        }
        let mut first = self.failures.first.lock().unwrap_or_else(PoisonError::into_inner);
        self.failures.any.store(false, SeqCst);
        match first.take() {
            None => Ok(()),
            Some((HandlerFailure::Panic { offset, text }, count)) => {
                Err(Error::HandlerPanicked { offset, count, text })
            }
            Some((HandlerFailure::Damage { offset }, _)) => {
                Err(Error::FifoDamaged { rank: self.rank(), offset })
            }
            Some((HandlerFailure::Service { service, text }, _)) => {
                Err(Error::ServicePanicked { service, text })
            }
        }
    }
}

/// A signal port and its thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SignalPort {
    pub(crate) offset: u64,
    shared: Arc<PortState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PortState {
    key: FifoKey,
    queue: Queue,
    waker: ChannelWaker,
    /// Ranks that wait for room and send by frames.
    by_frames: Arc<AtomicU32>,
    failures: Arc<HandlerFailures>,
    stop: AtomicBool,
}

impl Window<'_> {
    /// Makes a signal port in the own piece: `handler` runs for each record that
    /// [`Window::signal`] sends to it. The port takes [`crate::FIFO_OVERHEAD`] bytes and its capacity,
    /// as a FIFO does ([`Window::fifo`]), and is there until [`Window::remove_signal`] or until the window
    /// is dropped.
    ///
    /// Handlers run on a thread of the port, also while the main thread computes or waits.
    ///
    /// - One port runs one handler at a time, in the order of each sender; different ports run at the
    ///   same time.
    /// - A handler may use all memory of the process, but not the [`Context`], which stays with its
    ///   thread: it cannot wait in the library.
    /// - After a panic the port goes on with the next record. The next call of the main thread does
    ///   nothing and returns [`Error::HandlerPanicked`]: send, receive, probe, progress, flush,
    ///   barrier, append, pop, multicast, wait for a notification or a completion, finalize.
    ///
    /// # Errors
    /// As [`Window::fifo`], and [`Error::Io`] if there can be no further thread.
    pub fn on_signal(
        &self,
        offset: usize,
        capacity: usize,
        handler: impl FnMut(Signal<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        let (queue, by_frames) = self.open(offset, capacity, 0, MARK_SIGNAL)?;
        let key = (self.memory.key, offset as u64);
        let shared = Arc::new(PortState {
            key,
            queue,
            waker: self.context.channel.waker(),
            by_frames,
            failures: Arc::clone(&self.context.failures),
            stop: AtomicBool::new(false),
        });
        let body = {
            let shared = Arc::clone(&shared);
            move || run(&shared, handler)
        };
        let thread = match spawn_without_signals("kumi-signal", body) {
            Ok(thread) => Some(thread),
            Err(error) => {
                self.close(offset as u64, &queue)?;
                return Err(error.into());
            }
        };
        self.ports().push(SignalPort { offset: offset as u64, shared, thread });
        Ok(())
    }

    /// Takes a signal port away: waits for a handler that runs, then forgets records that no
    /// handler has had. Synchronise before, as before dropping a window.
    ///
    /// # Errors
    /// [`Error::NoFifo`] if there is none at this offset.
    pub fn remove_signal(&self, offset: usize) -> Result<(), Error> {
        let found = {
            let mut ports = self.ports();
            let at = ports.iter().position(|port| port.offset == offset as u64);
            at.map(|at| ports.swap_remove(at))
        };
        let rank = self.context.rank();
        let port = found.ok_or(Error::NoFifo { rank, offset: offset as u64 })?;
        self.close_port(port)
    }

    /// Takes all signal ports away.
    pub(crate) fn remove_signals(&self) {
        for port in self.take_ports() {
            // Only a channel that is broken already fails here; its next use says so.
            if let Err(error) = self.close_port(port) {
                eprintln!("kumi: rank {}: closing a signal port: {error}", self.context.rank());
            }
        }
    }

    fn close_port(&self, port: SignalPort) -> Result<(), Error> {
        let (offset, queue) = (port.offset, port.shared.queue);
        drop(port);
        self.close(offset, &queue)
    }
}

impl Drop for SignalPort {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        let sleeping = &self.shared.queue.positions().sleeping;
        sleeping.store(0, SeqCst);
        sys::wake_sleeper(sleeping);
        if let Some(thread) = self.thread.take() {
            // Panics of the handler were caught; the thread has no others.
            let _ = thread.join();
        }
    }
}

fn run(port: &PortState, mut handler: impl FnMut(Signal<'_>)) {
    let attachment = port.waker.attachment();
    let ranks = attachment.ranks();
    let (mut head, mut buffer) = (0, Vec::new());
    // For a moment below 0, if the sender has not come to raise it: not idle either.
    let unhandled = &attachment.own_lines().notifies.0[SIGNALS].count;
    while !port.stop.load(SeqCst) {
        let next = match port.queue.peek(head, ranks) {
            Ok(Some(next)) => next,
            Ok(None) => {
                port.queue
                    .rest(|| port.queue.peek(head, ranks) == Ok(None) && !port.stop.load(SeqCst));
                continue;
            }
            Err(_) => {
                port.failures.add(HandlerFailure::Damage { offset: port.key.1 });
                return;
            }
        };
        buffer.resize(next.length, 0);
        head = port.queue.take(head, next, (&mut buffer[..]).into());
        if made_room(attachment, &port.queue, &port.by_frames) {
            port.waker.serve();
        }
        let signal = Signal { from: next.from, data: &buffer };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(signal))) {
            let text = panic_text(&*panic);
            port.failures.add(HandlerFailure::Panic { offset: port.key.1, text });
        }
        unhandled.fetch_sub(1, SeqCst);
    }
    // Records that come too late are not handled.
    while let Ok(Some(next)) = port.queue.peek(head, ranks) {
        head = port.queue.take(head, next, SharedBytesMut::default());
        unhandled.fetch_sub(1, SeqCst);
    }
}
