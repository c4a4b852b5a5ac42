//! What a daemon writes down of a kept job: once what it is, and at each change how far it is.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use kumi_control::compat::OLDEST_VERSION;
use kumi_control::message::{CONTROL_VERSION, JobSpec, PartUse, PreparedRanks};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::message::VERSION;

/// Longest record that is read, in bytes: a request with its environment is far below.
const MOST: u64 = 64 << 20;

/// What a job is on this node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    /// What the head sent, with its user as this machine knows it.
    pub(crate) spec: JobSpec,
    /// The answer to `Prepare`.
    pub(crate) prepared: PreparedRanks,
    /// Its control group of version 2.
    pub(crate) group: Option<PathBuf>,
    /// Bytes of a ring between two ranks, and of a rank's windows.
    pub(crate) segment: (usize, u64),
    /// Events in the trace of each rank.
    pub(crate) trace: Option<u64>,
    /// Places of its devices among those of the node.
    pub(crate) devices: Vec<usize>,
}

/// The version of the control protocol that gave records their form. Daemons of all versions since then read them, and a new
/// variant in one that they do not know is damage to them.
const FORM: u32 = 15;
// Records are read by daemons of the versions that can follow each other on a node.
const _: () = assert!(FORM <= OLDEST_VERSION && CONTROL_VERSION == 16);

/// The record begins with the versions, so that no other daemon reads what follows as something else.
fn versions() -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
    bytes[4..].copy_from_slice(&FORM.to_le_bytes());
    bytes
}

