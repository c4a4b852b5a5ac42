//! What the provider offers to what a program asks for (`fi_getinfo`), as a pure function.

use crate::abi::{self, *};
use crate::engine::Engine;
use crate::errors::{Answer, FI_ENODATA, ensure};
use crate::operation::MOST_PIECES;

/// Name of the fabric and of its only domain.
pub const NAME: &std::ffi::CStr = c"kumi";
/// Number of the wire protocol, for `ep_attr.protocol`: of those that the header leaves to providers.
pub const PROTOCOL: u32 = 1 << 31 | 0x4b55;
/// All tag bits are the program's (`FI_TAG_GENERIC`).
pub const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Bytes of a message.
pub const MOST_BYTES: usize = 1 << 40;
/// Reads and writes up to here are applied in the order of their calls.
pub const ORDERED_BYTES: usize = 8192;
/// Entries of queues that programs are told, if they do not ask.
pub const QUEUE_SIZE: usize = 1024;
const MOST_QUEUE_SIZE: usize = 1 << 20;
const MOST_OBJECTS: usize = 1 << 15;

/// Bytes of a message that is copied by the call.
pub const INJECT_BYTES: usize = Engine::INJECT_BYTES;

const KINDS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const OF_MESSAGES: u64 = FI_SEND | FI_RECV;
const OF_MEMORY: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const OF_DOMAIN: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Given also where nobody asks, because they cost nothing.
const EXTRAS: u64 = FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT | OF_DOMAIN;
/// All capabilities.
pub const CAPS: u64 = KINDS | OF_MESSAGES | OF_MEMORY | EXTRAS | FI_DIRECTED_RECV;
const RECEIVER_ONLY: u64 = FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_RMA_EVENT
    | FI_DIRECTED_RECV;
const SENDER_ONLY: u64 = FI_SEND | FI_READ | FI_WRITE;

/// Reads after writes, writes after reads and writes: up to [`ORDERED_BYTES`]. Messages, and what comes after them, always.
/// Others are not offered: a large read or write may still go on when what follows it is applied.
pub const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_RAS
    | FI_ORDER_WAS
    | FI_ORDER_RAW
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// Defaults that an endpoint may have for its sends.
pub const SEND_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
/// Defaults that an endpoint may have for its receives.
pub const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// What a program asks for. Pointers in the attributes are not followed: what matters of them is beside them.
#[derive(Clone, Default)]
pub struct Hints {
    /// Capabilities; 0: any.
    pub caps: u64,
    /// `FI_SOCKADDR_IN` and the like.
    pub addr_format: u32,
    /// Of sends.
    pub tx: Option<fi_tx_attr>,
    /// Of receives.
    pub rx: Option<fi_rx_attr>,
    /// Of the endpoint.
    pub ep: Option<fi_ep_attr>,
    /// Of the domain.
    pub domain: Option<fi_domain_attr>,
    /// Whether the names of domain and fabric, if any is given, are ours.
    pub named_so: bool,
}

/// What the program gets. Names and addresses are added by the caller.
#[derive(Clone)]
pub struct Offer {
    /// Capabilities.
    pub caps: u64,
    /// Of sends.
    pub tx: fi_tx_attr,
    /// Of receives.
    pub rx: fi_rx_attr,
    /// Of the endpoint.
    pub ep: fi_ep_attr,
    /// Of the domain.
    pub domain: fi_domain_attr,
}

/// The offer for a program that was written for `version` of libfabric.
///
/// # Errors
/// `FI_ENODATA` if the provider cannot do what is asked.
pub fn offer(version: u32, hints: Option<&Hints>) -> Answer<Offer> {
    let any = Hints { named_so: true, ..Hints::default() };
    let hints = hints.unwrap_or(&any);
    ensure(hints.named_so, FI_ENODATA)?;
    ensure(
        [FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN].contains(&hints.addr_format),
        FI_ENODATA,
    )?;
    let caps = capabilities(hints.caps)?;
    Ok(Offer {
        caps,
        tx: sends(caps, &hints.tx.unwrap_or_default())?,
        rx: receives(caps, &hints.rx.unwrap_or_default())?,
        ep: endpoint(&hints.ep.unwrap_or_default())?,
        domain: domain(version, &hints.domain.unwrap_or_default())?,
    })
}

