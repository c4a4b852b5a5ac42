//! Section of the figures' report: text, tables, figures, and verdicts on the paper's statements.

use serde::Serialize;

/// Whether a statement of the paper holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Fails,
    /// Too little was simulated to say.
    Open,
}

impl Verdict {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::Fails => "no",
            Self::Open => "cannot be said",
        }
    }
}

/// A statement of the paper, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// What the paper says.
    pub what: String,
    /// Whether it holds here.
    pub verdict: Verdict,
    /// By which numbers.
    pub numbers: String,
}

/// A piece of a section, in the order in which they were said.
pub(super) enum Block {
    Text(String),
    Table { head: Vec<String>, rows: Vec<Vec<String>> },
}

/// What a part of the chapter became.
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

    /// A row of the table that was begun last.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        if let Some(Block::Table { rows, .. }) = self.blocks.last_mut() {
            rows.push(cells);
        }
    }

    pub(super) fn figure(&mut self, stem: &str, caption: &str) {
        self.figures.push((stem.to_owned(), caption.to_owned()));
    }

    /// A statement, with `None` for what too little was simulated for.
    pub(super) fn judge(&mut self, what: &str, holds: Option<bool>, numbers: String) {
        let verdict = match holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Fails,
            None => Verdict::Open,
        };
        self.statements.push(Statement { what: what.to_owned(), verdict, numbers });
    }
}
