//! `kumi sim figures`.

use super::args::FiguresArgs;
use super::progress;
use crate::error::Error;
use crate::output;
use kumi_sim::figures;
use std::fmt::Write as _;

/// Runs the command.
pub fn run(args: &FiguresArgs) -> Result<(), Error> {
    let cases = figures::simulations(args.quick);
    let summary =
        progress::watch(cases, |monitor| figures::make(&args.folder, args.quick, monitor))?;
    let mut text = format!(
        "{} figures in {}\n{} statements of the paper hold, {} do not\n",
        summary.figures,
        summary.index.display(),
        summary.hold,
        summary.fail.len()
    );
    for what in &summary.fail {
        let line = writeln!(text, "does not hold: {what}");
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
    }
    output::text(&text)
}
