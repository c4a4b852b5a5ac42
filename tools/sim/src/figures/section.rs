//! Section of the figures' report: text, tables, figures, and verdicts on the paper's statements.

use serde::Serialize;

/// Whether a statement of the paper holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// The simulations were too small for a verdict.
    Open,
}

impl Verdict {
    /// The verdict for readers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::Fails => "no",
            Self::Open => "cannot be said",
        }
    }
}

/// A statement of the paper with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// The paper's statement.
    pub what: String,
    /// Whether it holds here.
    pub verdict: Verdict,
    /// The numbers behind the verdict.
    pub numbers: String,
}

/// A piece of a section; pieces keep their order.
pub(super) enum Block {
    Text(String),
    Table { head: Vec<String>, rows: Vec<Vec<String>> },
}

/// Result of a part of the chapter.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
    /// Names of files without their endings, each with a caption.
    pub(super) figures: Vec<(String, String)>,
    pub(super) statements: Vec<Statement>,
}

impl Section {
    pub(super) fn new(title: &str) -> Self {
        let title = title.to_owned();
        Self { title, blocks: Vec::new(), figures: Vec::new(), statements: Vec::new() }
    }

    pub(super) fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Begins a table, which [`Section::row`] fills.
    pub(super) fn table(&mut self, head: &[&str]) {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        self.blocks.push(Block::Table { head, rows: Vec::new() });
    }

    /// Adds a row to the latest table.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        if let Some(Block::Table { rows, .. }) = self.blocks.last_mut() {
            rows.push(cells);
        }
    }

    pub(super) fn figure(&mut self, stem: &str, caption: &str) {
        self.figures.push((stem.to_owned(), caption.to_owned()));
    }

    /// Adds a statement; `None`: the simulations were too small for a verdict.
    pub(super) fn judge(&mut self, what: &str, holds: Option<bool>, numbers: String) {
        let verdict = match holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Fails,
            None => Verdict::Open,
        };
        self.statements.push(Statement { what: what.to_owned(), verdict, numbers });
    }
}
