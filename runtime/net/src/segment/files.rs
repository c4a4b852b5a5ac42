//! Memory files of a segment, with the rights that the kernel keeps.
//!
//! Who gets a file for reading gets another descriptor, opened for reading only. The kernel then refuses to map it for
//! writing, now and later. Seals stop those who could open the file once more:
//!
//! | file | seals | from when |
//! |---|---|---|
//! | all | against another length | the start |
//! | job file | against new writers | the start; the daemon goes on with its own mapping |
//! | rank file | against new writers | when the rank has mapped it |
//!
//! The other files have no such seal: it would also forbid to give pages back, which ends of windows need.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::segment::SegmentError;
use crate::segment::layout::{Layout, SegmentPart};
use crate::shm::mapping::Mapping;

/// The seals of every file: its length stays.
pub(crate) const LENGTH: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

fn os<T>(what: &'static str, ok: bool, value: T) -> Result<T, SegmentError> {
    if ok { Ok(value) } else { Err(failed(what)(io::Error::last_os_error())) }
}

pub(crate) fn failed(what: &'static str) -> impl Fn(io::Error) -> SegmentError {
    move |source| SegmentError::Io { what, source }
}

/// The two files that a rank writes.
#[derive(Debug)]
pub(crate) struct RankFiles<F> {
    /// Its context, rings and channel context.
    pub(crate) own: F,
    /// Its windows that peers only read.
    pub(crate) arena: F,
}

/// The files of a segment, each to be read and written.
#[derive(Debug)]
pub(crate) struct WritableFiles {
    pub(crate) job: OwnedFd,
    pub(crate) shared: OwnedFd,
    pub(crate) ranks: Vec<RankFiles<OwnedFd>>,
}

impl WritableFiles {
    /// Makes them: sparse, all zeros, of lengths that never change. The job file can still be sealed against writers.
    pub(crate) fn create(layout: &Layout) -> Result<WritableFiles, SegmentError> {
        let file = |name, part| memory_file(name, layout.bytes_of(part));
        let job = file(c"kumi-segment-job", SegmentPart::Job)?;
        let shared = file(c"kumi-segment-shared", SegmentPart::Shared)?;
        let mut ranks = Vec::new();
        for local in 0..layout.local_count as usize {
            let own = file(c"kumi-segment-rank", SegmentPart::Rank(local))?;
            let arena = file(c"kumi-segment-arena", SegmentPart::Arena(local))?;
            seal(&arena, LENGTH | libc::F_SEAL_SEAL)?;
            ranks.push(RankFiles { own, arena });
        }
        seal(&shared, LENGTH | libc::F_SEAL_SEAL)?;
        Ok(WritableFiles { job, shared, ranks })
    }
}

impl WritableFiles {
    /// Those that ranks write.
    pub(crate) fn written_by_ranks(&self) -> impl Iterator<Item = (SegmentPart, BorrowedFd<'_>)> {
        written_by_ranks(&self.shared, &self.ranks)
    }
}

fn written_by_ranks<'f>(
    shared: &'f OwnedFd,
    ranks: &'f [RankFiles<OwnedFd>],
) -> impl Iterator<Item = (SegmentPart, BorrowedFd<'f>)> {
    let of_rank = |(local, files): (usize, &'f RankFiles<OwnedFd>)| {
        let (own, arena) = (files.own.as_fd(), files.arena.as_fd());
        [(SegmentPart::Rank(local), own), (SegmentPart::Arena(local), arena)]
    };
    let of_ranks = ranks.iter().enumerate().flat_map(of_rank);
    std::iter::once((SegmentPart::Shared, shared.as_fd())).chain(of_ranks)
}

/// The files of a segment as its daemon hands them to the ranks. Needed until the ranks have started.
#[derive(Debug)]
pub struct SegmentFiles {
    /// For reading.
    job: OwnedFd,
    shared: OwnedFd,
    writable: Vec<RankFiles<OwnedFd>>,
    readable: Vec<RankFiles<OwnedFd>>,
}

/// The files that one rank gets.
#[derive(Debug)]
pub struct FilesOfRank<'f> {
    /// Header and peer table, for reading.
    pub job: BorrowedFd<'f>,
    /// What all ranks of the node write.
    pub shared: BorrowedFd<'f>,
    /// Rank file and arena file of each local rank: its own for writing, the others for reading.
    pub ranks: Vec<[BorrowedFd<'f>; 2]>,
}

