//! `struct fid_domain`: it opens everything that moves data.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use crate::abi::{self, fi_info, fi_ops_domain, fi_ops_mr, fid, fid_domain, fid_ep};
use crate::engine::Engine;
use crate::errors::{Answer, FI_EINVAL, only, status};
use crate::fabric::Fabric;
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::{atomics, av, cntr, cq, endpoint, eq, idle, info, mr, poll};

/// What we know of a domain.
#[derive(Debug)]
pub struct Domain {
    /// The channel.
    pub engine: Arc<Engine>,
    /// `FI_MR_BASIC`, `FI_MR_ENDPOINT` and the like.
    pub mr_mode: i32,
    /// What address vectors are unless they say it.
    pub av_type: u32,
    users: Users,
    _fabric: Hold,
}

static TABLE: abi::fi_ops = abi::fi_ops {
    size: size_of::<abi::fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(Refused::REFUSED),
    ops_open: Some(Refused::REFUSED),
    tostr: Some(Refused::REFUSED),
    ops_set: Some(Refused::REFUSED),
};
static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(Refused::REFUSED),
    cntr_open: Some(cntr::open),
    poll_open: Some(poll::open),
    stx_ctx: Some(Refused::REFUSED),
    srx_ctx: Some(Refused::REFUSED),
    query_atomic: Some(atomics::query),
    query_collective: Some(Refused::REFUSED),
    endpoint2: Some(open_endpoint_with_flags),
};
static MR_OPS: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(mr::reg),
    regv: Some(mr::regv),
    regattr: Some(mr::regattr),
};

impl Class for Domain {
    type Fid = fid_domain;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Domain {
    /// One more object that uses the domain.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.users.hold()
    }
}

/// `fi_domain`.
///
/// # Safety
/// `info` is NULL or readable, `out` is NULL or can be written.
pub unsafe fn open(
    fabric: &Fabric,
    info: *const fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> Answer<()> {
    // SAFETY: NULL or readable.
    let info = unsafe { info.as_ref() }.ok_or(FI_EINVAL)?;
    // SAFETY: NULL or readable.
    let attributes = unsafe { info.domain_attr.as_ref() }.copied().unwrap_or_default();
    // SAFETY: a name is NULL or a string.
    let named_so =
        attributes.name.is_null() || unsafe { CStr::from_ptr(attributes.name) } == info::NAME;
    if out.is_null() || !named_so {
        return Err(FI_EINVAL);
    }
    idle::configure()?;
    let domain = Domain {
        engine: Engine::get()?,
        mr_mode: attributes.mr_mode,
        av_type: attributes.av_type,
        users: Users::default(),
        _fabric: fabric.hold(),
    };
    let fid = fid_domain {
        fid: objects::head::<Domain>(abi::FI_CLASS_DOMAIN, context),
        ops: (&raw const OPS).cast_mut(),
        mr: (&raw const MR_OPS).cast_mut(),
    };
    // SAFETY: it is not NULL, and a place for the answer.
    unsafe { out.write(objects::publish(fid, domain)) };
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| {
        // SAFETY: as above.
        unsafe { objects::withdraw::<Domain>(fid, |domain| domain.users.none()) }.map(drop)?;
        Ok(())
    })
}

/// An event queue is taken, though a domain has no events. Registrations are over when their call returns (no `FI_REG_MR`).
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give open objects.
        unsafe {
            objects::state::<Domain, _>(fid)?;
            objects::state::<eq::Events, _>(other)?;
        }
        only(flags, 0)
    })
}

unsafe extern "C" fn open_endpoint_with_flags(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match only(flags, 0) {
        // SAFETY: the arguments are those of this call.
        Ok(()) => unsafe { endpoint::open(domain, info, out, context) },
        Err(error) => -error,
    }
}
