//! The report: docs/benchmarks.md, its plot and the small table of README.md, from the records of measurements.

mod plot;

use crate::error::BenchError;
use crate::figures::ALL;
use crate::origin::Origin;
use crate::record::{SCHEMA, significant};
use serde::Deserialize;
use std::path::Path;

/// A record from a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Row {
    figure: String,
    unit: String,
    /// Absent if it could not be measured.
    ours: Option<f64>,
    peer: Option<f64>,
    peer_name: String,
    ratio: Option<f64>,
    ratio_range: Option<[f64; 2]>,
    goal: Option<String>,
    met: Option<bool>,
    runs: usize,
}

/// A file of records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Records {
    schema: u32,
    benchmark: String,
    origin: Origin,
    records: Vec<Row>,
}

/// A figure of the README: benchmark, prefix of the figure's name, prefix of the peer's name, description,
/// and whether more is better.
struct Chosen(&'static str, &'static str, &'static str, &'static str, bool);

const CHOSEN: [Chosen; 6] = [
    Chosen("launch", "launch of true", "Open MPI", "start a job of 8 ranks on 4 nodes", false),
    Chosen(
        "lockstep",
        "lockstep x 2, total, gang 1ms, default",
        "operating-system",
        "two tightly synchronised jobs at once",
        true,
    ),
    Chosen(
        "pingpong",
        "put+notify 8 B between nodes",
        "Open MPI",
        "send 8 bytes to another node",
        false,
    ),
    Chosen(
        "rate",
        "puts of 16 B between nodes, 64 in flight",
        "Open MPI",
        "send many small messages",
        true,
    ),
    Chosen(
        "call",
        "call of a warm routine that does nothing, Python",
        "Ray",
        "call a routine from Python",
        false,
    ),
    Chosen("call", "calls with 16 under way, Python", "Ray", "calls a second from Python", true),
];

/// Reads all files of records in `folder`, in the order of the benchmarks; missing files are left out.
///
/// # Errors
/// A file cannot be read, or has another format.
pub fn read(folder: &Path) -> Result<Vec<Records>, BenchError> {
    let mut found = Vec::new();
    for benchmark in &ALL {
        let path = folder.join(format!("{}.json", benchmark.name));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(BenchError::File { path, source }),
        };
        let wrong = |why: String| BenchError::Records { path: path.clone(), why };
        let records: Records =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if records.schema != SCHEMA {
            return Err(wrong(format!("its schema is {}, not {SCHEMA}", records.schema)));
        }
        if records.origin.profile != "release" {
            return Err(wrong(format!("it was measured with a {} build", records.origin.profile)));
        }
        found.push(records);
    }
    Ok(found)
}

/// Writes the page and the plot below `root`, and the region `figures` of README.md, from the records in `folder`.
///
/// # Errors
/// A file cannot be read or written, or the README has no such region.
pub fn write(folder: &Path, root: &Path) -> Result<(), BenchError> {
    let all = read(folder)?;
    save(&root.join("docs/benchmarks.md"), &page(&all))?;
    let bars = bars(&all);
    if bars.is_empty() {
        println!("no record of a figure of the README: it stays as it is");
        return Ok(());
    }
    save(&root.join("docs/benchmarks.svg"), &plot::svg(&bars))?;
    let path = root.join("README.md");
    let text = std::fs::read_to_string(&path)
        .map_err(|source| BenchError::File { path: path.clone(), source })?;
    let Some(text) = replace(&text, &small_table(&all)) else {
        return Err(BenchError::Records { path, why: "it has no region `figures`".to_owned() });
    };
    save(&path, &text)
}

