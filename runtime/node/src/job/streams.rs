//! Standard streams of ranks: pipes and terminals from and to the main loop.

use std::io;
use std::rc::Rc;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{Stream, WindowSize};
use kumi_sched::JobId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::NodeServices;
use super::kept::{OutputSource, feed};
use super::run::JobTask;
use super::terminal::BELL;
use crate::keep::{Held, KeptJob};

/// Longest piece of output in one message, in bytes.
pub(super) const CHUNK: usize = 64 << 10;
/// Most input that waits for a rank to read it, in bytes.
const MAX_INPUT: usize = 64 << 20;
/// Bytes that a piece of it takes beside its own: who types one byte at a time has no more room than others.
const PIECE: usize = 64;

/// Hands output of a rank in until its end; stops reading while the way up is blocked, so that the
/// rank waits instead of the daemon's memory growing.
pub(super) async fn pump(
    services: Rc<NodeServices>,
    job: JobId,
    rank: u32,
    stream: Stream,
    mut pipe: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut blocked = services.way_up.output.clone();
    let mut buffer = vec![0; CHUNK];
    loop {
        // Fails only when the main loop is gone, and then output goes nowhere anyway.
        if blocked.wait_for(|blocked| !blocked.blocks(job)).await.is_err() {
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

/// Bytes that a piece of input takes while it waits.
fn cost(data: &[u8]) -> usize {
    data.len().saturating_add(PIECE)
}

/// Input of rank 0: queued, written by a task of its own.
#[derive(Debug)]
pub(super) struct Input {
    queue: Option<mpsc::UnboundedSender<Vec<u8>>>,
    waiting: Rc<std::cell::Cell<usize>>,
    /// Of a kept job, instead of the queue.
    kept: Option<KeptInput>,
}

/// Input of a kept job, which waits in a file.
#[derive(Debug)]
struct KeptInput {
    job: Rc<KeptJob>,
    more: Rc<Notify>,
    /// The rank takes no more.
    over: Rc<std::cell::Cell<bool>>,
}

impl KeptInput {
    fn give(&self, data: &[u8]) -> io::Result<bool> {
        let Some(file) = self.job.input.as_ref().filter(|_| !self.over.get()) else {
            return Ok(true);
        };
        if self.job.state.input_closed()? {
            return Ok(true);
        }
        let waiting = usize::try_from(file.waiting()?).unwrap_or(usize::MAX);
        if waiting.saturating_add(data.len()) > MAX_INPUT {
            return Ok(false);
        }
        file.append(data)?;
        self.more.notify_one();
        Ok(true)
    }

    fn close(&self) -> io::Result<()> {
        self.job.state.close_input()?;
        self.more.notify_one();
        Ok(())
    }
}

impl Input {
    pub(super) fn start(mut pipe: impl AsyncWrite + Unpin + 'static) -> Self {
        let (queue, mut inbox) = mpsc::unbounded_channel::<Vec<u8>>();
        let waiting = Rc::new(std::cell::Cell::new(0usize));
        let left = Rc::clone(&waiting);
        tokio::task::spawn_local(async move {
            while let Some(data) = inbox.recv().await {
                if pipe.write_all(&data).await.is_err() {
                    // The rank closed its input: what else comes goes nowhere, as in a shell.
                    return;
                }
                left.set(left.get().saturating_sub(cost(&data)));
            }
        });
        Self { queue: Some(queue), waiting, kept: None }
    }

    /// That of a kept job, with what waits already.
    pub(super) fn start_kept(job: &Rc<KeptJob>, sink: OutputSource) -> Self {
        let (more, over) = (Rc::new(Notify::new()), Rc::new(std::cell::Cell::new(false)));
        let kept = KeptInput { job: Rc::clone(job), more: Rc::clone(&more), over: over.clone() };
        let job = Rc::clone(job);
        tokio::task::spawn_local(async move {
            match feed(Rc::clone(&job), more, sink).await {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    tracing::error!(%error, "a rank does not get its input any more");
                }
                // The rank closed its input: what else comes goes nowhere, as in a shell.
                _ => {}
            }
            over.set(true);
            job.link.drop_held(Held::InputPipe);
        });
        Self { kept: Some(kept), ..Self::none() }
    }

    /// No input.
    pub(super) fn none() -> Self {
        Self { queue: None, waiting: Rc::default(), kept: None }
    }

    /// Closes it behind what waits.
    pub(super) fn close(&mut self) {
        self.queue = None;
        if let Some(kept) = &self.kept
            && let Err(error) = kept.close()
        {
            tracing::error!(%error, "the input of a rank cannot be closed");
        }
    }

    /// Queues input; empty data closes it. `false` when too much waits already: the input is then
    /// dropped, and its writer must be told.
    pub(super) fn give(&mut self, data: Vec<u8>) -> bool {
        if data.is_empty() {
            self.close();
            return true;
        }
        if let Some(kept) = &self.kept {
            return kept.give(&data).unwrap_or_else(|error| {
                tracing::error!(%error, "input of a rank cannot be kept");
                false
            });
        }
        let Some(queue) = &self.queue else { return true };
        let waiting = self.waiting.get().saturating_add(cost(&data));
        if waiting > MAX_INPUT {
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

impl JobTask {
    /// Too much for a pipe closes it; too much for a terminal is dropped, and it rings. A terminal has no end of input.
    pub(super) async fn give_input(&mut self, data: Vec<u8>) {
        if self.terminal.is_some() && data.is_empty() || self.input.give(data) {
            return;
        }
        if self.terminal.is_some() {
            // Nobody holds back who types. Where output has to wait, a bell for each key would pile up.
            if self.services.way_up.output.borrow().blocks(self.job) {
                return;
            }
            return self.put(self.first, Stream::Out, vec![BELL]).await;
        }
        self.input.close();
        let what = "kumi: standard input is closed: the rank does not read it and too much waits\n";
        self.say(what.to_owned()).await;
    }

    pub(super) fn resize(&self, size: WindowSize, redraw: bool) {
        let Some(terminal) = &self.terminal else { return };
        if let Err(error) = terminal.resize(size, redraw) {
            tracing::warn!(job = %self.job, %error, "the terminal has another size than its window");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing.
    struct Stuck;

    impl AsyncWrite for Stuck {
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &[u8],
        ) -> std::task::Poll<io::Result<usize>> {
            std::task::Poll::Pending
        }

        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Pending
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Pending
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn single_bytes_that_nobody_reads_do_not_fill_the_memory() {
        let local = tokio::task::LocalSet::new();
        let _entered = local.enter();
        let mut input = Input::start(Stuck);
        let most = MAX_INPUT / PIECE;
        let taken = (0..=most).take_while(|_| input.give(vec![7])).count();
        assert!(taken < most, "{taken} pieces wait");
        let mut whole = Input::start(Stuck);
        assert!(whole.give(vec![7; MAX_INPUT - PIECE]) && !whole.give(vec![7]));
    }
}
