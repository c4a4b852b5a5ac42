//! The tracepoints are in the executables under the names that docs/guide/tracing.md tells.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{path, repository};
use std::collections::BTreeSet;

/// Names of provider `kumi` in the notes of an executable: each note holds the owner `stapsdt`, three addresses,
/// and then provider, name and arguments as strings.
fn names(executable: &str) -> BTreeSet<String> {
    let bytes = std::fs::read(path(executable)).expect("an executable");
    let (owner, provider) = (b"stapsdt\0", b"kumi\0");
    let notes = bytes.windows(owner.len()).enumerate().filter(|(_, window)| window == owner);
    notes
        .filter_map(|(at, _)| bytes[at + owner.len() + 24..].strip_prefix(provider))
        .filter_map(|rest| rest.split(|byte| *byte == 0).next())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

#[test]
fn every_tracepoint_is_there_and_documented() {
    let ranks = ["deliver", "resume", "send", "serve", "sleep", "transmit", "wait"];
    let page =
        std::fs::read_to_string(repository().join("docs/guide/tracing.md")).expect("the page");
    for file in ["kumi-bench-soak", "libkumi.so"] {
        assert_eq!(names(file), ranks.map(str::to_owned).into(), "{file}");
    }
    // What the linker leaves of a rank's may be there too.
    assert!(names("kumid").contains("switched"));
    for name in ranks.iter().chain(&["switched"]) {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
}
