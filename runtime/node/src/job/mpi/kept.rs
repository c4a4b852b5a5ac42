//! What outlives the daemon of an MPI program, in files that the job's keeper holds: a record, and how its ranks stand.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use kumi_pmi::message::VERSION;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// Longest record, in bytes.
const MOST: usize = 64 << 10;

/// What a later daemon has to know of the server of an MPI program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::job) struct MpiRecord {
    /// There is a way for its messages.
    pub(super) has_provider: bool,
    /// Folder of server and ranks.
    pub(super) folder: PathBuf,
}

fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create(c"kumi-mpi", MFdFlags::MFD_CLOEXEC)?))
}

impl MpiRecord {
    /// Writes it into a file of its own, behind the version of the messages that the server speaks.
    pub(super) fn write(&self) -> io::Result<OwnedFd> {
        let bytes = postcard::to_allocvec(self).map_err(io::Error::other)?;
        let mut file = memory_file()?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&bytes)?;
        Ok(file.into())
    }

    /// Reads it.
    ///
    /// # Errors
    /// A sentence: the server speaks otherwise, or this is no record.
    pub(super) fn read(file: OwnedFd) -> Result<Self, String> {
        let file = File::from(file);
        let read = || {
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(MOST);
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error: io::Error| error.to_string())?;
        match bytes.split_first_chunk::<4>() {
            Some((version, rest)) if *version == VERSION.to_le_bytes() => {
                postcard::from_bytes(rest).map_err(|error| error.to_string())
            }
            _ => Err("its MPI server is of another version of Kumi".to_owned()),
        }
    }
}

/// How a rank stands with MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) enum Standing {
    /// It has begun to use it.
    Joined,
    /// It has finished.
    Finalized,
}

/// What is known of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RankState {
    standing: Option<Standing>,
    /// It has ended the job with this code.
    aborted: Option<i32>,
}

impl RankState {
    fn encode(self) -> [u8; 8] {
        let standing = match self.standing {
            None => 0,
            Some(Standing::Joined) => 1,
            Some(Standing::Finalized) => 2,
        };
        let [a, b, c, d] = self.aborted.unwrap_or(0).to_le_bytes();
        [standing, u8::from(self.aborted.is_some()), 0, 0, a, b, c, d]
    }

    fn decode(bytes: [u8; 8]) -> Option<Self> {
        let [standing, aborted, _, _, a, b, c, d] = bytes;
        let standing = match standing {
            0 => None,
            1 => Some(Standing::Joined),
            2 => Some(Standing::Finalized),
            _ => return None,
        };
        let code = i32::from_le_bytes([a, b, c, d]);
        Some(Self { standing, aborted: (aborted != 0).then_some(code) })
    }
}

/// How the ranks of the node stand, and how much of what the server tells was heard. Each change is written before the server is
/// told that it was heard.
#[derive(Debug)]
pub(in crate::job) struct MpiState {
    file: File,
    first: u32,
    ranks: Vec<RankState>,
    heard: u64,
    finished: bool,
    /// The file lacks something.
    is_stale: bool,
}

const HEARD: u64 = 0;
const FINISHED: u64 = 8;
const RANKS: u64 = 16;

impl MpiState {
    /// Of ranks that have not begun.
    pub(super) fn create(ranks: Range<u32>) -> io::Result<Self> {
        let file = memory_file()?;
        let count = ranks.len();
        file.set_len(RANKS + 8 * u64::try_from(count).unwrap_or(u64::MAX))?;
        let (ranks, first) = (vec![RankState::default(); count], ranks.start);
        Ok(Self { file, first, ranks, heard: 0, finished: false, is_stale: false })
    }

