//! The words of the interface language, and where C code in it ends. Descriptions are held against both, however they come.

use crate::model::{Element, Language, Mode, Type};

impl Language {
    /// How descriptions spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Language::C => "C",
            Language::Fortran => "Fortran",
            Language::Python => "Python",
        }
    }
}

impl Mode {
    /// How descriptions spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::In => "mode_in",
            Mode::Out => "mode_out",
            Mode::InOut => "mode_inout",
            Mode::Work => "mode_work",
        }
    }
}

/// Words that modes are spelled with.
pub(crate) const MODES: [(&str, Mode); 8] = [
    ("mode_in", Mode::In),
    ("IN", Mode::In),
    ("mode_out", Mode::Out),
    ("OUT", Mode::Out),
    ("mode_inout", Mode::InOut),
    ("INOUT", Mode::InOut),
    ("mode_work", Mode::Work),
    ("WORK", Mode::Work),
];

/// Types of one word.
pub(crate) const WORDS: [(&str, Type); 15] = [
    ("int8", Type::Number(Element::I8)),
    ("int16", Type::Number(Element::I16)),
    ("int32", Type::Number(Element::I32)),
    ("int64", Type::Number(Element::I64)),
    ("uint8", Type::Number(Element::U8)),
    ("uint16", Type::Number(Element::U16)),
    ("uint32", Type::Number(Element::U32)),
    ("uint64", Type::Number(Element::U64)),
    ("scomplex", Type::Number(Element::C64)),
    ("dcomplex", Type::Number(Element::C128)),
    ("float32", Type::Number(Element::F32)),
    ("float64", Type::Number(Element::F64)),
    ("string", Type::String),
    ("file", Type::File),
    ("filename", Type::File),
];

/// Words of which types are put together as in C.
pub(crate) const PIECES: [&str; 9] =
    ["signed", "unsigned", "char", "short", "int", "long", "float", "double", "complex"];

/// Whether a word belongs to the language, so that no parameter can have it as its name.
pub(crate) fn is_reserved(word: &str) -> bool {
    mode(word).is_some() || is_type(word)
}

pub(crate) fn mode(word: &str) -> Option<Mode> {
    MODES.into_iter().find(|(name, _)| *name == word).map(|(_, mode)| mode)
}

pub(crate) fn is_type(word: &str) -> bool {
    PIECES.contains(&word) || WORDS.iter().any(|(name, _)| *name == word)
}

/// Where the brace is that closes C code; braces in its texts, characters and comments are none.
pub(crate) fn end_of_braces(code: &str) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at..];
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            b'/' if rest.starts_with(b"//") => {
                at += rest.iter().take_while(|byte| **byte != b'\n').count() - 1;
            }
            b'/' if rest.starts_with(b"/*") => at += code[at + 2..].find("*/")? + 3,
            b'"' | b'\'' => at += end_of_quotes(rest),
            _ => {}
        }
        at += 1;
    }
    None
}

/// From an opening quote to the closing one, or to the end of the line.
fn end_of_quotes(code: &[u8]) -> usize {
    let quote = code[0];
    let mut at = 1;
    while let Some(byte) = code.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' => return at,
            byte if *byte == quote => return at,
            _ => {}
        }
        at += 1;
    }
    code.len()
}
