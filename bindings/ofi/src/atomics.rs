//! `struct fi_ops_atomic`: atomic operations on other ranks' memory.

use std::ffi::{c_int, c_void};

use crate::abi::{
    self, fi_addr_t, fi_atomic_attr, fi_datatype, fi_ioc, fi_msg_atomic, fi_op, fi_ops_atomic,
    fid_domain, fid_ep,
};
use crate::arguments;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::engine::{Atomic, AtomicKind, Engine, Remote};
use crate::errors::{Answer, FI_EINVAL, FI_EOPNOTSUPP, ensure, only, status, transfer};
use crate::info::SEND_FLAGS;
use crate::objects::{self, Refused};
use crate::operation::Pieces;

const FLAGS: u64 = SEND_FLAGS | abi::FI_MORE;

/// The calls.
pub static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};
/// For endpoints that were not opened for them.
pub static REFUSED: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(Refused::REFUSED),
    writev: Some(Refused::REFUSED),
    writemsg: Some(Refused::REFUSED),
    inject: Some(Refused::REFUSED),
    readwrite: Some(Refused::REFUSED),
    readwritev: Some(Refused::REFUSED),
    readwritemsg: Some(Refused::REFUSED),
    compwrite: Some(Refused::REFUSED),
    compwritev: Some(Refused::REFUSED),
    compwritemsg: Some(Refused::REFUSED),
    writevalid: Some(Refused::REFUSED),
    readwritevalid: Some(Refused::REFUSED),
    compwritevalid: Some(Refused::REFUSED),
};

/// What is done to elements of which type.
#[derive(Debug, Clone, Copy)]
struct What {
    kind: AtomicKind,
    datatype: fi_datatype,
    op: fi_op,
    /// Bytes of an element.
    size: usize,
    /// Elements of a call.
    most: usize,
}

impl What {
    fn new(kind: AtomicKind, datatype: fi_datatype, op: fi_op) -> Answer<What> {
        let (size, most) = Engine::atomic_count(datatype, op, kind).ok_or(FI_EOPNOTSUPP)?;
        Ok(What { kind, datatype, op, size, most })
    }

    /// So many elements there.
    fn one(self, buffer: *const c_void, count: usize) -> Answer<Pieces> {
        arguments::buffer(buffer, count.checked_mul(self.size).ok_or(FI_EINVAL)?)
    }

    /// # Safety
    /// `array` is NULL or has `count` entries.
    unsafe fn several(self, array: *const fi_ioc, count: usize) -> Answer<Pieces> {
        // SAFETY: as promised.
        unsafe { arguments::elements(array, count, self.size) }
    }

    /// What stands for the value that is written, which a read has not.
    fn operand(self, operand: impl FnOnce() -> Answer<Pieces>) -> Answer<Pieces> {
        if self.op == abi::FI_ATOMIC_READ { Ok(Pieces::default()) } else { operand() }
    }
}

/// The program's side of an operation.
#[derive(Debug, Clone, Copy, Default)]
struct Local {
    operand: Pieces,
    compare: Pieces,
    result: Pieces,
}

/// The peer's side.
struct There {
    peer: fi_addr_t,
    remote: Vec<Remote>,
}

impl There {
    /// As many bytes as the program's side has.
    fn one(peer: fi_addr_t, local: &Local, address: u64, key: u64) -> There {
        let length = local.operand.length().max(local.result.length()) as u64;
        There { peer, remote: vec![Remote { address, length, key }] }
    }
}