impl JobRecord {
    /// Writes it into a file of its own.
    pub(crate) fn write(&self) -> io::Result<OwnedFd> {
        let bytes = postcard::to_allocvec(self).map_err(io::Error::other)?;
        let mut file = File::from(memfd_create(c"kumi-job", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&versions())?;
        file.write_all(&bytes)?;
        Ok(file.into())
    }

    /// Reads it from the beginning of a file.
    ///
    /// # Errors
    /// A sentence: it is of another version, or damaged.
    pub(crate) fn read(file: OwnedFd) -> Result<Self, String> {
        let file = File::from(file);
        let read = || {
            let length = file.metadata()?.len().min(MOST);
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error: io::Error| error.to_string())?;
        match bytes.split_at_checked(8) {
            Some((version, content)) if version == versions() => {
                postcard::from_bytes(content).map_err(|error| error.to_string())
            }
            _ => Err("another version of Kumi wrote it".to_owned()),
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptPhase {
    /// Its ranks wait to be let go. The head has it prepared anew.
    Preparing = 0,
    /// Some of them may have been let go.
    Starting = 1,
    /// All were.
    Started = 2,
    /// Nothing of it runs any more. The head has to hear of it.
    Over = 3,
}

/// The file that says how far a job is: single bytes, each written in one piece.
#[derive(Debug)]
pub(crate) struct JobState(File);

const PHASE: u64 = 0;
const INPUT_CLOSED: u64 = 1;
const USE_KNOWN: u64 = 2;
const KILLED: u64 = 3;
const USE: u64 = 8;
const TURNS: u64 = 40;

impl JobState {
    pub(crate) fn create() -> io::Result<Self> {
        let file = File::from(memfd_create(c"kumi-state", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(64)?;
        Ok(Self(file))
    }

    pub(crate) fn adopt(file: OwnedFd) -> Self {
        Self(file.into())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn byte(&self, at: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, at)?;
        Ok(byte[0])
    }

    pub(crate) fn set_phase(&self, phase: KeptPhase) -> io::Result<()> {
        self.0.write_all_at(&[phase as u8], PHASE)
    }

    pub(crate) fn phase(&self) -> io::Result<KeptPhase> {
        match self.byte(PHASE)? {
            0 => Ok(KeptPhase::Preparing),
            1 => Ok(KeptPhase::Starting),
            2 => Ok(KeptPhase::Started),
            3 => Ok(KeptPhase::Over),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Rank 0 gets nothing behind what waits for it.
    pub(crate) fn close_input(&self) -> io::Result<()> {
        self.0.write_all_at(&[1], INPUT_CLOSED)
    }

    pub(crate) fn input_closed(&self) -> io::Result<bool> {
        Ok(self.byte(INPUT_CLOSED)? != 0)
    }

    /// The job is being killed, by an order or because the lease was over.
    pub(crate) fn set_killed(&self) -> io::Result<()> {
        self.0.write_all_at(&[1], KILLED)
    }

    pub(crate) fn killed(&self) -> io::Result<bool> {
        Ok(self.byte(KILLED)? != 0)
    }

    /// Nanoseconds that its turns have lasted so far.
    pub(crate) fn set_turns(&self, nanos: u64) -> io::Result<()> {
        self.0.write_all_at(&nanos.to_le_bytes(), TURNS)
    }

    pub(crate) fn turns(&self) -> io::Result<u64> {
        self.word(TURNS)
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// What the job has used in all, now that nothing of it runs: nobody can measure it later.
    pub(crate) fn set_use(&self, used: PartUse) -> io::Result<()> {
        let memory = [u64::from(used.memory.is_some()), used.memory.unwrap_or(0)];
        let words = [used.turns_us, used.used_us, memory[0], memory[1]];
        self.0.write_all_at(&words.map(u64::to_le_bytes).concat(), USE)?;
        self.0.write_all_at(&[1], USE_KNOWN)
    }

    pub(crate) fn used(&self) -> io::Result<Option<PartUse>> {
        if self.byte(USE_KNOWN)? == 0 {
            return Ok(None);
        }
        let mut words = [0; 4];
        for (at, word) in (USE..).step_by(8).zip(&mut words) {
            *word = self.word(at)?;
        }
        let [turns_us, used_us, known, memory] = words;
        Ok(Some(PartUse { turns_us, used_us, memory: (known != 0).then_some(memory) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_daemon_reads_how_far_the_job_is() {
        let state = JobState::create().unwrap();
        let later = || JobState::adopt(state.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(later().phase().unwrap(), KeptPhase::Preparing);
        for phase in [KeptPhase::Starting, KeptPhase::Over, KeptPhase::Started] {
            state.set_phase(phase).unwrap();
            assert_eq!(later().phase().unwrap(), phase);
        }
        assert!(!later().input_closed().unwrap() && later().used().unwrap().is_none());
        state.close_input().unwrap();
        for memory in [None, Some(0), Some(7)] {
            let used = PartUse { turns_us: 1, used_us: u64::MAX, memory };
            state.set_use(used).unwrap();
            assert_eq!(later().used().unwrap(), Some(used));
        }
        assert!(later().input_closed().unwrap());
        assert_eq!((later().turns().unwrap(), later().killed().unwrap()), (0, false));
        state.set_turns(1 << 40).unwrap();
        state.set_killed().unwrap();
        assert_eq!((later().turns().unwrap(), later().killed().unwrap()), (1 << 40, true));
        assert_eq!(later().phase().unwrap(), KeptPhase::Started);
        state.0.write_all_at(&[9], PHASE).unwrap();
        assert!(later().phase().is_err());
    }

    /// Both versions that can follow each other on a node read what either has written.
    #[test]
    fn records_begin_as_those_of_version_15() {
        assert_eq!(versions(), [1, 0, 0, 0, 15, 0, 0, 0]);
    }

    #[test]
    fn records_of_other_versions_and_no_records_are_refused() {
        let file = |bytes: &[u8]| {
            let mut file = File::from(memfd_create(c"x", MFdFlags::MFD_CLOEXEC).unwrap());
            file.write_all(bytes).unwrap();
            OwnedFd::from(file)
        };
        assert!(JobRecord::read(file(b"")).is_err());
        assert!(JobRecord::read(file(&versions())).is_err());
        let mut other = versions().to_vec();
        other[4] ^= 1;
        assert!(JobRecord::read(file(&other)).unwrap_err().contains("another version"));
        other[4] ^= 1;
        other.extend([0xff; 40]);
        assert!(JobRecord::read(file(&other)).is_err());
    }
}
