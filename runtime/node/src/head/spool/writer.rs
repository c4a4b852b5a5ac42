//! Writer of one job's log: pieces go from memory to the segment that is written, or are dropped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_control::copying::LogPlace;
use kumi_control::message::Stream;
use kumi_sched::JobId;

use super::aside::{self, AsideSegment};
use super::disk::{DiskOperation, SpoolDisk, is_unanswered};
use super::log::{Gaps, Log, Segment, WrittenOutput};
use super::memory::JobMemory;
use super::segment::{self, FrameContent, Positions, SegmentHeader, SpoolRecord};

/// Least length of a segment.
const LEAST_SEGMENT: u64 = 64 << 10;
/// Length of the segments of large rings: a head that starts looks through the last one.
const LONG_SEGMENT: u64 = 16 << 20;
/// Into at least so many segments a ring is divided.
const SEGMENTS: u64 = 8;
/// Most segments of a log. Each time that a disk has room again, and each head, begins one.
const MOST_SEGMENTS: usize = 1_024;
/// Most frames of a job that wait in memory, in bytes.
const MOST_WAITING: usize = 4 << 20;
/// The same, as long as somebody has not read them for whom the job waits: then as much comes as nodes have sent already.
const MOST_UNREAD: usize = 64 << 20;
/// A head begins this far behind the last whole frame on disk. The head before it cannot have given out so many offsets.
const BETWEEN_HEADS: u64 = 1 << 48;

/// A log that readers share with its writer.
#[derive(Clone, Debug, Default)]
pub(in crate::head) struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    /// The log. Nobody panics while they have it, and it is sound at any time.
    pub(super) fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// File of the segment of a job that begins at this offset.
pub(super) fn path(folder: &Path, job: JobId, start: u64) -> PathBuf {
    folder.join(format!("{job}.{start}"))
}

/// The job and offset in the name of a segment.
pub(super) fn name_of(path: &Path) -> Option<(JobId, u64)> {
    let (job, start) = path.file_name()?.to_str()?.split_once('.')?;
    Some((JobId(job.parse().ok()?), start.parse().ok()?))
}

/// Gives the only file that an earlier version made for a job the name of a first segment.
pub(super) fn rename_earlier(path: PathBuf) -> io::Result<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str());
    if name.is_none_or(|name| name.parse::<u64>().is_err()) {
        return Ok(path);
    }
    let renamed = path.with_extension("0");
    fs::rename(&path, &renamed)?;
    Ok(renamed)
}

/// The writer of a job's log.
#[derive(Debug)]
pub(super) struct LogWriter {
    folder: PathBuf,
    job: JobId,
    log: SharedLog,
    /// The segment that is written.
    current: Option<Segment>,
    /// How far the streams have come, waiting pieces included.
    accepted: StreamsState,
    /// The same without these.
    behind: StreamsState,
    /// Output that is gone, in bytes.
    lost: u64,
    /// Output of earlier terms that was marked as lost before it is known which bytes these are.
    presumed: u64,
    /// Nothing was appended yet.
    fresh: bool,
    /// Segments that could not be read, oldest first.
    aside: Vec<AsideSegment>,
    /// Output of the last of them, about: what nodes cannot send again either is a part of it.
    unread: u64,
    /// Why this head could not read some.
    unreadable: Option<String>,
    /// Where segments begin that could not be read and have their names.
    left: Vec<u64>,
}

