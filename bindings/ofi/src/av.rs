//! `struct fid_av`: addresses of others.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{self, fi_addr_t, fi_av_attr, fi_ops_av, fid, fid_av, fid_domain};
use crate::address;
use crate::address_vector::{AddressVector, Kind};
use crate::domain::Domain;
use crate::engine::{Engine, Errno};
use crate::eq::Events;
use crate::errors::{
    Answer, FI_EINVAL, FI_ENOENT, FI_ENOMEM, FI_ENOSYS, caught, ensure, number, only, status,
};
use crate::event_queue::{Event, EventQueue, Failure};
use crate::objects::{self, Class, Hold, Refused, Users};
use crate::texts;

/// What we know of an address vector.
#[derive(Debug)]
pub struct Av {
    vector: Arc<AddressVector>,
    engine: Arc<Engine>,
    /// Insertions are told to the queue that is bound (`FI_EVENT`).
    told: bool,
    events: Mutex<Option<(Arc<EventQueue>, Hold)>>,
    users: Users,
    _domain: Hold,
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
static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(Refused::REFUSED),
    insertsym: Some(Refused::REFUSED),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(Refused::REFUSED),
};

impl Class for Av {
    type Fid = fid_av;
    fn table() -> &'static abi::fi_ops {
        &TABLE
    }
}

impl Av {
    /// The addresses, and a user of the vector.
    #[must_use]
    pub fn share(&self) -> (Arc<AddressVector>, Hold) {
        (Arc::clone(&self.vector), self.users.hold())
    }
}

