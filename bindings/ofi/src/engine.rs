//! The part below libfabric's objects: endpoints of this rank, as a service of its channel.

mod atomics;
mod calls;
mod memory;
mod near;
mod port;
mod service;

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kumi_mem::{Context, Error, Outbox, ReservedService, ServiceHandle};
use kumi_messaging::header::AtomicHeader;
use kumi_messaging::matching::Pattern;
use kumi_messaging::{
    AtomicAccess, Direction as MessageDirection, MemoryAccess, Messenger, Peek,
    Receive as MessageReceive, Refused, RemoteRange, Send as MessageSend, SendEnd, Unfinished,
};

pub use crate::engine::calls::{
    Atomic, AtomicKind, Direction, End, EndpointEvents, Errno, PeekAction, Receive, Registration,
    Remote, Send, Transfer,
};
use crate::engine::port::{Driver, Local, Pending};
use crate::engine::service::FabricService;
use crate::errno;
use crate::operation::{Address, Pieces};

/// Shared by all domains of the process.
#[derive(Debug)]
pub struct Engine {
    /// Ends before the context.
    handle: ManuallyDrop<ServiceHandle<'static, FabricService>>,
    context: NonNull<Context>,
    rank: u32,
    ranks: u32,
    job: u64,
}

// SAFETY: the context is `Sync` and `Send`, and this owns it; it is freed only by the drop of the last reference.
unsafe impl std::marker::Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

/// There from the first question about the fabric until the core is unloaded: a process joins its job once.
static ENGINE: Mutex<Option<Arc<Engine>>> = Mutex::new(None);

/// A message's receive, for the state machine.
fn pattern(source: Option<Address>, tag: Option<(u64, u64)>) -> (Pattern, bool) {
    // Messages without a tag have 0.
    let (bits, ignore) = tag.unwrap_or_default();
    (Pattern { source: source.map(address), tag: bits, ignore }, tag.is_some())
}

fn address(address: Address) -> kumi_messaging::Address {
    kumi_messaging::Address { rank: address.rank, endpoint: address.endpoint }
}

fn ranges(remote: &[Remote]) -> impl Iterator<Item = RemoteRange> + '_ {
    remote.iter().map(|remote| RemoteRange {
        address: remote.address,
        length: remote.length,
        key: remote.key,
    })
}

fn number(kind: AtomicKind) -> u8 {
    match kind {
        AtomicKind::Update => atomics::UPDATE,
        AtomicKind::Fetch => atomics::FETCH,
        AtomicKind::CompareAndSwap => atomics::COMPARE,
    }
}

/// The library's error, which its sentence tells on stderr.
fn told(error: &Error) -> Errno {
    eprintln!("kumi: {error}");
    libc::EIO
}

impl Engine {
    /// Bytes of a message that is copied when the call returns.
    pub const INJECT_BYTES: usize = 4096;

