//! What is wrong with a text, and where.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Bytes of a text from the first up to the second, which is not in it.
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

/// Whether a text can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can; somebody may have meant something else.
    Warning,
    /// It cannot.
    Error,
}

/// The kinds of errors and warnings. Their codes stay the same from version to version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// Not UTF-8, or more bytes than are read.
    Unreadable,
    /// A character or number that means nothing.
    Lexical,
    /// A comment, text or brace without end.
    Unended,
    /// Something else was expected.
    Syntax,
    /// A name that nothing has.
    UnknownName,
    /// A type, mode or attribute that does not exist.
    UnknownWord,
    /// Something twice.
    Twice,
    /// A size that cannot be: not of integers that are sent, of itself, too deep.
    Size,
    /// A default that cannot be.
    Default,
    /// A parameter that cannot be: its type, mode or dimensions.
    Param,
    /// `CalcOrder`, `@split` or `@status` of what they cannot be of.
    Attribute,
    /// `Calls`, a body, `Required` or `Library` that cannot be.
    Target,
    /// Something of other systems that does not exist here.
    Unsupported,
    /// More errors than are told.
    TooMany,
    /// A parameter that nothing uses.
    Unused,
    /// Words without effect.
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

    /// Whether a text with it can be used.
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
    /// What is wrong and, where it can be known, what to do.
    pub message: String,
    /// Line, the first is 1.
    pub line: usize,
    /// Column in characters, the first is 1.
    pub column: usize,
    /// The line, or of a long one the part around the place.
    pub excerpt: String,
    /// Characters of the excerpt before the place.
    pub before: usize,
    /// Characters of the excerpt that it is about, at least 1.
    pub length: usize,
}

impl fmt::Display for Diagnostic {
    /// Several lines: what is wrong, the line, and carets below the place.
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

/// Characters that an excerpt shows before and behind the place.
const AROUND: usize = 60;
/// Most errors and warnings of a text.
pub const MOST_DIAGNOSTICS: usize = 50;

/// Collects what is wrong with a text.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    text: &'a str,
    /// Where lines begin.
    lines: Vec<usize>,
    found: Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(text: &'a str) -> Report<'a> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = core::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Report { text, lines, found: Vec::new() }
    }

    /// The line of a place, the first is 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|line| *line <= at).max(1)
    }

    /// Whether no more are told.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MOST_DIAGNOSTICS
    }

    pub(crate) fn add(&mut self, code: Code, span: Span, message: String) {
        let (code, message) = match self.found.len() + 1 {
            n if n < MOST_DIAGNOSTICS => (code, message),
            n if n == MOST_DIAGNOSTICS => (
                Code::TooMany,
                String::from("there is more that is wrong; it is not told before this is mended"),
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

    /// All of them, in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|found| (found.code == Code::TooMany, found.line, found.column));
        self.found
    }
}
