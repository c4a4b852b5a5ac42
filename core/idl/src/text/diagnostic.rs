//! Diagnostics: errors and warnings with their places in the text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A range of bytes in a text; the end is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub(crate) fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.start) }
    }
}

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The text is valid, but probably not as intended.
    Warning,
    /// The text is not valid.
    Error,
}

/// The kinds of errors and warnings. Their codes are stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// The text is not UTF-8 or too long.
    Unreadable,
    /// A character or number is not valid.
    Lexical,
    /// A comment, text or brace has no end.
    Unended,
    /// The parser expected something else.
    Syntax,
    /// A name is unknown.
    UnknownName,
    /// A type, mode or attribute does not exist.
    UnknownWord,
    /// A declaration or option is repeated.
    Twice,
    /// A size does not consist of integer inputs, depends on itself, or is nested too deeply.
    Size,
    /// A default is not allowed.
    Default,
    /// Type, mode or dimensions of a parameter are not allowed.
    Param,
    /// `CalcOrder`, `@split` or `@status` names the wrong kind of parameter.
    Attribute,
    /// `Calls`, a body, `Required` or `Library` is not valid.
    Target,
    /// A feature of another system that Kumi does not support.
    Unsupported,
    /// There are more errors than are reported.
    TooMany,
    /// A parameter is not used.
    Unused,
    /// Words have no effect.
    NoEffect,
}

impl Code {
    /// The code as it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::Unreadable => "E01",
            Code::Lexical => "E02",
            Code::Unended => "E03",
            Code::Syntax => "E04",
            Code::UnknownName => "E05",
            Code::UnknownWord => "E06",
            Code::Twice => "E07",
            Code::Size => "E08",
            Code::Default => "E09",
            Code::Param => "E10",
            Code::Attribute => "E11",
            Code::Target => "E12",
            Code::Unsupported => "E13",
            Code::TooMany => "E14",
            Code::Unused => "W01",
            Code::NoEffect => "W02",
        }
    }

    /// Its severity.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Code::Unused | Code::NoEffect => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its kind.
    pub code: Code,
    /// The message, with advice where possible.
    pub message: String,
    /// Line number; the first is 1.
    pub line: usize,
    /// Column in characters; the first is 1.
    pub column: usize,
    /// The line, or the part of a long line around the place.
    pub excerpt: String,
    /// Number of characters of the excerpt before the place.
    pub before: usize,
    /// Number of characters of the excerpt at the place, at least 1.
    pub length: usize,
}

impl fmt::Display for Diagnostic {
    /// Writes the message, the line, and carets below the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.code.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Diagnostic { message, line, column, excerpt, before, length, .. } = self;
        writeln!(f, "{line}:{column}: {kind} {}: {message}", self.code.name())?;
        writeln!(f, "    {excerpt}")?;
        write!(f, "    {:before$}{:^<length$}", "", "")
    }
}

/// Number of characters in an excerpt before and after the place.
const AROUND: usize = 60;
/// Most diagnostics of a text.
pub const MOST_DIAGNOSTICS: usize = 50;

/// Collector of diagnostics.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    text: &'a str,
    /// The start of each line.
    lines: Vec<usize>,
    found: Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(text: &'a str) -> Report<'a> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = core::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Report { text, lines, found: Vec::new() }
    }

    /// The line number of a byte; the first is 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|line| *line <= at).max(1)
    }

    /// Whether further diagnostics are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MOST_DIAGNOSTICS
    }

    pub(crate) fn add(&mut self, code: Code, span: Span, message: String) {
        let (code, message) = match self.found.len() + 1 {
            n if n < MOST_DIAGNOSTICS => (code, message),
            n if n == MOST_DIAGNOSTICS => (
                Code::TooMany,
                String::from("there are further errors; correct these first to see them"),
            ),
            _ => return,
        };
        let index = self.line(span.start) - 1;
        let begin = self.lines.get(index).copied().unwrap_or(0);
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let start = span.start.clamp(begin, end);
        let (line, rest) = (&self.text[begin..start], &self.text[start..end]);
        let column = line.chars().count();
        let shown = column.min(AROUND);
        let about = span.end.clamp(start, end) - start;
        let length = rest.get(..about).map_or(1, |text| text.chars().take(AROUND).count()).max(1);
        let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
        let excerpt = line.chars().skip(column - shown).chain(rest.chars().take(AROUND + length));
        let excerpt: String = excerpt.map(visible).collect();
        let excerpt = String::from(excerpt.trim_end());
        self.found.push(Diagnostic {
            code,
            message,
            line: index + 1,
            column: column + 1,
            excerpt,
            before: shown,
            length,
        });
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|found| found.code.severity() == Severity::Error)
    }

    /// All diagnostics in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|found| (found.code == Code::TooMany, found.line, found.column));
        self.found
    }
}