    /// The process's engine; made by the first call.
    ///
    /// # Errors
    /// `FI_ENODEV`: this process is no rank of a job, or cannot become one; then the reason is told on stderr.
    pub fn get() -> Result<Arc<Engine>, Errno> {
        let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = &*engine {
            return Ok(Arc::clone(there));
        }
        let made = Engine::open().map_err(|error| {
            // A program that was started elsewhere has other fabrics.
            if !matches!(error, Error::NotLaunched) {
                told(&error);
            }
            libc::ENODEV
        })?;
        let made = Arc::new(made);
        *engine = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The core is unloaded, at the latest when the process ends. The rank waits until what it has sent has arrived, and leaves its
    /// job's communication, unless the program has not closed what uses it.
    pub fn release_unused() {
        let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        if engine.as_ref().is_some_and(|engine| Arc::strong_count(engine) == 1) {
            *engine = None;
        }
    }

    fn open() -> Result<Engine, Error> {
        let context = NonNull::from(Box::leak(Box::new(Context::init()?)));
        // SAFETY: it was leaked just now; only `drop` frees it, after all that borrows it.
        let shared: &'static Context = unsafe { context.as_ref() };
        let (rank, ranks) = (shared.rank(), shared.ranks());
        let same_node = (0..ranks).map(|other| shared.same_node(other)).collect();
        let service = FabricService {
            messenger: Messenger::new(ranks),
            local: Local::new(rank, same_node),
            abandoned: false,
        };
        match shared.serve_locally(ReservedService::FABRIC, service) {
            Ok(handle) => Ok(Engine {
                handle: ManuallyDrop::new(handle),
                context,
                rank,
                ranks,
                job: shared.job(),
            }),
            Err(error) => {
                // SAFETY: made by `Box::leak`, and nothing borrows it.
                drop(unsafe { Box::from_raw(context.as_ptr()) });
                Err(error)
            }
        }
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// A number that is the same at all ranks of the job, and different in others.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Runs `call` with the state machine, under the channel's lock.
    #[inline]
    fn call<T>(
        &self,
        call: impl FnOnce(&mut Messenger<Pieces, Pending>, &mut Driver<'_, '_>) -> T,
    ) -> Result<T, Errno> {
        let run = |service: &mut FabricService, outbox: &mut Outbox<'_>| {
            if service.local.fault.is_some() {
                return Err(libc::EIO);
            }
            let (messenger, mut driver) = service.split(outbox);
            Ok(call(messenger, &mut driver))
        };
        self.handle.call(run).unwrap_or_else(|error| Err(self.broke(&error)))
    }

    /// Runs `call`, which gives the program memory back, whatever has happened.
    fn call_to_end(&self, call: impl FnOnce(&mut Messenger<Pieces, Pending>, &mut Driver<'_, '_>)) {
        let run = |service: &mut FabricService, outbox: &mut Outbox<'_>| {
            let (messenger, mut driver) = service.split(outbox);
            call(messenger, &mut driver);
        };
        if let Err(error) = self.handle.call_after_fault(run) {
            // Nobody drives the channel any more, so nothing touches memory.
            told(&error);
        }
    }

