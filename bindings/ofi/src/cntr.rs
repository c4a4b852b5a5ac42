//! `struct fid_cntr`: counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{self, fi_cntr_attr, fi_ops_cntr, fi_wait_obj, fid, fid_cntr, fid_domain};
use crate::counter::Counter;
use crate::domain::Domain;
use crate::engine::Engine;
use crate::errors::{Answer, FI_EAVAIL, FI_EINVAL, FI_ENOSYS, caught, ensure, only, status};
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::{idle, waits};

/// What we know of a counter.
#[derive(Debug)]
pub struct Cntr {
    counter: Arc<Counter>,
    engine: Arc<Engine>,
    wait: fi_wait_obj,
    /// What the program has read: a value that is new is given at once.
    seen: AtomicU64,
    users: Users,
    _domain: Hold,
}

static TABLE: abi::fi_ops = abi::fi_ops {
    size: size_of::<abi::fi_ops>(),
    close: Some(close),
    bind: Some(Refused::REFUSED),
    control: Some(control),
    ops_open: Some(Refused::REFUSED),
    tostr: Some(Refused::REFUSED),
    ops_set: Some(Refused::REFUSED),
};
static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

impl Class for Cntr {
    type Fid = fid_cntr;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Cntr {
    /// The counter, and a user of it.
    #[must_use]
    pub fn share(&self) -> (Arc<Counter>, Hold) {
        (Arc::clone(&self.counter), self.users.hold())
    }

    /// See [`Counter::may_sleep`].
    ///
    /// # Errors
    /// The channel's. `FI_ENOSYS` without a descriptor.
    pub fn may_sleep(&self) -> Answer<bool> {
        self.engine.poll()?;
        ensure(self.counter.descriptor().is_some(), FI_ENOSYS)?;
        Ok(self.counter.may_sleep())
    }

    /// Whether it has another value than the program has read; for poll sets.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.counter.successes() != self.seen.load(Ordering::Relaxed)
    }

    fn read(&self) -> Answer<u64> {
        let counter = &self.counter;
        let before = counter.successes();
        if before == self.seen.load(Ordering::Relaxed) {
            idle::progress(&self.engine, || counter.successes() != before)?;
        }
        let value = counter.successes();
        self.seen.store(value, Ordering::Relaxed);
        Ok(value)
    }

    fn wait(&self, threshold: u64, timeout: c_int) -> Answer<()> {
        let counter = &self.counter;
        let failures = counter.failures();
        waits::until(&self.engine, timeout, || {
            counter.successes() >= threshold || counter.failures() != failures
        })?;
        if counter.successes() >= threshold {
            return Ok(());
        }
        Err(if counter.failures() == failures { abi::FI_ETIMEDOUT } else { FI_EAVAIL })
    }
}

/// `fi_cntr_open`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain, and attributes that are NULL or can be read.
        let (domain, asked) = unsafe {
            (objects::state::<Domain, _>(domain)?, attributes.as_ref().ok_or(FI_EINVAL)?)
        };
        ensure(!out.is_null(), FI_EINVAL)?;
        ensure(asked.events == abi::FI_CNTR_EVENTS_COMP, FI_ENOSYS)?;
        only(asked.flags, 0)?;
        let counter = Cntr {
            counter: Arc::new(Counter::new(waits::has_descriptor(asked.wait_obj)?)?),
            engine: Arc::clone(&domain.engine),
            wait: asked.wait_obj,
            seen: AtomicU64::new(0),
            users: Users::default(),
            _domain: domain.hold(),
        };
        let fid = fid_cntr {
            fid: objects::head::<Cntr>(abi::FI_CLASS_CNTR, context),
            ops: (&raw const OPS).cast_mut(),
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid, counter)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Cntr>(fid, |counter| counter.users.none()) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: programs give an open counter.
        let counter = unsafe { objects::state::<Cntr, _>(fid) }?;
        // SAFETY: the argument is what libfabric says for the command.
        unsafe { waits::control(command, argument, counter.wait, counter.counter.descriptor()) }
    })
}

/// The value; 0 for what is no counter, since the call knows no errors. An error of the channel is told by queues.
unsafe extern "C" fn read(fid: *mut fid_cntr) -> u64 {
    caught(|| {
        // SAFETY: programs give an open counter.
        let counter = unsafe { objects::state::<Cntr, _>(fid) }?;
        Ok(counter.read().unwrap_or_else(|_| counter.counter.successes()))
    })
    .unwrap_or(0)
}

unsafe extern "C" fn readerr(fid: *mut fid_cntr) -> u64 {
    caught(|| {
        // SAFETY: programs give an open counter.
        let counter = unsafe { objects::state::<Cntr, _>(fid) }?;
        counter.engine.poll()?;
        Ok(counter.counter.failures())
    })
    .unwrap_or(0)
}

/// # Safety
/// `fid` is NULL or an open counter.
unsafe fn change(fid: *mut fid_cntr, change: impl FnOnce(&Counter)) -> c_int {
    status(|| {
        // SAFETY: as promised.
        change(&unsafe { objects::state::<Cntr, _>(fid) }?.counter);
        Ok(())
    })
}

unsafe extern "C" fn add(fid: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: programs give an open counter.
    unsafe { change(fid, |counter| counter.add(value)) }
}

unsafe extern "C" fn set(fid: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: programs give an open counter.
    unsafe { change(fid, |counter| counter.set(value)) }
}

unsafe extern "C" fn adderr(fid: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: programs give an open counter.
    unsafe { change(fid, |counter| counter.add_failures(value)) }
}

unsafe extern "C" fn seterr(fid: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: programs give an open counter.
    unsafe { change(fid, |counter| counter.set_failures(value)) }
}

unsafe extern "C" fn wait(fid: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: programs give an open counter.
    status(|| unsafe { objects::state::<Cntr, _>(fid) }?.wait(threshold, timeout))
}