fn save(path: &Path, text: &str) -> Result<(), BenchError> {
    let written = std::fs::write(path, text);
    written.map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The text with the region `figures` replaced.
fn replace(text: &str, content: &str) -> Option<String> {
    let begin = "<!-- generated: figures -->\n";
    let start = text.find(begin)? + begin.len();
    let stop = start + text[start..].find("<!-- end of figures -->")?;
    Some(format!("{}{content}{}", &text[..start], &text[stop..]))
}

const INTRODUCTION: &str = "\
# Benchmarks

`kumi-bench report` writes this page from the records that `make bench`, `make bench-call`, `make bench-dsm` and `make bench-mpi` leave in `target/bench`.
Figures without a record are left out. `make bench-mpi` also draws its figures by size as SVG there.

- Ours and the peer run in turn on the same nodes and processors. A ratio is the median of the ratios within a turn.
- The range behind a ratio holds its median with 95 % confidence.
- A goal inside of the range is neither met nor missed for certain.
";

fn page(all: &[Records]) -> String {
    let mut text = INTRODUCTION.to_owned();
    if all.is_empty() {
        text += "\nThere are no records yet.\n";
        return text;
    }
    if !bars(all).is_empty() {
        text += "\n![Six figures beside their peers](benchmarks.svg)\n";
    }
    text += "\n## Measurements\n\n| benchmark | date | commit | profile | machine |\n|---|---|---|---|---|\n";
    for Records { benchmark, origin, .. } in all {
        let machine = &origin.machine;
        text += &format!(
            "| {benchmark} | {} | {} | {} | {}, {} cores, {} |\n",
            origin.date,
            origin.commit,
            origin.profile,
            machine.processor,
            machine.cores,
            machine.kernel
        );
    }
    text += "\nVersions:\n\n";
    let mut versions: Vec<String> = all
        .iter()
        .flat_map(|records| &records.origin.versions)
        .map(|(name, version)| format!("- {name}: {version}\n"))
        .collect();
    versions.sort();
    versions.dedup();
    text.extend(versions);
    for records in all {
        text += &section(records);
    }
    text
}

fn section(records: &Records) -> String {
    let about =
        ALL.iter().find(|known| known.name == records.benchmark).map_or("", |known| known.about);
    let mut text = format!(
        "\n## {}\n\nSubject: {about}.\n\n| figure | ours | peer | ratio (95 % range) | goal |\n|---|---|---|---|---|\n",
        records.benchmark
    );
    for row in records.records.iter().filter(|row| row.runs > 0) {
        let Some(ours) = row.ours else { continue };
        let peer = match row.peer {
            Some(peer) => format!("{} ({})", significant(peer), row.peer_name),
            None => row.peer_name.clone(),
        };
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            row.figure,
            format!("{} {}", significant(ours), row.unit).trim_end(),
            peer.replace('|', "\\|"),
            ratio(row),
            goal(row)
        );
    }
    text
}

fn ratio(row: &Row) -> String {
    let Some(ratio) = row.ratio else { return "-".to_owned() };
    let range = row.ratio_range.map_or_else(String::new, |[a, b]| format!(" ({a:.3} to {b:.3})"));
    format!("{ratio:.3}{range}")
}

fn goal(row: &Row) -> String {
    let goal = row.goal.as_deref().unwrap_or("-");
    if row.met == Some(false) { format!("{goal} (missed)") } else { goal.to_owned() }
}

/// The rows of the README that were measured and compared.
fn chosen(all: &[Records]) -> impl Iterator<Item = (&'static Chosen, &Row, f64)> {
    CHOSEN.iter().filter_map(|one| {
        let Chosen(benchmark, figure, peer, _, _) = one;
        let records = all.iter().find(|records| records.benchmark == *benchmark)?;
        let rows = &mut records.records.iter();
        let row =
            rows.find(|row| row.figure.starts_with(figure) && row.peer_name.starts_with(peer))?;
        Some((one, row, row.ratio?))
    })
}

/// Factor by which ours is better, with its name.
fn bars(all: &[Records]) -> Vec<(String, f64)> {
    let bar = |(Chosen(_, _, _, words, more), row, ratio): (&Chosen, &Row, f64)| {
        let times = if *more { ratio } else { 1.0 / ratio };
        (format!("{words}, to {}", product(&row.peer_name)), times)
    };
    chosen(all).map(bar).collect()
}

fn small_table(all: &[Records]) -> String {
    let mut text = "![Six figures beside their peers](docs/benchmarks.svg)\n\n| figure | Kumi | peer | better |\n|---|---|---|---|\n".to_owned();
    for (Chosen(_, _, _, words, more), row, ratio) in chosen(all) {
        let (Some(ours), Some(peer)) = (row.ours, row.peer) else { continue };
        let unit = match row.unit.as_str() {
            "/s" | "1/s" => "a second",
            "steps/s" => "steps a second",
            unit => unit,
        };
        text += &format!(
            "| {words} | {} {unit} | {} ({}) | {:.1} times |\n",
            grouped(&significant(ours)),
            grouped(&significant(peer)),
            product(&row.peer_name),
            if *more { ratio } else { 1.0 / ratio }
        );
    }
    text
}

/// A peer's name without how it was started.
fn product(peer: &str) -> &str {
    peer.split(',').next().unwrap_or(peer)
}

/// A number with a comma before each three digits of its whole part.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0
            && digit.is_ascii_digit()
            && (whole.len() - at).is_multiple_of(3)
            && whole.as_bytes()[at - 1].is_ascii_digit()
        {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests;
