//! `struct fid_eq`: event queues.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::abi::{
    self, fi_eq_attr, fi_eq_entry, fi_eq_err_entry, fi_ops_eq, fi_wait_obj, fid, fid_eq, fid_fabric,
};
use crate::engine::Engine;
use crate::errors::{Answer, FI_EAGAIN, FI_EINVAL, FI_ENOSYS, ensure, length, only, status};
use crate::event_queue::{Event, EventQueue};
use crate::fabric::Fabric;
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::{texts, waits};

/// Bytes of an event that a program may write.
const MOST_BYTES: usize = 1 << 16;

/// What we know of an event queue.
#[derive(Debug)]
pub struct Events {
    queue: Arc<EventQueue>,
    wait: fi_wait_obj,
    writable: bool,
    users: Users,
    _fabric: Hold,
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
static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

impl Class for Events {
    type Fid = fid_eq;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Events {
    /// The events.
    #[must_use]
    pub fn queue(&self) -> &EventQueue {
        &self.queue
    }

    /// The events, and a user of the queue.
    #[must_use]
    pub fn share(&self) -> (Arc<EventQueue>, Hold) {
        (Arc::clone(&self.queue), self.users.hold())
    }

    /// The event that something of the object `fid` is over: a `struct fi_eq_entry`.
    #[must_use]
    pub fn completion(event: u32, fid: usize, context: usize, data: u64) -> Event {
        let words = [fid as u64, context as u64, data];
        const { assert!(size_of::<fi_eq_entry>() == 24, "three words of 64 bits") };
        Event::Success(event, words.into_iter().flat_map(u64::to_ne_bytes).collect())
    }
}

/// `fi_eq_open`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attributes: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open fabric, and attributes that are NULL or can be read.
        let (fabric, asked) = unsafe {
            (objects::state::<Fabric, _>(fabric)?, attributes.as_ref().ok_or(FI_EINVAL)?)
        };
        ensure(!out.is_null(), FI_EINVAL)?;
        only(asked.flags, abi::FI_WRITE | abi::FI_AFFINITY)?;
        let events = Events {
            queue: Arc::new(EventQueue::new(waits::has_descriptor(asked.wait_obj)?)?),
            wait: asked.wait_obj,
            writable: asked.flags & abi::FI_WRITE != 0,
            users: Users::default(),
            _fabric: fabric.hold(),
        };
        let fid = fid_eq {
            fid: objects::head::<Events>(abi::FI_CLASS_EQ, context),
            ops: (&raw const OPS).cast_mut(),
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid, events)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Events>(fid, |events| events.users.none()) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: programs give an open queue.
        let events = unsafe { objects::state::<Events, _>(fid) }?;
        // SAFETY: the argument is what libfabric says for the command.
        unsafe { waits::control(command, argument, events.wait, events.queue.descriptor()) }
    })
}

/// # Safety
/// `fid` is NULL or an open queue, `event` NULL or a place, `buffer` has `room` bytes.
unsafe fn take(
    fid: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    room: usize,
    flags: u64,
) -> Answer<usize> {
    // SAFETY: as promised.
    let events = unsafe { objects::state::<Events, _>(fid) }?;
    only(flags, abi::FI_PEEK)?;
    ensure(!event.is_null() && (room == 0 || !buffer.is_null()), FI_EINVAL)?;
    let (number, bytes) = events.queue.read(room, flags & abi::FI_PEEK != 0)?;
    // SAFETY: it is not NULL, and the bytes are no more than there is room for.
    unsafe {
        event.write(number);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>(), bytes.len());
    }
    Ok(bytes.len())
}

unsafe extern "C" fn read(
    fid: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    room: usize,
    flags: u64,
) -> isize {
    // SAFETY: programs give what `take` asks for.
    length(|| unsafe { take(fid, event, buffer, room, flags) })
}

unsafe extern "C" fn sread(
    fid: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    room: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    length(|| {
        // SAFETY: programs give an open queue.
        let events = unsafe { objects::state::<Events, _>(fid) }?;
        ensure(events.wait != abi::FI_WAIT_NONE, FI_ENOSYS)?;
        let engine = Engine::get()?;
        if !waits::until(&engine, timeout, || !events.queue.is_empty())? {
            return Err(FI_EAGAIN);
        }
        // SAFETY: programs give what `take` asks for.
        unsafe { take(fid, event, buffer, room, flags) }
    })
}

unsafe extern "C" fn readerr(fid: *mut fid_eq, out: *mut fi_eq_err_entry, flags: u64) -> isize {
    length(|| {
        // SAFETY: programs give an open queue.
        let events = unsafe { objects::state::<Events, _>(fid) }?;
        only(flags, abi::FI_PEEK)?;
        ensure(!out.is_null(), FI_EINVAL)?;
        let failure = events.queue.read_failure(flags & abi::FI_PEEK != 0)?;
        // SAFETY: it is not NULL, and the program's structure. A buffer for more about the error is told that there is nothing.
        unsafe {
            (&raw mut (*out).fid).write(failure.fid as *mut fid);
            (&raw mut (*out).context).write(failure.context as *mut c_void);
            (&raw mut (*out).data).write(failure.data);
            (&raw mut (*out).err).write(failure.error);
            (&raw mut (*out).prov_errno).write(failure.error);
            (&raw mut (*out).err_data_size).write(0);
        }
        Ok(size_of::<fi_eq_err_entry>())
    })
}

unsafe extern "C" fn write(
    fid: *mut fid_eq,
    event: u32,
    bytes: *const c_void,
    size: usize,
    flags: u64,
) -> isize {
    length(|| {
        // SAFETY: programs give an open queue.
        let events = unsafe { objects::state::<Events, _>(fid) }?;
        only(flags, 0)?;
        ensure(
            events.writable && size <= MOST_BYTES && (size == 0 || !bytes.is_null()),
            FI_EINVAL,
        )?;
        let mut copy = vec![0_u8; size];
        // SAFETY: the program gives `size` bytes, and the copy has as many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.cast::<u8>(), copy.as_mut_ptr(), size) };
        events.queue.push(Event::Success(event, copy));
        Ok(size)
    })
}

unsafe extern "C" fn strerror(
    _fid: *mut fid_eq,
    error: c_int,
    _data: *const c_void,
    out: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: `out` is NULL or has `room` bytes.
    unsafe { texts::of_error(error, out, room) }
}
