//! `struct fid_ep`: endpoints, from opening to closing.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::abi::{self, fi_alias, fi_info, fi_ops_cm, fi_ops_ep, fid, fid_domain, fid_ep};
use crate::address_vector::AddressVector;
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::engine::{EndpointEvents, Engine};
use crate::errors::{
    Answer, FI_EINVAL, FI_ENOAV, FI_ENOCQ, FI_ENOENT, FI_ENOPROTOOPT, FI_ENOSYS, FI_EOPBADSTATE,
    FI_ETOOSMALL, ensure, length, only, status,
};
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::operation::{Address, Operation};
use crate::{address, atomics, av, binding, info, messages, rma, tagged};

/// One direction of an open endpoint.
#[derive(Debug, Default)]
pub struct Side {
    /// Where completions go.
    pub queue: Option<Arc<CompletionQueue>>,
    /// Only those go there that are asked for (`FI_SELECTIVE_COMPLETION`).
    pub selective: bool,
    /// Messages.
    pub messages: Option<Arc<Counter>>,
    /// Reads, at the side that sends.
    pub reads: Option<Arc<Counter>>,
    /// Writes, at the side that sends.
    pub writes: Option<Arc<Counter>>,
}

/// An endpoint that is enabled.
#[derive(Debug)]
pub struct Active {
    /// Its number at this rank.
    pub number: u16,
    vector: Arc<AddressVector>,
    /// Sends, reads, writes.
    pub transmit: Side,
    /// Receives.
    pub receive: Side,
}

/// What an endpoint and its aliases have in common.
#[derive(Debug)]
pub struct Shared {
    /// The channel.
    pub engine: Arc<Engine>,
    /// What the program has asked for.
    pub caps: u64,
    setup: Mutex<binding::Setup>,
    active: OnceLock<Active>,
    /// Bytes that a buffer for several messages must have left for the next one.
    least_left: AtomicUsize,
    queue_sizes: [usize; 2],
    aliases: Users,
    _domain: Hold,
}

/// What we know of an endpoint, or of an alias of one.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    transmit_flags: AtomicU64,
    receive_flags: AtomicU64,
    /// An alias holds the endpoint.
    _alias: Option<Hold>,
}

static TABLE: abi::fi_ops = abi::fi_ops {
    size: size_of::<abi::fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: Some(Refused::REFUSED),
    tostr: Some(Refused::REFUSED),
    ops_set: Some(Refused::REFUSED),
};
static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(Refused::REFUSED),
    rx_ctx: Some(Refused::REFUSED),
    rx_size_left: Some(rx_size_left),
    tx_size_left: Some(tx_size_left),
};
static CM_OPS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(Refused::REFUSED),
    getname: Some(getname),
    getpeer: Some(Refused::REFUSED),
    connect: Some(Refused::REFUSED),
    listen: Some(Refused::REFUSED),
    accept: Some(Refused::REFUSED),
    reject: Some(Refused::REFUSED),
    shutdown: Some(Refused::REFUSED),
    join: Some(Refused::REFUSED),
};

impl Class for Endpoint {
    type Fid = fid_ep;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

/// `fi_endpoint`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain, and an info that is NULL or can be read.
        let (domain, info) =
            unsafe { (objects::state::<Domain, _>(domain)?, info.as_ref().ok_or(FI_EINVAL)?) };
        ensure(!out.is_null(), FI_EINVAL)?;
        // SAFETY: attributes are NULL or can be read.
        let (ep, tx, rx) = unsafe {
            (
                info.ep_attr.as_ref().copied().unwrap_or_default(),
                info.tx_attr.as_ref().copied().unwrap_or_default(),
                info.rx_attr.as_ref().copied().unwrap_or_default(),
            )
        };
        // The program may have changed what it got: it is checked as a question would be.
        let hints = info::Hints {
            caps: info.caps,
            addr_format: info.addr_format,
            tx: Some(tx),
            rx: Some(rx),
            ep: Some(ep),
            domain: None,
            named_so: true,
        };
        let offer = info::offer(abi::version(1, 5), Some(&hints)).map_err(|_| FI_EINVAL)?;
        let shared = Shared {
            engine: Arc::clone(&domain.engine),
            caps: offer.caps,
            setup: Mutex::default(),
            active: OnceLock::new(),
            least_left: AtomicUsize::new(info::INJECT_BYTES),
            queue_sizes: [offer.tx.size, offer.rx.size],
            aliases: Users::default(),
            _domain: domain.hold(),
        };
        let endpoint = Endpoint {
            shared: Arc::new(shared),
            transmit_flags: AtomicU64::new(tx.op_flags),
            receive_flags: AtomicU64::new(rx.op_flags),
            _alias: None,
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid_of(offer.caps, context), endpoint)) };
        Ok(())
    })
}