/// `fi_av_open`.
///
/// # Safety
/// As libfabric asks of programs.
pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attributes: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open domain, and attributes that are NULL or can be read.
        let (domain, asked) = unsafe {
            (objects::state::<Domain, _>(domain)?, attributes.as_ref().ok_or(FI_EINVAL)?)
        };
        ensure(!out.is_null() && asked.rx_ctx_bits == 0, FI_EINVAL)?;
        ensure(asked.name.is_null(), FI_ENOSYS)?;
        only(asked.flags, abi::FI_EVENT | abi::FI_SYMMETRIC)?;
        let kind = match if asked.type_ == abi::FI_AV_UNSPEC { domain.av_type } else { asked.type_ }
        {
            abi::FI_AV_MAP => Kind::Map,
            abi::FI_AV_TABLE | abi::FI_AV_UNSPEC => Kind::Table,
            _ => return Err(FI_EINVAL),
        };
        let av = Av {
            vector: Arc::new(AddressVector::new(kind)),
            engine: Arc::clone(&domain.engine),
            told: asked.flags & abi::FI_EVENT != 0,
            events: Mutex::new(None),
            users: Users::default(),
            _domain: domain.hold(),
        };
        let fid = fid_av {
            fid: objects::head::<Av>(abi::FI_CLASS_AV, context),
            ops: (&raw const OPS).cast_mut(),
        };
        let chosen = if kind == Kind::Map { abi::FI_AV_MAP } else { abi::FI_AV_TABLE };
        // SAFETY: neither is NULL; programs let the type be written, and `out` is the place for the answer.
        unsafe {
            (&raw mut (*attributes).type_).write(chosen);
            out.write(objects::publish(fid, av));
        }
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_close` gives an open object that nobody uses any more.
    status(|| unsafe { objects::withdraw::<Av>(fid, |av| av.users.none()) }.map(drop))
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: programs give open objects.
        let (av, events) =
            unsafe { (objects::state::<Av, _>(fid)?, objects::state::<Events, _>(other)?) };
        only(flags, 0)?;
        let mut bound = av.events.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(av.told && bound.is_none(), FI_EINVAL)?;
        *bound = Some(events.share());
        Ok(())
    })
}

unsafe extern "C" fn insert(
    fid: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    places: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: programs give an open vector.
        let av = unsafe { objects::state::<Av, _>(fid) }?;
        only(flags, abi::FI_MORE | abi::FI_SYNC_ERR)?;
        let errors = if flags & abi::FI_SYNC_ERR == 0 {
            std::ptr::null_mut()
        } else {
            context.cast::<c_int>()
        };
        ensure(flags & abi::FI_SYNC_ERR == 0 || !errors.is_null() && !av.told, FI_EINVAL)?;
        ensure(count == 0 || !addresses.is_null(), FI_EINVAL)?;
        ensure(!places.is_null() || av.vector.kind() == Kind::Table || count == 0, FI_EINVAL)?;
        let answers = c_int::try_from(count).map_err(|_| FI_EINVAL)?;
        let events = av.events()?;
        let mut failed = 0;
        for at in 0..count {
            // SAFETY: the program gives `count` addresses of the size that `src_addrlen` tells; each is copied.
            let bytes =
                unsafe { addresses.cast::<[u8; address::BYTES]>().add(at).read_unaligned() };
            let inserted = av.insert(bytes);
            failed += c_int::from(inserted.is_err());
            if !places.is_null() {
                // SAFETY: the program gives a place for each address.
                unsafe { places.add(at).write_unaligned(inserted.unwrap_or(abi::NO_ADDRESS)) };
            }
            if !errors.is_null() {
                // SAFETY: with FI_SYNC_ERR the context is an array of `count` numbers.
                unsafe { errors.add(at).write_unaligned(inserted.err().unwrap_or(0)) };
            }
            if let (Some(events), Err(error)) = (&events, inserted) {
                let (fid, context, data) = (fid as usize, context as usize, at as u64);
                events.push(Event::Failure(Failure { fid, context, data, error }));
            }
        }
        let inserted = answers - failed;
        let Some(events) = events else { return Ok(inserted) };
        let data = u64::try_from(inserted).unwrap_or(0);
        events.push(Events::completion(abi::FI_AV_COMPLETE, fid as usize, context as usize, data));
        Ok(0)
    })
}

impl Av {
    /// Where insertions are told, if they are.
    fn events(&self) -> Answer<Option<Arc<EventQueue>>> {
        if !self.told {
            return Ok(None);
        }
        let bound = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, _) = bound.as_ref().ok_or(abi::FI_ENOEQ as Errno)?;
        Ok(Some(Arc::clone(queue)))
    }

    fn insert(&self, bytes: [u8; address::BYTES]) -> Answer<u64> {
        match address::of_job(bytes, self.engine.job(), self.engine.ranks()) {
            Some(address) => self.vector.insert(address).ok_or(FI_ENOMEM),
            None => {
                self.vector.skip();
                Err(FI_EINVAL)
            }
        }
    }
}

unsafe extern "C" fn remove(
    fid: *mut fid_av,
    places: *mut fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open vector.
        let av = unsafe { objects::state::<Av, _>(fid) }?;
        only(flags, 0)?;
        ensure(count == 0 || !places.is_null(), FI_EINVAL)?;
        let mut result = Ok(());
        for at in 0..count {
            // SAFETY: the program gives `count` of them.
            let place = unsafe { places.add(at).read_unaligned() };
            if av.vector.remove(place).is_none() {
                result = Err(FI_ENOENT);
            }
        }
        result
    })
}

unsafe extern "C" fn lookup(
    fid: *mut fid_av,
    place: fi_addr_t,
    out: *mut c_void,
    size: *mut usize,
) -> c_int {
    status(|| {
        // SAFETY: programs give an open vector.
        let av = unsafe { objects::state::<Av, _>(fid) }?;
        let address = av.vector.get(place).ok_or(FI_EINVAL)?;
        // SAFETY: `out` has as many bytes as `size` tells.
        unsafe { give_address(address::encode(address, av.engine.job()), out, size) }
    })
}

/// Writes an address as far as there is room, and its size. `FI_ETOOSMALL` if there is less.
///
/// # Safety
/// `size` is NULL or can be read and written; `out` has as many bytes as it tells.
pub unsafe fn give_address(
    bytes: [u8; address::BYTES],
    out: *mut c_void,
    size: *mut usize,
) -> Answer<()> {
    ensure(!size.is_null(), FI_EINVAL)?;
    // SAFETY: it is not NULL.
    let room = unsafe { size.read() };
    let written = room.min(bytes.len());
    ensure(written == 0 || !out.is_null(), FI_EINVAL)?;
    // SAFETY: the size can be written, and `out` has room for so many bytes.
    unsafe {
        size.write(bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast::<u8>(), written);
    }
    ensure(room >= bytes.len(), crate::errors::FI_ETOOSMALL)
}

unsafe extern "C" fn straddr(
    _fid: *mut fid_av,
    bytes: *const c_void,
    out: *mut c_char,
    size: *mut usize,
) -> *const c_char {
    let text = caught(|| {
        ensure(!bytes.is_null() && !size.is_null(), FI_EINVAL)?;
        // SAFETY: the program gives an address of our size; it is copied.
        let bytes = unsafe { bytes.cast::<[u8; address::BYTES]>().read_unaligned() };
        let text = address::text(bytes).unwrap_or_else(|| "no address of a rank".to_owned());
        // SAFETY: `out` has as many bytes as `size` tells, or is NULL.
        let needed = unsafe { texts::give(&text, out, size.read()) };
        // SAFETY: it is not NULL.
        unsafe { size.write(needed) };
        Ok(out.cast_const())
    });
    text.unwrap_or(std::ptr::null())
}
