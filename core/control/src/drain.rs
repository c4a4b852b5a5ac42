//! Nodes that are drained: they go on with what they have, and get no new jobs.

use alloc::format;
use alloc::string::{String, ToString};

use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

/// The longest reason, in bytes. It is shown to everybody.
pub const LONGEST_REASON: usize = 256;
/// The longest name of who drained a node, in bytes.
pub const LONGEST_DRAINER: usize = 256;

/// A node that gets no new jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The node.
    pub node: NodeId,
    /// Why, for people.
    pub reason: String,
    /// Who drained it: a name, or a number if there is none.
    pub by: String,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: u64,
}

/// Checks the reason for which nodes are drained.
///
/// # Errors
/// It is empty, too long, or cannot be shown in a line. The sentence says which.
pub fn check_reason(reason: &str) -> Result<(), String> {
    if reason.trim().is_empty() {
        return Err("a node is drained for a reason; say it with --reason".to_string());
    }
    if reason.len() > LONGEST_REASON {
        let length = reason.len();
        return Err(format!(
            "a reason has at most {LONGEST_REASON} bytes, not {length}; give a shorter one"
        ));
    }
    if reason.contains(char::is_control) {
        return Err("a reason is one line without control characters; give another".to_string());
    }
    Ok(())
}

/// Checks the name of who drained a node, as a file has it.
///
/// # Errors
/// It is empty, too long, or cannot be shown in a line. The sentence says which.
pub fn check_drainer(by: &str) -> Result<(), String> {
    if by.trim().is_empty() {
        return Err("nobody is named who drained a node".to_string());
    }
    if by.len() > LONGEST_DRAINER {
        let length = by.len();
        return Err(format!(
            "the name of who drained a node has at most {LONGEST_DRAINER} bytes, not {length}"
        ));
    }
    if by.contains(char::is_control) {
        return Err("the name of who drained a node has control characters".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(check_reason("disk fails, ticket 7"), Ok(()));
        assert_eq!(check_reason(&"x".repeat(LONGEST_REASON)), Ok(()));
        for (reason, says) in [
            (" ", "--reason"),
            (&*"x".repeat(LONGEST_REASON + 1), "257"),
            ("a\nb", "one line"),
            ("\u{1b}[2J", "one line"),
        ] {
            let error = check_reason(reason).unwrap_err();
            assert!(error.contains(says), "{reason:?}: {error}");
        }
    }
    #[test]
    fn who_drained_a_node_is_a_name_of_one_line() {
        assert_eq!(check_drainer("ada"), Ok(()));
        assert_eq!(check_drainer(&"x".repeat(LONGEST_DRAINER)), Ok(()));
        for (by, says) in [
            ("", "nobody"),
            (&*"x".repeat(LONGEST_DRAINER + 1), "257"),
            ("ada\n", "control characters"),
            ("\u{1b}[2J", "control characters"),
        ] {
            let error = check_drainer(by).unwrap_err();
            assert!(error.contains(says), "{by:?}: {error}");
        }
    }
}
