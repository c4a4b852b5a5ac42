//! `fi_getinfo`: from the program's structures to [`crate::info`] and back.

use std::ffi::{CStr, c_char, c_int};
use std::mem::size_of;

use crate::abi::{self, fi_info};
use crate::address;
use crate::engine::{Engine, Errno};
use crate::errors::{Answer, FI_EINVAL, FI_ENODATA, FI_ENODEV, FI_ENOMEM, only, status};
use crate::info::{self, Hints, Offer};
use crate::operation::Address;
use crate::provider;

/// Newer cores know fields behind ours. They find zeroes there.
const ROOM_FOR_NEWER: usize = 128;

/// The callback.
///
/// # Safety
/// As libfabric calls it: strings and hints are readable or NULL, `out` can be written or is NULL.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    status(|| {
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        only(flags, abi::FI_SOURCE | abi::FI_NUMERICHOST | abi::FI_PROV_ATTR_ONLY)?;
        let engine = Engine::get().map_err(of_no_job)?;
        let own = Own { rank: engine.rank(), ranks: engine.ranks(), job: engine.job() };
        // SAFETY: both are strings or NULL, as libfabric promises.
        let named = unsafe { own.named(node, service, flags & abi::FI_SOURCE != 0) }?;
        let asked = flags & abi::FI_PROV_ATTR_ONLY == 0 && !hints.is_null();
        // SAFETY: the hints are there, and readable during this call.
        let hints = if asked { Some(unsafe { own.read_hints(&*hints) }?) } else { None };
        let offer = info::offer(version, hints.as_ref().map(|(hints, _)| hints))?;
        let given = named.filter(|_| flags & abi::FI_SOURCE == 0).or(hints.and_then(|(_, to)| to));
        let own_name = named.is_none_or(|address| address.rank == own.rank);
        if flags & abi::FI_SOURCE != 0 && !own_name {
            return Err(FI_ENODATA);
        }
        let answer = own.build(version, &offer, given)?;
        // SAFETY: it is not NULL, and libfabric gives a place for the answer.
        unsafe { out.write(answer) };
        Ok(())
    })
}

/// A process that is no rank of a job is not told of the provider, as of a network card that is not there.
fn of_no_job(error: Errno) -> Errno {
    if error == FI_ENODEV { FI_ENODATA } else { error }
}

struct Own {
    rank: u32,
    ranks: u32,
    job: u64,
}

impl Own {
    /// A node is named by its rank, a service by an endpoint's number. The number of an own endpoint is not the program's choice:
    /// as a source, a service is a wish that is not kept, which the endpoint's name then shows.
    ///
    /// # Safety
    /// Both are strings or NULL.
    unsafe fn named(
        &self,
        node: *const c_char,
        service: *const c_char,
        source: bool,
    ) -> Answer<Option<Address>> {
        // SAFETY: as promised.
        let (node, service) = unsafe { (text(node), text(service)) };
        let Some(node) = node else {
            return if service.is_some() && !source { Err(FI_ENODATA) } else { Ok(None) };
        };
        let rank = number::<u32>(node).filter(|rank| *rank < self.ranks).ok_or(FI_ENODATA)?;
        let endpoint = match service {
            Some(service) if !source => number::<u16>(service).ok_or(FI_ENODATA)?,
            _ => 0,
        };
        Ok(Some(Address { rank, endpoint }))
    }

