//! Assembler of ranks' output into whole lines.
//!
//! Pure: bytes and their writer go in, and output comes out.

use kumi_control::message::Stream;
use std::collections::BTreeMap;

/// An unfinished line longer than this, in bytes, is written out.
const LONGEST_LINE: usize = 64 * 1024;

/// One rank's stream: its number, and whether it is standard error.
type Source = (u32, bool);

/// Gathers the ranks' output into lines.
pub struct Lines {
    /// Width of the largest rank's number, if lines have labels.
    label: Option<usize>,
    /// With one rank and no labels, bytes pass unchanged.
    transparent: bool,
    /// Output of two ranks never shares a line, even if the first line was not ended.
    separate: bool,
    /// Rank 0 has a terminal, whose bytes pass unchanged; lines of others end as a raw terminal needs it.
    raw: bool,
    unfinished: BTreeMap<Source, Vec<u8>>,
    /// The rank whose unfinished line is on the terminal, per stream (0 and 1).
    open: [Option<Source>; 2],
}

impl Lines {
    /// For a job of `ranks` ranks. `label` puts the rank before each line. `terminal` means that a person
    /// reads: unfinished lines are shown and then ended. Otherwise unlabelled output passes byte for byte.
    pub fn new(ranks: u32, label: bool, terminal: bool) -> Self {
        let width = ranks.saturating_sub(1).to_string().len();
        Self {
            label: label.then_some(width),
            transparent: ranks <= 1 && !label,
            separate: label || terminal,
            raw: false,
            unfinished: BTreeMap::new(),
            open: [None, None],
        }
    }

    /// Rank 0 has a terminal, and a raw one shows it.
    pub fn end_as_in_raw_mode(&mut self) {
        (self.raw, self.transparent) = (true, false);
    }

    /// The output goes to a file.
    pub fn nobody_reads(&mut self) {
        self.separate = self.label.is_some();
    }

    /// Takes output of a rank, and returns the bytes to write now.
    pub fn take(&mut self, rank: u32, stream: Stream, data: &[u8]) -> Vec<u8> {
        let is_terminal = self.raw && (rank, stream) == (0, Stream::Out);
        if self.transparent || is_terminal {
            return data.to_vec();
        }
        let source = (rank, stream == Stream::Err);
        let mut waiting = self.unfinished.remove(&source).unwrap_or_default();
        waiting.extend_from_slice(data);
        let whole = waiting.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let rest = waiting.split_off(whole);
        let mut out = Vec::with_capacity(waiting.len() + 16);
        for line in waiting.split_inclusive(|&byte| byte == b'\n') {
            self.write(source, line, &mut out);
        }
        if rest.len() > LONGEST_LINE {
            self.write(source, &rest, &mut out);
        } else if !rest.is_empty() {
            self.unfinished.insert(source, rest);
        }
        out
    }

    /// Whether some rank's line is unfinished.
    pub fn waiting(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// The unfinished lines, by stream: at the end of the job, or for a person who should see a prompt.
    pub fn flush(&mut self) -> Vec<(Stream, Vec<u8>)> {
        let unfinished = std::mem::take(&mut self.unfinished);
        let mut parts = Vec::new();
        for (source, data) in unfinished {
            let mut out = Vec::with_capacity(data.len() + 16);
            self.write(source, &data, &mut out);
            parts.push((if source.1 { Stream::Err } else { Stream::Out }, out));
        }
        parts
    }

    fn line_end(&self) -> &'static [u8] {
        if self.raw { b"\r\n" } else { b"\n" }
    }