/// Begins it; without a context no queue is told.
fn begin(
    endpoint: &Endpoint,
    what: What,
    local: Local,
    there: There,
    context: Option<*mut c_void>,
    flags: u64,
) -> Answer<()> {
    let active = endpoint.active()?;
    let length = there
        .remote
        .iter()
        .try_fold(0_u64, |all, piece| all.checked_add(piece.length))
        .ok_or(FI_EINVAL)?;
    let most = what.most.saturating_mul(what.size) as u64;
    ensure(length > 0 && length <= most, FI_EINVAL)?;
    let fits =
        |pieces: Pieces, there: bool| pieces.length() as u64 == if there { length } else { 0 };
    ensure(fits(local.operand, what.op != abi::FI_ATOMIC_READ), FI_EINVAL)?;
    ensure(fits(local.compare, what.kind == AtomicKind::CompareAndSwap), FI_EINVAL)?;
    ensure(fits(local.result, what.kind != AtomicKind::Update), FI_EINVAL)?;
    let side = &active.transmit;
    let (counter, entry) = match what.kind {
        AtomicKind::Update => (side.writes.as_ref(), abi::FI_ATOMIC | abi::FI_WRITE),
        AtomicKind::Fetch | AtomicKind::CompareAndSwap => {
            (side.reads.as_ref(), abi::FI_ATOMIC | abi::FI_READ)
        }
    };
    let atomic = Atomic {
        operation: match context {
            Some(context) => side.operation(counter, context, entry, flags),
            None => side.silent(counter, entry),
        },
        kind: what.kind,
        peer: active.peer(there.peer)?,
        datatype: what.datatype,
        op: what.op,
        operand: local.operand,
        compare: local.compare,
        result: local.result,
        remote: there.remote,
    };
    endpoint.engine().atomic(active.number, atomic)
}

/// # Safety
/// `fid` is NULL or an open endpoint.
unsafe fn with(fid: *mut fid_ep, call: impl FnOnce(&Endpoint) -> Answer<()>) -> isize {
    // SAFETY: as promised.
    transfer(|| call(unsafe { objects::state::<Endpoint, _>(fid) }?))
}

unsafe extern "C" fn write(
    fid: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::Update, datatype, op)?;
            let local = Local { operand: what.one(buffer, count)?, ..Local::default() };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn writev(
    fid: *mut fid_ep,
    array: *const fi_ioc,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and an array of `count` entries.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::Update, datatype, op)?;
            let local = Local { operand: what.several(array, count)?, ..Local::default() };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

/// What a message says, but for results and what is compared.
///
/// # Safety
/// `message` is NULL or a message with the arrays that it tells of.
unsafe fn of_message(
    kind: AtomicKind,
    message: *const fi_msg_atomic,
) -> Answer<(What, Local, There, *mut c_void)> {
    // SAFETY: as promised.
    let message = unsafe { message.as_ref() }.ok_or(FI_EINVAL)?;
    let what = What::new(kind, message.datatype, message.op)?;
    // SAFETY: as promised.
    let operand = what.operand(|| unsafe { what.several(message.msg_iov, message.iov_count) })?;
    // SAFETY: as promised.
    let remote =
        unsafe { arguments::remote_elements(message.rma_iov, message.rma_iov_count, what.size) }?;
    let there = There { peer: message.addr, remote };
    Ok((what, Local { operand, ..Local::default() }, there, message.context))
}

unsafe extern "C" fn writemsg(
    fid: *mut fid_ep,
    message: *const fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY: programs give an open endpoint, and a message with the arrays that it tells of.
    unsafe {
        with(fid, |endpoint| {
            only(flags, FLAGS)?;
            let (what, local, there, context) = of_message(AtomicKind::Update, message)?;
            begin(endpoint, what, local, there, Some(context), flags)
        })
    }
}

unsafe extern "C" fn inject(
    fid: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::Update, datatype, op)?;
            let local = Local { operand: what.one(buffer, count)?, ..Local::default() };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, None, abi::FI_INJECT)
        })
    }
}

