//! Checks of documents. Each returns what is wrong, with its place.

pub mod blocks;
pub mod commands;
pub mod compile;
pub mod environment;
pub mod links;
pub mod names;

use crate::markdown::Page;
use crate::{DocsError, read};
use std::fmt;
use std::path::{Path, PathBuf};

/// Something wrong in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The document.
    pub page: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub text: String,
}

impl Problem {
    /// A problem of this page.
    pub fn new(page: &Page, line: usize, text: impl Into<String>) -> Self {
        Self { page: page.path.clone(), line, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.page, self.line, self.text)
    }
}

/// All documents of the repository: files `*.md`; build output and what starts with a dot left out.
///
/// # Errors
/// When one cannot be read.
pub fn pages(root: &Path) -> Result<Vec<Page>, DocsError> {
    let (mut folders, mut found) = (vec![root.to_owned()], Vec::<PathBuf>::new());
    while let Some(folder) = folders.pop() {
        let failed = |source| DocsError::File { path: folder.display().to_string(), source };
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with('.') || name == "target" || name == "node_modules" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    let page = |path: PathBuf| {
        let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        Ok(Page::parse(&path, &read(root, &path)?))
    };
    found.into_iter().map(page).collect()
}