impl SegmentFiles {
    /// Opens what is to be read once more, for reading only.
    pub(crate) fn new(files: WritableFiles) -> Result<SegmentFiles, SegmentError> {
        let WritableFiles { job, shared, ranks: writable } = files;
        let job = read_only(&job)?;
        let mut readable = Vec::new();
        for files in &writable {
            readable
                .push(RankFiles { own: read_only(&files.own)?, arena: read_only(&files.arena)? });
        }
        Ok(SegmentFiles { job, shared, writable, readable })
    }

    /// What the local rank with this index gets.
    #[must_use]
    pub fn for_rank(&self, local: usize) -> FilesOfRank<'_> {
        let pick = |at: usize| {
            let files = if at == local { &self.writable[at] } else { &self.readable[at] };
            [files.own.as_fd(), files.arena.as_fd()]
        };
        let ranks = (0..self.readable.len()).map(pick).collect();
        FilesOfRank { job: self.job.as_fd(), shared: self.shared.as_fd(), ranks }
    }

    /// Those that ranks write, to be read.
    pub(crate) fn written_by_ranks(&self) -> impl Iterator<Item = (SegmentPart, BorrowedFd<'_>)> {
        written_by_ranks(&self.shared, &self.readable)
    }

    /// What a later daemon needs to read the segment: job file, shared file, and the rank file of each local rank, these for
    /// reading only.
    pub fn of_daemon(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ranks = self.readable.iter().map(|files| files.own.as_fd());
        [self.job.as_fd(), self.shared.as_fd()].into_iter().chain(ranks)
    }

    /// Another descriptor of the rank file of each local rank, for reading.
    pub(crate) fn rank_files(&self) -> io::Result<Vec<OwnedFd>> {
        self.readable.iter().map(|files| files.own.try_clone()).collect()
    }
}

#[cfg(miri)]
use crate::miri::read_only;
#[cfg(miri)]
pub(crate) use crate::miri::{add_seals, length, memory_file, seals};

/// A memory file of this length. Nobody but its maker's user can open it once more.
#[cfg(not(miri))]
pub(crate) fn memory_file(name: &CStr, length: usize) -> Result<OwnedFd, SegmentError> {
    // SAFETY: the name is a C string; the call touches nothing else.
    let raw =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    let raw = os("memfd_create", raw >= 0, raw)?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: plain system calls on our own descriptor.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), length as libc::off_t) };
    os("ftruncate", sized == 0, ())?;
    // SAFETY: as above.
    let closed = unsafe { libc::fchmod(file.as_raw_fd(), 0o600) };
    os("fchmod", closed == 0, ())?;
    seal(&file, LENGTH)?;
    Ok(file)
}

/// Memory that no other process can reach: its file has no name and no descriptor.
pub(crate) fn private_memory(bytes: usize) -> io::Result<Mapping> {
    let file = memory_file(c"kumi-private", bytes).map_err(io::Error::other)?;
    let map = Mapping::new(file.as_fd(), bytes)?;
    map.keep_out_of_dumps()?;
    Ok(map)
}

/// The same file, for reading only.
#[cfg(not(miri))]
fn read_only(file: &OwnedFd) -> Result<OwnedFd, SegmentError> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = OpenOptions::new().read(true).open(path);
    Ok(opened.map_err(failed("open for reading"))?.into())
}

fn seal(file: &OwnedFd, seals: libc::c_int) -> Result<(), SegmentError> {
    add_seals(file.as_fd(), seals).map_err(failed("F_ADD_SEALS"))
}

/// Seals a file against new writers and further seals. Mappings that exist go on. Kernels before 5.1 do not have that
/// seal: there the rights of descriptors and files remain.
pub(crate) fn seal_against_writers(file: BorrowedFd<'_>) -> io::Result<()> {
    match add_seals(file, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            add_seals(file, libc::F_SEAL_SEAL)
        }
        sealed => sealed,
    }
}

#[cfg(not(miri))]
pub(crate) fn add_seals(file: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if sealed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The seals of a file; none if it is no memory file.
#[cfg(not(miri))]
pub(crate) fn seals(file: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) }.max(0)
}

/// Whether a file is a memory file of this length which stays.
pub(crate) fn is_memory_of(file: &OwnedFd, bytes: usize) -> io::Result<bool> {
    Ok(length(file)? == bytes as u64 && seals(file.as_fd()) & LENGTH == LENGTH)
}

/// Bytes of a file.
#[cfg(not(miri))]
pub(crate) fn length(file: &OwnedFd) -> io::Result<u64> {
    // A second descriptor, since `File` would close this one.
    Ok(File::from(file.try_clone()?).metadata()?.len())
}
