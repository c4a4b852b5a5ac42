//! `struct fid_cq`: completion queues.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::abi::{
    self, fi_addr_t, fi_cq_attr, fi_cq_data_entry, fi_cq_entry, fi_cq_err_entry, fi_cq_format,
    fi_cq_msg_entry, fi_cq_tagged_entry, fi_ops_cq, fi_wait_obj, fid, fid_cq, fid_domain,
};
use crate::address_vector::AddressVector;
use crate::completion_queue::{CompletionQueue, Entry, Taken};
use crate::domain::Domain;
use crate::engine::Engine;
use crate::errors::{
    Answer, FI_EAGAIN, FI_EAVAIL, FI_EINVAL, FI_ENOSYS, ensure, length, only, status,
};
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::operation::Address;
use crate::{idle, info, texts, waits};

/// The vectors of the endpoints that are bound to a queue.
#[derive(Debug, Default)]
pub struct Sources(Mutex<Vec<Weak<AddressVector>>>);

impl Sources {
    /// Senders are looked up there, too.
    pub fn add(&self, vector: &Arc<AddressVector>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|one| one.strong_count() > 0);
        if !known.iter().any(|one| one.as_ptr() == Arc::as_ptr(vector)) {
            known.push(Arc::downgrade(vector));
        }
    }

    /// The `fi_addr_t` of a sender. Not available if it is in no vector, or two call it differently.
    fn find(&self, sender: Address) -> fi_addr_t {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = known.iter().filter_map(Weak::upgrade).map(|vector| vector.find(sender));
        let first = found.next().flatten();
        match first {
            Some(address) if found.all(|other| other == first) => address,
            _ => abi::NO_ADDRESS,
        }
    }
}

/// What we know of a queue.
#[derive(Debug)]
pub struct Queue {
    queue: Arc<CompletionQueue>,
    sources: Arc<Sources>,
    engine: Arc<Engine>,
    format: fi_cq_format,
    wait: fi_wait_obj,
    /// Reads that wait may ask for several entries.
    threshold: bool,
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
static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

impl Class for Queue {
    type Fid = fid_cq;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

/// `fi_cq_open`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain, and attributes that are NULL or can be read.
        let (domain, asked) = unsafe {
            (objects::state::<Domain, _>(domain)?, attributes.as_ref().ok_or(FI_EINVAL)?)
        };
        ensure(!out.is_null(), FI_EINVAL)?;
        only(asked.flags, abi::FI_AFFINITY)?;
        ensure(asked.format <= abi::FI_CQ_FORMAT_TAGGED, FI_EINVAL)?;
        ensure(asked.wait_cond <= abi::FI_CQ_COND_THRESHOLD, FI_EINVAL)?;
        let descriptor = waits::has_descriptor(asked.wait_obj)?;
        let size = if asked.size == 0 { info::QUEUE_SIZE } else { asked.size };
        let queue = Queue {
            queue: Arc::new(CompletionQueue::new(size, descriptor)?),
            sources: Arc::default(),
            engine: Arc::clone(&domain.engine),
            format: asked.format,
            wait: asked.wait_obj,
            threshold: asked.wait_cond == abi::FI_CQ_COND_THRESHOLD,
            users: Users::default(),
            _domain: domain.hold(),
        };
        let fid = fid_cq {
            fid: objects::head::<Queue>(abi::FI_CLASS_CQ, context),
            ops: (&raw const OPS).cast_mut(),
        };
        // SAFETY: it is not NULL, and a place for the answer.
        unsafe { out.write(objects::publish(fid, queue)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Queue>(fid, |queue| queue.users.none()) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: programs give an open queue.
        let queue = unsafe { objects::state::<Queue, _>(fid) }?;
        // SAFETY: the argument is what libfabric says for the command.
        unsafe { waits::control(command, argument, queue.wait, queue.queue.descriptor()) }
    })
}

impl Queue {
    /// The entries, and where senders are looked up. The hold is a user of the queue.
    #[must_use]
    pub fn share(&self) -> (Arc<CompletionQueue>, Arc<Sources>, Hold) {
        (Arc::clone(&self.queue), Arc::clone(&self.sources), self.users.hold())
    }

    /// See [`CompletionQueue::may_sleep`].
    ///
    /// # Errors
    /// The channel's.
    pub fn may_sleep(&self) -> Answer<bool> {
        self.engine.poll()?;
        Ok(self.queue.may_sleep())
    }

    /// Whether it has entries; for poll sets.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        !self.queue.is_empty()
    }

