//! `struct fid_fabric`: it opens the domain and event queues.

use std::ffi::{CStr, c_int, c_void};

use crate::abi::{self, fi_fabric_attr, fi_info, fi_ops_fabric, fid, fid_domain, fid_fabric};
use crate::errors::{Answer, FI_EAGAIN, FI_EINVAL, number, only, status};
use crate::objects::{self, Class, Hold, Refused, Users, plain_table};
use crate::{cntr, cq, domain, eq, info};

/// What we know of a fabric.
#[derive(Debug, Default)]
pub struct Fabric {
    users: Users,
}

static TABLE: abi::fi_ops = plain_table(close);
static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: Some(Refused::REFUSED),
    eq_open: Some(eq::open),
    wait_open: Some(Refused::REFUSED),
    trywait: Some(trywait),
    domain2: Some(open_domain_with_flags),
};

impl Class for Fabric {
    type Fid = fid_fabric;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Fabric {
    /// One more object that uses the fabric.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.users.hold()
    }
}

/// `fi_fabric`, called through `struct fi_provider`.
///
/// # Safety
/// As libfabric calls it: `attributes` can be read or is NULL, `out` can be written or is NULL.
pub unsafe extern "C" fn open(
    attributes: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: NULL or readable.
        let attributes = unsafe { attributes.as_ref() }.ok_or(FI_EINVAL)?;
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: a name is NULL or a string.
        if !attributes.name.is_null() && unsafe { CStr::from_ptr(attributes.name) } != info::NAME {
            return Err(FI_EINVAL);
        }
        let fid = fid_fabric {
            fid: objects::head::<Fabric>(abi::FI_CLASS_FABRIC, context),
            ops: (&raw const OPS).cast_mut(),
            api_version: attributes.api_version,
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid, Fabric::default())) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Fabric>(fid, |fabric| fabric.users.none()) }.map(drop))
}

unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open fabric.
        let fabric = unsafe { objects::state::<Fabric, _>(fabric) }?;
        // SAFETY: `info` is NULL or readable, `out` NULL or a place for the answer.
        unsafe { domain::open(fabric, info, out, context) }
    })
}

unsafe extern "C" fn open_domain_with_flags(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match only(flags, 0) {
        // SAFETY: the arguments are those of this call.
        Ok(()) => unsafe { open_domain(fabric, info, out, context) },
        Err(error) => -error,
    }
}

unsafe extern "C" fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    number(|| {
        // SAFETY: programs give an open fabric.
        unsafe { objects::state::<Fabric, _>(fabric) }?;
        let count = usize::try_from(count).map_err(|_| FI_EINVAL)?;
        if count > 0 && fids.is_null() {
            return Err(FI_EINVAL);
        }
        for at in 0..count {
            // SAFETY: the program gives an array of `count` open objects.
            if !unsafe { may_sleep(fids.add(at).read()) }? {
                return Err(FI_EAGAIN);
            }
        }
        Ok(0)
    })
}

/// # Safety
/// `fid` is NULL or an open object.
unsafe fn may_sleep(fid: *mut fid) -> Answer<bool> {
    // SAFETY: as promised, for all three.
    unsafe {
        if let Ok(queue) = objects::state::<cq::Queue, _>(fid) {
            return queue.may_sleep();
        }
        if let Ok(counter) = objects::state::<cntr::Cntr, _>(fid) {
            return counter.may_sleep();
        }
        objects::state::<eq::Events, _>(fid).map(|events| events.queue().may_sleep())
    }
}