impl LogWriter {
    /// The log of a job of which these segments are on disk. One that cannot be read is set aside, which is logged.
    pub(super) fn open(folder: &Path, job: JobId, files: &JobFiles, memory: JobMemory) -> Self {
        let mut segments = Vec::new();
        let (mut total, mut state) = (0, StreamsState::default());
        let mut unreadable = Unreadable::default();
        for &start in files.segments.iter().rev() {
            // The newest that can be read says how far the streams have come.
            let last = segments.is_empty();
            match read_segment(&path(folder, job, start), start, last) {
                Ok((segment, now)) => {
                    if last {
                        total = segment.before.saturating_add(segment.output);
                        state = now;
                    }
                    segments.push(segment);
                }
                Err(error) => unreadable.add(folder, job, start, &error),
            }
        }
        segments.reverse();
        let mut lost = 0;
        for index in 1..segments.len() {
            let next = segments[index];
            let segment = &mut segments[index - 1];
            // Behind its end may be what a full disk took of a piece.
            segment.end = segment.end.min(next.start);
            segment.output = segment.output.min(next.before.saturating_sub(segment.before));
            if unreadable.is_any_between(segment.start, next.start) {
                let between = next.before.saturating_sub(segment.before);
                lost += between.saturating_sub(segment.output);
            }
        }
        let newest = segments.last().map(|segment| segment.start);
        let unread = unreadable.output_behind(newest);
        let mut log = Log::of(segments, total, memory);
        let before = files.aside.iter().map(|&start| aside::known(folder, job, start));
        let mut aside: Vec<AsideSegment> = before.chain(unreadable.aside).collect();
        aside.sort_unstable_by_key(|segment| segment.start);
        // Nothing is ever written where they were, nor where one is that stays.
        let left_ends = unreadable.left.iter().map(AsideSegment::end);
        let ends = aside.iter().map(AsideSegment::end).chain(left_ends);
        log.skip_to(ends.max().unwrap_or(0), unread);
        Self {
            folder: folder.to_owned(),
            job,
            log: SharedLog(Arc::new(Mutex::new(log))),
            current: None,
            behind: state.clone(),
            accepted: state,
            lost,
            presumed: 0,
            fresh: true,
            aside,
            unread,
            unreadable: unreadable.reason,
            left: unreadable.left.into_iter().map(|left| left.start).collect(),
        }
    }

    /// The log is a copy of another head's: what is missing at its end comes again from there.
    pub(super) fn begin_copy(&mut self) {
        let mut log = self.log.lock();
        if self.left.is_empty() {
            let (end, before) = (log.data_end(), log.written().bytes.saturating_sub(self.unread));
            log.go_to(end, before);
            self.unread = 0;
        }
    }

    /// Where the first segment begins that could not be read and has not been copied again, if anything of the log is behind that
    /// or in its place.
    pub(super) fn damage(&self) -> Option<u64> {
        let log = self.log.lock();
        let lacks = |start: &u64| !log.has(*start);
        let aside = self.aside.iter().map(|segment| segment.start);
        let aside = aside.filter(|start| *start < log.data_end());
        aside.chain(self.left.iter().copied()).filter(lacks).min()
    }

