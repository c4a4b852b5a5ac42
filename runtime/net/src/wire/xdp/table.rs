//! The table of next hops: how frames reach the other ranks, as the daemon knows it. The daemon writes it as long as the
//! rank lives; the rank maps it for reading only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::disclosure;
use crate::segment::attachment::AttachError;
use crate::shm::mapping::Mapping;
use crate::wire::xdp::frame::Mac;

/// "KUMIHOPS".
const MAGIC: u64 = u64::from_le_bytes(*b"KUMIHOPS");
/// Raised whenever the table, the rings' sizes or the memory of frames change.
const VERSION: u32 = 1;
/// Set in a word that has a hardware address.
const KNOWN: u64 = 1 << 63;
/// Most ranks of a job.
const MOST_RANKS: u32 = 1 << 20;

/// Start of the table; one [`AtomicU64`] for each rank follows.
#[derive(Debug)]
#[repr(C, align(64))]
struct HopsHeader {
    magic: AtomicU64,
    version: AtomicU32,
    ranks: AtomicU32,
    /// The hardware address of the own interface.
    own: AtomicU64,
}

const _: () = assert!(size_of::<HopsHeader>() == 64);

fn table_bytes(ranks: u32) -> usize {
    size_of::<HopsHeader>() + ranks as usize * 8
}

fn word_of(mac: Mac) -> u64 {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&mac);
    u64::from_le_bytes(bytes) | KNOWN
}

fn mac_of(word: u64) -> Option<Mac> {
    let [a, b, c, d, e, f, ..] = word.to_le_bytes();
    (word & KNOWN != 0).then_some([a, b, c, d, e, f])
}

fn header(map: &Mapping) -> &HopsHeader {
    // SAFETY: HopsHeader consists of atomics only.
    unsafe { map.view(0) }
}

fn hop(map: &Mapping, rank: u32) -> &AtomicU64 {
    // SAFETY: an atomic.
    unsafe { map.view(size_of::<HopsHeader>() + rank as usize * 8) }
}

/// The table as the daemon writes it.
#[derive(Debug)]
pub struct NextHops {
    file: OwnedFd,
    map: Mapping,
    ranks: u32,
}

impl NextHops {
    /// Makes the table of a job with so many ranks, behind an interface with this hardware address. No rank is reached yet.
    ///
    /// # Errors
    /// The kernel's error; kernels before 5.1 cannot seal a file against future writers. Too many ranks are an invalid
    /// input.
    pub fn create(ranks: u32, own: Mac) -> io::Result<NextHops> {
        if ranks > MOST_RANKS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (file, map) = disclosure::page(c"kumi-hops", table_bytes(ranks))?;
        let start = header(&map);
        start.version.store(VERSION, Relaxed);
        start.ranks.store(ranks, Relaxed);
        start.own.store(word_of(own), Relaxed);
        start.magic.store(MAGIC, Release);
        Ok(NextHops { file, map, ranks })
    }

    /// The file to hand to the ranks, which can map it for reading only.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Says by which hardware address a rank is reached; `None`: not by this interface, or it is not known now. Ignored for a
    /// rank that there is not.
    pub fn set(&self, rank: u32, mac: Option<Mac>) {
        if rank < self.ranks {
            hop(&self.map, rank).store(mac.map_or(0, word_of), Relaxed);
        }
    }
}

/// The table as a rank reads it.
#[derive(Debug)]
pub(crate) struct HopReader {
    map: Mapping,
    ranks: u32,
    own: Mac,
}

impl HopReader {
    /// Maps the table of a job with so many ranks.
    pub(crate) fn open(file: &OwnedFd, ranks: u32) -> Result<HopReader, AttachError> {
        let bad = AttachError::BadPages;
        let (map, bytes) = disclosure::map(file)?;
        if bytes < size_of::<HopsHeader>() {
            return Err(bad("too short"));
        }
        let start = header(&map);
        let (magic, version) = (start.magic.load(Acquire), start.version.load(Relaxed));
        if magic != MAGIC {
            return Err(bad("wrong mark"));
        }
        if version != VERSION {
            return Err(bad("another version"));
        }
        let own = mac_of(start.own.load(Relaxed)).ok_or(bad("no hardware address"))?;
        if start.ranks.load(Relaxed) != ranks || bytes != table_bytes(ranks) {
            return Err(bad("they are another job's"));
        }
        Ok(HopReader { map, ranks, own })
    }

    /// The hardware address of the own interface.
    pub(crate) fn own(&self) -> Mac {
        self.own
    }

    /// The hardware address by which a rank is reached now, if it is.
    #[inline]
    pub(crate) fn to(&self, rank: u32) -> Option<Mac> {
        if rank >= self.ranks {
            return None;
        }
        mac_of(hop(&self.map, rank).load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn open(hops: &NextHops, ranks: u32) -> Result<HopReader, AttachError> {
        HopReader::open(&hops.as_fd().try_clone_to_owned().expect("dup"), ranks)
    }

    #[test]
    fn ranks_see_what_the_daemon_knows_now() {
        let hops = NextHops::create(3, [2, 0, 0, 0, 0, 9]).expect("table");
        let reader = open(&hops, 3).expect("open");
        assert_eq!((reader.own(), reader.to(1)), ([2, 0, 0, 0, 0, 9], None));
        hops.set(1, Some([0, 0, 0, 0, 0, 0]));
        hops.set(2, Some([0xff; 6]));
        hops.set(3, Some([1; 6]));
        assert_eq!((reader.to(1), reader.to(2)), (Some([0; 6]), Some([0xff; 6])));
        assert_eq!((reader.to(0), reader.to(3), reader.to(u32::MAX)), (None, None, None));
        hops.set(2, None);
        assert_eq!(reader.to(2), None);
    }

    /// The bytes that the reference lists.
    #[test]
    #[cfg_attr(miri, ignore = "files cannot be read there")]
    fn the_table_lies_as_the_reference_says() {
        let hops = NextHops::create(2, [2, 3, 4, 5, 6, 7]).expect("table");
        hops.set(1, Some([8, 9, 10, 11, 12, 13]));
        let file = std::fs::File::from(hops.as_fd().try_clone_to_owned().expect("dup"));
        let mut bytes = [0; 80];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes[..8], b"KUMIHOPS");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[16..24], [2, 3, 4, 5, 6, 7, 0, 0x80]);
        assert_eq!(bytes[24..72], [0; 48]);
        assert_eq!(bytes[72..], [8, 9, 10, 11, 12, 13, 0, 0x80]);
        assert!(file.write_all_at(&[1], 0).is_err(), "nobody else can write it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "files cannot be read there")]
    fn another_table_is_refused() {
        let hops = NextHops::create(3, [2; 6]).expect("table");
        for ranks in [0, 2, 4] {
            assert!(matches!(open(&hops, ranks), Err(AttachError::BadPages(_))), "{ranks}");
        }
        for (at, value) in [(0, 1), (8, 2), (12, 4)] {
            let hops = NextHops::create(3, [2; 6]).expect("table");
            hops_byte(&hops, at, value);
            assert!(matches!(open(&hops, 3), Err(AttachError::BadPages(_))), "byte {at}");
        }
        let plain = std::fs::File::open("/dev/null").expect("file").into();
        assert!(HopReader::open(&plain, 3).is_err());
    }

    fn hops_byte(hops: &NextHops, at: usize, value: u8) {
        // SAFETY: an atomic within the header.
        let byte: &std::sync::atomic::AtomicU8 = unsafe { hops.map.view(at) };
        byte.store(value, Relaxed);
    }
}
