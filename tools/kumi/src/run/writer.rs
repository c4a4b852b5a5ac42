//! Writer of the job's output, in a thread.
//!
//! If a reader such as a pager pauses, signals are still forwarded.

use kumi_control::message::Stream;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Pieces of output that may wait; meanwhile the connection is not read.
const WAITING: usize = 64;

/// What the thread does, in order.
pub enum Piece {
    /// Writes this.
    Output(Stream, Vec<u8>),
    /// Does this, once all before is written.
    Then(Box<dyn FnOnce() + Send>),
}

/// Channel to the writing thread.
pub struct Writer {
    sender: mpsc::Sender<Piece>,
    failure: Arc<Mutex<Option<io::ErrorKind>>>,
    failed: mpsc::Receiver<io::Error>,
    done: mpsc::Receiver<()>,
}

impl Writer {
    /// Starts the thread. Standard output of the ranks goes to the file if there is one.
    pub fn start(file: Option<File>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (tell, failed) = mpsc::channel(1);
        let (end, done) = mpsc::channel(1);
        let failure = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&failure);
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            write_all((receiver, file), &tell, &seen);
            drop(end);
        })?;
        Ok(Self { sender, failure, failed, done })
    }

    /// Waits for room for one more piece.
    pub async fn reserve(&self) -> Option<mpsc::Permit<'_, Piece>> {
        self.sender.reserve().await.ok()
    }

    /// The error of a failed write, once; later output is dropped. Never returns if nothing fails.
    pub async fn failed(&mut self) -> io::Error {
        match self.failed.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until everything is written.
    pub async fn finish(mut self) -> Option<io::ErrorKind> {
        drop(self.sender);
        // The thread never sends; the channel closes when it ends.
        let _closed = self.done.recv().await;
        self.failure.lock().map_or(None, |failure| *failure)
    }
}

fn write_all(
    (mut receiver, mut file): (mpsc::Receiver<Piece>, Option<File>),
    tell: &mpsc::Sender<io::Error>,
    failure: &Mutex<Option<io::ErrorKind>>,
) {
    // A full disk under the file takes no word from standard error.
    let mut broken = [false; 2];
    while let Some(piece) = receiver.blocking_recv() {
        let (stream, data) = match piece {
            Piece::Output(stream, data) => (stream, data),
            Piece::Then(action) => {
                // Nobody sees it where output is missing before it.
                if !broken.contains(&true) {
                    action();
                }
                continue;
            }
        };
        let broken = &mut broken[usize::from(stream == Stream::Err)];
        if *broken {
            continue;
        }
        let result = match (stream, &mut file) {
            (Stream::Out, Some(file)) => file.write_all(&data),
            (Stream::Out, None) => put(&mut io::stdout().lock(), &data),
            (Stream::Err, _) => put(&mut io::stderr().lock(), &data),
        };
        if let Err(error) = result {
            *broken = true;
            if let Ok(mut failure) = failure.lock() {
                *failure = Some(error.kind());
            }
            // The receiver is gone only when the job is over.
            let _over = tell.try_send(error);
        }
    }
}

fn put(sink: &mut impl Write, data: &[u8]) -> io::Result<()> {
    sink.write_all(data)?;
    sink.flush()
}
