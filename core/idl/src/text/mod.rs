//! The language of descriptions (docs/reference/interface-language.md): reading with errors at their places, and writing.

mod check;
mod diagnostic;
mod expression;
mod lexer;
mod module;
mod near;
mod params;
mod parser;
mod print;
mod routine;

pub use diagnostic::{Code, Diagnostic, MOST_DIAGNOSTICS, Severity};
pub(crate) use lexer::end_of_braces;
pub use module::{Lines, MOST_TEXT, Parsed, parse};
pub use near::nearest;
pub(crate) use params::is_reserved;