    /// Removes all that could not be read, and what stands behind the first of it. The log is to be opened anew.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn cut_damage(&mut self, from: u64, disk: &mut SpoolDisk) -> io::Result<()> {
        self.cut(from, disk)?;
        while let Some(&start) = self.left.last() {
            disk.perform(DiskOperation::Remove(path(&self.folder, self.job, start)))?;
            self.left.pop();
        }
        while let Some(segment) = self.aside.pop_if(|segment| segment.start >= from) {
            if let Err(error) = disk.perform(aside::removal(&self.folder, self.job, segment.start))
            {
                self.aside.push(segment);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why some of its output could not be read when this head began.
    pub(super) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Its files.
    pub(super) fn files(&self) -> JobFiles {
        let log = self.log.lock();
        let aside = self.aside.iter().map(|segment| segment.start).collect();
        JobFiles { segments: log.segments().map(|segment| segment.start).collect(), aside }
    }

    pub(super) fn log(&self) -> &SharedLog {
        &self.log
    }

    /// How far the streams have come.
    pub(super) fn accepted(&self) -> &Positions {
        &self.accepted.positions
    }

    /// How often the job was started again.
    pub(super) fn restarts(&self) -> u32 {
        self.accepted.restarts
    }

    /// The job is started again, this often with that time: all streams begin anew.
    ///
    /// # Errors
    /// The reason is too long for a log.
    pub(super) fn mark_restart(&mut self, restarts: u32, reason: &str) -> io::Result<()> {
        let frame = segment::restart_frame(restarts, reason).ok_or(io::ErrorKind::InvalidInput)?;
        let content = FrameContent::Restart(restarts);
        self.begin_behind_earlier_heads();
        // Streams that begin anew are not those of which something is missing.
        self.presumed = 0;
        self.log.lock().push(content, 0, frame, 0);
        self.accepted.pass(content, 0);
        Ok(())
    }

    /// The first thing that this head appends stands behind all offsets that the head before it can have given out.
    fn begin_behind_earlier_heads(&mut self) {
        let mut log = self.log.lock();
        if std::mem::take(&mut self.fresh) && log.end() > 0 {
            log.begin_anew(BETWEEN_HEADS);
        }
    }

    /// Output that is not on disk, in bytes: gone since this head began, or waiting.
    pub(super) fn not_kept(&self) -> u64 {
        let lost = self.lost.saturating_add(self.unread);
        lost.saturating_add(self.log.lock().waiting_output())
    }

    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        let aside: u64 = self.aside.iter().map(|segment| segment.length).sum();
        self.log.lock().segments().map(|segment| segment.length()).sum::<u64>() + aside
    }

    /// A new term of a head begins. The heads before it, on whatever machine, have given out no offset from `base` on, and had
    /// come as far as `earlier`: what is not here of that is lost.
    pub(super) fn begin_term(&mut self, base: u64, earlier: WrittenOutput) {
        self.fresh = false;
        self.presumed = self.log.lock().begin_term(base, earlier);
        self.lost = self.lost.saturating_add(self.presumed);
    }

    /// Takes a piece whose bytes begin at `at` in their stream. What is missing before it is lost. A piece without bytes says
    /// only that.
    ///
    /// # Errors
    /// The piece is too long for a log.
    pub(super) fn push(
        &mut self,
        rank: u32,
        stream: Stream,
        at: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let frame = segment::frame(rank, stream, data).ok_or(io::ErrorKind::InvalidInput)?;
        self.begin_behind_earlier_heads();
        let mut log = self.log.lock();
        let position = self.accepted.positions.entry((rank, stream)).or_default();
        let gap = at.saturating_sub(*position);
        // What could not be read is marked already, though nobody knows of which streams it was.
        let marked = gap.min(self.unread);
        self.unread -= marked;
        // So is what heads of earlier terms had, and it counts as lost already.
        let presumed = (gap - marked).min(self.presumed);
        self.presumed -= presumed;
        self.lost = self.lost.saturating_add(gap - presumed);
        let missing = gap - marked - presumed;
        if missing > 0 {
            log.skip(missing);
        }
        let output = data.len() as u64;
        *position = at.saturating_add(output).max(*position);
        if data.is_empty() {
            log.note_gap((rank, stream), *position);
            if log.first_waiting().is_none() {
                // The next segment begins behind it.
                self.behind.pass(FrameContent::Piece { rank, stream }, *position);
            }
            return Ok(());
        }
        log.push(FrameContent::Piece { rank, stream }, at, frame, output);
        Ok(())
    }

    /// Drops the oldest waiting pieces beyond what may wait. Who sets the pace has come to `slowest`. The job waits for a disk
    /// that `hangs`, and as much comes as nodes have sent already. If all jobs together have too much, that does not count.
    pub(super) fn bound_waiting(&mut self, slowest: Option<u64>, hangs: bool, disk: &SpoolDisk) {
        let excess = |log: &Log| {
            let is_read = |slowest| log.first_waiting().is_some_and(|piece| piece.offset < slowest);
            let bounded = !hangs && slowest.is_none_or(is_read);
            let most = if bounded { MOST_WAITING } else { MOST_UNREAD };
            log.memory().bytes() > most || log.memory().is_too_much()
        };
        while excess(&self.log.lock()) {
            self.drop_waiting(disk);
        }
    }

    /// Drops the oldest waiting piece.
    fn drop_waiting(&mut self, disk: &SpoolDisk) {
        let Some(piece) = self.log.lock().pop_waiting() else { return };
        let file = path(&self.folder, self.job, piece.offset);
        let begun = self.current.take_if(|segment| segment.start == piece.offset);
        if begun.is_some() || disk.may_begin(&file) {
            // A segment that was to begin with it.
            disk.perform_later(DiskOperation::Remove(file));
        }
        self.lost = self.lost.saturating_add(piece.output);
        self.behind.pass_gaps(&piece.gaps);
        self.behind.pass(piece.content, piece.at + piece.output);
    }

    /// Drops all that waits: nothing of it is to be kept.
    pub(super) fn drop_all_waiting(&mut self, disk: &SpoolDisk) {
        while self.needs().is_some() {
            self.drop_waiting(disk);
        }
    }

    /// What comes next stands elsewhere, and so much output is before it: the place in the log that is copied here. Nothing waits.
    pub(super) fn go_to(&mut self, place: &LogPlace) {
        self.fresh = false;
        self.log.lock().go_to(place.offset, place.before);
        if let Some(restarts) = place.restarts.filter(|&times| times != self.accepted.restarts) {
            self.accepted.pass(FrameContent::Restart(restarts), 0);
        }
        let positions = place.positions.iter();
        self.accepted.positions.extend(positions.map(|&(rank, stream, at)| ((rank, stream), at)));
        self.behind = self.accepted.clone();
    }

    /// Takes a frame that is copied from another head's log, where it stands at the same place.
    pub(super) fn push_copy(&mut self, record: &SpoolRecord<'_>, frame: Vec<u8>) {
        let (mut at, mut output) = (0, 0);
        if let FrameContent::Piece { rank, stream } = record.content {
            output = record.data.len() as u64;
            at = self.accepted.positions.get(&(rank, stream)).copied().unwrap_or(0);
        }
        self.accepted.pass(record.content, at.saturating_add(output));
        self.log.lock().push(record.content, at, frame, output);
    }

    /// Removes what stands behind `end`, where a frame ends. The log is to be opened anew.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn cut(&mut self, end: u64, disk: &mut SpoolDisk) -> io::Result<()> {
        self.drop_all_waiting(disk);
        self.close(disk);
        let segments: Vec<Segment> = self.log.lock().segments().rev().collect();
        for segment in segments.into_iter().take_while(|segment| segment.end > end) {
            let file = path(&self.folder, self.job, segment.start);
            if segment.start >= end {
                disk.perform(DiskOperation::Remove(file))?;
            } else {
                disk.perform(DiskOperation::Cut(file, segment.body + (end - segment.start)))?;
            }
        }
        Ok(())
    }

