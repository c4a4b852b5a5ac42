//! Names in backticks: paths of the repository, `kumi` command lines, targets of make.

use super::{Problem, commands};
use crate::markdown::Page;
use clap::Command;
use std::path::Path;

/// Folders at the root of the repository.
const FOLDERS: [&str; 11] = [
    "core",
    "runtime",
    "bindings",
    "tools",
    "examples",
    "bench",
    "tests",
    "docs",
    "fuzz",
    "scripts",
    "packaging",
];

/// Paths in backticks that do not exist.
pub fn paths(pages: &[Page], root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in pages {
        for (code, line) in &page.code {
            let path = code.trim_end_matches('/');
            let first = path.split('/').next().unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},*@".contains(c);
            if !FOLDERS.contains(&first)
                || !path.contains('/')
                || !path.chars().all(plain)
                || path.contains("..")
            {
                continue;
            }
            for path in braces(path) {
                if !exists(root, &path) {
                    problems.push(Problem::new(page, *line, format!("there is no {path}")));
                }
            }
        }
    }
    problems
}

/// `a/{b,c}` as `a/b` and `a/c`.
fn braces(path: &str) -> Vec<String> {
    let split =
        path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (inside, after))) = split else { return vec![path.to_owned()] };
    inside.split(',').flat_map(|one| braces(&format!("{before}{one}{after}"))).collect()
}

/// Whether a path is there; `*` stands for any part of a name.
fn exists(root: &Path, path: &str) -> bool {
    let Some(star) = path.find('*') else { return root.join(path).exists() };
    let (folder, pattern) = path[..star]
        .rsplit_once('/')
        .map_or(("", path), |(folder, _)| (folder, &path[folder.len() + 1..]));
    let pattern = pattern.split('/').next().unwrap_or_default();
    let (begin, end) = pattern.split_once('*').unwrap_or((pattern, ""));
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end.rsplit('*').next().unwrap_or_default())
    })
}

/// Command lines in backticks whose subcommands or options do not exist.
pub fn commands(pages: &[Page], command: &Command) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in pages {
        for (code, line) in page.code.iter().filter(|(code, _)| code.starts_with("kumi ")) {
            for words in commands::words(code) {
                if let Err(why) = commands::mentions(command, &words) {
                    problems.push(Problem::new(page, *line, format!("`{code}`: {why}")));
                }
            }
        }
    }
    problems
}

/// Targets of `make` in backticks and in blocks of shell that the Makefile at the root lacks.
pub fn targets(pages: &[Page], makefile: &str) -> Vec<Problem> {
    let has = |target: &str| {
        makefile.lines().any(|line| {
            let head = line.split(':').next().unwrap_or_default();
            !line.starts_with(['\t', '#', ' '])
                && line.contains(':')
                && head.split_whitespace().any(|word| word == target)
        })
    };
    let mut problems = Vec::new();
    for page in pages {
        let inline = page.code.iter().map(|(code, line)| (code.clone(), *line));
        let blocks = page.blocks.iter().filter(|block| block.language() == "sh");
        for (code, line) in inline.chain(blocks.map(|block| (block.code.clone(), block.line))) {
            for words in commands::words(&code) {
                let elsewhere =
                    words.iter().any(|word| word == "-C" || word == "-f" || word.starts_with("--"));
                if words.first().is_none_or(|word| word != "make") || elsewhere {
                    continue;
                }
                let targets = words[1..].iter().filter(|word| {
                    word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.contains('=')
                });
                for target in targets.filter(|target| !has(target)) {
                    problems.push(Problem::new(
                        page,
                        line,
                        format!("the Makefile has no target {target}"),
                    ));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_there_are_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("core/proto/src")).unwrap();
        std::fs::write(folder.path().join("core/proto/src/lib.rs"), "").unwrap();
        let page = Page::parse(
            "x.md",
            "`core/proto/src/lib.rs` `core/{proto,sched}` `core/proto/*/` `core/x*` `core/ and more` `target/x`\n",
        );
        let found: Vec<String> =
            paths(&[page], folder.path()).into_iter().map(|problem| problem.text).collect();
        assert_eq!(found, ["there is no core/sched", "there is no core/x*"]);
    }

    #[test]
    fn targets_that_are_not_there_are_found() {
        let page = Page::parse(
            "x.md",
            "`make test` `make tset` `make -C x y`\n\n```sh\nmake build && make bulid\n```\n",
        );
        let makefile = "test: lint\n\tmake tset\nbuild lint: x\n# tset: no\n";
        let found: Vec<String> =
            targets(&[page], makefile).into_iter().map(|problem| problem.text).collect();
        assert_eq!(found, ["the Makefile has no target tset", "the Makefile has no target bulid"]);
    }
}