unsafe extern "C" fn readwrite(
    fid: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    result: *mut c_void,
    _result_descriptor: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::Fetch, datatype, op)?;
            let operand = what.operand(|| what.one(buffer, count))?;
            let local = Local { operand, result: what.one(result, count)?, ..Local::default() };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn readwritev(
    fid: *mut fid_ep,
    array: *const fi_ioc,
    _descriptors: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and arrays with as many entries as they say.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::Fetch, datatype, op)?;
            let operand = what.operand(|| what.several(array, count))?;
            let local =
                Local { operand, result: what.several(results, result_count)?, ..Local::default() };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn readwritemsg(
    fid: *mut fid_ep,
    message: *const fi_msg_atomic,
    results: *mut fi_ioc,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: programs give an open endpoint, a message and an array with as many entries as they say.
    unsafe {
        with(fid, |endpoint| {
            only(flags, FLAGS)?;
            let (what, local, there, context) = of_message(AtomicKind::Fetch, message)?;
            let local = Local { result: what.several(results, result_count)?, ..local };
            begin(endpoint, what, local, there, Some(context), flags)
        })
    }
}

unsafe extern "C" fn compwrite(
    fid: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    compare: *const c_void,
    _compare_descriptor: *mut c_void,
    result: *mut c_void,
    _result_descriptor: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::CompareAndSwap, datatype, op)?;
            let (operand, compare) = (what.one(buffer, count)?, what.one(compare, count)?);
            let local = Local { operand, compare, result: what.one(result, count)? };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn compwritev(
    fid: *mut fid_ep,
    array: *const fi_ioc,
    _descriptors: *mut *mut c_void,
    count: usize,
    compares: *const fi_ioc,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: programs give an open endpoint and arrays with as many entries as they say.
    unsafe {
        with(fid, |endpoint| {
            let what = What::new(AtomicKind::CompareAndSwap, datatype, op)?;
            let (operand, compare) =
                (what.several(array, count)?, what.several(compares, compare_count)?);
            let local = Local { operand, compare, result: what.several(results, result_count)? };
            let there = There::one(peer, &local, address, key);
            begin(endpoint, what, local, there, Some(context), endpoint.transmit_flags())
        })
    }
}

unsafe extern "C" fn compwritemsg(
    fid: *mut fid_ep,
    message: *const fi_msg_atomic,
    compares: *const fi_ioc,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: programs give an open endpoint, a message and arrays with as many entries as they say.
    unsafe {
        with(fid, |endpoint| {
            only(flags, FLAGS)?;
            let (what, local, there, context) = of_message(AtomicKind::CompareAndSwap, message)?;
            let compare = what.several(compares, compare_count)?;
            let local = Local { compare, result: what.several(results, result_count)?, ..local };
            begin(endpoint, what, local, there, Some(context), flags)
        })
    }
}

/// # Safety
/// `fid` is NULL or an open endpoint, `count` NULL or a place for the answer.
unsafe fn valid(
    fid: *mut fid_ep,
    kind: AtomicKind,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    status(|| {
        // SAFETY: as promised.
        unsafe { objects::state::<Endpoint, _>(fid) }?;
        ensure(!count.is_null(), FI_EINVAL)?;
        let what = What::new(kind, datatype, op)?;
        // SAFETY: it is not NULL.
        unsafe { count.write(what.most) };
        Ok(())
    })
}

unsafe extern "C" fn writevalid(
    fid: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are those of this call.
    unsafe { valid(fid, AtomicKind::Update, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    fid: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are those of this call.
    unsafe { valid(fid, AtomicKind::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    fid: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are those of this call.
    unsafe { valid(fid, AtomicKind::CompareAndSwap, datatype, op, count) }
}

/// `fi_query_atomic`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn query(
    domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    out: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain.
        unsafe { objects::state::<Domain, _>(domain) }?;
        ensure(!out.is_null(), FI_EINVAL)?;
        only(flags, abi::FI_FETCH_ATOMIC | abi::FI_COMPARE_ATOMIC)?;
        let kind = match flags {
            0 => AtomicKind::Update,
            abi::FI_FETCH_ATOMIC => AtomicKind::Fetch,
            abi::FI_COMPARE_ATOMIC => AtomicKind::CompareAndSwap,
            _ => return Err(FI_EINVAL),
        };
        let what = What::new(kind, datatype, op)?;
        // SAFETY: it is not NULL, and the program's structure.
        unsafe { out.write(fi_atomic_attr { count: what.most, size: what.size }) };
        Ok(())
    })
}
