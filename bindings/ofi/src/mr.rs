//! `struct fid_mr`: memory that other ranks may read and write.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{self, fi_mr_attr, fid, fid_mr, iovec};
use crate::arguments;
use crate::cntr::Cntr;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::engine::{Engine, Registration};
use crate::errors::{Answer, FI_EINVAL, FI_ENOSYS, FI_EOPBADSTATE, ensure, only, status};
use crate::objects::{self, Class, Hold, Refused};
use crate::operation::Pieces;

/// Ways of use that have a meaning here.
const ACCESS: u64 = abi::FI_SEND
    | abi::FI_RECV
    | abi::FI_READ
    | abi::FI_WRITE
    | abi::FI_REMOTE_READ
    | abi::FI_REMOTE_WRITE;

/// What is registered, or will be when the program enables it.
#[derive(Debug)]
struct State {
    key: Option<u64>,
    endpoint_bound: bool,
    counter: Option<(Arc<Counter>, Hold)>,
}

/// What we know of a region.
#[derive(Debug)]
pub struct Region {
    engine: Arc<Engine>,
    pieces: Pieces,
    access: u64,
    /// The key that the program wants, unless the channel draws it.
    wanted: Option<u64>,
    by_address: bool,
    /// It is bound to an endpoint and enabled before its use (`FI_MR_ENDPOINT`).
    of_endpoint: bool,
    state: Mutex<State>,
    _domain: Hold,
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

impl Class for Region {
    type Fid = fid_mr;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Region {
    fn register(&self, key: Option<u64>, counter: Option<Arc<Counter>>) -> Answer<u64> {
        self.engine.register(Registration {
            pieces: self.pieces,
            remote_read: self.access & abi::FI_REMOTE_READ != 0,
            remote_write: self.access & abi::FI_REMOTE_WRITE != 0,
            key,
            by_address: self.by_address,
            counter,
        })
    }

    fn enable(&self, state: &mut State) -> Answer<u64> {
        if let Some(key) = state.key {
            return Ok(key);
        }
        let counter = state.counter.as_ref().map(|(counter, _)| Arc::clone(counter));
        let key = self.register(self.wanted, counter)?;
        state.key = Some(key);
        Ok(key)
    }

    /// A counter that is bound later is a new registration under the same key.
    fn count(&self, state: &mut State, counter: (Arc<Counter>, Hold)) -> Answer<()> {
        ensure(state.counter.is_none(), FI_EINVAL)?;
        if let Some(key) = state.key.take() {
            self.engine.deregister(key);
            state.key = Some(self.register(Some(key), Some(Arc::clone(&counter.0)))?);
        }
        state.counter = Some(counter);
        Ok(())
    }
}

/// What all ways of registration have in common.
struct Call {
    domain: *mut fid,
    access: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
}

impl Call {
    /// # Safety
    /// `domain` is NULL or an open object, `out` NULL or a place for the answer.
    unsafe fn make(self, pieces: Pieces) -> Answer<()> {
        // SAFETY: as promised.
        let domain = unsafe { objects::state::<Domain, _>(self.domain) }?;
        ensure(!self.out.is_null() && self.access & !ACCESS == 0, FI_EINVAL)?;
        only(self.flags, abi::FI_RMA_EVENT)?;
        let basic = domain.mr_mode & abi::FI_MR_BASIC as i32 != 0;
        let region = Region {
            engine: Arc::clone(&domain.engine),
            pieces,
            access: self.access,
            wanted: (!basic).then_some(self.requested_key),
            by_address: basic,
            of_endpoint: domain.mr_mode & abi::FI_MR_ENDPOINT as i32 != 0,
            state: Mutex::new(State { key: None, endpoint_bound: false, counter: None }),
            _domain: domain.hold(),
        };
        let mut key = region.wanted.unwrap_or(abi::NO_KEY);
        if !region.of_endpoint {
            key =
                region.enable(&mut region.state.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        let head = objects::head::<Region>(abi::FI_CLASS_MR, self.context);
        let fid = fid_mr { fid: head, mem_desc: std::ptr::null_mut(), key };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { self.out.write(objects::publish(fid, region)) };
        Ok(())
    }
}

/// `fi_mr_reg`. The offset means nothing since no domain has it (it must be 0).
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn reg(
    domain: *mut fid,
    buffer: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    status(|| {
        ensure(offset == 0, FI_EINVAL)?;
        let call = Call { domain, access, requested_key, flags, out, context };
        // SAFETY: the arguments are those of this call. NULL is the beginning of the whole address space.
        unsafe { call.make(Pieces::one(buffer as usize, length)) }
    })
}

/// `fi_mr_regv`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn regv(
    domain: *mut fid,
    array: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    status(|| {
        ensure(offset == 0, FI_EINVAL)?;
        let call = Call { domain, access, requested_key, flags, out, context };
        // SAFETY: the arguments are those of this call.
        unsafe { call.make(region_of(array, count)?) }
    })
}

/// One piece may be any part of the address space; several are checked like buffers of messages.
///
/// # Safety
/// `array` is NULL or has `count` entries.
unsafe fn region_of(array: *const iovec, count: usize) -> Answer<Pieces> {
    if count == 1 && !array.is_null() {
        // SAFETY: it has an entry.
        let one = unsafe { array.read_unaligned() };
        return Ok(Pieces::one(one.iov_base as usize, one.iov_len));
    }
    // SAFETY: as promised.
    unsafe { arguments::buffers(array, count) }
}

/// `fi_mr_regattr`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn regattr(
    domain: *mut fid,
    attributes: *const fi_mr_attr,
    flags: u64,
    out: *mut *mut fid_mr,
) -> c_int {
    status(|| {
        // SAFETY: NULL or readable.
        let asked = unsafe { attributes.as_ref() }.ok_or(FI_EINVAL)?;
        ensure(asked.offset == 0 && asked.auth_key_size == 0, FI_EINVAL)?;
        ensure(asked.iface == abi::FI_HMEM_SYSTEM, FI_ENOSYS)?;
        let (access, requested_key, context) = (asked.access, asked.requested_key, asked.context);
        let call = Call { domain, access, requested_key, flags, out, context };
        // SAFETY: the arguments are those of this call.
        unsafe { call.make(region_of(asked.mr_iov.cast(), asked.iov_count)?) }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    status(|| {
        // SAFETY: `fi_close` gives an open object that nobody uses any more.
        let region = unsafe { objects::withdraw::<Region>(fid, |_| Ok(())) }?;
        let key = region.state.lock().unwrap_or_else(PoisonError::into_inner).key;
        if let Some(key) = key {
            region.engine.deregister(key);
        }
        Ok(())
    })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give an open region.
        let region = unsafe { objects::state::<Region, _>(fid) }?;
        let mut state = region.state.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: programs give an open object.
        if unsafe { objects::state::<Endpoint, _>(other) }.is_ok() {
            only(flags, 0)?;
            ensure(region.of_endpoint && !state.endpoint_bound, FI_EINVAL)?;
            state.endpoint_bound = true;
            return Ok(());
        }
        // SAFETY: the same.
        let counter = unsafe { objects::state::<Cntr, _>(other) }?.share();
        only(flags, abi::FI_REMOTE_WRITE)?;
        ensure(flags != 0, FI_EINVAL)?;
        region.count(&mut state, counter)
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _argument: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: programs give an open region.
        let region = unsafe { objects::state::<Region, _>(fid) }?;
        ensure(command == abi::FI_ENABLE as c_int, FI_ENOSYS)?;
        let mut state = region.state.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(!region.of_endpoint || state.endpoint_bound, FI_EOPBADSTATE)?;
        let key = region.enable(&mut state)?;
        // SAFETY: an open region begins with a `struct fid_mr`, which is not behind a reference.
        unsafe { (&raw mut (*fid.cast::<fid_mr>()).key).write(key) };
        Ok(())
    })
}
