//! Links between documents, and the book's table of contents.

use super::Problem;
use crate::markdown::Page;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Relative links that lead nowhere. `exists` knows the files and folders of the repository.
pub fn broken(pages: &[Page], exists: &dyn Fn(&Path) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in pages {
        for (link, line) in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match target {
                "" => PathBuf::from(&page.path),
                _ => resolve(&page.path, target),
            };
            if !exists(&path) {
                problems.push(Problem::new(page, *line, format!("the link {link} leads nowhere")));
                continue;
            }
            let there = pages.iter().find(|other| Path::new(&other.path) == path);
            let known =
                there.is_some_and(|there| there.anchors.iter().any(|known| known == anchor));
            if !anchor.is_empty() && !known {
                let text = format!("{} has no heading #{anchor}", path.display());
                problems.push(Problem::new(page, *line, text));
            }
        }
    }
    problems
}

/// A link's target from the root of the repository.
fn resolve(page: &str, target: &str) -> PathBuf {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Pages of the book that its table of contents leaves out, and pages that it has twice.
pub fn contents(pages: &[Page]) -> Vec<Problem> {
    let Some(summary) = pages.iter().find(|page| page.path == "docs/SUMMARY.md") else {
        return vec![Problem {
            page: "docs/SUMMARY.md".into(),
            line: 1,
            text: "is missing".into(),
        }];
    };
    let mut listed = BTreeSet::new();
    let mut problems = Vec::new();
    for (link, line) in &summary.links {
        if !listed.insert(resolve(&summary.path, link)) {
            problems.push(Problem::new(summary, *line, format!("{link} is listed twice")));
        }
    }
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        if page.path != summary.path && !listed.contains(Path::new(&page.path)) {
            problems.push(Problem::new(page, 1, "is not in docs/SUMMARY.md"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let a = Page::parse(
            "docs/a.md",
            "# A\n[1](sub/b.md#use-it) [2](#a) [3](https://x.y/z) [4](../README.md)\n\n[5](sub/c.md)\n[6](sub/b.md#no)\n[7](#b)\n",
        );
        let b = Page::parse("docs/sub/b.md", "# B\n## Use it\n[up](../a.md#a)\n");
        let exists = |path: &Path| {
            ["docs/a.md", "docs/sub/b.md", "README.md"].iter().any(|known| Path::new(known) == path)
        };
        let found = texts(&broken(&[a, b], &exists));
        let expected = [
            "docs/a.md:4: the link sub/c.md leads nowhere",
            "docs/a.md:5: docs/sub/b.md has no heading #no",
            "docs/a.md:6: docs/a.md has no heading #b",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn pages_outside_of_the_contents_are_found() {
        let summary = Page::parse("docs/SUMMARY.md", "- [A](a.md)\n- [A](a.md)\n");
        let pages = [
            summary,
            Page::parse("docs/a.md", ""),
            Page::parse("docs/b.md", ""),
            Page::parse("README.md", ""),
        ];
        let expected =
            ["docs/SUMMARY.md:2: a.md is listed twice", "docs/b.md:1: is not in docs/SUMMARY.md"];
        assert_eq!(texts(&contents(&pages)), expected);
        assert_eq!(contents(&pages[1..]).len(), 1, "no contents at all");
    }
}
