//! Copies of a node's part of a job whose ranks are stopped, and segments that go on with such a copy.
//!
//! What the ranks of a node were in the middle of lies in their files: channels, rings and windows. Only written parts of
//! the files are copied. Key, addresses and sockets are not in them: a segment that goes on has new ones.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use kumi_proto::context::ContextReport;

use crate::segment::files::{SegmentFiles, failed};
use crate::segment::layout::{
    ATTACH_COPY, ATTACH_NOW, Layout, RankContext, SegmentPart, SharedLines, Sleep, State, WaitTable,
};
use crate::segment::{Segment, SegmentError, SegmentSpec};

/// Most bytes copied by one call.
const CHUNK: usize = 1 << 20;

/// Why the ranks of a node cannot be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A rank was stopped in the middle of a change.
    #[error(
        "rank {rank} was stopped in the middle of a change; let it run for a moment, stop it and copy again"
    )]
    Busy {
        /// The rank.
        rank: u32,
    },
    /// The ranks have written more than a copy may have.
    #[error(
        "the ranks of this node have written more than the {most} bytes that a copy may have; let them have smaller windows, or permit a larger copy"
    )]
    TooLarge {
        /// Most bytes of a copy.
        most: usize,
    },
    /// The kernel refused.
    #[error("the files of the job's ranks cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Everything that the ranks of a node have written into their files.
#[derive(Debug)]
pub struct SegmentCopy {
    layout: Layout,
    files: Vec<FileCopy>,
}

/// The written parts of a file.
#[derive(Debug)]
struct FileCopy {
    part: SegmentPart,
    /// Where each starts, and its bytes.
    extents: Vec<(usize, Vec<u8>)>,
}

impl SegmentCopy {
    /// Copies the files of the ranks of a node, all of which are stopped, into at most `most` bytes: ranks decide how much
    /// they write. What they touched and left at 0 does not count.
    ///
    /// Each rank's state is whole in it, so ranks of other nodes may be copied before or after, and stopped anywhere. A rank
    /// that runs while it is copied makes the copy worthless, without anybody noticing: the caller stops it first.
    ///
    /// # Errors
    /// [`CopyError`]; the ranks can go on.
    pub fn take(
        segment: &Segment,
        files: &SegmentFiles,
        most: usize,
    ) -> Result<SegmentCopy, CopyError> {
        let layout = segment.layout;
        let mut room = most;
        let files = files.written_by_ranks().map(|(part, file)| {
            let taken = FileCopy::take(part, file, &mut room)?;
            taken.ok_or(CopyError::TooLarge { most })
        });
        let copy = SegmentCopy { layout, files: files.collect::<Result<_, CopyError>>()? };
        for local in 0..layout.local_count as usize {
            if !copy.is_at_rest(local) {
                return Err(CopyError::Busy { rank: layout.local_first + local as u32 });
            }
        }
        Ok(copy)
    }

    /// Bytes of the copy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.iter().flat_map(|file| &file.extents).map(|(_, bytes)| bytes.len()).sum()
    }

    /// Whether a rank was in no change when it was stopped.
    fn is_at_rest(&self, local: usize) -> bool {
        let own = SegmentPart::Rank(local);
        let Some(file) = self.files.iter().find(|file| file.part == own) else { return false };
        let rings = file.word(offset_of!(RankContext, state) + offset_of!(State, changes));
        let channel = file.word(self.layout.rank_front + ContextReport::CHANGES.start);
        u32::from_ne_bytes(rings) & 1 == 0 && u64::from_ne_bytes(channel) & 1 == 0
    }
}

impl FileCopy {
    /// None if there is no room for it.
    fn take(
        part: SegmentPart,
        file: BorrowedFd<'_>,
        room: &mut usize,
    ) -> io::Result<Option<FileCopy>> {
        let file = opened(file)?;
        let mut extents = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = next_extent(&file, at)? {
            at = start;
            while at < end {
                let mut bytes = vec![0; CHUNK.min(end - at)];
                file.read_exact_at(&mut bytes, at as u64)?;
                let (start, length) = (at, bytes.len());
                at += length;
                // A page that was only read counts as written.
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let Some(rest) = room.checked_sub(length) else { return Ok(None) };
                *room = rest;
                extents.push((start, bytes));
            }
        }
        Ok(Some(FileCopy { part, extents }))
    }

