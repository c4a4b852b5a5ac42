//! What the routines of a process print: read from a pipe, and logged by call.
//!
//! A process empties its buffers before it says that a call is over. So whatever the pipe holds when that is heard, the call
//! has printed.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use kumi_call_wire::context::{Span, shown};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use tokio::net::unix::pipe::Receiver;

use super::super::logs::CallLogHandle;
use super::log_lines::known;

/// Most bytes of one line of the log; longer lines are broken.
const LINE: usize = 8 << 10;
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// Most bytes of what a call prints that its client gets.
const MOST_PASSED_ON: usize = 1 << 20;

/// What a call has printed, for its client.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    pub bytes: Vec<u8>,
    /// It has printed more.
    pub is_cut: bool,
}

impl CapturedOutput {
    fn add(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(MOST_PASSED_ON - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        self.is_cut |= fits < bytes.len();
    }
}

/// Who prints.
#[derive(Debug, Clone, Copy)]
pub struct Printer<'a> {
    /// The routine.
    pub routine: &'a str,
    /// The number of its call. `None`: between calls.
    pub call: Option<u64>,
    /// The user; empty if users are not distinguished.
    pub user: &'a str,
    /// What its client gets. `None`: the client does not listen.
    pub passed_on: Option<&'a RefCell<CapturedOutput>>,
    /// The span of its call, if that is in a trace.
    pub span: Option<&'a Span>,
    /// The log of its call, or of its object between calls.
    pub log: Option<&'a CallLogHandle>,
}

/// The output of a process.
#[derive(Debug)]
pub struct ProcessOutput {
    pipe: Receiver,
    lines: RefCell<Lines>,
}

/// Splits output into lines.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Adds output, and gives each line that is whole or as long as a line may be.
    fn add(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, ends) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (piece, false),
            };
            let mut rest = line;
            while self.begun.len() + rest.len() > LINE {
                let (fits, more) = rest.split_at(LINE - self.begun.len());
                self.begun.extend_from_slice(fits);
                each(&std::mem::take(&mut self.begun));
                rest = more;
            }
            self.begun.extend_from_slice(rest);
            if ends {
                each(&std::mem::take(&mut self.begun));
            }
        }
    }

    /// Gives the line that has begun, if any.
    fn end(&mut self, each: impl FnOnce(&[u8])) {
        let begun = std::mem::take(&mut self.begun);
        if !begun.is_empty() {
            each(&begun);
        }
    }
}

/// A line as text that does nothing to a terminal.
pub(crate) fn printable(line: &[u8]) -> String {
    kumi_rpc::printable(String::from_utf8_lossy(line).trim_end_matches('\r')).replace('\n', "\\n")
}

fn log(printer: Printer<'_>, line: &[u8]) {
    let Printer { routine, call, user, span, log, .. } = printer;
    let text = printable(line);
    if let Some(log) = log {
        log.printed(&text);
    }
    let [trace, span, _parent] = shown(span);
    let user = known(user);
    match call {
        Some(call) => {
            tracing::info!(target: "kumi_call::routine", call, routine, user, trace, span, "{text}");
        }
        None => {
            tracing::info!(target: "kumi_call::routine", routine, user, trace, span, "{text}");
        }
    }
}

impl ProcessOutput {
    /// A pipe, and its end for the process.
    ///
    /// # Errors
    /// The server has too many files open.
    pub fn open() -> io::Result<(ProcessOutput, OwnedFd)> {
        let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
        // The process waits when the pipe is full; the server never does.
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let pipe = Receiver::from_owned_fd(ours)?;
        Ok((ProcessOutput { pipe, lines: RefCell::default() }, theirs))
    }

    /// Waits until there is output, or the process and its forks are gone.
    pub async fn readable(&self) -> io::Result<()> {
        self.pipe.readable().await
    }

    /// Logs a piece of the output. False: there is none now, or none will come.
    fn piece(&self, printer: Printer<'_>) -> io::Result<bool> {
        let mut bytes = [0; PIECE];
        match self.pipe.try_read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                if let Some(printed) = printer.passed_on {
                    printed.borrow_mut().add(&bytes[..count]);
                }
                self.lines.borrow_mut().add(&bytes[..count], |line| log(printer, line));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Logs output while a call goes on. False: no more will come.
    pub fn log_some(&self, printer: Printer<'_>) -> bool {
        self.piece(printer).is_ok()
    }

    /// Logs all that a call has printed, whose end was heard.
    pub fn log_all(&self, printer: Printer<'_>) {
        // More than the pipe holds was printed later, by a thread or a fork that is not over.
        let mut left = 1 << 20;
        while left > 0 && matches!(self.piece(printer), Ok(true)) {
            left -= PIECE;
        }
        self.lines.borrow_mut().end(|line| log(printer, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.add(piece, |line| all.push(line.to_vec()));
        }
        lines.end(|line| all.push(line.to_vec()));
        all
    }

    #[test]
    fn output_is_split_into_lines_wherever_reads_end() {
        let wanted: Vec<&[u8]> = vec![b"one", b"", b"two three", b"end"];
        let text = b"one\n\ntwo three\nend";
        assert_eq!(lines(&[text]), wanted);
        for at in 0..=text.len() {
            let (a, b) = text.split_at(at);
            assert_eq!(lines(&[a, b]), wanted, "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(&bytes), wanted);
    }

    #[test]
    fn a_line_without_an_end_needs_no_more_than_a_line_of_memory() {
        let long = vec![b'x'; 3 * LINE + 5];
        for piece in [1000, LINE, LINE + 1, long.len()] {
            let pieces: Vec<&[u8]> = long.chunks(piece).collect();
            let all = lines(&pieces);
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [LINE, LINE, LINE, 5]);
        }
    }

    #[test]
    fn a_client_gets_a_bounded_part_and_is_told_that_there_is_more() {
        let mut printed = CapturedOutput::default();
        printed.add(&vec![b'a'; MOST_PASSED_ON - 1]);
        printed.add(b"b");
        assert!(!printed.is_cut && printed.bytes.ends_with(b"ab"));
        printed.add(b"");
        assert!(!printed.is_cut);
        printed.add(b"c");
        assert!(printed.is_cut && printed.bytes.len() == MOST_PASSED_ON);
    }

    #[test]
    fn nothing_that_is_printed_moves_a_terminal() {
        assert_eq!(printable(b"a\tb\x1b[2J\xff\r"), "a\tb\\u{1b}[2J\u{fffd}");
    }
}