fn capabilities(asked: u64) -> Answer<u64> {
    within(asked, CAPS)?;
    if asked == 0 {
        return Ok(CAPS);
    }
    let kinds = if asked & KINDS == 0 { KINDS } else { asked & KINDS };
    // A kind without a direction means both.
    let directions = |kind: u64, all: u64| match (kinds & kind, asked & all) {
        (0, asked) => asked,
        (_, 0) => all,
        (_, asked) => asked,
    };
    let messages = directions(FI_MSG | FI_TAGGED, OF_MESSAGES);
    let memory = directions(FI_RMA | FI_ATOMIC, OF_MEMORY);
    Ok(kinds | messages | memory | EXTRAS | asked & FI_DIRECTED_RECV)
}

fn within(asked: u64, offered: u64) -> Answer<()> {
    ensure(asked & !offered == 0, FI_ENODATA)
}

fn at_most(asked: usize, most: usize) -> Answer<()> {
    ensure(asked <= most, FI_ENODATA)
}

fn side_caps(asked: u64, caps: u64, others: u64) -> Answer<u64> {
    within(asked, CAPS)?;
    let offered = caps & !others & !OF_DOMAIN;
    Ok(if asked == 0 { offered } else { offered & asked })
}

fn queue_size(asked: usize) -> Answer<usize> {
    at_most(asked, MOST_QUEUE_SIZE)?;
    Ok(if asked == 0 { QUEUE_SIZE } else { asked })
}

fn sends(caps: u64, asked: &fi_tx_attr) -> Answer<fi_tx_attr> {
    within(asked.op_flags, SEND_FLAGS)?;
    within(asked.msg_order, ORDER)?;
    within(asked.comp_order, FI_ORDER_NONE)?;
    at_most(asked.inject_size, INJECT_BYTES)?;
    at_most(asked.iov_limit, MOST_PIECES)?;
    at_most(asked.rma_iov_limit, MOST_PIECES)?;
    Ok(fi_tx_attr {
        caps: side_caps(asked.caps, caps, RECEIVER_ONLY)?,
        mode: 0,
        op_flags: asked.op_flags,
        msg_order: ORDER,
        comp_order: FI_ORDER_NONE,
        inject_size: INJECT_BYTES,
        size: queue_size(asked.size)?,
        iov_limit: MOST_PIECES,
        rma_iov_limit: MOST_PIECES,
        tclass: asked.tclass,
    })
}

fn receives(caps: u64, asked: &fi_rx_attr) -> Answer<fi_rx_attr> {
    within(asked.op_flags, RECEIVE_FLAGS)?;
    within(asked.msg_order, ORDER)?;
    within(asked.comp_order, FI_ORDER_NONE)?;
    at_most(asked.iov_limit, MOST_PIECES)?;
    Ok(fi_rx_attr {
        caps: side_caps(asked.caps, caps, SENDER_ONLY)?,
        mode: 0,
        op_flags: asked.op_flags,
        msg_order: ORDER,
        comp_order: FI_ORDER_NONE,
        total_buffered_recv: 0,
        size: queue_size(asked.size)?,
        iov_limit: MOST_PIECES,
    })
}

