//! A line that is typed or pasted, and that the terminal does not show.
//!
//! The terminal is raw meanwhile: a line of a terminal's own editing has 4095 bytes at most, and one that is interrupted there
//! would leave it without echo.

use super::drop_typed;
use super::raw_mode::RawMode;
use crate::output;
use std::io::{self, BufRead};

/// Keys as a raw terminal gives them.
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const ERASE: [u8; 2] = [8, 127];
const ERASE_LINE: u8 = 21;
const QUIT: u8 = 28;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum HiddenLine {
    /// A line, without its end.
    Typed(Vec<u8>),
    /// More than a line may have; the rest is not read.
    TooLong,
    /// The user wants no more.
    Interrupted,
}

/// Asks for a line of at most so many bytes, and reads it from the terminal at standard input.
///
/// # Errors
/// Standard input is no terminal, or does not answer.
pub fn read(question: &str, most: usize) -> io::Result<HiddenLine> {
    let _raw = RawMode::enter()?;
    // Who sees this may type: nothing is shown any more.
    output::note(question);
    let line = read_keys(io::stdin().lock(), most)?;
    if line == HiddenLine::TooLong {
        // The shell would take the rest for commands.
        drop_typed();
    }
    Ok(line)
}

fn read_keys(keys: impl BufRead, most: usize) -> io::Result<HiddenLine> {
    let mut line = Vec::new();
    for key in keys.bytes() {
        match key? {
            b'\r' | b'\n' | END => break,
            INTERRUPT | QUIT => return Ok(HiddenLine::Interrupted),
            ERASE_LINE => line.clear(),
            key if ERASE.contains(&key) => drop(line.pop()),
            _ if line.len() == most => return Ok(HiddenLine::TooLong),
            key => line.push(key),
        }
    }
    Ok(HiddenLine::Typed(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_make_a_line() {
        let typed = |text: &str| HiddenLine::Typed(text.into());
        for (keys, line) in [
            ("abc\rnext", typed("abc")),
            ("abc\nnext", typed("abc")),
            ("ab\u{4}c", typed("ab")),
            ("abc", typed("abc")),
            ("\u{7f}abx\u{7f}\u{8}bc\r", typed("abc")),
            ("wrong\u{15}right\r", typed("right")),
            ("", typed("")),
            ("ab\u{3}c\r", HiddenLine::Interrupted),
            ("ab\u{1c}c\r", HiddenLine::Interrupted),
            ("12345678\r", typed("12345678")),
            ("123456789\r", HiddenLine::TooLong),
        ] {
            assert_eq!(read_keys(keys.as_bytes(), 8).unwrap(), line, "{keys:?}");
        }
    }
}