    /// # Safety
    /// `buffer` has room for `count` entries of the queue's format, and `senders` is NULL or has `count` places.
    unsafe fn take(
        &self,
        buffer: *mut c_void,
        count: usize,
        senders: *mut fi_addr_t,
    ) -> Answer<usize> {
        let taken = self.queue.take(count, |at, entry| {
            // SAFETY: `at` is less than `count`.
            unsafe { write_entry(self.format, buffer, at, entry) };
            if !senders.is_null() {
                let sender =
                    entry.known.source.map_or(abi::NO_ADDRESS, |sender| self.sources.find(sender));
                // SAFETY: the same.
                unsafe { senders.add(at).write_unaligned(sender) };
            }
        });
        match taken {
            Taken::Entries(count) => Ok(count),
            Taken::Failure => Err(FI_EAVAIL),
            Taken::Nothing => Err(FI_EAGAIN),
        }
    }

    /// # Safety
    /// As `take`.
    unsafe fn read(
        &self,
        buffer: *mut c_void,
        count: usize,
        senders: *mut fi_addr_t,
    ) -> Answer<usize> {
        ensure(count == 0 || !buffer.is_null(), FI_EINVAL)?;
        if self.queue.is_empty() {
            idle::progress(&self.engine, || !self.queue.is_empty())?;
        }
        // SAFETY: as promised.
        unsafe { self.take(buffer, count, senders) }
    }

    /// # Safety
    /// As `take`; `condition` is NULL or a `size_t`.
    unsafe fn wait_and_read(
        &self,
        buffer: *mut c_void,
        count: usize,
        senders: *mut fi_addr_t,
        condition: *const c_void,
        timeout: c_int,
    ) -> Answer<usize> {
        ensure(count == 0 || !buffer.is_null(), FI_EINVAL)?;
        ensure(self.wait != abi::FI_WAIT_NONE, FI_ENOSYS)?;
        let mut wanted = 1;
        if self.threshold && !condition.is_null() {
            // SAFETY: with FI_CQ_COND_THRESHOLD it points to a `size_t`.
            wanted = unsafe { condition.cast::<usize>().read_unaligned() }.clamp(1, count.max(1));
        }
        let queue = &self.queue;
        waits::until(&self.engine, timeout, || {
            queue.len() >= wanted || queue.is_signalled() || queue.has_failure()
        })?;
        if queue.is_empty() {
            queue.take_signal();
        }
        // SAFETY: as promised.
        unsafe { self.take(buffer, count, senders) }
    }
}

/// # Safety
/// `buffer` has room for entry `at` of this format.
unsafe fn write_entry(format: fi_cq_format, buffer: *mut c_void, at: usize, entry: &Entry) {
    let op_context = entry.context as *mut c_void;
    let (flags, len, buf) = (entry.flags, entry.known.length, entry.known.buffer as *mut c_void);
    let data = entry.known.data.unwrap_or(0);
    // SAFETY: the program gives an array of entries of the format with which it opened the queue; entry `at` is within.
    unsafe {
        match format {
            abi::FI_CQ_FORMAT_MSG => {
                buffer.cast::<fi_cq_msg_entry>().add(at).write_unaligned(fi_cq_msg_entry {
                    op_context,
                    flags,
                    len,
                });
            }
            abi::FI_CQ_FORMAT_DATA => {
                let entry = fi_cq_data_entry { op_context, flags, len, buf, data };
                buffer.cast::<fi_cq_data_entry>().add(at).write_unaligned(entry);
            }
            abi::FI_CQ_FORMAT_TAGGED => {
                let entry =
                    fi_cq_tagged_entry { op_context, flags, len, buf, data, tag: entry.known.tag };
                buffer.cast::<fi_cq_tagged_entry>().add(at).write_unaligned(entry);
            }
            _ => buffer.cast::<fi_cq_entry>().add(at).write_unaligned(fi_cq_entry { op_context }),
        }
    }
}

unsafe extern "C" fn read(fid: *mut fid_cq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY: programs give an open queue, and room for `count` entries.
    length(|| unsafe { objects::state::<Queue, _>(fid)?.read(buffer, count, std::ptr::null_mut()) })
}

unsafe extern "C" fn readfrom(
    fid: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    senders: *mut fi_addr_t,
) -> isize {
    // SAFETY: programs give an open queue, and room for `count` entries and addresses.
    length(|| unsafe { objects::state::<Queue, _>(fid)?.read(buffer, count, senders) })
}

