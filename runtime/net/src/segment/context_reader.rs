//! Reader of the channel context of a rank, which may run meanwhile and can have written anything there.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use kumi_proto::ContextError;
use kumi_proto::context::ContextReport;

/// Looks at a context that changes all the time, before the last one counts.
const LOOKS: u32 = 16;
/// How long a rank in the middle of a change is waited for. It may need this processor.
const NAP: Duration = Duration::from_micros(50);
/// Naps, and looks beyond the first of each, for all contexts that one reader reads.
const NAPS: u32 = 100;
const MORE_LOOKS: u32 = 100;

/// What is where a rank's context should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextReading {
    /// Nothing yet.
    Empty,
    /// What is not a context, or not of this rank.
    Damaged(ContextError),
    /// A context.
    Seen {
        /// What it says.
        report: Box<ContextReport>,
        /// It changed during each look: its numbers may not fit together.
        busy: bool,
    },
}

/// Reads contexts, with a bounded time for all of them together.
#[derive(Debug)]
pub struct ContextReader {
    naps: u32,
    more_looks: u32,
}

impl Default for ContextReader {
    fn default() -> Self {
        Self { naps: NAPS, more_looks: MORE_LOOKS }
    }
}

impl ContextReader {
    /// Reads the context of rank `me` of a job of `ranks` ranks. It has room for `length` bytes, of which `copy` copies
    /// those from a place on.
    ///
    /// # Errors
    /// Those of `copy`.
    pub(super) fn read(
        &mut self,
        (me, ranks): (u32, u32),
        length: usize,
        mut copy: impl FnMut(usize, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<ContextReading> {
        // Memory for the copy follows from the job, not from what the rank wrote.
        let length = length.min(ContextReport::most(ranks));
        let mut bytes = Vec::new();
        let mut looks = 0;
        loop {
            looks += 1;
            let before = changes(&mut copy)?;
            let report = look(&mut bytes, length, &mut copy)?;
            let whole = before & 1 == 0 && changes(&mut copy)? == before;
            if !whole && looks < LOOKS && self.more_looks > 0 {
                self.more_looks -= 1;
                self.nap(before);
                continue;
            }
            if bytes[..ContextReport::START].iter().all(|byte| *byte == 0) {
                return Ok(ContextReading::Empty);
            }
            return Ok(match report.and_then(|report| check(report, me, ranks)) {
                Ok(report) => ContextReading::Seen { report: Box::new(report), busy: !whole },
                Err(error) => ContextReading::Damaged(error),
            });
        }
    }

    /// Lets a rank end its change.
    fn nap(&mut self, changes: u64) {
        if changes & 1 == 1 && self.naps > 0 {
            self.naps -= 1;
            std::thread::sleep(NAP);
        }
    }
}

/// The number of changes begun and ended, in order with the copies before and after.
fn changes(copy: &mut impl FnMut(usize, &mut [u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut number = [0; 8];
    fence(Ordering::SeqCst);
    copy(ContextReport::CHANGES.start, &mut number)?;
    fence(Ordering::SeqCst);
    Ok(u64::from_ne_bytes(number))
}

/// One copy, and what it says.
fn look(
    bytes: &mut Vec<u8>,
    length: usize,
    copy: &mut impl FnMut(usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<Result<ContextReport, ContextError>> {
    bytes.resize(ContextReport::START, 0);
    copy(0, bytes)?;
    let need = match ContextReport::needed(bytes) {
        Ok(need) if need <= length => need,
        Ok(need) => return Ok(Err(ContextError::TooSmall { have: length, need })),
        Err(error) => return Ok(Err(error)),
    };
    bytes.resize(need, 0);
    copy(ContextReport::START, &mut bytes[ContextReport::START..])?;
    Ok(ContextReport::read(bytes))
}

/// A report, if it is of this rank and its peers are others of the job.
fn check(report: ContextReport, me: u32, ranks: u32) -> Result<ContextReport, ContextError> {
    for (field, found, wanted) in [("rank", report.me, me), ("ranks", report.ranks, ranks)] {
        if found != wanted {
            let (found, wanted) = (found.into(), wanted.into());
            return Err(ContextError::Mismatch { field, found, wanted });
        }
    }
    let mut peers: Vec<u32> = report.peers.iter().map(|peer| peer.rank).collect();
    peers.sort_unstable();
    let twice = peers.windows(2).any(|pair| pair[0] == pair[1]);
    if twice || peers.iter().any(|peer| *peer == me || *peer >= ranks) {
        return Err(ContextError::Damaged { what: "the rank of a peer", peer: None });
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_proto::{ChannelKey, Config, ContextMemory, Endpoint};
    use proptest::prelude::*;

    const LENGTH: usize = 1 << 20;

    /// Rank 1 of 4, which has sent a frame to two others.
    fn context() -> Vec<u8> {
        let mut endpoint = Endpoint::new(Config::default(), 1, 4, ChannelKey(7)).unwrap();
        for to in [0, 3] {
            endpoint.send(0, to, &[b"frame"]).unwrap();
            while endpoint.poll_transmit(0).is_some() {}
        }
        endpoint.memory_of_context().bytes().to_vec()
    }

    fn copier(bytes: &[u8]) -> impl FnMut(usize, &mut [u8]) -> io::Result<()> {
        |at, room| {
            room.copy_from_slice(&bytes[at..at + room.len()]);
            Ok(())
        }
    }

    fn read(bytes: &[u8]) -> ContextReading {
        ContextReader::default().read((1, 4), LENGTH, copier(bytes)).unwrap()
    }

    fn set_changes(bytes: &mut [u8], changes: u64) {
        bytes[ContextReport::CHANGES].copy_from_slice(&changes.to_ne_bytes());
    }

    #[test]
    fn a_resting_rank_is_seen_whole() {
        let ContextReading::Seen { report, busy } = read(&context()) else { panic!("not seen") };
        assert!(!busy && !report.changing);
        let peers: Vec<_> = report.peers.iter().map(|peer| (peer.rank, peer.in_flight)).collect();
        assert_eq!(peers, [(0, 1), (3, 1)]);
        assert_eq!(read(&[0; ContextReport::START]), ContextReading::Empty);
    }

    #[test]
    fn a_rank_that_was_stopped_in_a_change_is_busy() {
        let mut bytes = context();
        set_changes(&mut bytes, 41);
        let mut reader = ContextReader { naps: 3, ..ContextReader::default() };
        let seen = reader.read((1, 4), LENGTH, copier(&bytes)).unwrap();
        assert!(matches!(seen, ContextReading::Seen { busy: true, .. }), "{seen:?}");
        assert_eq!(reader.naps, 0, "not more than it has for all ranks");
    }

    /// A rank that changes its context `moving` times while it is looked at.
    fn read_moving(moving: u64) -> (ContextReading, u64) {
        let bytes = context();
        let mut looks = 0;
        let copy = |at: usize, room: &mut [u8]| {
            let mut now = bytes.clone();
            set_changes(&mut now, 100 + 2 * moving.min(looks));
            room.copy_from_slice(&now[at..at + room.len()]);
            looks += u64::from(at == ContextReport::START);
            Ok(())
        };
        let seen = ContextReader::default().read((1, 4), LENGTH, copy).unwrap();
        (seen, looks)
    }

    #[test]
    fn a_rank_that_runs_is_looked_at_again() {
        let (seen, looks) = read_moving(3);
        let ContextReading::Seen { report, busy } = seen else { panic!("{seen:?}") };
        assert_eq!((busy, report.changes, looks), (false, 53, 4));
        let (seen, looks) = read_moving(u64::MAX);
        assert!(matches!(seen, ContextReading::Seen { busy: true, .. }), "{seen:?}");
        assert_eq!(looks, LOOKS.into());
    }

    #[test]
    fn what_is_not_this_ranks_context_is_damaged() {
        let bytes = context();
        let other =
            |me, ranks| ContextReader::default().read((me, ranks), LENGTH, copier(&bytes)).unwrap();
        assert!(matches!(other(1, 4), ContextReading::Seen { .. }));
        for (me, ranks) in [(2, 4), (1, 5)] {
            let seen = other(me, ranks);
            let ContextReading::Damaged(ContextError::Mismatch { .. }) = seen else {
                panic!("{seen:?}")
            };
        }
        let mut twice = bytes.clone();
        // The rank of the second peer's record.
        let at = ContextReport::START + 256 + 248;
        assert_eq!(twice[at], 3);
        for rank in [0, 1, 4, 200] {
            twice[at] = rank;
            let seen = read(&twice);
            assert!(matches!(seen, ContextReading::Damaged(_)), "peer {rank}: {seen:?}");
        }
        let mut version = bytes.clone();
        version[8] = 99;
        assert_eq!(read(&version), ContextReading::Damaged(ContextError::Version(99)));
        // It says that its job has a million ranks, and that it has heard from most of them.
        let mut many = bytes.clone();
        many[20..24].copy_from_slice(&1_000_000_u32.to_ne_bytes());
        many[344..348].copy_from_slice(&999_998_u32.to_ne_bytes());
        let copy = |at: usize, room: &mut [u8]| {
            assert!(room.len() <= ContextReport::most(4), "{} bytes at {at}", room.len());
            copier(&many)(at, room)
        };
        let seen = ContextReader::default().read((1, 4), usize::MAX, copy).unwrap();
        assert!(matches!(seen, ContextReading::Damaged(ContextError::TooSmall { .. })), "{seen:?}");
        let short = ContextReader::default().read((1, 4), 8_300, copier(&bytes)).unwrap();
        assert!(
            matches!(short, ContextReading::Damaged(ContextError::TooSmall { .. })),
            "{short:?}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let broken = |_: usize, _: &mut [u8]| Err(io::ErrorKind::UnexpectedEof.into());
        assert!(ContextReader::default().read((1, 4), LENGTH, broken).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Whatever a rank wrote, it is looked at a bounded number of times and within its room.
        #[test]
        fn anything_is_read_or_refused(edits in prop::collection::vec((0..9_000usize, any::<u8>()), 0..12)) {
            // Not by `resize`, which goes byte by byte under Miri.
            let mut bytes = [context(), vec![0; LENGTH]].concat();
            bytes.truncate(LENGTH);
            for (at, byte) in edits {
                bytes[at] = byte;
            }
            let seen = ContextReader { naps: 1, ..ContextReader::default() }.read((1, 4), LENGTH, copier(&bytes));
            if let ContextReading::Seen { report, .. } = seen.unwrap() {
                prop_assert!(report.peers.len() < 4 && report.me == 1);
            }
        }
    }
}