    /// The bytes of an aligned number; those that were never written are 0.
    fn word<const N: usize>(&self, at: usize) -> [u8; N] {
        let from = |(start, bytes): &(usize, Vec<u8>)| {
            let place = at.checked_sub(*start)?;
            bytes.get(place..place + N)?.try_into().ok()
        };
        self.extents.iter().find_map(from).unwrap_or([0; N])
    }

    fn write_to(&self, file: &File) -> io::Result<()> {
        self.extents.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at as u64))
    }
}

impl Segment {
    /// Makes a segment that goes on with a copy. `spec` has the same ranks and sizes as the old segment, and may have other
    /// keys. Each rank that had joined its job is to be joined once more, by
    /// [`Channel::resume`](crate::Channel::resume).
    ///
    /// # Errors
    /// As [`Segment::create`]; [`SegmentError::OtherSizes`].
    pub fn go_on(
        spec: &SegmentSpec,
        copy: &SegmentCopy,
    ) -> Result<(Segment, SegmentFiles), SegmentError> {
        Segment::filled(spec, |layout, files| {
            if *layout != copy.layout {
                return Err(SegmentError::OtherSizes);
            }
            for (part, file) in files.written_by_ranks() {
                let file = opened(file).map_err(failed("dup"))?;
                let from = copy.files.iter().find(|file| file.part == part);
                from.map_or(Ok(()), |from| from.write_to(&file)).map_err(failed("pwrite"))?;
                match part {
                    SegmentPart::Rank(_) => ready_to_join(&file),
                    SegmentPart::Shared => awake(&file, layout),
                    SegmentPart::Job | SegmentPart::Arena(_) => Ok(()),
                }
                .map_err(failed("pwrite"))?;
            }
            Ok(())
        })
    }
}

/// Another process may join as this rank, if one had. It computes until it waits itself, whatever the old one was stopped in.
fn ready_to_join(file: &File) -> io::Result<()> {
    let place = |field| (offset_of!(RankContext, state) + field) as u64;
    for field in
        [offset_of!(State, idle), offset_of!(State, wait_counter), offset_of!(State, wanting)]
    {
        file.write_all_at(&[0; 4], place(field))?;
    }
    let none = [0; size_of::<WaitTable>()];
    file.write_all_at(&none, offset_of!(RankContext, waits) as u64)?;
    let at = place(offset_of!(State, attached));
    let mut state = [0; 4];
    file.read_exact_at(&mut state, at)?;
    if u32::from_ne_bytes(state) != ATTACH_NOW {
        return Ok(());
    }
    file.write_all_at(&ATTACH_COPY.to_ne_bytes(), at)
}

/// No rank sleeps.
fn awake(file: &File, layout: &Layout) -> io::Result<()> {
    let none = [0; size_of::<Sleep>()];
    let sleep = |local| local * size_of::<SharedLines>() + offset_of!(SharedLines, sleep);
    let mut locals = 0..layout.local_count as usize;
    locals.try_for_each(|local| file.write_all_at(&none, sleep(local) as u64))
}

/// Another descriptor of a file. Reading by it makes no pages where there are none, as a mapping would.
fn opened(file: BorrowedFd<'_>) -> io::Result<File> {
    Ok(file.try_clone_to_owned()?.into())
}

/// The first written part from a place on.
fn next_extent(file: &File, from: usize) -> io::Result<Option<(usize, usize)>> {
    let Some(start) = seek(file, from, libc::SEEK_DATA)? else { return Ok(None) };
    // A file ends with a hole.
    let end = seek(file, start, libc::SEEK_HOLE)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Some((start, end)))
}

/// Nobody uses the file's position.
fn seek(file: &File, from: usize, what: libc::c_int) -> io::Result<Option<usize>> {
    // SAFETY: a system call without pointers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
    if at >= 0 {
        return Ok(Some(at as usize));
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        error => Err(error),
    }
}
