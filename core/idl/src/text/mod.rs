//! The interface language (docs/reference/interface-language.md): a parser with diagnostics, and a printer.

mod check;
mod diagnostic;
mod expression;
mod lexer;
mod module;
mod params;
mod parser;
mod print;
mod routine;

pub use diagnostic::{Code, Diagnostic, MOST_DIAGNOSTICS, Severity};
pub use module::{CodeLines, MOST_TEXT, ParsedText, parse};
