//! Names in generated sources: words of the language and names that are taken get an underscore.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The names of one scope.
#[derive(Debug, Clone)]
pub struct Names {
    /// Words of the language, with a blank between two.
    words: &'static str,
    /// Capital and small letters are the same.
    folds: bool,
    taken: Vec<String>,
}

impl Names {
    /// A scope in which no name is taken, and which has these words of its language, with a blank between two.
    pub fn new(words: &'static str) -> Names {
        Names { words, folds: false, taken: Vec::new() }
    }

    /// The same for a language that does not distinguish capital letters.
    pub fn folding(words: &'static str) -> Names {
        Names { folds: true, ..Names::new(words) }
    }

    fn key(&self, name: &str) -> String {
        if self.folds { name.to_ascii_lowercase() } else { name.to_string() }
    }

    /// Takes a name, or one like it.
    pub fn take(&mut self, wanted: &str) -> String {
        let mut name = identifier(wanted);
        loop {
            let key = self.key(&name);
            if !self.words.split(' ').any(|word| word == key) && !self.taken.contains(&key) {
                self.taken.push(key);
                return name;
            }
            name.push('_');
        }
    }
}

/// A name that each language has: letters, digits and `_`, the first a letter.
pub fn identifier(name: &str) -> String {
    let mut clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !clean.starts_with(|c: char| c.is_ascii_alphabetic()) {
        clean.insert(0, 'x');
    }
    clean
}