fn endpoint(asked: &fi_ep_attr) -> Answer<fi_ep_attr> {
    ensure([FI_EP_UNSPEC, FI_EP_RDM].contains(&asked.type_), FI_ENODATA)?;
    ensure([FI_PROTO_UNSPEC, PROTOCOL].contains(&asked.protocol), FI_ENODATA)?;
    ensure(asked.protocol == FI_PROTO_UNSPEC || asked.protocol_version <= 1, FI_ENODATA)?;
    at_most(asked.max_msg_size, MOST_BYTES)?;
    for ordered in [asked.max_order_raw_size, asked.max_order_war_size, asked.max_order_waw_size] {
        at_most(ordered, ORDERED_BYTES)?;
    }
    at_most(asked.tx_ctx_cnt, 1)?;
    at_most(asked.rx_ctx_cnt, 1)?;
    at_most(asked.auth_key_size, 0)?;
    Ok(fi_ep_attr {
        type_: FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: 1,
        max_msg_size: MOST_BYTES,
        max_order_raw_size: ORDERED_BYTES,
        max_order_war_size: ORDERED_BYTES,
        max_order_waw_size: ORDERED_BYTES,
        mem_tag_format: if asked.mem_tag_format == 0 { TAG_FORMAT } else { asked.mem_tag_format },
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        ..fi_ep_attr::default()
    })
}

/// What is asked, or `usual` for 0.
fn choice(asked: u32, usual: u32, last: u32) -> Answer<u32> {
    ensure(asked <= last, FI_ENODATA)?;
    Ok(if asked == 0 { usual } else { asked })
}

fn domain(version: u32, asked: &fi_domain_attr) -> Answer<fi_domain_attr> {
    within(asked.caps, OF_DOMAIN)?;
    at_most(asked.mr_key_size, size_of::<u64>())?;
    at_most(asked.cq_data_size, size_of::<u64>())?;
    at_most(asked.mr_iov_limit, MOST_PIECES)?;
    at_most(asked.auth_key_size, 0)?;
    at_most(asked.max_ep_tx_ctx.max(asked.max_ep_rx_ctx), 1)?;
    at_most(asked.max_ep_stx_ctx.max(asked.max_ep_srx_ctx), 0)?;
    for objects in [asked.cq_cnt, asked.ep_cnt, asked.tx_ctx_cnt, asked.rx_ctx_cnt, asked.cntr_cnt]
    {
        at_most(objects, MOST_OBJECTS)?;
    }
    // Newer versions have a third way of progress beside FI_PROGRESS_MANUAL, for control only.
    let progress = FI_PROGRESS_MANUAL + 1;
    Ok(fi_domain_attr {
        threading: choice(asked.threading, FI_THREAD_SAFE, FI_THREAD_ENDPOINT)?,
        control_progress: choice(asked.control_progress, FI_PROGRESS_AUTO, progress)?,
        data_progress: choice(asked.data_progress, FI_PROGRESS_AUTO, progress)?,
        resource_mgmt: choice(asked.resource_mgmt, FI_RM_ENABLED, FI_RM_ENABLED)?,
        av_type: choice(asked.av_type, FI_AV_TABLE, FI_AV_TABLE)?,
        mr_mode: registration_mode(version, asked.mr_mode),
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: MOST_OBJECTS,
        ep_cnt: MOST_OBJECTS,
        tx_ctx_cnt: MOST_OBJECTS,
        rx_ctx_cnt: MOST_OBJECTS,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        cntr_cnt: MOST_OBJECTS,
        mr_iov_limit: MOST_PIECES,
        caps: OF_DOMAIN,
        mr_cnt: 1 << 20,
        tclass: asked.tclass,
        ..fi_domain_attr::default()
    })
}

/// Nothing is needed, so programs get what they know: the ways of old, or that regions are bound to endpoints.
fn registration_mode(version: u32, asked: i32) -> i32 {
    const BASIC: i32 = abi::FI_MR_BASIC as i32;
    const SCALABLE: i32 = abi::FI_MR_SCALABLE as i32;
    if asked & BASIC != 0 {
        BASIC
    } else if asked & SCALABLE != 0 || version < abi::version(1, 5) {
        SCALABLE
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
