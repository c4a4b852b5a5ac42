//! `kumi sim figures`: simulates the paper's figures and tables again.

use super::args::FiguresArgs;
use super::progress;
use crate::error::Error;
use crate::output;
use kumi_sim::figures::{self, Extent, Formats, Summary, Verdict};
use std::fmt::Write as _;

/// Runs the command.
pub fn run(args: &FiguresArgs) -> Result<(), Error> {
    let extent = if args.quick { Extent::Quick } else { Extent::Full };
    let formats = Formats::from(args.format);
    let cases = figures::simulations(extent);
    let made = |monitor: &_| figures::make(&args.folder, extent, formats, monitor);
    output::text(&told("figures", &progress::watch(cases, made)?))
}

/// The results, figures or tables, with every statement that does not hold and the reason.
pub(super) fn told(what: &str, summary: &Summary) -> String {
    let mut text = format!(
        "{} {what} in {}\n{} statements of the paper hold, {} do not, of {} it cannot be said\n",
        summary.figures.len(),
        summary.index.display(),
        summary.count(Verdict::Holds),
        summary.count(Verdict::Fails),
        summary.count(Verdict::Open),
    );
    for statement in &summary.statements {
        let verdict = match statement.verdict {
            Verdict::Holds => continue,
            Verdict::Fails => "does not hold",
            Verdict::Open => "cannot be said",
        };
        let line = writeln!(text, "{verdict}: {}: {}", statement.what, statement.numbers);
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
    }
    text
}
