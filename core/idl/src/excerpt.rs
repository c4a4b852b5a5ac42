//! What errors repeat of texts that somebody else wrote.

use alloc::string::String;

/// At most so many characters of a text, escaped, so that they do nothing to a terminal or a log.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).flat_map(char::escape_debug).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}
