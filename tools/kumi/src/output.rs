//! Standard output of the command.

use crate::error::Error;
use crate::table;
use serde::Serialize;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes text to standard output.
pub fn text(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Output)
}

/// Writes a value as indented JSON with a newline at the end.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_string_pretty(value).map_err(|e| Error::Output(e.into()))?;
    line.push('\n');
    text(&line)
}

/// Prints a text for the user on standard error. What others have written into it, such as a routine, does nothing to the terminal.
pub fn note(text: &str) {
    let line = text.split_inclusive(['\n', '\t']).map(harmless).collect::<String>();
    let end = if crate::terminal::raw_mode::is_raw() { "\r\n" } else { "\n" };
    // If standard error is closed, no reader is left.
    let _closed = write!(std::io::stderr(), "kumi: {line}{end}");
}

/// Control characters made visible, but the last one, which ends a line or a column.
fn harmless(part: &str) -> String {
    match part.char_indices().next_back() {
        Some((end, '\n' | '\t')) => table::printable(&part[..end]) + &part[end..],
        _ => table::printable(part),
    }
}

/// Milliseconds since the epoch.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A user's name, or the number if there is no name.
pub fn user_name(uid: u32) -> String {
    // A user that the head does not name.
    if uid == u32::MAX {
        return "-".to_owned();
    }
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