    /// About how many bytes the first waiting piece adds to the files, if there is one.
    pub(super) fn needs(&self) -> Option<u64> {
        let log = self.log.lock();
        Some(log.first_waiting()?.frame.len() as u64)
    }

    /// Whether the log has so many segments that the oldest must go.
    pub(super) fn has_too_many(&self) -> bool {
        self.log.lock().segment_count() >= MOST_SEGMENTS
    }

    /// Removes the oldest segment, unless it is written now. Returns whether it did.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn drop_oldest(&mut self, disk: &mut SpoolDisk) -> io::Result<bool> {
        let oldest = self.log.lock().segments().next();
        if let Some(aside) = self.aside.first().copied()
            && oldest.is_none_or(|oldest| aside.start < oldest.start)
        {
            disk.perform(aside::removal(&self.folder, self.job, aside.start))?;
            self.aside.remove(0);
            return Ok(true);
        }
        let written = self.current.as_ref().map(|segment| segment.start);
        let Some(oldest) = oldest.filter(|segment| Some(segment.start) != written) else {
            return Ok(false);
        };
        disk.perform(DiskOperation::Remove(path(&self.folder, self.job, oldest.start)))?;
        self.log.lock().pop_segment();
        self.lost = self.lost.saturating_add(oldest.output);
        Ok(true)
    }

    /// Writes the first waiting piece to a ring of this many bytes.
    ///
    /// # Errors
    /// As the system says, or the disk does not answer yet. The piece waits on.
    pub(super) fn write(&mut self, ring: u64, disk: &mut SpoolDisk) -> io::Result<()> {
        let Some(piece) = self.log.lock().first_waiting().cloned() else { return Ok(()) };
        let usual = (ring / SEGMENTS).min(LONG_SEGMENT.max(ring / (MOST_SEGMENTS as u64 / 2)));
        let longest = |segment: &Segment| usual.max(LEAST_SEGMENT).max(4 * segment.body);
        let goes_on = self.current.as_ref().is_some_and(|segment| {
            segment.end == piece.offset && segment.length() < longest(segment)
        });
        if !goes_on {
            self.close(disk);
            self.behind.pass_gaps(&piece.gaps);
            if let FrameContent::Piece { .. } = piece.content {
                self.behind.pass(piece.content, piece.at);
            }
            self.current = Some(self.begin_segment(piece.offset, piece.before, disk)?);
        }
        let Some(segment) = &mut self.current else { return Ok(()) };
        let file = path(&self.folder, self.job, segment.start);
        let place = segment.length();
        let write = DiskOperation::Write(file.clone(), place, Arc::clone(&piece.frame));
        if let Err(error) = disk.perform(write) {
            // Whatever was written of it is behind the end. A reader never looks there, and the next piece overwrites it.
            if segment.start == segment.end && !is_unanswered(&error) {
                self.current = None;
                disk.perform(DiskOperation::Remove(file))?;
            }
            return Err(error);
        }
        segment.end += piece.frame.len() as u64;
        segment.output += piece.output;
        self.behind.pass(piece.content, piece.at + piece.output);
        let mut log = self.log.lock();
        log.pop_waiting();
        log.set_segment(*segment);
        Ok(())
    }

    fn begin_segment(&self, start: u64, before: u64, disk: &mut SpoolDisk) -> io::Result<Segment> {
        let path = path(&self.folder, self.job, start);
        let header = SegmentHeader::encode(before, &self.behind.positions, self.behind.restarts);
        let body = header.len() as u64;
        if let Err(error) = disk.perform(DiskOperation::Begin(path.clone(), header.into())) {
            // One that is under way is begun again, or removed when its first piece is dropped.
            if !is_unanswered(&error) {
                disk.perform(DiskOperation::Remove(path))?;
            }
            return Err(error);
        }
        Ok(Segment { start, end: start, before, output: 0, body })
    }

    /// No more will come: nothing is left open.
    pub(super) fn close(&mut self, disk: &SpoolDisk) {
        if let Some(segment) = self.current.take() {
            let file = path(&self.folder, self.job, segment.start);
            // A segment in which nothing came is none.
            let empty = segment.start == segment.end;
            let last = if empty { DiskOperation::Remove } else { DiskOperation::Close };
            disk.perform_later(last(file));
        }
    }

    /// Removes everything of the log. Who reads it finds a hole.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn remove_all(&mut self, disk: &mut SpoolDisk) -> io::Result<()> {
        self.close(disk);
        let starts: Vec<u64> = self.log.lock().segments().map(|segment| segment.start).collect();
        for start in starts {
            disk.perform(DiskOperation::Remove(path(&self.folder, self.job, start)))?;
        }
        while let Some(segment) = self.aside.last() {
            disk.perform(aside::removal(&self.folder, self.job, segment.start))?;
            self.aside.pop();
        }
        self.log.lock().clear();
        Ok(())
    }
}

