//! A segment whose ranks run, as a later daemon reads it.
//!
//! The job file is sealed against new writers, so this daemon maps it for reading. It needs no more: who is where is written
//! before the ranks start.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use super::files::{failed, is_memory_of};
use super::layout::{MAGIC, RankContext, SegmentPart, VERSION};
use super::range::header_of;
use super::{RankView, Segment, SegmentError, SegmentSpec};
use crate::shm::mapping::Mapping;

fn other_file(what: &'static str) -> SegmentError {
    failed(what)(io::Error::from(io::ErrorKind::InvalidData))
}

/// The version of a segment of another version. None of anything else, also if this cannot be told.
fn other_version(job: &OwnedFd) -> Option<u32> {
    header_of(job).ok()?.0.other_version()
}

impl Segment {
    /// Maps the files of [`super::SegmentFiles::of_daemon`], in that order, of a segment that was made by this specification.
    ///
    /// # Errors
    /// [`SegmentError::BadSpec`]; [`SegmentError::OtherVersion`]; [`SegmentError::Io`] also if a file is not the one that it should be.
    pub fn adopt(
        spec: &SegmentSpec,
        files: impl IntoIterator<Item = OwnedFd>,
    ) -> Result<Segment, SegmentError> {
        let (layout, mut files) = (spec.layout()?, files.into_iter().peekable());
        // Before its length is looked at, which another version may reckon otherwise.
        if let Some(segment) = files.peek().and_then(other_version) {
            return Err(SegmentError::OtherVersion { segment });
        }
        let mut next = |what: &'static str, part: SegmentPart| {
            let file = files.next().ok_or_else(|| other_file(what))?;
            match is_memory_of(&file, layout.bytes_of(part)).map_err(failed(what))? {
                true => Ok(file),
                false => Err(other_file(what)),
            }
        };
        let job = next("job file", SegmentPart::Job)?;
        let shared = next("shared file", SegmentPart::Shared)?;
        let lines = layout.open_arenas - layout.shared;
        let mut ranks = Vec::new();
        for local in 0..layout.local_count as usize {
            let file = next("rank file", SegmentPart::Rank(local))?;
            let context = Mapping::read_only(file.as_fd(), size_of::<RankContext>());
            let context = Arc::new(context.map_err(failed("mmap"))?);
            ranks.push(RankView { context, file: file.into() });
        }
        let job = Mapping::read_only(job.as_fd(), layout.shared).map_err(failed("mmap"))?;
        let lines = Mapping::read_only(shared.as_fd(), lines).map_err(failed("mmap"))?;
        let segment = Segment { job, lines, ranks, layout, adopted: true };
        let header = segment.header();
        let same = header.magic.load(Acquire) == MAGIC && header.version.load(Acquire) == VERSION;
        if same { Ok(segment) } else { Err(other_file("header")) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{files::memory_file, layout::PAGE};
    use super::*;
    use std::os::unix::fs::FileExt;

    fn spec() -> SegmentSpec {
        SegmentSpec {
            channel_key: 7,
            seal_key: None,
            ranks: 3,
            local_ranks: 1..3,
            ring_bytes: 4096,
            arena_bytes: 4096,
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "files of the kernel")]
    fn another_daemon_reads_what_the_first_one_read_and_writes_nothing() {
        let (first, files) = Segment::create(&spec()).unwrap();
        let given = || files.of_daemon().map(|file| file.try_clone_to_owned().unwrap());
        let mut second = Segment::adopt(&spec(), given()).unwrap();
        assert_eq!(second.sample(1), first.sample(1));
        assert_eq!(second.rank_state(0), first.rank_state(0));
        let address = "10.0.0.1:5".parse().unwrap();
        assert!(second.publish_peers(&[address; 3], 1_400).is_err(), "it would end the daemon");
        // Of a version whose files have other lengths.
        let job = given().next().unwrap();
        let copy = memory_file(c"other", 3 * PAGE).unwrap();
        let other = std::fs::File::from(copy.try_clone().unwrap());
        let mut header = [0; 128];
        std::fs::File::from(job).read_exact_at(&mut header, 0).unwrap();
        header[8..12].copy_from_slice(&(VERSION + 1).to_ne_bytes());
        other.write_all_at(&header, 0).unwrap();
        let error = Segment::adopt(&spec(), [copy]).unwrap_err();
        assert!(matches!(error, SegmentError::OtherVersion { segment } if segment == VERSION + 1));
        // Fewer files, or those of another job.
        assert!(Segment::adopt(&spec(), given().take(3)).is_err());
        let larger = SegmentSpec { ring_bytes: 1 << 20, ..spec() };
        assert!(Segment::adopt(&larger, given()).is_err());
    }
}