    /// That which a former daemon wrote.
    pub(super) fn adopt(file: OwnedFd, ranks: Range<u32>) -> io::Result<Self> {
        let (file, first) = (File::from(file), ranks.start);
        let word = |at| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).map(|()| bytes)
        };
        let rank = |at| RankState::decode(word(at)?).ok_or(io::ErrorKind::InvalidData.into());
        let ranks = (RANKS..).step_by(8).take(ranks.len()).map(rank);
        let ranks = ranks.collect::<io::Result<_>>()?;
        let (heard, finished) = (u64::from_le_bytes(word(HEARD)?), word(FINISHED)?[0] != 0);
        Ok(Self { file, first, ranks, heard, finished, is_stale: false })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        if let Err(error) = self.file.write_all_at(bytes, at) {
            tracing::error!(%error, "a later daemon will not know how MPI ranks stand");
            self.is_stale = true;
        }
    }

    /// Whether a later daemon needs to hear again what this one has heard: it could not be written down.
    pub(in crate::job) fn is_stale(&self) -> bool {
        self.is_stale
    }

    fn place(&self, rank: u32) -> Option<usize> {
        let place = usize::try_from(rank.checked_sub(self.first)?).ok()?;
        (place < self.ranks.len()).then_some(place)
    }

    fn change(&mut self, rank: u32, change: impl FnOnce(&mut RankState)) {
        let Some(place) = self.place(rank) else { return };
        change(&mut self.ranks[place]);
        let at = RANKS + 8 * u64::try_from(place).unwrap_or(u64::MAX);
        self.write(at, &self.ranks[place].encode());
    }

    /// A rank stands so from now on.
    pub(in crate::job) fn set_standing(&mut self, rank: u32, standing: Standing) {
        self.change(rank, |state| state.standing = Some(standing));
    }

    /// The ranks that have ended the job, and their codes.
    pub(in crate::job) fn all_aborted(&self) -> Vec<(u32, i32)> {
        let ranks = (self.first..).zip(&self.ranks);
        ranks.filter_map(|(rank, state)| Some((rank, state.aborted?))).collect()
    }

    /// How a rank stands; none if it does not use MPI.
    pub(in crate::job) fn standing(&self, rank: u32) -> Option<Standing> {
        self.ranks[self.place(rank)?].standing
    }

    /// A rank ends the job with this code.
    pub(in crate::job) fn set_aborted(&mut self, rank: u32, code: i32) {
        self.change(rank, |state| state.aborted = Some(code));
    }

    /// The code with which it did.
    pub(in crate::job) fn aborted(&self, rank: u32) -> Option<i32> {
        self.ranks[self.place(rank)?].aborted
    }

    /// What the server told up to this number was heard.
    pub(in crate::job) fn set_heard(&mut self, number: u64) {
        self.heard = number;
        self.write(HEARD, &number.to_le_bytes());
    }

    pub(in crate::job) fn heard(&self) -> u64 {
        self.heard
    }

    /// All ranks have ended, and how is known. The server is not needed any more.
    pub(in crate::job) fn set_finished(&mut self) {
        self.finished = true;
        self.write(FINISHED, &[1]);
    }

    pub(in crate::job) fn finished(&self) -> bool {
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_daemon_knows_how_ranks_stand_and_what_was_heard() {
        let mut state = MpiState::create(4..7).unwrap();
        state.set_standing(4, Standing::Joined);
        state.set_standing(5, Standing::Joined);
        state.set_standing(5, Standing::Finalized);
        state.set_aborted(6, -7);
        // Of no rank here.
        state.set_standing(3, Standing::Joined);
        state.set_aborted(7, 1);
        state.set_heard(u64::MAX - 1);
        let later = || {
            let held = state.as_fd().try_clone_to_owned().unwrap();
            MpiState::adopt(held, 4..7)
        };
        let adopted = later().unwrap();
        assert_eq!(adopted.ranks, state.ranks);
        assert_eq!(adopted.standing(4), Some(Standing::Joined));
        assert_eq!(adopted.standing(5), Some(Standing::Finalized));
        assert_eq!(adopted.all_aborted(), [(6, -7)]);
        assert_eq!((adopted.standing(6), adopted.aborted(6)), (None, Some(-7)));
        assert_eq!((adopted.standing(3), adopted.aborted(7)), (None, None));
        assert_eq!((adopted.heard(), adopted.finished()), (u64::MAX - 1, false));
        state.set_finished();
        let held = state.as_fd().try_clone_to_owned().unwrap();
        assert!(MpiState::adopt(held, 4..7).unwrap().finished());
        state.file.write_all_at(&[9], RANKS).unwrap();
        let held = state.as_fd().try_clone_to_owned().unwrap();
        assert!(MpiState::adopt(held, 4..7).is_err(), "nothing like that is written");
        let short = MpiState::create(0..1).unwrap();
        let held = short.as_fd().try_clone_to_owned().unwrap();
        assert!(MpiState::adopt(held, 0..2).is_err());
    }

    #[test]
    fn records_of_other_versions_and_no_records_are_refused() {
        let record = MpiRecord { has_provider: true, folder: "/run/kumi-mpi/x".into() };
        assert_eq!(MpiRecord::read(record.write().unwrap()), Ok(record.clone()));
        let file = |bytes: &[u8]| {
            let mut file = memory_file().unwrap();
            file.write_all(bytes).unwrap();
            OwnedFd::from(file)
        };
        assert!(MpiRecord::read(file(b"")).is_err());
        assert!(MpiRecord::read(file(&VERSION.to_le_bytes())).is_err());
        let other = [&(VERSION + 1).to_le_bytes()[..], &[1, 0]].concat();
        assert!(MpiRecord::read(file(&other)).unwrap_err().contains("another version"));
    }
}
