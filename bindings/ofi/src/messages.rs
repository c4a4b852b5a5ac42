//! `struct fi_ops_msg`: messages without tags; and what tagged ones have in common with them.

use std::ffi::c_void;

use crate::abi::{self, fi_addr_t, fi_msg, fi_ops_msg, fid_ep, iovec};
use crate::arguments;
use crate::endpoint::Endpoint;
use crate::engine::{End, Receive, Send};
use crate::errors::{Answer, FI_EINVAL, FI_EMSGSIZE, ensure, only, transfer};
use crate::info::{INJECT_BYTES, RECEIVE_FLAGS, SEND_FLAGS};
use crate::objects::{self, Refused};
use crate::operation::Pieces;

/// Flags of a call that sends.
pub const OUTGOING_FLAGS: u64 = SEND_FLAGS | abi::FI_REMOTE_CQ_DATA | abi::FI_MORE;
const DELIVERED: u64 = abi::FI_DELIVERY_COMPLETE | abi::FI_MATCH_COMPLETE;

/// The calls.
pub static OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};
/// For endpoints that were not opened for them.
pub static REFUSED: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(Refused::REFUSED),
    recvv: Some(Refused::REFUSED),
    recvmsg: Some(Refused::REFUSED),
    send: Some(Refused::REFUSED),
    sendv: Some(Refused::REFUSED),
    sendmsg: Some(Refused::REFUSED),
    inject: Some(Refused::REFUSED),
    senddata: Some(Refused::REFUSED),
    injectdata: Some(Refused::REFUSED),
};

/// What a program sends.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    /// Its words.
    pub data: Pieces,
    /// `fi_addr_t` of the receiver.
    pub to: fi_addr_t,
    /// None: without a tag.
    pub tag: Option<u64>,
    /// For the receiver's queue.
    pub immediate: Option<u64>,
}

impl Outgoing {
    fn entry(&self) -> u64 {
        abi::FI_SEND | if self.tag.is_some() { abi::FI_TAGGED } else { abi::FI_MSG }
    }

    /// Sends it with these flags.
    ///
    /// # Errors
    /// The channel's; `FI_EMSGSIZE` for too many bytes to inject.
    pub fn send(self, endpoint: &Endpoint, context: *mut c_void, flags: u64) -> Answer<()> {
        let active = endpoint.active()?;
        let inject = flags & abi::FI_INJECT != 0;
        ensure(!inject || self.data.length() <= INJECT_BYTES, FI_EMSGSIZE)?;
        let send = Send {
            to: active.peer(self.to)?,
            operation: active.transmit.operation(
                active.transmit.messages.as_ref(),
                context,
                self.entry(),
                flags,
            ),
            data: self.data,
            inject,
            tag: self.tag,
            immediate: self.immediate,
            end: if flags & DELIVERED == 0 { End::Sent } else { End::Delivered },
        };
        endpoint.engine().send(active.number, send)
    }

    /// Sends a copy; no queue is told.
    ///
    /// # Errors
    /// As [`Outgoing::send`].
    pub fn inject(self, endpoint: &Endpoint) -> Answer<()> {
        let active = endpoint.active()?;
        ensure(self.data.length() <= INJECT_BYTES, FI_EMSGSIZE)?;
        let send = Send {
            to: active.peer(self.to)?,
            operation: active.transmit.silent(active.transmit.messages.as_ref(), self.entry()),
            data: self.data,
            inject: true,
            tag: self.tag,
            immediate: self.immediate,
            end: End::Sent,
        };
        endpoint.engine().send(active.number, send)
    }
}

/// The channel's receive for a program's: from whom, which tag and bits that do not count, with these flags.
///
/// # Errors
/// `FI_EINVAL` for an unknown sender; `FI_EOPBADSTATE`.
pub fn incoming(
    endpoint: &Endpoint,
    buffer: Pieces,
    from: fi_addr_t,
    tag: Option<(u64, u64)>,
    context: *mut c_void,
    flags: u64,
) -> Answer<Receive> {
    let active = endpoint.active()?;
    let entry = abi::FI_RECV | if tag.is_some() { abi::FI_TAGGED } else { abi::FI_MSG };
    let several = tag.is_none() && flags & abi::FI_MULTI_RECV != 0;
    ensure(!several || buffer.as_slice().len() == 1, FI_EINVAL)?;
    Ok(Receive {
        operation: active.receive.operation(
            active.receive.messages.as_ref(),
            context,
            entry,
            flags,
        ),
        buffer,
        source: endpoint.source(active, from)?,
        tag,
        several: several.then(|| endpoint.least_left()),
    })
}

fn receive(
    endpoint: &Endpoint,
    buffer: Pieces,
    from: fi_addr_t,
    context: *mut c_void,
    flags: u64,
) -> Answer<()> {
    let receive = incoming(endpoint, buffer, from, None, context, flags)?;
    endpoint.engine().receive(endpoint.active()?.number, receive)
}

/// # Safety
/// `fid` is NULL or an open endpoint.
unsafe fn with(fid: *mut fid_ep, call: impl FnOnce(&Endpoint) -> Answer<()>) -> isize {
    // SAFETY: as promised.
    transfer(|| call(unsafe { objects::state::<Endpoint, _>(fid) }?))
}

unsafe extern "C" fn recv(
    fid: *mut fid_ep,
    buffer: *mut c_void,
    size: usize,
    _descriptor: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            receive(
                endpoint,
                arguments::buffer(buffer, size)?,
                from,
                context,
                endpoint.receive_flags(),
            )
        })
    }
}

unsafe extern "C" fn recvv(
    fid: *mut fid_ep,
    array: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            receive(
                endpoint,
                arguments::buffers(array, count)?,
                from,
                context,
                endpoint.receive_flags(),
            )
        })
    }
}

unsafe extern "C" fn recvmsg(fid: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, RECEIVE_FLAGS | abi::FI_MORE)?;
            let message = message.as_ref().ok_or(FI_EINVAL)?;
            let buffers = arguments::buffers(message.msg_iov, message.iov_count)?;
            receive(endpoint, buffers, message.addr, message.context, flags)
        })
    }
}

unsafe extern "C" fn send(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: None, immediate: None }.send(
                endpoint,
                context,
                endpoint.transmit_flags(),
            )
        })
    }
}

unsafe extern "C" fn sendv(
    fid: *mut fid_ep,
    array: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffers(array, count)?;
            Outgoing { data, to, tag: None, immediate: None }.send(
                endpoint,
                context,
                endpoint.transmit_flags(),
            )
        })
    }
}

unsafe extern "C" fn sendmsg(fid: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, OUTGOING_FLAGS)?;
            let message = message.as_ref().ok_or(FI_EINVAL)?;
            let data = arguments::buffers(message.msg_iov, message.iov_count)?;
            let immediate = (flags & abi::FI_REMOTE_CQ_DATA != 0).then_some(message.data);
            Outgoing { data, to: message.addr, tag: None, immediate }.send(
                endpoint,
                message.context,
                flags,
            )
        })
    }
}

unsafe extern "C" fn inject(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    to: fi_addr_t,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: None, immediate: None }.inject(endpoint)
        })
    }
}

unsafe extern "C" fn senddata(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    _descriptor: *mut c_void,
    immediate: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            let message = Outgoing { data, to, tag: None, immediate: Some(immediate) };
            message.send(endpoint, context, endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn injectdata(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    immediate: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: None, immediate: Some(immediate) }.inject(endpoint)
        })
    }
}
