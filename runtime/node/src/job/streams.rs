//! Standard streams of ranks: pipes and terminals from and to the main loop.

use std::io;
use std::rc::Rc;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{Stream, WindowSize};
use kumi_sched::JobId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::NodeServices;
use super::input_room::{HeldRoom, InputPiece};
use super::kept::{OutputSource, feed};
use super::run::JobTask;
use super::terminal::BELL;
use crate::keep::{Held, KeptJob};

/// What a user reads whose rank does not read its input.
const TOO_MUCH: &str = "kumi: standard input is closed: the rank does not read it, and too much waits: 64 MiB of one job or \
                        256 MiB of all jobs on its node\n";
/// Longest piece of output in one message, in bytes.
pub(super) const CHUNK: usize = 64 << 10;

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

/// Input of rank 0: queued, written by a task of its own.
#[derive(Debug)]
pub(super) struct Input {
    queue: Option<mpsc::UnboundedSender<InputPiece>>,
    kept: Option<KeptInput>,
}

/// Input of a kept job, which waits in a file.
#[derive(Debug)]
struct KeptInput {
    job: Rc<KeptJob>,
    more: Rc<Notify>,
    /// The rank takes no more.
    over: Rc<std::cell::Cell<bool>>,
    /// For what is in the file.
    room: Rc<HeldRoom>,
}

impl KeptInput {
    /// Whether the rank may still read something.
    fn is_open(&self) -> io::Result<bool> {
        Ok(self.job.input.is_some() && !self.over.get() && !self.job.state.input_closed()?)
    }

    fn give(&self, data: &[u8]) -> io::Result<()> {
        let Some(file) = self.job.input.as_ref() else { return Ok(()) };
        file.append(data)?;
        self.room.set(file.bytes_waiting()?);
        self.more.notify_one();
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.job.state.close_input()?;
        self.more.notify_one();
        Ok(())
    }
}

impl Input {
    pub(super) fn start(mut pipe: impl AsyncWrite + Unpin + 'static) -> Self {
        let (queue, mut inbox) = mpsc::unbounded_channel::<InputPiece>();
        tokio::task::spawn_local(async move {
            while let Some(piece) = inbox.recv().await {
                let Ok(data) = piece.data() else { continue };
                if pipe.write_all(data).await.is_err() {
                    // The rank closed its input: what else comes goes nowhere, as in a shell.
                    return;
                }
            }
        });
        Self { queue: Some(queue), kept: None }
    }

    /// That of a kept job, with what waits already.
    pub(super) fn start_kept(job: &Rc<KeptJob>, sink: OutputSource, room: HeldRoom) -> Self {
        let (more, over) = (Rc::new(Notify::new()), Rc::new(std::cell::Cell::new(false)));
        let (job, room) = (Rc::clone(job), Rc::new(room));
        let kept = KeptInput {
            job: Rc::clone(&job),
            more: Rc::clone(&more),
            over: over.clone(),
            room: Rc::clone(&room),
        };
        tokio::task::spawn_local(async move {
            match feed(Rc::clone(&job), more, sink, &room).await {
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
        Self { queue: None, kept: None }
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

    /// Queues input; empty data closes it. `false` if there was no room for it, or it cannot be kept: it is dropped, and its
    /// writer must be told.
    pub(super) fn give(&mut self, piece: InputPiece) -> bool {
        if piece.data().is_ok_and(<[u8]>::is_empty) {
            self.close();
            return true;
        }
        if let Some(kept) = &self.kept {
            let given = kept.is_open().and_then(|open| match piece.data() {
                Ok(data) if open => kept.give(data).map(|()| true),
                // What nobody reads goes nowhere, whether there was room or not.
                _ => Ok(!open),
            });
            return given.unwrap_or_else(|error| {
                tracing::error!(%error, "input of a rank cannot be kept");
                false
            });
        }
        let Some(queue) = self.queue.as_ref().filter(|queue| !queue.is_closed()) else {
            return true;
        };
        if piece.data().is_err() {
            return false;
        }
        if queue.send(piece).is_err() {
            self.queue = None;
        }
        true
    }
}

impl JobTask {
    /// Too much for a pipe closes it; too much for a terminal is dropped, and it rings. A terminal has no end of input.
    pub(super) async fn give_input(&mut self, piece: InputPiece) {
        let closes = piece.data().is_ok_and(<[u8]>::is_empty);
        if self.terminal.is_some() && closes || self.input.give(piece) {
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
        self.say(TOO_MUCH.to_owned()).await;
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
    use super::super::input_room::InputRoom;
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
    async fn input_has_its_room_until_the_rank_reads_it_or_closes() {
        let local = tokio::task::LocalSet::new();
        let (job, room) = (JobId(1), InputRoom::default());
        let take = |bytes| room.take(job, vec![7; bytes]).unwrap();
        let test = async {
            let mut input = Input::start(Stuck);
            while input.give(take(1 << 20)) {}
            assert!(take(1 << 20).data().is_err(), "it still waits");
            // Who has closed its input is not told of room.
            input.close();
            assert!(input.give(take(1 << 20)));
            drop(input);
        };
        local.run_until(test).await;
        drop(local);
        assert!(take(1 << 20).data().is_ok(), "it has gone with the pipe");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_was_read_makes_room() {
        let (room, local) = (InputRoom::default(), tokio::task::LocalSet::new());
        let test = async {
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let mut input = Input::start(near);
            let mut given = 0;
            while input.give(room.take(JobId(1), vec![7; 1 << 20]).unwrap()) {
                given += 1;
            }
            let mut read = vec![0; given << 20];
            far.read_exact(&mut read).await.unwrap();
            // The writer has given its last piece back when it asks for the next.
            input.close();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            assert!(room.take(JobId(1), vec![7; 1 << 20]).unwrap().data().is_ok());
            assert!(read.iter().all(|&byte| byte == 7));
        };
        local.run_until(test).await;
    }
}
