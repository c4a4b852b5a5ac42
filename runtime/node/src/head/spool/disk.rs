//! The disk under the spool: a thread of its own writes and removes segments, since a disk may take any time over it.
//!
//! Whoever has something done waits for a moment, in which a healthy disk has done it. If the disk does not answer by then, the
//! same is asked for again later, and the answer is taken that has come meanwhile. One thing is under way at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::head::reserve;

/// How long the main loop waits for the disk. Tests on a busy machine wait for as long as it takes.
const MOMENT: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 100 });
/// A disk that does not answer for so long counts as one that takes nothing.
const LONG: Duration = Duration::from_secs(10);

/// Something to be done. What is done twice is as if it was done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DiskOperation {
    /// Begin a segment with this header.
    Begin(PathBuf, Arc<[u8]>),
    /// Write into a segment at this place.
    Write(PathBuf, u64, Arc<[u8]>),
    /// Remove a file. That there is none is no error.
    Remove(PathBuf),
    /// Cut a segment off at this length.
    Cut(PathBuf, u64),
    /// Nothing more is written to this segment.
    Close(PathBuf),
    /// Refuse if the disk of this folder has little room.
    NeedRoom(PathBuf),
}

/// The segments that are written now.
#[derive(Default)]
struct OpenSegments(BTreeMap<PathBuf, File>);

impl OpenSegments {
    fn perform(&mut self, operation: DiskOperation) -> io::Result<()> {
        match operation {
            DiskOperation::Begin(path, header) => {
                let file =
                    OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
                file.write_all_at(&header, 0)?;
                self.0.insert(path, file);
                Ok(())
            }
            DiskOperation::Write(path, at, bytes) => match self.0.get(&path) {
                Some(file) => file.write_all_at(&bytes, at),
                None => {
                    let file = OpenOptions::new().write(true).open(&path)?;
                    file.write_all_at(&bytes, at)?;
                    self.0.insert(path, file);
                    Ok(())
                }
            },
            DiskOperation::Remove(path) => {
                self.0.remove(&path);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                }
            }
            DiskOperation::Cut(path, length) => {
                OpenOptions::new().write(true).open(&path)?.set_len(length)
            }
            DiskOperation::Close(path) => {
                self.0.remove(&path);
                Ok(())
            }
            DiskOperation::NeedRoom(folder) => {
                if reserve::is_nearly_full(&folder)? {
                    return Err(io::Error::new(
                        io::ErrorKind::StorageFull,
                        "the disk of the head is nearly full, and the rest of it is for the job table",
                    ));
                }
                Ok(())
            }
        }
    }
}

/// Something under way, and its answer when it comes.
#[derive(Debug)]
struct UnderWay {
    operation: DiskOperation,
    since: Instant,
    answer: Receiver<io::Result<()>>,
}

/// An operation, and who is told; nobody of those that nobody waits for.
type Order = (DiskOperation, Option<Sender<io::Result<()>>>);

/// The disk.
#[derive(Debug)]
pub(super) struct SpoolDisk {
    orders: Sender<Order>,
    /// It did not answer within the moment.
    late: Option<UnderWay>,
    moment: Duration,
    /// Somebody looks for an answer that was late.
    awaited: Arc<AtomicBool>,
}

/// The disk has not answered yet.
#[derive(Debug, thiserror::Error)]
#[error("the disk of the head does not answer")]
struct Unanswered;

/// Whether an operation failed because the disk has not answered yet. It is under way.
pub(super) fn is_unanswered(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
}

fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Unanswered)
}

fn work(orders: &Receiver<Order>, awaited: &AtomicBool, progress: &Notify) {
    let mut segments = OpenSegments::default();
    while let Ok((operation, asker)) = orders.recv() {
        let subject = asker.is_none().then(|| operation.clone());
        let done = segments.perform(operation);
        match asker {
            Some(asker) => {
                // Who does not wait any more asks again.
                let _ = asker.send(done);
            }
            None => {
                if let Err(error) = done {
                    tracing::error!(?subject, %error, "a segment of output is left");
                }
            }
        }
        if awaited.load(Ordering::Acquire) {
            progress.notify_one();
        }
    }
}

impl SpoolDisk {
    /// Starts the thread, which tells `progress` of answers that come late.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start(progress: &Arc<Notify>) -> io::Result<Self> {
        let (orders, queue) = channel();
        let awaited = Arc::new(AtomicBool::new(false));
        let (told, progress) = (Arc::clone(&awaited), Arc::clone(progress));
        std::thread::Builder::new()
            .name("spool".to_owned())
            .spawn(move || work(&queue, &told, &progress))?;
        Ok(Self { orders, late: None, moment: MOMENT, awaited })
    }

    /// Does this, if the disk answers within a moment.
    ///
    /// # Errors
    /// As the system says. If [`is_unanswered`], it may be done later: nobody may rely on either.
    pub(super) fn perform(&mut self, operation: DiskOperation) -> io::Result<()> {
        if let Some(late) = self.late.take() {
            match late.answer.try_recv() {
                Ok(done) if late.operation == operation => return self.answered(done),
                Err(TryRecvError::Empty) => {
                    self.late = Some(late);
                    return Err(unanswered());
                }
                // Of another one, which is asked for again.
                Ok(_) | Err(TryRecvError::Disconnected) => {}
            }
        }
        let (sender, answer) = channel();
        let gone = || io::Error::other("the writer of output is gone");
        self.orders.send((operation.clone(), Some(sender))).map_err(|_| gone())?;
        let since = Instant::now();
        // Before the last look: an answer that comes now is told, too.
        self.awaited.store(true, Ordering::Release);
        match answer.recv_timeout(self.moment) {
            Ok(done) => self.answered(done),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                self.late = Some(UnderWay { operation, since, answer });
                Err(unanswered())
            }
        }
    }

    fn answered(&self, done: io::Result<()>) -> io::Result<()> {
        self.awaited.store(false, Ordering::Release);
        done
    }

    /// Does this behind all else, whenever the disk answers. That it failed is logged.
    pub(super) fn perform_later(&self, operation: DiskOperation) {
        if self.orders.send((operation, None)).is_err() {
            tracing::error!("the writer of output is gone: a segment is left");
        }
    }

    /// Whether the disk may still begin this segment, which nobody knows yet.
    pub(super) fn may_begin(&self, segment: &Path) -> bool {
        self.late.as_ref().is_some_and(
            |late| matches!(&late.operation, DiskOperation::Begin(path, _) if path == segment),
        )
    }

    /// Whether the disk has not answered for so long that it counts as one that takes nothing.
    pub(super) fn hangs_for_long(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.since.elapsed() >= LONG)
    }

    /// The disk has not answered for long: for tests.
    #[cfg(test)]
    pub(super) fn age(&mut self) {
        if let Some(late) = &mut self.late {
            late.since = late.since.checked_sub(LONG).expect("the machine has run for longer");
        }
    }

    /// Waits for so long only: for tests.
    #[cfg(test)]
    pub(super) fn set_moment(&mut self, moment: Duration) {
        self.moment = moment;
    }
}
