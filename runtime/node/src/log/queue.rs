//! Lines of the log on the way to the thread that writes them.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most lines that wait.
const LINES: usize = 4_096;
/// Most bytes of the lines that wait.
const BYTES: usize = 1 << 20;
/// How long a process that ends waits for its lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often lost lines are told again to a disk that does not take them.
const AGAIN: Duration = Duration::from_secs(1);

/// The queue of this process.
static QUEUE: OnceLock<Queue> = OnceLock::new();

enum Item {
    Line(Vec<u8>),
    /// All lines before are to be written; then this is dropped.
    Flush(SyncSender<()>),
}

/// Where those who log leave their lines, without ever waiting.
#[derive(Debug)]
pub(super) struct Queue {
    items: SyncSender<Item>,
    /// Bytes of lines that wait.
    waiting: AtomicUsize,
    lost: Lost,
}

/// Lines that were never written.
#[derive(Debug, Default)]
struct Lost {
    all: AtomicU64,
    /// Those that the log has not told.
    untold: AtomicU64,
}

impl Lost {
    fn one_more(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.untold.fetch_add(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn new() -> (Queue, Receiver<Item>) {
        let (items, queue) = mpsc::sync_channel(LINES);
        (Queue { items, waiting: AtomicUsize::new(0), lost: Lost::default() }, queue)
    }

    fn line(&self, line: &[u8]) {
        let before = self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        let room = before.saturating_add(line.len()) <= BYTES;
        if !room || self.items.try_send(Item::Line(line.to_vec())).is_err() {
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.lost.one_more();
        }
    }

    /// Waits until all lines so far are written or lost, or so long.
    fn flush(&self, patience: Duration) {
        let (done, written) = mpsc::sync_channel(1);
        // A queue that is full has no room for this; then its lines are lost.
        if self.items.try_send(Item::Flush(done)).is_ok() {
            // It is dropped unanswered in time, or not.
            let _ = written.recv_timeout(patience);
        }
    }
}

/// One line, as `tracing-subscriber` writes it: in one piece.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The queue of this process, as what makes writers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer(&'static Queue);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = &'a Queue;

    fn make_writer(&'a self) -> Self::Writer {
        self.0
    }
}

/// Begins the thread that writes; a process has one, and further calls return the same queue.
pub(super) fn start(to: impl Write + Send + 'static) -> io::Result<Writer> {
    if let Some(queue) = QUEUE.get() {
        return Ok(Writer(queue));
    }
    let (queue, items) = Queue::new();
    let queue = QUEUE.get_or_init(|| queue);
    thread::Builder::new().name("kumi-log".to_owned()).spawn(move || serve(queue, &items, to))?;
    Ok(Writer(queue))
}

/// Waits a second at most until what this process has logged is written.
pub(super) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(PATIENCE);
    }
}

/// Lines of this process's log that could not be written.
pub(crate) fn lost_lines() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.lost.all.load(Ordering::Relaxed))
}

fn serve(queue: &Queue, items: &Receiver<Item>, to: impl Write) {
    let mut log = Log { lost: &queue.lost, to, reason: None };
    loop {
        match items.recv_timeout(AGAIN) {
            Ok(Item::Line(line)) => {
                log.write(&line);
                queue.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Ok(Item::Flush(done)) => drop(done),
            Err(RecvTimeoutError::Timeout) => _ = log.tell_losses(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The end of the log that only its thread has.
struct Log<'a, W> {
    lost: &'a Lost,
    to: W,
    /// Why the last line was not written.
    reason: Option<io::Error>,
}

impl<W: Write> Log<'_, W> {
    fn write(&mut self, line: &[u8]) {
        if !self.tell_losses() {
            self.lost.one_more();
        } else if let Err(reason) = self.to.write_all(line) {
            self.reason = Some(reason);
            self.lost.one_more();
        }
    }

    /// Says how many lines are lost; false if even that is not written.
    fn tell_losses(&mut self) -> bool {
        let count = self.lost.untold.swap(0, Ordering::Relaxed);
        if count == 0 {
            return true;
        }
        let reason = match &self.reason {
            Some(reason) => reason.to_string(),
            None => "they came faster than they could be written".to_owned(),
        };
        // A part of a line may stand there.
        let told =
            format!("\nERROR kumi_node::log: {count} lines of this log are lost: {reason}\n");
        match self.to.write_all(told.as_bytes()) {
            Ok(()) => {
                self.reason = None;
                true
            }
            Err(reason) => {
                self.reason = Some(reason);
                self.lost.untold.fetch_add(count, Ordering::Relaxed);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};
    use std::fs::{self, File, OpenOptions};

    /// A queue whose lines are written to this file, as long as the process lives.
    fn written_to(file: File) -> &'static Queue {
        let (queue, items) = Queue::new();
        let queue: &Queue = Box::leak(Box::new(queue));
        thread::spawn(move || serve(queue, &items, file));
        queue
    }

    #[test]
    fn a_full_disk_loses_lines_and_the_log_says_so() {
        on_a_small_disk(64 << 10, |disk| {
            let path = disk.join("log");
            let file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            let queue = written_to(file);
            queue.line(b"first\n");
            queue.flush(Duration::MAX);
            fill(disk);
            // Longer than what is left of the page that the first line is in.
            queue.line(&[b'x'; 5_000]);
            queue.line(b"gone\n");
            queue.flush(Duration::MAX);
            assert_eq!(queue.lost.all.load(Ordering::Relaxed), 2);
            fs::remove_file(disk.join("others")).unwrap();
            queue.line(b"last\n");
            queue.flush(Duration::MAX);
            assert_eq!(queue.lost.all.load(Ordering::Relaxed), 2);
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('x')).collect();
            let told = "ERROR kumi_node::log: 2 lines of this log are lost: No space left on device (os error 28)";
            assert_eq!(lines, ["first", told, "last"]);
        });
    }

    #[test]
    fn who_logs_never_waits_and_memory_has_a_bound() {
        // Nobody takes lines out, as while the disk hangs.
        let (queue, items) = Queue::new();
        for _ in 0..LINES + 7 {
            queue.line(b"short\n");
        }
        assert_eq!(queue.lost.all.load(Ordering::Relaxed), 7);
        queue.flush(Duration::ZERO);
        drop(items);
        let (queue, _items) = Queue::new();
        let long = vec![0; BYTES / 4];
        for _ in 0..5 {
            queue.line(&long);
        }
        assert_eq!(queue.lost.all.load(Ordering::Relaxed), 1);
    }
}
