//! Excerpts of foreign texts for error messages.

use alloc::string::String;

/// At most `most` characters of a text, escaped, so that they are safe for terminals and logs.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).flat_map(char::escape_debug).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}
