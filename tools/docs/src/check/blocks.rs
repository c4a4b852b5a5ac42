//! Blocks of code: each has a language, and what a machine can read is read.

use super::{Problem, commands};
use crate::markdown::{Block, Page};
use clap::Command;
use std::path::Path;

/// Languages that blocks may have.
const LANGUAGES: [&str; 17] = [
    "sh", "text", "toml", "json", "c", "cpp", "fortran", "python", "java", "julia", "rust", "idl",
    "mermaid", "ini", "xml", "make", "console",
];

/// Wrong blocks of code. These are blocks without a language, invalid TOML and JSON, and command lines that
/// `kumi` refuses. They are also Rust that no test compiles (`compiled` has the pages that are compiled), and
/// examples that differ from the file that they name.
pub fn wrong(pages: &[Page], command: &Command, compiled: &[&str], root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in pages {
        for block in &page.blocks {
            let mut problem = |why: String| problems.push(Problem::new(page, block.line, why));
            if !LANGUAGES.contains(&block.language()) {
                problem(format!(
                    "a block of code has no language, or an unknown one: {:?}",
                    block.info
                ));
            }
            if let Err(why) = content(block) {
                problem(why);
            }
            if matches!(block.language(), "sh" | "console") {
                for words in
                    commands::words(&block.code).iter().filter(|words| commands::is_kumi(words))
                {
                    if let Err(why) = commands::accepted(command, words) {
                        problem(format!("`{}`: {}", words.join(" "), why.trim_end()));
                    }
                }
            }
            if block.language() == "rust"
                && !block.is_marked("ignore")
                && !compiled.contains(&&*page.path)
            {
                problem("the Rust of this page is not compiled: name the page in tools/docs/src/lib.rs, or mark the block `rust,ignore`".to_owned());
            }
            if let Some(why) = block.from.as_ref().and_then(|from| differs(root, from, &block.code))
            {
                problem(why);
            }
        }
    }
    problems
}

fn content(block: &Block) -> Result<(), String> {
    if block.is_marked("part") {
        return Ok(());
    }
    match block.language() {
        "toml" => toml::from_str::<toml::Table>(&block.code)
            .map(drop)
            .map_err(|error| format!("not TOML: {error}")),
        "json" => serde_json::from_str::<serde_json::Value>(&block.code)
            .map(drop)
            .map_err(|error| format!("not JSON: {error}")),
        _ => Ok(()),
    }
}

/// Why the code is not a part of the file: lines are compared without their indentation.
fn differs(root: &Path, from: &str, code: &str) -> Option<String> {
    let Ok(text) = std::fs::read_to_string(root.join(from)) else {
        return Some(format!("there is no {from}"));
    };
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (all, some) = (lines(&text), lines(code));
    let found = all.windows(some.len().max(1)).any(|window| window == some);
    (!found).then(|| format!("these lines are not in {from}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    fn found(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.c"), "int a;\n\tint b;\n\tint c;\n").unwrap();
        let pages = [Page::parse("x.md", text)];
        wrong(&pages, &command(), &["compiled.md"], folder.path())
            .into_iter()
            .map(|problem| problem.to_string())
            .collect()
    }

    #[test]
    fn good_blocks_pass() {
        let text = "```toml\na = 1\n```\n\n```json\n{\"a\": [1]}\n```\n\n```json,part\n{\"a\": …}\n```\n\n```sh\nkumi ps\nls\n```\n\n\
                    <!-- from: a.c -->\n```c\nint b;\nint c;\n```\n\n```rust,ignore\nfn\n```\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn bad_blocks_are_found() {
        for (text, why) in [
            ("```\nx\n```\n", "no language"),
            ("```klingon\nx\n```\n", "unknown one"),
            ("a\n\n    indented\n", "no language"),
            ("```toml\na = \n```\n", "not TOML"),
            ("```json\n{a: 1}\n```\n", "not JSON"),
            ("```sh\nls && kumi pss\n```\n", "kumi pss"),
            ("```rust\nfn main() {}\n```\n", "not compiled"),
            ("<!-- from: a.c -->\n\n```c\nint a;\nint c;\n```\n", "not in a.c"),
            ("<!-- from: b.c -->\n\n```c\nint a;\n```\n", "there is no b.c"),
        ] {
            let found = found(text);
            assert!(found.len() == 1 && found[0].contains(why), "{text}: {found:?}");
        }
    }
}