/// Where the files of a job begin in its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobFiles {
    /// Segments, ascending.
    pub(super) segments: Vec<u64>,
    /// Those that were set aside.
    pub(super) aside: Vec<u64>,
}

/// How far the streams of a job have come since it was started last.
#[derive(Clone, Debug, Default)]
struct StreamsState {
    positions: Positions,
    restarts: u32,
}

impl StreamsState {
    /// Streams had come so far without bytes.
    fn pass_gaps(&mut self, gaps: &Gaps) {
        self.positions.extend(gaps.iter().map(|(&stream, &position)| (stream, position)));
    }

    /// A frame with this content ends at `end` in its stream.
    fn pass(&mut self, content: FrameContent, end: u64) {
        match content {
            FrameContent::Piece { rank, stream } => {
                self.positions.insert((rank, stream), end);
            }
            FrameContent::Restart(restarts) => {
                self.positions.clear();
                self.restarts = restarts;
            }
        }
    }
}

/// The segments of a job that cannot be read now.
#[derive(Debug, Default)]
struct Unreadable {
    aside: Vec<AsideSegment>,
    /// Those that stay where they are.
    left: Vec<AsideSegment>,
    reason: Option<String>,
}

impl Unreadable {
    fn add(&mut self, folder: &Path, job: JobId, start: u64, error: &io::Error) {
        self.reason = Some(format!("a part of it cannot be read: {error}"));
        if !aside::may_be_readable_later(error) {
            match aside::set_aside(folder, job, start) {
                Ok(segment) => {
                    tracing::error!(%job, start, %error, "a segment of output is unreadable, and set aside");
                    self.aside.push(segment);
                    return;
                }
                Err(error) => {
                    tracing::error!(%job, start, %error, "an unreadable segment cannot be set aside");
                }
            }
        }
        tracing::error!(%job, start, %error, "a segment of output cannot be read");
        let length = fs::symlink_metadata(path(folder, job, start)).map_or(0, |it| it.len());
        self.left.push(AsideSegment { start, length });
    }

    /// Whether one that was set aside now begins between these offsets.
    fn is_any_between(&self, from: u64, to: u64) -> bool {
        self.aside.iter().any(|segment| (from..to).contains(&segment.start))
    }

    /// About how much output was in those behind the newest that could be read.
    fn output_behind(&self, newest: Option<u64>) -> u64 {
        let behind = self.aside.iter().filter(|one| newest.is_none_or(|newest| one.start > newest));
        behind.map(AsideSegment::output).sum()
    }
}

/// What a file holds, and how far the streams have come behind it. Only the last one of a log is looked through.
fn read_segment(path: &Path, start: u64, last: bool) -> io::Result<(Segment, StreamsState)> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
    }
    let header = SegmentHeader::read(&mut file)?;
    let (mut positions, mut restarts) = (header.positions, header.restarts);
    let rest = metadata.len().saturating_sub(header.length);
    let (length, output) = if last {
        let whole = segment::scan(&mut file, (&mut positions, &mut restarts))?;
        (whole.length, whole.output)
    } else {
        (rest, rest)
    };
    let end = start.saturating_add(length);
    let segment = Segment { start, end, before: header.before, output, body: header.length };
    Ok((segment, StreamsState { positions, restarts }))
}