    /// The channel is of no use any more: all operations end.
    fn broke(&self, error: &Error) -> Errno {
        let end = |service: &mut FabricService, outbox: &mut Outbox<'_>| {
            service.local.failed(error);
            service.end_after_fault(outbox);
        };
        if self.handle.call_after_fault(end).is_err() {
            told(error);
        }
        libc::EIO
    }

    /// As [`Engine::call`], for calls that may be refused.
    #[inline]
    fn try_call(
        &self,
        call: impl FnOnce(&mut Messenger<Pieces, Pending>, &mut Driver<'_, '_>) -> Result<(), Refused>,
    ) -> Result<(), Errno> {
        self.call(call)?.map_err(errno::of_refusal)
    }

    /// Opens an endpoint: its number.
    ///
    /// # Errors
    /// `FI_EMFILE`: there were 65,536 already. `FI_EIO`: the channel failed.
    pub fn open_endpoint(&self, events: EndpointEvents) -> Result<u16, Errno> {
        self.call(|messenger, driver| {
            let number = messenger.open().ok_or(libc::EMFILE)?;
            driver.local.events.push(events);
            Ok(number)
        })?
    }

    /// All operations end, with `FI_ECANCELED` if they are not over. Short messages that were sent still arrive.
    pub fn close_endpoint(&self, endpoint: u16) {
        self.call_to_end(|messenger, driver| {
            messenger.close(driver, endpoint);
            if let Some(events) = driver.local.events.get_mut(usize::from(endpoint)) {
                *events = EndpointEvents::default();
            }
        });
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// `FI_EADDRNOTAVAIL`: no such endpoint. `FI_EIO`: the channel failed.
    pub fn receive(&self, endpoint: u16, receive: Receive) -> Result<(), Errno> {
        let (pattern, tagged) = pattern(receive.source, receive.tag);
        let message = MessageReceive {
            operation: Pending::new(receive.operation, &receive.buffer),
            buffer: receive.buffer,
            pattern,
            tagged,
            several: receive.several.map(|least| least as u64),
        };
        self.try_call(|messenger, driver| messenger.receive(driver, endpoint, message))
    }

    /// Looks for an unexpected message. Success or `FI_ENOMSG` is told through `receive.operation`.
    ///
    /// # Errors
    /// As [`Engine::receive`].
    pub fn peek(&self, endpoint: u16, receive: Receive, action: PeekAction) -> Result<(), Errno> {
        let what = match action {
            PeekAction::Peek => Peek::Look,
            PeekAction::Claim => Peek::Claim(receive.operation.context as u64),
            PeekAction::Discard => Peek::Discard,
        };
        let pattern = pattern(receive.source, receive.tag);
        let operation = Pending::new(receive.operation, &receive.buffer);
        self.poll()?;
        self.try_call(|messenger, driver| {
            messenger.peek(driver, endpoint, pattern, operation, what)
        })
    }

    /// Receives, or drops, the message that was claimed with this context.
    ///
    /// # Errors
    /// As [`Engine::receive`].
    pub fn receive_claimed(
        &self,
        endpoint: u16,
        receive: Receive,
        discard: bool,
    ) -> Result<(), Errno> {
        let number = receive.operation.context as u64;
        let operation = Pending::new(receive.operation, &receive.buffer);
        let buffer = (!discard).then_some(&receive.buffer);
        self.try_call(|messenger, driver| {
            messenger.receive_claimed(driver, endpoint, number, operation, buffer)
        })
    }

    /// Cancels the oldest posted receive with this context: whether it was there. Its end is `FI_ECANCELED`.
    #[must_use]
    pub fn cancel(&self, endpoint: u16, context: usize) -> bool {
        let is_it = |pending: &Pending| pending.operation.context == context;
        self.call(|messenger, driver| messenger.cancel(driver, endpoint, is_it)).unwrap_or(false)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `FI_EAGAIN`: there is no room now. `FI_EADDRNOTAVAIL`: no such endpoint or rank. `FI_EIO`: the channel failed.
    pub fn send(&self, endpoint: u16, send: Send) -> Result<(), Errno> {
        let message = MessageSend {
            operation: Pending { operation: send.operation, base: 0 },
            to: address(send.to),
            data: send.data,
            inject: send.inject,
            tag: send.tag,
            immediate: send.immediate,
            end: match send.end {
                End::Sent => SendEnd::Sent,
                End::Delivered => SendEnd::Matched,
            },
        };
        self.try_call(|messenger, driver| messenger.send(driver, endpoint, message))
    }

    /// Reads or writes memory of another rank.
    ///
    /// # Errors
    /// As [`Engine::send`]; `FI_EINVAL`: memory here and there has different lengths, or too much is to be injected.
    pub fn transfer(&self, endpoint: u16, transfer: Transfer) -> Result<(), Errno> {
        let remote: Vec<RemoteRange> = ranges(&transfer.remote).collect();
        let access = MemoryAccess {
            operation: Pending { operation: transfer.operation, base: 0 },
            direction: match transfer.direction {
                Direction::Read => MessageDirection::Read,
                Direction::Write => MessageDirection::Write,
            },
            peer: address(transfer.peer),
            local: transfer.local,
            remote: &remote,
            inject: transfer.inject,
            immediate: transfer.immediate,
        };
        self.try_call(|messenger, driver| messenger.access(driver, endpoint, access))
    }

    /// Applies atomic operations to memory of another rank.
    ///
    /// # Errors
    /// As [`Engine::transfer`]; `FI_EOPNOTSUPP`: there is no such operation on this type, or for so many elements.
    pub fn atomic(&self, endpoint: u16, atomic: Atomic) -> Result<(), Errno> {
        let (size, most) = Engine::atomic_count(atomic.datatype, atomic.op, atomic.kind)
            .ok_or(libc::EOPNOTSUPP)?;
        let remote: Vec<RemoteRange> = ranges(&atomic.remote).collect();
        let whole = |range: &RemoteRange| range.length.is_multiple_of(size as u64);
        let length = remote.iter().fold(0_u64, |sum, range| sum.saturating_add(range.length));
        if !remote.iter().all(whole) || length > (size * most) as u64 {
            return Err(libc::EOPNOTSUPP);
        }
        let access = AtomicAccess {
            operation: Pending { operation: atomic.operation, base: 0 },
            // There is such an operation, so both are small.
            atomic: AtomicHeader {
                datatype: atomic.datatype as u8,
                op: atomic.op as u8,
                kind: number(atomic.kind),
            },
            peer: address(atomic.peer),
            operand: atomic.operand,
            compare: atomic.compare,
            result: atomic.result,
            remote: &remote,
        };
        self.try_call(|messenger, driver| messenger.atomic(driver, endpoint, access))
    }

    /// Bytes of a type, if there is this operation on it, and how many elements one call may have.
    #[must_use]
    pub fn atomic_count(datatype: u32, op: u32, kind: AtomicKind) -> Option<(usize, usize)> {
        atomics::count(u8::try_from(datatype).ok()?, u8::try_from(op).ok()?, number(kind))
    }

    /// Registers memory: its key.
    ///
    /// # Errors
    /// `FI_ENOKEY`: the key that was asked for is in use. `FI_EIO`: the channel failed.
    pub fn register(&self, registration: Registration) -> Result<u64, Errno> {
        self.call(|_, driver| {
            let there = &mut driver.local.registrations;
            let key = match registration.key {
                Some(key) if there.contains_key(&key) => return Err(errno::ENOKEY),
                Some(key) => key,
                None => (there.len() as u64..)
                    .find(|key| !there.contains_key(key))
                    .ok_or(errno::ENOKEY)?,
            };
            there.insert(key, registration);
            Ok(key)
        })?
    }

    /// Ends a registration. Transfers of others there end, too, so the memory is the program's again.
    pub fn deregister(&self, key: u64) {
        self.call_to_end(|messenger, driver| {
            driver.local.registrations.remove(&key);
            messenger.end_registration(driver, key);
        });
    }

    /// Drives the channel once, without waiting.
    ///
    /// # Errors
    /// `FI_EIO`: the channel failed.
    #[inline]
    pub fn poll(&self) -> Result<(), Errno> {
        self.handle.poll().map(drop).map_err(|error| self.broke(&error))
    }

    /// What the rank has begun and not ended.
    ///
    /// # Errors
    /// `FI_EIO`: the channel failed.
    pub fn unfinished(&self) -> Result<Unfinished, Errno> {
        let told = self.handle.call(|service, _| service.messenger.unfinished());
        told.map_err(|error| self.broke(&error))
    }

    /// Drives the channel until `ready`, at most so long; whether it was ready. The rank counts as waiting meanwhile. `ready` must
    /// not call the engine.
    ///
    /// # Errors
    /// `FI_EIO`: the channel failed.
    pub fn wait(&self, timeout: Duration, ready: &mut dyn FnMut() -> bool) -> Result<bool, Errno> {
        let waited = self.handle.wait_for(timeout, |service, _| {
            (service.local.fault.is_some() || ready()).then_some(service.local.fault.is_none())
        });
        match waited {
            Ok(Some(true)) => Ok(true),
            Ok(Some(false)) => Err(libc::EIO),
            Ok(None) => Ok(false),
            // A handler of a signal has run.
            Err(Error::Interrupted) => Ok(false),
            Err(error) => Err(self.broke(&error)),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.handle) };
        // SAFETY: made by `Box::leak`, and what borrowed it is gone.
        drop(unsafe { Box::from_raw(self.context.as_ptr()) });
    }
}