    /// What is asked, and for which peer.
    ///
    /// # Safety
    /// Pointers in the hints are NULL or readable.
    unsafe fn read_hints(&self, hints: &fi_info) -> Answer<(Hints, Option<Address>)> {
        // SAFETY: addresses have as many bytes as is said beside them.
        let source = unsafe { self.read_address(hints.src_addr.cast(), hints.src_addrlen) }?;
        // SAFETY: the same.
        let peer = unsafe { self.read_address(hints.dest_addr.cast(), hints.dest_addrlen) }?;
        if source.is_some_and(|source| source.rank != self.rank) {
            return Err(FI_ENODATA);
        }
        // SAFETY: each is NULL or a structure that is readable during the call; it is copied.
        let (tx, rx, ep, domain, fabric) = unsafe {
            (
                hints.tx_attr.as_ref().copied(),
                hints.rx_attr.as_ref().copied(),
                hints.ep_attr.as_ref().copied(),
                hints.domain_attr.as_ref().copied(),
                hints.fabric_attr.as_ref().copied(),
            )
        };
        let names = [domain.map(|domain| domain.name), fabric.map(|fabric| fabric.name)];
        // SAFETY: names are strings or NULL.
        let named_so = names
            .into_iter()
            .flatten()
            .all(|name| unsafe { text(name) }.is_none_or(|name| name == info::NAME));
        let hints = Hints {
            caps: hints.caps,
            addr_format: hints.addr_format,
            tx,
            rx,
            ep,
            domain,
            named_so,
        };
        Ok((hints, peer))
    }

    /// # Safety
    /// `bytes` is NULL or has `length` bytes.
    unsafe fn read_address(&self, bytes: *const u8, length: usize) -> Answer<Option<Address>> {
        if bytes.is_null() {
            return Ok(None);
        }
        if length != address::BYTES {
            return Err(FI_ENODATA);
        }
        // SAFETY: as promised; the bytes are copied.
        let bytes = unsafe { bytes.cast::<[u8; address::BYTES]>().read_unaligned() };
        address::of_job(bytes, self.job, self.ranks).map(Some).ok_or(FI_ENODATA)
    }

    /// The structures of an answer. The core frees each of them by itself with `free`.
    fn build(&self, version: u32, offer: &Offer, peer: Option<Address>) -> Answer<*mut fi_info> {
        let encoded = |address| address::encode(address, self.job);
        let source = encoded(Address { rank: self.rank, endpoint: 0 });
        let mut pieces = Pieces::default();
        let mut domain = offer.domain;
        domain.name = pieces.name()?;
        let fabric = abi::fi_fabric_attr {
            name: pieces.name()?,
            prov_version: provider::VERSION,
            api_version: version,
            ..abi::fi_fabric_attr::default()
        };
        let answer = fi_info {
            caps: offer.caps,
            addr_format: abi::FI_SOCKADDR_IN,
            src_addrlen: address::BYTES,
            src_addr: pieces.put(source)?.cast(),
            dest_addrlen: if peer.is_some() { address::BYTES } else { 0 },
            dest_addr: match peer {
                Some(peer) => pieces.put(encoded(peer))?.cast(),
                None => std::ptr::null_mut(),
            },
            tx_attr: pieces.put(offer.tx)?,
            rx_attr: pieces.put(offer.rx)?,
            ep_attr: pieces.put(offer.ep)?,
            domain_attr: pieces.put(domain)?,
            fabric_attr: pieces.put(fabric)?,
            ..fi_info::default()
        };
        let answer = pieces.put(answer)?;
        pieces.keep();
        Ok(answer)
    }
}

/// What was allocated for an answer; freed if it does not come to its end.
#[derive(Default)]
struct Pieces(Vec<*mut libc::c_void>);

impl Pieces {
    /// A copy in memory of C, with zeroes behind it.
    fn put<T: Copy>(&mut self, value: T) -> Answer<*mut T> {
        // SAFETY: the size is not zero.
        let memory = unsafe { libc::calloc(1, size_of::<T>() + ROOM_FOR_NEWER) };
        if memory.is_null() {
            return Err(FI_ENOMEM);
        }
        self.0.push(memory);
        let place = memory.cast::<T>();
        // SAFETY: the memory is large enough, and aligned for everything.
        unsafe { place.write(value) };
        Ok(place)
    }

    fn name(&mut self) -> Answer<*mut c_char> {
        let mut bytes = [0_u8; 8];
        let name = info::NAME.to_bytes_with_nul();
        bytes[..name.len()].copy_from_slice(name);
        Ok(self.put(bytes)?.cast())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        for memory in self.0.drain(..) {
            // SAFETY: calloc gave it, and nobody else has it.
            unsafe { libc::free(memory) };
        }
    }
}

/// # Safety
/// `text` is a string or NULL; it lives as long as the result.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as promised.
    Some(unsafe { CStr::from_ptr(text) })
}

