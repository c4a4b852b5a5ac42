//! A session whose job has a terminal, which the user's own terminal shows.

use super::{ConnectionEnd, Session, Start, lost_unless};
use crate::error::Error;
use crate::interrupts::exit_code;
use crate::output;
use crate::run::input;
use crate::run::writer::Piece;
use crate::terminal::JobTerminal;
use kumi_control::message::{ClientRequest, Outcome, RankStatus};
use kumi_node::client::Requests;
use nix::sys::signal::Signal;
use std::time::Duration;

/// So long a terminal may take to answer what programs asked it once, when it is shown their output anew.
const ANSWERS: Duration = Duration::from_millis(100);
/// Most that is typed without a connection and kept, in bytes.
const MOST_TYPED: usize = 64 << 10;
/// What Ctrl-C types.
const INTERRUPT: u8 = 3;

impl Session {
    /// Shows the terminal of the job in this one.
    pub fn show(&mut self, terminal: JobTerminal) {
        self.lines.end_as_in_raw_mode();
        self.terminal = Some(terminal);
        self.wants_input = true;
    }

    /// Whether keys go to the job. Those of a user who comes to a job wait until its earlier output is shown.
    pub(super) fn takes_input_now(&self) -> bool {
        self.terminal.is_none() || matches!(self.start, Start::Submit(_))
    }

    /// All earlier output has come.
    pub(super) async fn now_current(
        &mut self,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        self.current = true;
        self.take_keys(requests).await
    }

    /// Takes keys, if the job runs and its earlier output has come.
    pub(super) async fn take_keys(
        &mut self,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        if self.terminal.is_none() || !self.running || !self.current {
            return Ok(None);
        }
        let first = std::mem::take(&mut self.wants_input);
        if first {
            let (go, begin) = std::sync::mpsc::channel();
            let input = input::start(Some(begin));
            self.input = Some(input.map_err(Error::no_input)?);
            let asked = self.asked;
            self.waiting.push_back(Piece::Then(Box::new(move || {
                // Programs that ran before may have asked the terminal things, and it has answered just now.
                if asked {
                    std::thread::sleep(ANSWERS);
                    crate::terminal::drop_typed();
                }
                // If the reader is gone, so is the session.
                let _over = go.send(());
            })));
        }
        self.send_size(first, requests).await
    }

    /// Tells the size of the window. The foreground is to `redraw`, even if the size is the same.
    pub(super) async fn send_size(
        &mut self,
        redraw: bool,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        let (Some(terminal), Some(job)) = (&self.terminal, self.job) else { return Ok(None) };
        let size = terminal.size();
        lost_unless(requests.send(&ClientRequest::Resize { job, size, redraw }).await)
    }

    /// What was typed, or the end of this terminal.
    pub(super) async fn typed(
        &mut self,
        typed: Option<Vec<u8>>,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        let typed = typed.unwrap_or_default();
        if typed.is_empty() {
            return self.hung_up(requests).await;
        }
        let (Some(terminal), Some(job)) = (&mut self.terminal, self.job) else { return Ok(None) };
        let keys = terminal.keys(&typed);
        if keys.help {
            output::note(&terminal.help());
        }
        if !keys.pass.is_empty() {
            let end =
                lost_unless(requests.send(&ClientRequest::Input { job, data: keys.pass }).await)?;
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(keys.leave.then_some(ConnectionEnd::Left))
    }

    /// The same without a connection. Returns whether the user leaves.
    pub(super) fn typed_meanwhile(&mut self, typed: Option<Vec<u8>>) -> Result<bool, Error> {
        let typed = typed.unwrap_or_default();
        if typed.is_empty() {
            return Err(Error::Silent(exit_code(Signal::SIGHUP)));
        }
        let Some(terminal) = &mut self.terminal else {
            self.typed.extend_from_slice(&typed);
            return Ok(false);
        };
        let keys = terminal.keys(&typed);
        let room = MOST_TYPED.saturating_sub(self.typed.len());
        self.typed.extend(keys.pass.iter().take(room));
        Ok(keys.leave || keys.pass.contains(&INTERRUPT))
    }

    /// A signal that is the terminal's, or `None` if it is not.
    pub(super) async fn terminal_signal(
        &mut self,
        number: Signal,
        requests: &mut Requests,
    ) -> Result<Option<Option<ConnectionEnd>>, Error> {
        let Some(terminal) = &mut self.terminal else { return Ok(None) };
        match number {
            Signal::SIGHUP => self.hung_up(requests).await.map(Some),
            Signal::SIGWINCH => self.send_size(false, requests).await.map(Some),
            Signal::SIGCONT => {
                if self.running {
                    terminal.enter()?;
                }
                self.send_size(true, requests).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// This terminal is gone. The job goes on, unless its user wants otherwise.
    pub(super) async fn hung_up(
        &mut self,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        if let (Some(terminal), Some(job)) = (&self.terminal, self.job)
            && terminal.ends_job()
        {
            let signal = u8::try_from(Signal::SIGHUP as i32).unwrap_or(0);
            lost_unless(requests.send(&ClientRequest::Signal { job, signal }).await)?;
        }
        Err(Error::Silent(exit_code(Signal::SIGHUP)))
    }

    /// The terminal is as it was, and tells how to come back if the job goes on.
    pub(super) fn leave_terminal(&mut self, left: bool) {
        if let Some(terminal) = &mut self.terminal {
            terminal.leave();
            if let (true, Some(job)) = (left, self.job) {
                let words = self.job_words();
                output::note(&format!("left {words}; `kumi attach {job}` comes back to it"));
            }
        }
    }

    /// Whether nobody needs to be told how the job ended: a shell of one's own says nothing either.
    pub(super) fn ends_silently(&self, outcome: &Outcome) -> bool {
        let Outcome::RankFailed { rank: 0, status, .. } = outcome else { return false };
        self.terminal.is_some() && matches!(status, RankStatus::Exited(_))
    }
}