/// An endpoint has the calls that its program has asked for. The others are refused.
fn fid_of(caps: u64, context: *mut c_void) -> fid_ep {
    let has = |kind: u64| caps & kind != 0;
    fid_ep {
        fid: objects::head::<Endpoint>(abi::FI_CLASS_EP, context),
        ops: (&raw const OPS).cast_mut(),
        cm: (&raw const CM_OPS).cast_mut(),
        msg: std::ptr::from_ref(if has(abi::FI_MSG) { &messages::OPS } else { &messages::REFUSED })
            .cast_mut(),
        rma: std::ptr::from_ref(if has(abi::FI_RMA) { &rma::OPS } else { &rma::REFUSED })
            .cast_mut(),
        tagged: std::ptr::from_ref(if has(abi::FI_TAGGED) {
            &tagged::OPS
        } else {
            &tagged::REFUSED
        })
        .cast_mut(),
        atomic: std::ptr::from_ref(if has(abi::FI_ATOMIC) {
            &atomics::OPS
        } else {
            &atomics::REFUSED
        })
        .cast_mut(),
        collective: (&raw const binding::COLLECTIVES_REFUSED).cast_mut(),
    }
}

impl Endpoint {
    /// The channel.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The endpoint if it is enabled.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE`.
    pub fn active(&self) -> Answer<&Active> {
        self.shared.active.get().ok_or(FI_EOPBADSTATE)
    }

    /// The flags of sends that do not say theirs.
    #[must_use]
    pub fn transmit_flags(&self) -> u64 {
        self.transmit_flags.load(Ordering::Relaxed)
    }

    /// The flags of receives that do not say theirs.
    #[must_use]
    pub fn receive_flags(&self) -> u64 {
        self.receive_flags.load(Ordering::Relaxed)
    }

    /// Bytes that a buffer for several messages must have left.
    #[must_use]
    pub fn least_left(&self) -> usize {
        self.shared.least_left.load(Ordering::Relaxed)
    }

    /// From whom a receive takes messages: only endpoints that were opened for it (`FI_DIRECTED_RECV`) choose.
    ///
    /// # Errors
    /// `FI_EINVAL` for what is no address of the vector.
    pub fn source(&self, active: &Active, address: u64) -> Answer<Option<Address>> {
        if address == abi::NO_ADDRESS || self.shared.caps & abi::FI_DIRECTED_RECV == 0 {
            return Ok(None);
        }
        active.peer(address).map(Some)
    }

    fn enable(&self) -> Answer<()> {
        let shared = &*self.shared;
        let mut setup = shared.setup.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(shared.active.get().is_none(), FI_EOPBADSTATE)?;
        let vector = setup.vector().ok_or(FI_ENOAV)?;
        let (transmit, receive) = (setup.transmit(), setup.receive());
        let sends = abi::FI_SEND | abi::FI_READ | abi::FI_WRITE;
        ensure(shared.caps & sends == 0 || transmit.tells(), FI_ENOCQ)?;
        ensure(shared.caps & abi::FI_RECV == 0 || receive.tells(), FI_ENOCQ)?;
        let events = EndpointEvents {
            receive_queue: receive.queue.clone(),
            remote_write: setup.counter(abi::FI_REMOTE_WRITE),
            remote_read: setup.counter(abi::FI_REMOTE_READ),
        };
        setup.note_sources(&vector);
        let number = shared.engine.open_endpoint(events)?;
        let active = Active { number, vector, transmit, receive };
        shared.active.set(active).map_err(|_| FI_EOPBADSTATE)
    }