fn number<T: std::str::FromStr>(text: &CStr) -> Option<T> {
    text.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Own = Own { rank: 2, ranks: 4, job: 7 };

    fn named(node: Option<&CStr>, service: Option<&CStr>) -> Answer<Option<Address>> {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: both are strings or NULL.
        unsafe { OWN.named(pointer(node), pointer(service), false) }
    }

    #[test]
    fn the_number_of_an_own_endpoint_is_not_the_program_s_choice() {
        // SAFETY: a string, and NULL.
        let source = |node: *const c_char| unsafe { OWN.named(node, c"9228".as_ptr(), true) };
        assert_eq!(source(std::ptr::null()), Ok(None));
        assert_eq!(source(c"2".as_ptr()), Ok(Some(Address { rank: 2, endpoint: 0 })));
    }

    #[test]
    fn a_peer_is_named_by_rank_and_endpoint() {
        assert_eq!(named(None, None), Ok(None));
        assert_eq!(named(Some(c"3"), None), Ok(Some(Address { rank: 3, endpoint: 0 })));
        assert_eq!(named(Some(c"0"), Some(c"9")), Ok(Some(Address { rank: 0, endpoint: 9 })));
        for (node, service) in [
            (Some(c"4"), None),
            (Some(c"host"), None),
            (Some(c"1"), Some(c"70000")),
            (None, Some(c"1")),
        ] {
            assert_eq!(named(node, service), Err(FI_ENODATA), "{node:?} {service:?}");
        }
    }

    #[test]
    fn hints_with_addresses_are_for_ranks_of_the_job() {
        let address = |rank, job| address::encode(Address { rank, endpoint: 1 }, job);
        let read = |source: [u8; 16], peer: [u8; 16], length| {
            let hints = fi_info {
                src_addr: source.as_ptr().cast_mut().cast(),
                src_addrlen: length,
                dest_addr: peer.as_ptr().cast_mut().cast(),
                dest_addrlen: 16,
                ..fi_info::default()
            };
            // SAFETY: the addresses have sixteen bytes, all else is NULL.
            unsafe { OWN.read_hints(&hints) }.map(|(_, peer)| peer)
        };
        assert_eq!(
            read(address(2, 7), address(3, 7), 16),
            Ok(Some(Address { rank: 3, endpoint: 1 }))
        );
        assert_eq!(read(address(1, 7), address(3, 7), 16), Err(FI_ENODATA), "not the own rank");
        assert_eq!(read(address(2, 7), address(3, 8), 16), Err(FI_ENODATA), "another job");
        assert_eq!(read(address(2, 7), address(3, 7), 8), Err(FI_ENODATA), "too short");
    }

    #[test]
    fn an_answer_is_memory_of_its_own_with_zeroes_behind() {
        let offer = info::offer(abi::version(1, 17), None).unwrap();
        let answer =
            OWN.build(abi::version(1, 17), &offer, Some(Address { rank: 1, endpoint: 0 })).unwrap();
        // SAFETY: all of it was made by `build`, with the zeroes behind it, and is freed once.
        unsafe {
            let info = answer.read();
            assert_eq!(CStr::from_ptr((*info.domain_attr).name), info::NAME);
            assert_eq!((info.src_addrlen, info.dest_addrlen), (16, 16));
            assert!((*info.fabric_attr).prov_name.is_null());
            let behind = info.domain_attr.add(1).cast::<[u8; ROOM_FOR_NEWER]>().read_unaligned();
            assert_eq!(behind, [0; ROOM_FOR_NEWER]);
            for name in [(*info.domain_attr).name, (*info.fabric_attr).name] {
                libc::free(name.cast());
            }
            let pieces: [*mut libc::c_void; 7] = [
                info.src_addr,
                info.dest_addr,
                info.tx_attr.cast(),
                info.rx_attr.cast(),
                info.ep_attr.cast(),
                info.domain_attr.cast(),
                info.fabric_attr.cast(),
            ];
            pieces.into_iter().chain([answer.cast()]).for_each(|piece| libc::free(piece));
        }
    }
}
