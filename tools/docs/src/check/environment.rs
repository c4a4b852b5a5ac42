//! Environment variables: those that the code names, and those of the page.

use crate::DocsError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names `"KUMI_…"` in sources of products below these folders; tests are left out.
///
/// # Errors
/// When a source cannot be read.
pub fn named(root: &Path, folders: &[&str]) -> Result<BTreeSet<String>, DocsError> {
    let mut found = BTreeSet::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = open.pop() {
        let failed = |source| DocsError::File { path: folder.display().to_string(), source };
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                if !["tests", "test", "target", "docs"].contains(&name) {
                    open.push(path);
                }
            } else if name != "tests.rs" && matches!(extension, Some("rs" | "py" | "java" | "c")) {
                names(&std::fs::read_to_string(&path).map_err(failed)?, &mut found);
            }
        }
    }
    Ok(found)
}

/// The whole strings of a source that are names of variables.
fn names(text: &str, found: &mut BTreeSet<String>) {
    // Tests of a Rust module are at its end.
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (at, _) in text.match_indices("\"KUMI_") {
        let name = text[at + 1..].split('"').next().unwrap_or_default();
        if name.len() > 5 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            found.insert(name.to_owned());
        }
    }
}

/// The names `KUMI_…` in backticks of the tables' first cells below the page's heading.
pub fn documented(page: &str) -> BTreeSet<String> {
    let section = page.split("## Environment variables").nth(1).unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let names = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // Other programs' variables are not Kumi's to document.
    names.filter(|name| name.starts_with("KUMI_")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_and_of_pages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tests")).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.rs", "var(\"KUMI_A\"); \"KUMI_B is\"; \"KUMI_\" #[cfg(test)] var(\"KUMI_C\")");
        write("tests/b.rs", "var(\"KUMI_D\")");
        write("b.py", "os.environ[\"KUMI_E\"]");
        let expected = ["KUMI_A", "KUMI_E"].map(str::to_owned).into();
        assert_eq!(named(folder.path(), &["."]).unwrap(), expected);
        let page = "| `KUMI_X` | no |\n## Environment variables\n\n| variable | x |\n|---|---|\n| `KUMI_A`, `KUMI_E` | `KUMI_Y` |\n| `OTHER` | x |\n";
        assert_eq!(documented(page), expected);
    }
}
