//! The one way in which a test is skipped: visibly, and never where skips are forbidden.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUMI_SKIPS` | a file to which each skip adds a line; `scripts/run-tests` prints it at the end |
//! | `KUMI_NO_SKIPS=1` | a skip is a failure; continuous integration sets it |
#![forbid(unsafe_code)]

use std::io::Write as _;

/// Skips a test because this machine does not permit it; `reason` says what is missing.
///
/// The caller returns from the test afterwards.
///
/// # Panics
/// If `KUMI_NO_SKIPS` is `1`: the machine was to permit every test.
pub fn skip(test: &str, reason: &str) {
    note(test, reason);
    assert!(
        std::env::var_os("KUMI_NO_SKIPS").is_none_or(|value| value != "1"),
        "{test} would be skipped ({reason}), and KUMI_NO_SKIPS=1 makes that a failure"
    );
}

/// Skips a test for which no set-up of this machine provides what it needs; `reason` says what that is.
///
/// Examples are data which the project may not carry, and a checkout in a folder that other users cannot reach. Unlike
/// [`skip`] this is no failure anywhere.
pub fn impossible(test: &str, reason: &str) {
    note(test, reason);
}

/// Shows the skip and records it in the file that `KUMI_SKIPS` names.
fn note(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("KUMI_SKIPS") else { return };
    // One write to a file opened for appending: lines of several processes do not mix.
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot record a skip in {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Runs the ignored test of that name in a process of its own, since skips depend on variables.
    fn run(name: &str, no_skips: &str, record: &std::path::Path) -> bool {
        let this = std::env::current_exe().expect("this program");
        Command::new(this)
            .args(["--ignored", "--exact", name])
            .env("KUMI_NO_SKIPS", no_skips)
            .env("KUMI_SKIPS", record)
            .stdout(std::process::Stdio::null())
            .status()
            .expect("it runs")
            .success()
    }

    #[test]
    #[ignore = "run by the tests below"]
    fn machine() {
        super::skip("machine", "no such device");
    }

    #[test]
    #[ignore = "run by the tests below"]
    fn data() {
        super::impossible("data", "no trace");
    }

    #[test]
    fn skips_are_recorded_and_fail_where_they_are_forbidden() {
        let record = std::env::temp_dir().join(format!("kumi-skip-{}", std::process::id()));
        assert!(run("tests::machine", "0", &record));
        assert!(!run("tests::machine", "1", &record), "a skip passed although skips are forbidden");
        assert!(run("tests::data", "1", &record));
        let text = std::fs::read_to_string(&record).expect("a record");
        std::fs::remove_file(&record).expect("our file");
        let machine = "SKIPPED machine: no such device\n";
        assert_eq!(text, format!("{machine}{machine}SKIPPED data: no trace\n"));
    }
}
