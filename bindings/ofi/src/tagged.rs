//! `struct fi_ops_tagged`: messages with tags, by which MPI's messages go.

use std::ffi::c_void;

use crate::abi::{self, fi_addr_t, fi_msg_tagged, fi_ops_tagged, fid_ep, iovec};
use crate::arguments;
use crate::endpoint::Endpoint;
use crate::engine::PeekAction;
use crate::errors::{Answer, FI_EBADFLAGS, FI_EINVAL, only, transfer};
use crate::messages::{OUTGOING_FLAGS, Outgoing, incoming};
use crate::objects::{self, Refused};
use crate::operation::Pieces;

const SEARCH: u64 = abi::FI_PEEK | abi::FI_CLAIM | abi::FI_DISCARD;

/// The calls.
pub static OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
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
pub static REFUSED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
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

/// Which messages a receive takes, and whose word it has.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
}

/// What a receive with flags does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Post,
    Peek(PeekAction),
    Claimed { discard: bool },
}

fn way(flags: u64) -> Answer<Way> {
    only(flags, SEARCH | abi::FI_COMPLETION | abi::FI_MORE)?;
    const CLAIM_AND_DISCARD: u64 = abi::FI_CLAIM | abi::FI_DISCARD;
    const PEEK_AND_CLAIM: u64 = abi::FI_PEEK | abi::FI_CLAIM;
    const PEEK_AND_DISCARD: u64 = abi::FI_PEEK | abi::FI_DISCARD;
    match flags & SEARCH {
        0 => Ok(Way::Post),
        abi::FI_PEEK => Ok(Way::Peek(PeekAction::Peek)),
        PEEK_AND_CLAIM => Ok(Way::Peek(PeekAction::Claim)),
        PEEK_AND_DISCARD => Ok(Way::Peek(PeekAction::Discard)),
        abi::FI_CLAIM => Ok(Way::Claimed { discard: false }),
        CLAIM_AND_DISCARD => Ok(Way::Claimed { discard: true }),
        _ => Err(FI_EBADFLAGS),
    }
}

fn receive(
    endpoint: &Endpoint,
    buffer: Pieces,
    wanted: Wanted,
    flags: u64,
    way: Way,
) -> Answer<()> {
    let tag = Some((wanted.tag, wanted.ignore));
    let receive = incoming(endpoint, buffer, wanted.from, tag, wanted.context, flags)?;
    let number = endpoint.active()?.number;
    match way {
        Way::Post => endpoint.engine().receive(number, receive),
        Way::Peek(action) => endpoint.engine().peek(number, receive, action),
        Way::Claimed { discard } => endpoint.engine().receive_claimed(number, receive, discard),
    }
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
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let buffer = arguments::buffer(buffer, size)?;
            receive(
                endpoint,
                buffer,
                Wanted { from, tag, ignore, context },
                endpoint.receive_flags(),
                Way::Post,
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
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let buffers = arguments::buffers(array, count)?;
            receive(
                endpoint,
                buffers,
                Wanted { from, tag, ignore, context },
                endpoint.receive_flags(),
                Way::Post,
            )
        })
    }
}

unsafe extern "C" fn recvmsg(fid: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            let way = way(flags)?;
            let message = message.as_ref().ok_or(FI_EINVAL)?;
            // Who only looks need not give a buffer, and what it holds then is of no matter.
            let buffers = match way {
                Way::Peek(_) | Way::Claimed { discard: true } => Pieces::default(),
                _ => arguments::buffers(message.msg_iov, message.iov_count)?,
            };
            let (from, context) = (message.addr, message.context);
            receive(
                endpoint,
                buffers,
                Wanted { from, tag: message.tag, ignore: message.ignore, context },
                flags,
                way,
            )
        })
    }
}

unsafe extern "C" fn send(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: Some(tag), immediate: None }.send(
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffers(array, count)?;
            Outgoing { data, to, tag: Some(tag), immediate: None }.send(
                endpoint,
                context,
                endpoint.transmit_flags(),
            )
        })
    }
}

unsafe extern "C" fn sendmsg(fid: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, OUTGOING_FLAGS)?;
            let message = message.as_ref().ok_or(FI_EINVAL)?;
            let data = arguments::buffers(message.msg_iov, message.iov_count)?;
            let immediate = (flags & abi::FI_REMOTE_CQ_DATA != 0).then_some(message.data);
            let outgoing = Outgoing { data, to: message.addr, tag: Some(message.tag), immediate };
            outgoing.send(endpoint, message.context, flags)
        })
    }
}

unsafe extern "C" fn inject(
    fid: *mut fid_ep,
    buffer: *const c_void,
    size: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: Some(tag), immediate: None }.inject(endpoint)
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            let message = Outgoing { data, to, tag: Some(tag), immediate: Some(immediate) };
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
    tag: u64,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let data = arguments::buffer(buffer, size)?;
            Outgoing { data, to, tag: Some(tag), immediate: Some(immediate) }.inject(endpoint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_a_receive_does() {
        let (peek, claim, discard) = (abi::FI_PEEK, abi::FI_CLAIM, abi::FI_DISCARD);
        assert_eq!(way(abi::FI_COMPLETION), Ok(Way::Post));
        assert_eq!(way(peek | abi::FI_COMPLETION), Ok(Way::Peek(PeekAction::Peek)));
        assert_eq!(way(peek | claim), Ok(Way::Peek(PeekAction::Claim)));
        assert_eq!(way(peek | discard), Ok(Way::Peek(PeekAction::Discard)));
        assert_eq!(way(claim), Ok(Way::Claimed { discard: false }));
        assert_eq!(way(claim | discard), Ok(Way::Claimed { discard: true }));
        for wrong in [discard, peek | claim | discard, abi::FI_MULTI_RECV, abi::FI_INJECT] {
            assert_eq!(way(wrong), Err(FI_EBADFLAGS), "{wrong:x}");
        }
    }
}