    /// Writes a line, its beginning, or its continuation.
    fn write(&mut self, source: Source, data: &[u8], out: &mut Vec<u8>) {
        let slot = usize::from(source.1);
        if self.open[slot] != Some(source) {
            if self.open[slot].is_some() && self.separate {
                out.extend_from_slice(self.line_end());
            }
            if let Some(width) = self.label {
                out.extend_from_slice(format!("[{:>width$}] ", source.0).as_bytes());
            }
        }
        match data.strip_suffix(b"\n") {
            Some(line) if self.raw => {
                out.extend_from_slice(line);
                out.extend_from_slice(self.line_end());
            }
            _ => out.extend_from_slice(data),
        }
        self.open[slot] = (data.last() != Some(&b'\n')).then_some(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Err, Out};

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    fn rest(lines: &mut Lines) -> String {
        lines.flush().into_iter().map(|(_, data)| text(data)).collect()
    }

    #[test]
    fn lines_of_two_ranks_are_not_mixed() {
        let mut lines = Lines::new(2, false, false);
        assert_eq!(text(lines.take(0, Out, b"he")), "");
        assert_eq!(text(lines.take(1, Out, b"world\nand")), "world\n");
        assert_eq!(text(lines.take(0, Out, b"llo\n")), "hello\n");
        assert!(lines.waiting());
        assert_eq!(rest(&mut lines), "and");
        assert!(!lines.waiting());
    }

    #[test]
    fn labels_are_as_wide_as_the_largest_rank() {
        let mut lines = Lines::new(12, true, false);
        assert_eq!(text(lines.take(3, Out, b"a\n\nb\n")), "[ 3] a\n[ 3] \n[ 3] b\n");
        assert_eq!(text(lines.take(11, Err, b"x\n")), "[11] x\n");
    }

    #[test]
    fn labelled_unfinished_lines_are_kept_apart() {
        let mut lines = Lines::new(2, true, false);
        assert!(lines.take(0, Out, b"one").is_empty());
        assert!(lines.take(1, Out, b"two").is_empty());
        assert_eq!(rest(&mut lines), "[0] one\n[1] two");
        assert_eq!(text(lines.take(1, Out, b" more\n")), " more\n", "the line goes on");
        assert_eq!(text(lines.take(0, Out, b"x\n")), "[0] x\n");
    }

    #[test]
    fn unlabelled_output_is_kept_byte_for_byte() {
        let mut lines = Lines::new(2, false, false);
        assert!(lines.take(0, Out, b"x").is_empty());
        assert!(lines.take(1, Out, b"y").is_empty());
        assert_eq!(rest(&mut lines), "xy");
    }

    #[test]
    fn on_a_terminal_a_shown_beginning_is_ended_before_another_rank_speaks() {
        let mut lines = Lines::new(2, false, true);
        assert!(lines.take(0, Out, b"name? ").is_empty());
        assert_eq!(rest(&mut lines), "name? ");
        assert_eq!(text(lines.take(1, Out, b"busy\n")), "\nbusy\n");
    }

    #[test]
    fn one_rank_goes_through_at_once() {
        let mut lines = Lines::new(1, false, false);
        assert_eq!(text(lines.take(0, Out, b"prompt> ")), "prompt> ");
        assert!(!lines.waiting());
    }

    #[test]
    fn beside_a_terminal_lines_end_as_a_raw_one_needs_it() {
        let mut lines = Lines::new(2, false, true);
        lines.end_as_in_raw_mode();
        assert_eq!(text(lines.take(0, Out, b"$ a\nb")), "$ a\nb", "the terminal itself");
        assert_eq!(text(lines.take(0, Err, b"kumi: x\n")), "kumi: x\r\n");
        assert_eq!(text(lines.take(1, Out, b"one\ntwo\nthr")), "one\r\ntwo\r\n");
        assert_eq!(rest(&mut lines), "thr");
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut lines = Lines::new(2, false, false);
        let chunk = vec![b'x'; 40_000];
        assert_eq!(lines.take(0, Out, &chunk).len(), 0);
        assert_eq!(lines.take(0, Out, &chunk).len(), 80_000);
        assert!(!lines.waiting());
    }

    #[test]
    fn the_streams_of_a_rank_are_separate() {
        let mut lines = Lines::new(2, false, false);
        assert!(lines.take(0, Out, b"out").is_empty());
        assert_eq!(text(lines.take(0, Err, b"err\n")), "err\n");
        assert_eq!(text(lines.take(0, Out, b"put\n")), "output\n");
    }
}
