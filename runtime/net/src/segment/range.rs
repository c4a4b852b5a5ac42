//! The range of addresses into which a rank maps the files of its segment, each with its rights.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::segment::attachment::{AttachError, io_error};
use crate::segment::files::{
    RankFiles, WritableFiles, is_memory_of, length, seal_against_writers, seals,
};
use crate::segment::header::{HeaderCopy, SegmentNumbers};
use crate::segment::layout::{Layout, PAGE, SegmentPart};
use crate::shm::mapping::{FilePart, Mapping};

/// The files of a segment as a rank has them.
pub(crate) struct RankSegment {
    pub(crate) job: OwnedFd,
    pub(crate) shared: OwnedFd,
    pub(crate) ranks: Vec<RankFiles<OwnedFd>>,
    /// Which rank has them.
    pub(crate) rank: u32,
}

impl RankSegment {
    /// Those of a job of one rank.
    pub(crate) fn of_one(files: WritableFiles) -> RankSegment {
        let WritableFiles { job, shared, ranks } = files;
        RankSegment { job, shared, ranks, rank: 0 }
    }

    fn file(&self, part: SegmentPart) -> &OwnedFd {
        match part {
            SegmentPart::Job => &self.job,
            SegmentPart::Shared => &self.shared,
            SegmentPart::Rank(local) => &self.ranks[local].own,
            SegmentPart::Arena(local) => &self.ranks[local].arena,
        }
    }
}

/// Maps a segment after checking that it is one, of this version, that `fits` agrees with its numbers, and that each file
/// is as long as it has to be. From now on no other process can begin to write the own rank file.
pub(crate) fn map_segment(
    files: &RankSegment,
    fits: impl FnOnce(&Layout) -> Result<(), AttachError>,
) -> Result<(Mapping, SegmentNumbers), AttachError> {
    let numbers = read_header(&files.job)?;
    let layout = numbers.layout;
    let own = files
        .rank
        .checked_sub(layout.local_first)
        .filter(|index| *index < layout.local_count)
        .ok_or(AttachError::BadSegment("it is for other ranks"))? as usize;
    fits(&layout)?;
    let all = 0..layout.local_count as usize;
    let parts = [SegmentPart::Job, SegmentPart::Shared].into_iter();
    let parts = parts.chain(all.clone().map(SegmentPart::Rank));
    for part in parts.chain(all.map(SegmentPart::Arena)) {
        let fits = is_memory_of(files.file(part), layout.bytes_of(part));
        if !fits.map_err(io_error("fstat"))? {
            return Err(AttachError::BadSegment("a file of it is not a sealed one of its length"));
        }
    }
    let own_file = files.file(SegmentPart::Rank(own)).as_fd();
    if seals(own_file) & libc::F_SEAL_FUTURE_WRITE != 0 {
        return Err(AttachError::AlreadyAttached(files.rank));
    }
    let map = map_files(files, &layout, own).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            AttachError::BadSegment("its files are those of another rank")
        }
        _ => io_error("mmap")(error),
    })?;
    seal_against_writers(own_file).map_err(io_error("F_ADD_SEALS"))?;
    // A dump would allocate every page that was never touched, of all local ranks, and it would show the channel's keys.
    map.keep_out_of_dumps().map_err(io_error("madvise"))?;
    Ok((map, numbers))
}

/// A copy of the header of a job file, and the file's length. The file cannot become shorter, so its header can be read.
pub(crate) fn header_of(job: &OwnedFd) -> Result<(HeaderCopy, usize), AttachError> {
    let bad = AttachError::BadSegment;
    let bytes = length(job).map_err(io_error("fstat"))?;
    let bytes = usize::try_from(bytes).map_err(|_| bad("bad length"))?;
    if seals(job.as_fd()) & libc::F_SEAL_SHRINK == 0 || bytes < PAGE {
        return Err(bad("it is not a sealed memory file"));
    }
    let start = Mapping::read_only(job.as_fd(), PAGE).map_err(io_error("mmap"))?;
    // SAFETY: Header consists of atomics only.
    Ok((HeaderCopy::of(unsafe { start.view(0) }), bytes))
}

fn read_header(job: &OwnedFd) -> Result<SegmentNumbers, AttachError> {
    let (header, bytes) = header_of(job)?;
    match header.other_version() {
        Some(segment) => Err(AttachError::OtherVersion { segment }),
        None => header.check(bytes).map_err(AttachError::BadSegment),
    }
}

/// Maps each file where the layout says.
fn map_files(files: &RankSegment, layout: &Layout, own: usize) -> io::Result<Mapping> {
    let mut map = Mapping::reserve(layout.total)?;
    let mut put = |offset, part, start, length, write| {
        map.fill(offset, FilePart { file: files.file(part).as_fd(), start, length }, write)
    };
    let whole = |part| layout.bytes_of(part);
    put(0, SegmentPart::Job, 0, whole(SegmentPart::Job), false)?;
    put(layout.shared, SegmentPart::Shared, 0, whole(SegmentPart::Shared), true)?;
    for local in 0..layout.local_count as usize {
        let (rank, arena, write) =
            (SegmentPart::Rank(local), SegmentPart::Arena(local), local == own);
        put(layout.context(local), rank, 0, layout.rank_front, write)?;
        put(layout.readable_arena(local), arena, 0, layout.arena_bytes, write)?;
    }
    put(layout.channel, SegmentPart::Rank(own), layout.rank_front, layout.channel_bytes, true)?;
    Ok(map)
}
