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
mod similar_names;

pub use diagnostic::{Code, Diagnostic, MOST_DIAGNOSTICS, Severity};
pub(crate) use lexer::end_of_braces;
pub use module::{CodeLines, MOST_TEXT, ParsedText, parse};
pub(crate) use params::is_reserved;
pub use similar_names::nearest;