unsafe extern "C" fn sread(
    fid: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the arguments are those of this call.
    unsafe { sreadfrom(fid, buffer, count, std::ptr::null_mut(), condition, timeout) }
}

unsafe extern "C" fn sreadfrom(
    fid: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    senders: *mut fi_addr_t,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    length(|| {
        // SAFETY: programs give an open queue, and room for `count` entries and addresses.
        unsafe {
            objects::state::<Queue, _>(fid)?
                .wait_and_read(buffer, count, senders, condition, timeout)
        }
    })
}

unsafe extern "C" fn readerr(fid: *mut fid_cq, out: *mut fi_cq_err_entry, flags: u64) -> isize {
    length(|| {
        // SAFETY: programs give an open queue.
        let queue = unsafe { objects::state::<Queue, _>(fid) }?;
        ensure(!out.is_null(), FI_EINVAL)?;
        only(flags, 0)?;
        let entry = queue.queue.take_failure().ok_or(FI_EAGAIN)?;
        let (error, too_long_by) = entry.failure.unwrap_or_default();
        // SAFETY: the program's structure, of this version or a newer one, is at least so long. A buffer for more about the
        // error is told that there is nothing.
        unsafe {
            (&raw mut (*out).op_context).write(entry.context as *mut c_void);
            (&raw mut (*out).flags).write(entry.flags);
            (&raw mut (*out).len).write(entry.known.length);
            (&raw mut (*out).buf).write(entry.known.buffer as *mut c_void);
            (&raw mut (*out).data).write(entry.known.data.unwrap_or(0));
            (&raw mut (*out).tag).write(entry.known.tag);
            (&raw mut (*out).olen).write(too_long_by);
            (&raw mut (*out).err).write(error);
            (&raw mut (*out).prov_errno).write(error);
            (&raw mut (*out).err_data_size).write(0);
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(fid: *mut fid_cq) -> c_int {
    status(|| {
        // SAFETY: programs give an open queue.
        let queue = unsafe { objects::state::<Queue, _>(fid) }?;
        ensure(queue.wait != abi::FI_WAIT_NONE, FI_ENOSYS)?;
        queue.queue.signal();
        Ok(())
    })
}

unsafe extern "C" fn strerror(
    _fid: *mut fid_cq,
    error: c_int,
    _data: *const c_void,
    out: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: `out` is NULL or has `room` bytes.
    unsafe { texts::of_error(error, out, room) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_vector::Kind;

    #[test]
    fn a_sender_is_found_where_the_vectors_agree() {
        let sender = Address { rank: 3, endpoint: 0 };
        let (one, two) =
            (Arc::new(AddressVector::new(Kind::Table)), Arc::new(AddressVector::new(Kind::Table)));
        let sources = Sources::default();
        assert_eq!(sources.find(sender), abi::NO_ADDRESS);
        sources.add(&one);
        sources.add(&one);
        one.insert(sender);
        assert_eq!(sources.find(sender), 0);
        sources.add(&two);
        two.insert(Address { rank: 4, endpoint: 0 });
        two.insert(sender);
        assert_eq!(sources.find(sender), abi::NO_ADDRESS);
        drop(two);
        assert_eq!(sources.find(sender), 0);
    }

    #[test]
    fn entries_have_the_format_of_the_queue() {
        let known = crate::operation::Success {
            length: 5,
            buffer: 0x1000,
            data: Some(6),
            tag: 7,
            ..Default::default()
        };
        let entry = Entry { context: 0x2000, flags: abi::FI_RECV, known, failure: None };
        let mut tagged = [fi_cq_tagged_entry::default(); 2];
        // SAFETY: the array has an entry 1 of this format.
        unsafe { write_entry(abi::FI_CQ_FORMAT_TAGGED, tagged.as_mut_ptr().cast(), 1, &entry) };
        let second = tagged[1];
        assert_eq!(
            (second.op_context as usize, second.flags, second.len),
            (0x2000, abi::FI_RECV, 5)
        );
        assert_eq!((second.buf as usize, second.data, second.tag), (0x1000, 6, 7));
        assert_eq!(tagged[0].len, 0);
        let mut contexts = [fi_cq_entry::default(); 2];
        // SAFETY: the same.
        unsafe { write_entry(abi::FI_CQ_FORMAT_CONTEXT, contexts.as_mut_ptr().cast(), 0, &entry) };
        assert_eq!((contexts[0].op_context as usize, contexts[1].op_context as usize), (0x2000, 0));
    }
}
