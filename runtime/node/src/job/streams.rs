//! Standard streams of ranks: pipes from and to the main loop.

use std::io;
use std::rc::Rc;

use kumi_control::agent::AgentEvent;
use kumi_control::message::Stream;
use kumi_sched::JobId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::NodeServices;

/// Longest piece of output in one message, in bytes.
const CHUNK: usize = 64 << 10;
/// Most input that waits for a rank to read it, in bytes.
const MAX_INPUT: usize = 64 << 20;

/// Hands output of a rank in until its end; stops reading while the way up is blocked, so that the
/// rank waits instead of the daemon's memory growing.
pub(super) async fn pump(
    services: Rc<NodeServices>,
    job: JobId,
    rank: u32,
    stream: Stream,
    mut pipe: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut blocked = services.blocked.clone();
    let mut buffer = vec![0; CHUNK];
    loop {
        // Fails only when the main loop is gone, and then output goes nowhere anyway.
        if blocked.wait_for(|blocked| !blocked).await.is_err() {
            return Ok(());
        }
        let count = pipe.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let data = buffer[..count].to_vec();
        services.tell(AgentEvent::Output { job, rank, stream, data }).await;
    }
}

/// Input of rank 0: queued, written by a task of its own.
#[derive(Debug)]
pub(super) struct Input {
    queue: Option<mpsc::UnboundedSender<Vec<u8>>>,
    waiting: Rc<std::cell::Cell<usize>>,
}

impl Input {
    pub(super) fn start(mut pipe: pipe::Sender) -> Self {
        let (queue, mut inbox) = mpsc::unbounded_channel::<Vec<u8>>();
        let waiting = Rc::new(std::cell::Cell::new(0usize));
        let left = Rc::clone(&waiting);
        tokio::task::spawn_local(async move {
            while let Some(data) = inbox.recv().await {
                if pipe.write_all(&data).await.is_err() {
                    // The rank closed its input: what else comes goes nowhere, as in a shell.
                    return;
                }
                left.set(left.get().saturating_sub(data.len()));
            }
        });
        Self { queue: Some(queue), waiting }
    }

    /// No input.
    pub(super) fn none() -> Self {
        Self { queue: None, waiting: Rc::default() }
    }

    /// Queues input; empty data closes it. `false` when too much waits already: the input is then
    /// closed, and its reader must be told.
    pub(super) fn give(&mut self, data: Vec<u8>) -> bool {
        if data.is_empty() {
            self.queue = None;
            return true;
        }
        let Some(queue) = &self.queue else { return true };
        let waiting = self.waiting.get().saturating_add(data.len());
        if waiting > MAX_INPUT {
            self.queue = None;
            return false;
        }
        if queue.send(data).is_ok() {
            self.waiting.set(waiting);
        } else {
            self.queue = None;
        }
        true
    }
}
