//! `struct fid_poll`: sets of queues and counters that are asked together.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{self, fi_ops_poll, fi_poll_attr, fid, fid_domain, fid_poll};
use crate::cntr::Cntr;
use crate::cq::Queue;
use crate::domain::Domain;
use crate::engine::Engine;
use crate::errors::{Answer, FI_EBUSY, FI_EINVAL, FI_ENOENT, ensure, number, only, status};
use crate::objects::{self, Class, Hold, plain_table};

/// A queue or counter of a set. It cannot be closed while the hold is there.
#[derive(Debug)]
struct Member {
    fid: usize,
    _hold: Hold,
}

/// What we know of a set.
#[derive(Debug)]
pub struct Set {
    engine: Arc<Engine>,
    members: Mutex<Vec<Member>>,
    _domain: Hold,
}

static TABLE: abi::fi_ops = plain_table(close);
static OPS: fi_ops_poll = fi_ops_poll {
    size: size_of::<fi_ops_poll>(),
    poll: Some(poll),
    poll_add: Some(add),
    poll_del: Some(remove),
};

impl Class for Set {
    type Fid = fid_poll;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

/// `fi_poll_open`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_poll_attr,
    out: *mut *mut fid_poll,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain, and attributes that are NULL or can be read.
        let (domain, asked) =
            unsafe { (objects::state::<Domain, _>(domain)?, attributes.as_ref()) };
        ensure(!out.is_null(), FI_EINVAL)?;
        only(asked.map_or(0, |asked| asked.flags), 0)?;
        let set = Set {
            engine: Arc::clone(&domain.engine),
            members: Mutex::default(),
            _domain: domain.hold(),
        };
        let fid = fid_poll {
            fid: objects::head::<Set>(abi::FI_CLASS_POLL, std::ptr::null_mut()),
            ops: (&raw const OPS).cast_mut(),
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid, set)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Set>(fid, |_| Ok(())) }.map(drop))
}

/// # Safety
/// `fid` is NULL or an open object.
unsafe fn hold(fid: *mut fid) -> Answer<Hold> {
    // SAFETY: as promised, for both.
    unsafe {
        match objects::state::<Queue, _>(fid) {
            Ok(queue) => Ok(queue.share().2),
            Err(_) => objects::state::<Cntr, _>(fid).map(|counter| counter.share().1),
        }
    }
}

/// # Safety
/// `fid` is an open queue or counter.
unsafe fn has_something(fid: *mut fid) -> Answer<bool> {
    // SAFETY: as promised, for both.
    unsafe {
        match objects::state::<Queue, _>(fid) {
            Ok(queue) => Ok(queue.has_entries()),
            Err(_) => objects::state::<Cntr, _>(fid).map(Cntr::has_changed),
        }
    }
}

unsafe extern "C" fn add(set: *mut fid_poll, fid: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give an open set and an open object.
        let (set, hold) = unsafe { (objects::state::<Set, _>(set)?, hold(fid)?) };
        only(flags, 0)?;
        let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(members.iter().all(|member| member.fid != fid as usize), FI_EBUSY)?;
        members.push(Member { fid: fid as usize, _hold: hold });
        Ok(())
    })
}

unsafe extern "C" fn remove(set: *mut fid_poll, fid: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give an open set.
        let set = unsafe { objects::state::<Set, _>(set) }?;
        only(flags, 0)?;
        let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        let at = members.iter().position(|member| member.fid == fid as usize).ok_or(FI_ENOENT)?;
        members.remove(at);
        Ok(())
    })
}

unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    number(|| {
        // SAFETY: programs give an open set.
        let set = unsafe { objects::state::<Set, _>(set) }?;
        let room = usize::try_from(count).map_err(|_| FI_EINVAL)?;
        ensure(room == 0 || !contexts.is_null(), FI_EINVAL)?;
        set.engine.poll()?;
        let members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = 0;
        for member in members.iter() {
            let fid = member.fid as *mut fid;
            // SAFETY: the member's hold keeps the object open.
            if found < room && unsafe { has_something(fid) }? {
                // SAFETY: the object is open, and the program gives `count` places.
                unsafe { contexts.add(found).write((&raw const (*fid).context).read()) };
                found += 1;
            }
        }
        c_int::try_from(found).map_err(|_| FI_EINVAL)
    })
}
