//! `scripts/prose` finds sentences that are too long or have no actor, and a document that is above its limits.

use kumi_docs::repository;
use std::process::Command;

/// Exit code and output of a check of this text, which has the goals as its limits.
fn check(text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.md");
    std::fs::write(&file, text).expect("the page");
    let output = Command::new(repository().join("scripts/prose"))
        .arg("--check")
        .arg(&file)
        .output()
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn sentence(words: usize) -> String {
    format!("The {}end.", "word ".repeat(words - 2))
}

#[test]
fn short_sentences_pass() {
    let code = sentence(50);
    let text = format!(
        "# Title\n\n{} {}\nThe head, e.g. that one, says what it does. `kumi ps` lists jobs. What is it?\n\n- item one\n- item two\n\n```text\n{code}\n```\n\n| {code} | x |\n",
        sentence(18),
        sentence(17)
    );
    let (passed, said) = check(&text);
    assert!(passed, "{said}");
    // 18, 17, 9, 3, 3 and two items of two words each.
    assert!(said.contains(" 54    7.7    0         0"), "{said}");
}

#[test]
fn what_is_wrong_is_named() {
    for (text, why) in [
        (format!("{}\n\na b.\n\nc d.\n\ne f.\n", sentence(36)), "long is 1, at most 0"),
        (sentence(19), "mean is 19.0, at most 18.0"),
        ("What is placed is a job.\n".to_owned(), "vague is 1, at most 0"),
        ("It runs; who waits is told.\n".to_owned(), "vague is 1, at most 0"),
    ] {
        let (passed, said) = check(&text);
        assert!(!passed && said.contains(why), "{text}: {said}");
    }
}
