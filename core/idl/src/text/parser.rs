//! Common parts of the parser: the current token, errors, and recovery after an error.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::diagnostic::{Code, Report, Span};
use super::lexer::{Lexer, Token};

/// The error of a parser function; the report has the diagnostic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParseFailed;

/// Parser of descriptions.
pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(super) report: Report<'a>,
    /// The piece to look at, and where it is.
    pub(super) token: Token,
    pub(super) span: Span,
    /// Where the piece before it was.
    pub(super) last: Span,
    /// Names in the expressions of the routine at hand, and where they are.
    pub(super) names: Vec<(&'a str, Span)>,
    pub(super) nesting: usize,
    pub(super) too_deep: bool,
}

/// Words that begin a declaration.
pub(super) const DECLARATIONS: [&str; 9] = [
    "Define",
    "DefClass",
    "Module",
    "Globals",
    "Library",
    "CompileOptions",
    "Compiler",
    "Linker",
    "FortranFormat",
];

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parser<'a> {
        let mut parser = Parser {
            lexer: Lexer::new(text),
            report: Report::new(text),
            token: Token::End,
            span: Span::default(),
            last: Span::default(),
            names: Vec::new(),
            nesting: 0,
            too_deep: false,
        };
        parser.advance();
        parser
    }

    /// On to the next piece. When enough is wrong the text is over.
    pub(super) fn advance(&mut self) {
        self.last = self.span;
        (self.token, self.span) = self.lexer.next(&mut self.report);
        if self.report.is_full() {
            self.token = Token::End;
        }
    }

    /// The word to look at; empty when it is none.
    pub(super) fn word(&self) -> &'a str {
        if self.token == Token::Word { self.source() } else { "" }
    }

    fn source(&self) -> &'a str {
        &self.lexer.text[self.span.start..self.span.end]
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.token, Token::Sign(found) if found == sign)
    }

    pub(super) fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect_sign(&mut self, sign: &'static str, why: &str) -> Result<(), ParseFailed> {
        if self.take_sign(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}` {why}")))
    }

    /// A name; `what` it is the name of.
    pub(super) fn name(&mut self, what: &str) -> Result<(&'a str, Span), ParseFailed> {
        let (name, span) = (self.word(), self.span);
        if name.is_empty() {
            return Err(self.unexpected(what));
        }
        self.advance();
        Ok((name, span))
    }

    /// A text of one or several in a row, and its place; empty when there is none.
    pub(super) fn texts(&mut self) -> (String, Span) {
        let start = self.span;
        let mut all = String::new();
        let mut any = false;
        while let Token::Text(text) = &mut self.token {
            all.push_str(text);
            any = true;
            self.advance();
        }
        (all, if any { start.to(self.last) } else { start })
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, what: &str) -> Result<(String, Span), ParseFailed> {
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.unexpected(what));
        }
        Ok(self.texts())
    }

    /// C code in braces.
    pub(super) fn braces(&mut self) -> Result<&'a str, ParseFailed> {
        if !self.is_sign("{") {
            return Err(self.unexpected("`{` and C code"));
        }
        let code = self.lexer.braces(self.span.end, &mut self.report);
        self.advance();
        Ok(code)
    }

    pub(super) fn unexpected(&mut self, expected: &str) -> ParseFailed {
        let found = match &self.token {
            Token::End => "the text ends".into(),
            _ => format!("there is `{}`", shortened(self.source())),
        };
        self.fail(Code::Syntax, format!("{found}, expected {expected}"))
    }

    /// Complains about the piece at hand.
    pub(super) fn fail(&mut self, code: Code, message: String) -> ParseFailed {
        self.report.add(code, self.span, message);
        ParseFailed
    }

    pub(super) fn is_end(&self) -> bool {
        self.token == Token::End
    }

    pub(super) fn is_declaration(&self) -> bool {
        DECLARATIONS.contains(&self.word())
    }

    /// Behind a mistake: on to the next declaration.
    pub(super) fn skip_to_declaration(&mut self) {
        while !self.is_end() && !self.is_declaration() {
            self.skip();
        }
    }

    /// Over one piece, or over C code in braces.
    pub(super) fn skip(&mut self) {
        if self.braces_quietly().is_none() {
            self.advance();
        }
    }

    fn braces_quietly(&mut self) -> Option<()> {
        if self.is_sign("{") { self.braces().ok().map(drop) } else { None }
    }

    /// Behind a mistake in a list: on to the comma or bracket that ends this member of it; or to where the list cannot go on.
    pub(super) fn skip_member(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.token {
                Token::End | Token::Sign(";" | "{" | "}") => return,
                Token::Sign(",") if depth == 0 => return,
                Token::Sign(")") if depth == 0 => return,
                Token::Sign("(" | "[") => depth += 1,
                Token::Sign(")" | "]") => depth = depth.saturating_sub(1),
                Token::Word if self.is_declaration() || ROUTINE.contains(&self.word()) => return,
                _ => {}
            }
            self.advance();
        }
    }
}

/// Words between a routine's parameters and its body.
pub(super) const ROUTINE: [&str; 9] = [
    "Required",
    "CalcOrder",
    "Calls",
    "Parallel",
    "Backend",
    "Shrink",
    "Language",
    "DefMethod",
    "DefState",
];

/// What a complaint repeats.
pub(super) fn shortened(text: &str) -> String {
    crate::excerpt::shortened(text, 32)
}
