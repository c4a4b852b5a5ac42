//! Lexer: splits a text into words, numbers, texts and signs.

use alloc::format;
use alloc::string::String;

use super::diagnostic::{Code, Report, Span};
use crate::words::end_of_braces;

/// A piece of a description.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A name or word of the language.
    Word,
    /// An integer, at most 2^63.
    Int(u64),
    /// A number with a point or an exponent.
    Real(f64),
    /// A text in quotes.
    Text(String),
    /// One of [`SIGNS`].
    Sign(&'static str),
    /// Behind the last.
    End,
}

/// Signs; where one begins another, the longer comes first.
const SIGNS: [&str; 29] = [
    "<=", ">=", "==", "!=", "&&", "||", "**", "(", ")", "[", "]", "{", "}", ",", ";", ":", "@",
    "=", "<", ">", "!", "?", "+", "-", "*", "/", "%", "^", ".",
];

/// Reads a text piece by piece.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    pub text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The next piece and where it is.
    pub fn next(&mut self, report: &mut Report<'_>) -> (Token, Span) {
        loop {
            self.skip_blank(report);
            let start = self.at;
            let Some(first) = self.rest().first() else {
                return (Token::End, Span { start, end: start });
            };
            let token = match first {
                b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                    self.at += count(self.rest(), is_word);
                    Some(Token::Word)
                }
                b'0'..=b'9' => Some(self.number(report)),
                b'.' if self.rest().get(1).is_some_and(u8::is_ascii_digit) => {
                    Some(self.number(report))
                }
                b'"' => Some(Token::Text(self.quoted(report))),
                b'\'' => Some(self.letter(report)),
                _ => self.sign(report),
            };
            if let Some(token) = token {
                return (token, Span { start, end: self.at });
            }
        }
    }

    fn skip_blank(&mut self, report: &mut Report<'_>) {
        loop {
            self.at += count(self.rest(), |byte| byte.is_ascii_whitespace() || byte == 0x0b);
            let rest = self.rest();
            if rest.starts_with(b"//") {
                self.at += count(rest, |byte| byte != b'\n');
            } else if rest.starts_with(b"/*") {
                let start = self.at;
                match self.text[start + 2..].find("*/") {
                    Some(length) => self.at += length + 4,
                    None => {
                        self.at = self.text.len();
                        let span = Span { start, end: start + 2 };
                        report.add(Code::Unended, span, "this comment has no end".into());
                    }
                }
            } else {
                return;
            }
        }
    }

    fn sign(&mut self, report: &mut Report<'_>) -> Option<Token> {
        let rest = &self.text[self.at..];
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            self.at += sign.len();
            return Some(Token::Sign(sign));
        }
        let start = self.at;
        let letter = rest.chars().next()?;
        if letter == '#' {
            let line = count(self.rest(), |byte| byte != b'\n');
            self.at += line;
            let message = "there is no preprocessor; C code with `#` belongs into Globals { }";
            report.add(Code::Unsupported, Span { start, end: start + 1 }, message.into());
            return None;
        }
        // One report for a run of them.
        let meaningless = |letter: &char| {
            let control = letter.is_ascii_control() && !letter.is_ascii_whitespace();
            !letter.is_ascii() || control || "$`\\~&|".contains(*letter)
        };
        let length: usize = rest
            .chars()
            .take_while(meaningless)
            .map(char::len_utf8)
            .sum::<usize>()
            .max(letter.len_utf8());
        self.at += length;
        let message = format!("`{}` means nothing here", letter.escape_debug());
        report.add(Code::Lexical, Span { start, end: self.at }, message);
        None
    }

    fn number(&mut self, report: &mut Report<'_>) -> Token {
        let start = self.at;
        let digits =
            |lexer: &mut Self| lexer.at += count(lexer.rest(), |byte| byte.is_ascii_digit());
        digits(self);
        let mut whole = true;
        if self.rest().first() == Some(&b'.') {
            whole = false;
            self.at += 1;
            digits(self);
        }
        if let [b'e' | b'E', more @ ..] = self.rest() {
            let sign = usize::from(matches!(more.first(), Some(b'+' | b'-')));
            if more.get(sign).is_some_and(u8::is_ascii_digit) {
                whole = false;
                self.at += 1 + sign;
                digits(self);
            }
        }
        let text = &self.text[start..self.at];
        let tail = count(self.rest(), is_word);
        if tail > 0 {
            self.at += tail;
            let span = Span { start, end: self.at };
            report.add(Code::Lexical, span, "this is neither a number nor a name".into());
            return Token::Int(1);
        }
        let span = Span { start, end: self.at };
        if whole {
            let value = text.parse().ok().filter(|value| *value <= 1 << 63);
            return Token::Int(value.unwrap_or_else(|| {
                report.add(Code::Lexical, span, "this number is beyond 64 bits".into());
                1
            }));
        }
        let value = text.parse().ok().filter(|value: &f64| value.is_finite());
        Token::Real(value.unwrap_or_else(|| {
            report.add(Code::Lexical, span, "this number is beyond what a double holds".into());
            1.0
        }))
    }

    /// `'N'`: the number of a letter, in capitals as texts in expressions are.
    fn letter(&mut self, report: &mut Report<'_>) -> Token {
        if let [_, letter, b'\'', ..] = self.rest()
            && letter.is_ascii_graphic()
        {
            let number = letter.to_ascii_uppercase().into();
            self.at += 3;
            return Token::Int(number);
        }
        let start = self.at;
        self.at += 1;
        self.at += count(self.rest(), is_word);
        self.at += usize::from(self.rest().first() == Some(&b'\''));
        let span = Span { start, end: self.at };
        report.add(Code::Lexical, span, "a character is one letter, as in `'N'`".into());
        Token::Int(1)
    }

    /// A text with the escapes of C.
    fn quoted(&mut self, report: &mut Report<'_>) -> String {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        let mut letters = self.text[self.at..].char_indices();
        let begin = self.at;
        while let Some((at, letter)) = letters.next() {
            self.at = begin + at + letter.len_utf8();
            match letter {
                '"' => return text,
                '\n' => {
                    self.at -= 1;
                    break;
                }
                '\\' => match letters.next() {
                    Some((at, 'u')) => {
                        self.at = begin + at + 1;
                        let (letter, length) = unicode(&self.text[self.at..]);
                        self.at += length;
                        match letter {
                            Some(letter) => text.push(letter),
                            None => self.bad_escape(report, 'u'),
                        }
                        if length > 0 {
                            letters.nth(length - 1);
                        }
                    }
                    Some((at, letter)) => {
                        self.at = begin + at + letter.len_utf8();
                        match escape(letter) {
                            Some(meant) => text.extend(meant),
                            None => self.bad_escape(report, letter),
                        }
                    }
                    None => break,
                },
                letter => text.push(letter),
            }
        }
        let span = Span { start, end: start + 1 };
        report.add(Code::Unended, span, "this text has no closing quote in its line".into());
        text
    }

    fn bad_escape(&self, report: &mut Report<'_>, letter: char) {
        let span = Span { start: self.at.saturating_sub(1 + letter.len_utf8()), end: self.at };
        let message = format!("there is no `\\{}`; a backslash is `\\\\`", letter.escape_debug());
        report.add(Code::Lexical, span, message);
    }

    /// The C code from behind a `{` that ends at `from` up to the brace that closes it, without that.
    pub fn braces(&mut self, from: usize, report: &mut Report<'_>) -> &'a str {
        let code = &self.text[from..];
        match end_of_braces(code) {
            Some(length) => {
                self.at = from + length + 1;
                &code[..length]
            }
            None => {
                self.at = self.text.len();
                let span = Span { start: from.saturating_sub(1), end: from };
                report.add(Code::Unended, span, "this `{` has no `}`".into());
                code
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is(**byte)).count()
}

/// What the letter behind a backslash means; a line's end means nothing, as in C.
fn escape(letter: char) -> Option<Option<char>> {
    match letter {
        '"' | '\\' | '\'' => Some(Some(letter)),
        'n' => Some(Some('\n')),
        't' => Some(Some('\t')),
        'r' => Some(Some('\r')),
        '\n' => Some(None),
        _ => None,
    }
}

/// The letter of `{hex}` and the bytes of that.
fn unicode(text: &str) -> (Option<char>, usize) {
    let Some(digits) = text.strip_prefix('{') else { return (None, 0) };
    let length = count(digits.as_bytes(), |byte| byte.is_ascii_hexdigit());
    if length == 0 || length > 6 || digits.as_bytes().get(length) != Some(&b'}') {
        return (None, 0);
    }
    let value = u32::from_str_radix(&digits[..length], 16).ok();
    (value.and_then(char::from_u32), length + 2)
}
