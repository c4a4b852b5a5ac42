//! The user's terminal while it shows that of a job.

pub mod escape;
pub mod hidden_line;
pub mod raw_mode;

use crate::error::Error;
use clap::{Args, ValueEnum};
use escape::{ESCAPE, EscapeFilter, Keys};
use kumi_control::message::WindowSize;
use raw_mode::RawMode;
use std::io::{self, IsTerminal};

/// Options of commands that show a terminal.
#[derive(Clone, Debug, Args)]
pub struct TerminalArgs {
    /// Character that leaves the job when it is followed by a full stop at the begin of a line, or none [default: ~]
    #[arg(long, value_name = "CHAR", value_parser = escape_character)]
    pub escape: Option<Escape>,
    /// What becomes of a job whose terminal was shown here when this terminal goes away
    #[arg(long, value_enum, default_value_t = Hangup::Keep)]
    pub hangup: Hangup,
}

/// The character of escapes; none: there are no escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape(Option<u8>);

/// What becomes of the job when the terminal goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hangup {
    /// It goes on, for `kumi attach`
    Keep,
    /// It gets SIGHUP, as from a terminal of its own
    End,
}

/// A printable character of ASCII, or none.
fn escape_character(text: &str) -> Result<Escape, String> {
    match text.as_bytes() {
        b"none" => Ok(Escape(None)),
        &[one] if one.is_ascii_graphic() && !matches!(one, b'.' | b'?') => Ok(Escape(Some(one))),
        _ => Err("give one character of ASCII other than . and ?, or none".to_owned()),
    }
}

/// Whether this command has a terminal to show another one.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Drops what was typed and not read.
pub fn drop_typed() {
    // A terminal that is gone has none.
    let _gone = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// The user's terminal, for a job that has one.
#[derive(Debug)]
pub struct JobTerminal {
    raw: Option<RawMode>,
    filter: EscapeFilter,
    hangup: Hangup,
}

impl JobTerminal {
    /// Nothing is changed yet.
    ///
    /// # Errors
    /// This command has no terminal.
    pub fn new(args: &TerminalArgs) -> Result<Self, Error> {
        if !is_there() {
            return Err(Error::NoTerminal);
        }
        let Escape(escape) = args.escape.unwrap_or(Escape(Some(ESCAPE)));
        Ok(Self { raw: None, filter: EscapeFilter::new(escape), hangup: args.hangup })
    }

    /// Its size. One that nobody knows is 0.
    pub fn size(&self) -> WindowSize {
        let size = rustix::termios::tcgetwinsize(io::stdout());
        size.map_or(WindowSize::default(), |size| WindowSize {
            rows: size.ws_row,
            columns: size.ws_col,
        })
    }

    /// From now on every key is for the job.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn enter(&mut self) -> Result<(), Error> {
        let result = match &self.raw {
            Some(raw) => raw.enter_again(),
            None => RawMode::enter().map(|raw| self.raw = Some(raw)),
        };
        result.map_err(|source| Error::SetUp { what: "the terminal", source })
    }

    /// The terminal is as it was.
    pub fn leave(&mut self) {
        self.raw = None;
    }

    /// Takes what was typed.
    pub fn keys(&mut self, typed: &[u8]) -> Keys {
        self.filter.take(typed)
    }

    /// Whether the job gets SIGHUP when the terminal goes away.
    pub fn ends_job(&self) -> bool {
        self.hangup == Hangup::End
    }

    /// What there is to type.
    pub fn help(&self) -> String {
        self.filter.escape().map_or(String::new(), |escape| {
            format!("at the begin of a line: {escape}. leaves the job, {escape}{escape} is a {escape}, {escape}? is this help")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_is_one_character_or_none() {
        assert_eq!(escape_character("%"), Ok(Escape(Some(b'%'))));
        assert_eq!(escape_character("none"), Ok(Escape(None)));
        for wrong in ["", "ab", ".", "?", "\n", " ", "ä"] {
            assert!(escape_character(wrong).is_err(), "{wrong:?}");
        }
    }
}