    fn flags_of(&self, side: u64) -> Answer<&AtomicU64> {
        match side & (abi::FI_TRANSMIT | abi::FI_RECV) {
            abi::FI_TRANSMIT => Ok(&self.transmit_flags),
            abi::FI_RECV => Ok(&self.receive_flags),
            _ => Err(FI_EINVAL),
        }
    }

    fn set_flags(&self, flags: u64) -> Answer<()> {
        let side = self.flags_of(flags)?;
        let flags = flags & !(abi::FI_TRANSMIT | abi::FI_RECV);
        let known = if std::ptr::eq(side, &self.transmit_flags) {
            info::SEND_FLAGS
        } else {
            info::RECEIVE_FLAGS
        };
        only(flags, known)?;
        side.store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn alias(&self, flags: u64) -> Answer<Endpoint> {
        let alias = Endpoint {
            shared: Arc::clone(&self.shared),
            transmit_flags: AtomicU64::new(self.transmit_flags()),
            receive_flags: AtomicU64::new(self.receive_flags()),
            _alias: Some(self.shared.aliases.hold()),
        };
        alias.set_flags(flags)?;
        Ok(alias)
    }
}

impl Side {
    fn tells(&self) -> bool {
        [&self.messages, &self.reads, &self.writes].into_iter().any(Option::is_some)
            || self.queue.is_some()
    }

    /// An operation that the program has begun with these flags.
    #[must_use]
    pub fn operation(
        &self,
        counter: Option<&Arc<Counter>>,
        context: *mut c_void,
        entry: u64,
        flags: u64,
    ) -> Operation {
        Operation {
            context: context as usize,
            flags: entry,
            completion: self.queue.is_some()
                && (!self.selective || flags & abi::FI_COMPLETION != 0),
            queue: self.queue.clone(),
            counter: counter.cloned(),
        }
    }

    /// An operation whose success no queue is told (`fi_inject` and the like).
    #[must_use]
    pub fn silent(&self, counter: Option<&Arc<Counter>>, entry: u64) -> Operation {
        Operation { completion: false, ..self.operation(counter, std::ptr::null_mut(), entry, 0) }
    }
}

impl Active {
    /// The endpoint of an `fi_addr_t`.
    ///
    /// # Errors
    /// `FI_EINVAL` for what is no address of the vector.
    pub fn peer(&self, address: u64) -> Answer<Address> {
        self.vector.get(address).ok_or(FI_EINVAL)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(active) = self.active.get() {
            self.engine.close_endpoint(active.number);
        }
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    status(|| {
        // SAFETY: `fi_close` gives an open object that nobody uses any more.
        let closed = unsafe {
            objects::withdraw::<Endpoint>(fid, |endpoint| match endpoint._alias {
                Some(_) => Ok(()),
                None => endpoint.shared.aliases.none(),
            })
        };
        closed.map(drop)
    })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let mut setup = endpoint.shared.setup.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(endpoint.active().is_err(), FI_EOPBADSTATE)?;
        // SAFETY: programs give an open object.
        unsafe { setup.bind(other, flags) }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let command = u32::try_from(command).map_err(|_| FI_ENOSYS)?;
        if command == abi::FI_ENABLE {
            return endpoint.enable();
        }
        ensure(
            matches!(command, abi::FI_GETOPSFLAG | abi::FI_SETOPSFLAG | abi::FI_ALIAS),
            FI_ENOSYS,
        )?;
        ensure(!argument.is_null(), FI_EINVAL)?;
        if command == abi::FI_ALIAS {
            // SAFETY: for this command it points to a `struct fi_alias`.
            return unsafe { make_alias(endpoint, argument.cast::<fi_alias>().read()) };
        }
        let flags = argument.cast::<u64>();
        // SAFETY: for both other commands it points to 64 bits.
        let given = unsafe { flags.read() };
        if command == abi::FI_SETOPSFLAG {
            return endpoint.set_flags(given);
        }
        // SAFETY: the same.
        unsafe { flags.write(endpoint.flags_of(given)?.load(Ordering::Relaxed)) };
        Ok(())
    })
}

