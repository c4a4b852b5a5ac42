//! Standard output of the command.

use crate::error::Error;
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

/// Prints a line for the user on standard error.
pub fn note(line: &str) {
    let end = if crate::terminal::raw_mode::is_raw() { "\r\n" } else { "\n" };
    // If standard error is closed, no reader is left.
    let _closed = write!(std::io::stderr(), "kumi: {line}{end}");
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
