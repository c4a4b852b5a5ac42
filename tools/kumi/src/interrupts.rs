//! Signals to the command, and their effects on the job that it follows.
//!
//! The decision is pure; tokio receives the signals.

use crate::error::Error;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// How far the user has gone in ending the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptEscalation {
    asked: u32,
}

/// Response to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptAction {
    /// Send it to every rank.
    Forward,
    /// Kill the job.
    Kill,
    /// Exit at once with the exit code of this signal.
    Leave,
}

impl InterruptEscalation {
    /// For users who do not want ranks to get signals: the first one kills.
    pub fn none() -> Self {
        Self { asked: 1 }
    }

    /// `running`: the job has ranks that could get the signal.
    pub fn react(&mut self, received: Signal, running: bool) -> InterruptAction {
        let ends = matches!(received, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP);
        if !ends {
            return InterruptAction::Forward;
        }
        self.asked += 1;
        match self.asked {
            1 if running => InterruptAction::Forward,
            1 | 2 => InterruptAction::Kill,
            _ => InterruptAction::Leave,
        }
    }
}

/// The exit code of a command that this signal ended.
pub fn exit_code(received: Signal) -> u8 {
    128u8.saturating_add(u8::try_from(received as i32).unwrap_or(0))
}

/// The forwarded signals, each with its stream.
pub struct Interrupts(Vec<(Signal, Stream)>);

impl Interrupts {
    /// Takes over these signals: they no longer end the command by themselves.
    pub fn listen() -> Result<Self, Error> {
        Self::listen_to(false)
    }

    /// The same and, with a `terminal`, those that tell of it.
    pub fn listen_to(terminal: bool) -> Result<Self, Error> {
        let forwarded = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ];
        let window = [Signal::SIGWINCH, Signal::SIGCONT];
        let all = forwarded.into_iter().chain(window.into_iter().filter(|_| terminal));
        let streams = all.map(|number| {
            let stream = signal(SignalKind::from_raw(number as i32));
            stream.map(|stream| (number, stream))
        });
        streams
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(|source| Error::SetUp { what: "signal handling", source })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if let std::task::Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_interrupt_kills_and_the_third_leaves() {
        let mut escalation = InterruptEscalation::default();
        assert_eq!(escalation.react(Signal::SIGINT, true), InterruptAction::Forward);
        assert_eq!(escalation.react(Signal::SIGINT, true), InterruptAction::Kill);
        assert_eq!(escalation.react(Signal::SIGTERM, true), InterruptAction::Leave);
    }

    #[test]
    fn a_job_that_does_not_run_yet_is_killed_at_once() {
        let mut escalation = InterruptEscalation::default();
        assert_eq!(escalation.react(Signal::SIGINT, false), InterruptAction::Kill);
    }

    #[test]
    fn without_patience_the_first_interrupt_kills() {
        let mut escalation = InterruptEscalation::none();
        assert_eq!(escalation.react(Signal::SIGUSR1, true), InterruptAction::Forward);
        assert_eq!(escalation.react(Signal::SIGTERM, true), InterruptAction::Kill);
        assert_eq!(escalation.react(Signal::SIGTERM, true), InterruptAction::Leave);
    }

    #[test]
    fn signals_for_the_program_never_end_the_job() {
        let mut escalation = InterruptEscalation::default();
        for _ in 0..5 {
            assert_eq!(escalation.react(Signal::SIGUSR1, true), InterruptAction::Forward);
        }
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(Signal::SIGINT), 130);
        assert_eq!(exit_code(Signal::SIGTERM), 143);
    }
}
