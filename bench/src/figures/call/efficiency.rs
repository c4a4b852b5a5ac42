//! Plot of efficiencies.

use super::draw::{COLOURS, HEIGHT, MARGIN, WIDTH, circle, label, page, path, save};
use crate::error::BenchError;
use crate::record::{self, Record};
use std::path::Path;

/// The measured efficiencies at one size.
pub(super) struct Point {
    pub n: &'static str,
    /// The efficiency that is the goal.
    pub least: f64,
    pub tcp: Vec<Record>,
    pub memory: Vec<Record>,
}

/// A line of the plot: its label, its colour, and its value at each size, if any.
struct PlotLine {
    name: String,
    colour: &'static str,
    values: Vec<Option<f64>>,
}

fn ours(records: &[Record]) -> Option<f64> {
    let all: Vec<f64> = records.iter().filter(|one| one.runs > 0).map(|one| one.ours).collect();
    (!all.is_empty()).then(|| record::median(&all))
}

fn lines(points: &[Point]) -> Vec<PlotLine> {
    let of = |value: &dyn Fn(&Point) -> Option<f64>| points.iter().map(value).collect();
    let mut lines = vec![
        PlotLine { name: "goal".to_owned(), colour: "#000000", values: of(&|one| Some(one.least)) },
        PlotLine {
            name: "Kumi, shared memory".to_owned(),
            colour: COLOURS[1],
            values: of(&|one| ours(&one.memory)),
        },
        PlotLine { name: "Kumi".to_owned(), colour: COLOURS[0], values: of(&|one| ours(&one.tcp)) },
    ];
    let peers = points.first().map_or(&[][..], |one| &one.tcp);
    let colours = ["#888888", COLOURS[2], COLOURS[3], "#d4a017"];
    for (peer, colour) in peers.iter().zip(colours) {
        let name = &peer.peer_name;
        let value = |one: &Point| one.tcp.iter().find(|it| it.peer_name == *name)?.peer;
        lines.push(PlotLine { name: name.clone(), colour, values: of(&value) });
    }
    lines.retain(|line| line.values.iter().any(Option::is_some));
    lines
}

/// Efficiency by size of the matrices, for Kumi and its peers.
fn svg(routine: &str, points: &[Point]) -> String {
    let width = WIDTH - 2.0 * MARGIN;
    let x = |at: usize| MARGIN + at as f64 / (points.len() - 1).max(1) as f64 * width;
    let y = |part: f64| HEIGHT - MARGIN - part * (HEIGHT - 2.0 * MARGIN);
    let mut parts = Vec::new();
    for (at, point) in points.iter().enumerate() {
        parts.push(label(x(at), HEIGHT - MARGIN + 18.0, "black", &format!("n = {}", point.n)));
    }
    for tenth in (0..=10).step_by(2) {
        let part = f64::from(tenth) / 10.0;
        parts.push(path("#cccccc", &[(MARGIN, y(part)), (WIDTH - MARGIN, y(part))]));
        parts.push(label(MARGIN - 20.0, y(part) + 4.0, "black", &format!("{part:.1}")));
    }
    for (number, line) in lines(points).iter().enumerate() {
        let values = line.values.iter().enumerate();
        let places: Vec<(f64, f64)> =
            values.filter_map(|(at, value)| Some((x(at), y((*value)?)))).collect();
        parts.push(path(line.colour, &places));
        parts.extend(places.iter().map(|&place| circle(line.colour, place)));
        let below = HEIGHT - MARGIN - 12.0 - 15.0 * number as f64;
        parts.push(label(WIDTH - MARGIN - 110.0, below, line.colour, &line.name));
    }
    let title = format!("efficiency of {routine} from Python: time here over time of the call");
    parts.push(label(WIDTH / 2.0, 24.0, "black", &title));
    page(&parts)
}

/// Writes the plot of a routine into this folder.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(folder: &Path, routine: &str, points: &[Point]) -> Result<(), BenchError> {
    save(folder, &format!("call-{routine}.svg"), &svg(routine, points))
}
