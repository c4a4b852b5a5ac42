//! `struct fi_ops_rma`: reads and writes of other ranks' memory.

use std::ffi::c_void;

use crate::abi::{self, fi_addr_t, fi_msg_rma, fi_ops_rma, fid_ep, iovec};
use crate::arguments;
use crate::endpoint::Endpoint;
use crate::engine::{Direction, Remote, Transfer};
use crate::errors::{Answer, FI_EINVAL, FI_EMSGSIZE, ensure, only, transfer};
use crate::info::{INJECT_BYTES, SEND_FLAGS};
use crate::messages::OUTGOING_FLAGS;
use crate::objects::{self, Refused};
use crate::operation::Pieces;

const READ_FLAGS: u64 = SEND_FLAGS & !abi::FI_INJECT | abi::FI_MORE;

/// The calls.
pub static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};
/// For endpoints that were not opened for them.
pub static REFUSED: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(Refused::REFUSED),
    readv: Some(Refused::REFUSED),
    readmsg: Some(Refused::REFUSED),
    write: Some(Refused::REFUSED),
    writev: Some(Refused::REFUSED),
    writemsg: Some(Refused::REFUSED),
    inject: Some(Refused::REFUSED),
    writedata: Some(Refused::REFUSED),
    injectdata: Some(Refused::REFUSED),
};

/// A read or write of a program.
struct Access {
    direction: Direction,
    local: Pieces,
    peer: fi_addr_t,
    remote: Vec<Remote>,
    immediate: Option<u64>,
}

impl Access {
    /// To or from one piece of the peer's memory.
    fn of_one(
        direction: Direction,
        local: Pieces,
        peer: fi_addr_t,
        address: u64,
        key: u64,
    ) -> Access {
        let remote = vec![Remote { address, length: local.length() as u64, key }];
        Access { direction, local, peer, remote, immediate: None }
    }

    /// Begins it; without a context no queue is told.
    fn begin(self, endpoint: &Endpoint, context: Option<*mut c_void>, flags: u64) -> Answer<()> {
        let active = endpoint.active()?;
        let inject = self.direction == Direction::Write
            && (flags & abi::FI_INJECT != 0 || context.is_none());
        ensure(!inject || self.local.length() <= INJECT_BYTES, FI_EMSGSIZE)?;
        let there = self.remote.iter().try_fold(0_u64, |all, piece| all.checked_add(piece.length));
        ensure(there == Some(self.local.length() as u64), FI_EINVAL)?;
        let side = &active.transmit;
        let (counter, entry) = match self.direction {
            Direction::Read => (side.reads.as_ref(), abi::FI_RMA | abi::FI_READ),
            Direction::Write => (side.writes.as_ref(), abi::FI_RMA | abi::FI_WRITE),
        };
        let transfer = Transfer {
            operation: match context {
                Some(context) => side.operation(counter, context, entry, flags),
                None => side.silent(counter, entry),
            },
            direction: self.direction,
            peer: active.peer(self.peer)?,
            local: self.local,
            remote: self.remote,
            inject,
            immediate: self.immediate,
        };
        endpoint.engine().transfer(active.number, transfer)
    }
}

/// # Safety
/// `fid` is NULL or an open endpoint.
unsafe fn with(fid: *mut fid_ep, call: impl FnOnce(&Endpoint) -> Answer<()>) -> isize {
    // SAFETY: as promised.
    transfer(|| call(unsafe { objects::state::<Endpoint, _>(fid) }?))
}

unsafe extern "C" fn read(
    fid: *mut fid_ep,
    buffer: *mut c_void,
    size: usize,
    _descriptor: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffer(buffer, size)?;
            let access = Access::of_one(Direction::Read, local, peer, address, key);
            access.begin(endpoint, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn readv(
    fid: *mut fid_ep,
    array: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffers(array, count)?;
            let access = Access::of_one(Direction::Read, local, peer, address, key);
            access.begin(endpoint, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn readmsg(fid: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, READ_FLAGS)?;
            message_access(Direction::Read, message, None)?.begin(
                endpoint,
                Some((*message).context),
                flags,
            )
        })
    }
}

/// # Safety
/// `message` is NULL or a message with the arrays that it tells of.
unsafe fn message_access(
    direction: Direction,
    message: *const fi_msg_rma,
    immediate: Option<u64>,
) -> Answer<Access> {
    // SAFETY: as promised.
    let message = unsafe { message.as_ref() }.ok_or(FI_EINVAL)?;
    // SAFETY: as promised.
    let local = unsafe { arguments::buffers(message.msg_iov, message.iov_count) }?;
    // SAFETY: as promised.
    let remote = unsafe { arguments::remote(message.rma_iov, message.rma_iov_count) }?;
    Ok(Access { direction, local, peer: message.addr, remote, immediate })
}

unsafe extern "C" fn write(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    _descriptor: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffer(buffer, size)?;
            let access = Access::of_one(Direction::Write, local, peer, address, key);
            access.begin(endpoint, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn writev(
    fid: *mut fid_ep,
    array: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffers(array, count)?;
            let access = Access::of_one(Direction::Write, local, peer, address, key);
            access.begin(endpoint, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn writemsg(fid: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, OUTGOING_FLAGS)?;
            let whole = message.as_ref().ok_or(FI_EINVAL)?;
            let immediate = (flags & abi::FI_REMOTE_CQ_DATA != 0).then_some(whole.data);
            message_access(Direction::Write, message, immediate)?.begin(
                endpoint,
                Some(whole.context),
                flags,
            )
        })
    }
}

unsafe extern "C" fn inject(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffer(buffer, size)?;
            Access::of_one(Direction::Write, local, peer, address, key).begin(endpoint, None, 0)
        })
    }
}

unsafe extern "C" fn writedata(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    _descriptor: *mut c_void,
    immediate: u64,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffer(buffer, size)?;
            let access = Access::of_one(Direction::Write, local, peer, address, key);
            let access = Access { immediate: Some(immediate), ..access };
            access.begin(endpoint, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn injectdata(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    immediate: u64,
    peer: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let local = arguments::buffer(buffer, size)?;
            let access = Access::of_one(Direction::Write, local, peer, address, key);
            Access { immediate: Some(immediate), ..access }.begin(endpoint, None, 0)
        })
    }
}
