//! `kumi trace`: what the ranks of a traced job have recorded, as files for people and programs, and what it suggests.

mod advice;
mod arrows;
mod collect;
mod model;
mod page;
mod pages;
mod perfetto;
mod waits;

use crate::context::Context;
use crate::error::Error;
use crate::{output, whole_file};
use advice::Figures;
use clap::Args;
use model::Trace;
use std::path::{Path, PathBuf};

/// `kumi trace`
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Number of the job, which may be over
    pub job: u64,
    /// Folder for the files [default: this one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &TraceArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let trace = collect::collect(&mut client, args.job).await?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("."));
    let failed = |doing| {
        let path = folder.clone();
        move |source| Error::File { doing, path, source }
    };
    std::fs::create_dir_all(&folder).map_err(failed("make"))?;
    let (locks, hand_overs) = waits::locks(&trace);
    let figures = Figures { pages: pages::pages(&trace), locks, barriers: waits::barriers(&trace) };
    let arrows = arrows::arrows(&trace, &hand_overs);
    let advice = advice::advice(&trace, &figures);
    let json = folder.join(format!("kumi-trace-{}.json", args.job));
    let html = folder.join(format!("kumi-trace-{}.html", args.job));
    write(&json, &perfetto::document(&trace, &arrows).to_string())?;
    write(&html, &page::document(&trace, &arrows, &figures, &advice))?;
    output::text(&summary(&trace, &figures, &advice, [&json, &html]))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    whole_file::write(path, text).map_err(|source| Error::File {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}

/// What the command prints.
fn summary(trace: &Trace, figures: &Figures, advice: &[String], files: [&PathBuf; 2]) -> String {
    let sum =
        |of: fn(&model::RankTrace) -> u64| trace.ranks.iter().map(of).fold(0, u64::saturating_add);
    let events = sum(|rank| rank.events.len() as u64);
    let mut text =
        format!("{} ranks, {events} events in {}\n", trace.ranks.len(), page::time(trace.length));
    for (count, what) in [
        (sum(|rank| rank.lost), "lost: the ring was full, or the rank ended while it wrote them"),
        (
            sum(|rank| rank.implausible),
            "left out, since they cannot be: a rank wrote into its trace",
        ),
    ] {
        if count > 0 {
            text.push_str(&format!("{count} events {what}\n"));
        }
    }
    let fetched: u64 = figures.pages.by_number.values().map(pages::PageUse::fetched).sum();
    let diffs: u64 = figures.pages.by_number.values().map(|page| page.diffs[0]).sum();
    let taken: u64 = figures.locks.values().map(|lock| lock.taken).sum();
    let waited = figures.locks.values().map(|lock| lock.waited).fold(0, u64::saturating_add);
    let barriers = &figures.barriers;
    text.push_str(&format!("pages: {fetched} fetched, {diffs} diffs\n"));
    text.push_str(&format!("locks: {taken} taken, {} waited\n", page::time(waited)));
    text.push_str(&format!(
        "barriers: {} passed, {} waited\n",
        barriers.passed,
        page::time(barriers.waited)
    ));
    for sentence in advice {
        text.push_str(&format!("advice: {sentence}\n"));
    }
    text.push_str(&format!("{}\n{}\n", files[0].display(), files[1].display()));
    text
}