/// # Safety
/// The place for the answer is NULL or can be written.
unsafe fn make_alias(endpoint: &Endpoint, asked: fi_alias) -> Answer<()> {
    ensure(!asked.fid.is_null(), FI_EINVAL)?;
    let alias = objects::publish(
        fid_of(endpoint.shared.caps, std::ptr::null_mut()),
        endpoint.alias(asked.flags)?,
    );
    // SAFETY: it is not NULL, and a place for the answer.
    unsafe { asked.fid.write(alias.cast()) };
    Ok(())
}

unsafe extern "C" fn getname(fid: *mut fid, out: *mut c_void, size: *mut usize) -> c_int {
    status(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let engine = endpoint.engine();
        let own = Address { rank: engine.rank(), endpoint: endpoint.active()?.number };
        // SAFETY: `out` has as many bytes as `size` tells.
        unsafe { av::give_address(address::encode(own, engine.job()), out, size) }
    })
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    length(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let found = endpoint.engine().cancel(endpoint.active()?.number, context as usize);
        ensure(found, FI_ENOENT).map(|()| 0)
    })
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    size: *mut usize,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let known = match u32::try_from(name) {
            Ok(abi::FI_OPT_MIN_MULTI_RECV) => endpoint.least_left(),
            // No connections, so no data of theirs.
            Ok(abi::FI_OPT_CM_DATA_SIZE) => 0,
            _ => return Err(FI_ENOPROTOOPT),
        };
        ensure(level == abi::FI_OPT_ENDPOINT as c_int, FI_ENOPROTOOPT)?;
        ensure(!value.is_null() && !size.is_null(), FI_EINVAL)?;
        // SAFETY: it is not NULL.
        ensure(unsafe { size.read() } >= size_of::<usize>(), FI_ETOOSMALL)?;
        // SAFETY: there is room for it.
        unsafe {
            value.cast::<usize>().write_unaligned(known);
            size.write(size_of::<usize>());
        }
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open endpoint.
        let endpoint = unsafe { objects::state::<Endpoint, _>(fid) }?;
        let known =
            level == abi::FI_OPT_ENDPOINT as c_int && name == abi::FI_OPT_MIN_MULTI_RECV as c_int;
        ensure(known, FI_ENOPROTOOPT)?;
        ensure(!value.is_null() && size == size_of::<usize>(), FI_EINVAL)?;
        // SAFETY: it has as many bytes.
        endpoint
            .shared
            .least_left
            .store(unsafe { value.cast::<usize>().read_unaligned() }, Ordering::Relaxed);
        Ok(())
    })
}

/// The channel refuses what is too much by `FI_EAGAIN`, so the room is what the program was told.
unsafe extern "C" fn tx_size_left(fid: *mut fid_ep) -> isize {
    // SAFETY: programs give an open endpoint.
    length(|| unsafe { objects::state::<Endpoint, _>(fid) }?.room(0))
}

unsafe extern "C" fn rx_size_left(fid: *mut fid_ep) -> isize {
    // SAFETY: programs give an open endpoint.
    length(|| unsafe { objects::state::<Endpoint, _>(fid) }?.room(1))
}

impl Endpoint {
    fn room(&self, side: usize) -> Answer<usize> {
        self.active()?;
        Ok(self.shared.queue_sizes[side])
    }
}
