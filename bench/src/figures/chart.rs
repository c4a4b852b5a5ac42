//! A chart of lines with logarithmic axes, as SVG. Like the plot of the report it is plain text: a plotting crate would bring
//! fonts and a renderer for some lines.

use crate::error::BenchError;
use std::path::Path;

/// A line of a chart.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Both coordinates are positive.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 4] = ["#1b6ca8", "#c8553d", "#6a994e", "#7b2d8b"];

/// An axis from the power of `base` below the least value to that above the greatest.
struct Axis {
    base: f64,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(base: f64, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) =
            values.fold((f64::INFINITY, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
        let (least, most) = (least.log(base).floor(), most.log(base).ceil());
        Self { base, least, most: most.max(least + 1.0), from, to }
    }

    /// The place of a value.
    fn at(&self, value: f64) -> f64 {
        let part = (value.log(self.base) - self.least) / (self.most - self.least);
        self.from + part * (self.to - self.from)
    }

    /// The powers of the base, every so many that at most twelve are shown.
    fn ticks(&self) -> Vec<f64> {
        let step = ((self.most - self.least) / 12.0).ceil().max(1.0);
        let count = ((self.most - self.least) / step).floor();
        let mut ticks = Vec::new();
        let mut tick = 0.0;
        while tick <= count {
            ticks.push(self.base.powf(self.least + tick * step));
            tick += 1.0;
        }
        ticks
    }
}

/// Writes a chart into a folder, and says where.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(
    folder: &Path,
    file: &str,
    title: &str,
    lines: &[Line],
) -> Result<(), BenchError> {
    let path = folder.join(file);
    let written = std::fs::write(&path, svg(title, lines));
    written.map_err(|source| BenchError::File { path: path.clone(), source })?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The chart.
fn svg(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut parts = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">"
        ),
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>".to_owned(),
        format!("<text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">{title}</text>"),
    ];
    if points().next().is_some() {
        let x = Axis::new(2.0, points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = Axis::new(10.0, points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        parts.extend(grid(&x, &y));
        for (index, line) in lines.iter().enumerate() {
            parts.extend(curve(index, line, &x, &y));
        }
    }
    parts.push("</svg>\n".to_owned());
    parts.join("\n")
}

fn grid(x: &Axis, y: &Axis) -> Vec<String> {
    let mut parts = Vec::new();
    for tick in x.ticks() {
        let at = x.at(tick);
        let (bottom, label) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 18.0);
        parts.push(format!("<path d=\"M{at:.1} {TOP} V{bottom}\" stroke=\"#dddddd\"/>"));
        let text = bytes(tick);
        parts.push(format!(
            "<text x=\"{at:.1}\" y=\"{label}\" text-anchor=\"middle\">{text}</text>"
        ));
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        let (right, label, beside) = (WIDTH - RIGHT, at + 4.0, LEFT - 8.0);
        parts.push(format!("<path d=\"M{LEFT} {at:.1} H{right}\" stroke=\"#dddddd\"/>"));
        parts.push(format!(
            "<text x=\"{beside}\" y=\"{label:.1}\" text-anchor=\"end\">{tick}</text>"
        ));
    }
    parts
}

fn curve(index: usize, line: &Line, x: &Axis, y: &Axis) -> Vec<String> {
    let colour = COLOURS[index % COLOURS.len()];
    let place = |(a, b): &(f64, f64)| format!("{:.1},{:.1}", x.at(*a), y.at(*b));
    let places: Vec<String> = line.points.iter().map(place).collect();
    let (legend, text) = (LEFT + 160.0 * index as f64, LEFT + 160.0 * index as f64 + 24.0);
    vec![
        format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        ),
        format!("<path d=\"M{legend} 46 h18\" stroke=\"{colour}\" stroke-width=\"2\"/>"),
        format!("<text x=\"{text}\" y=\"50\">{}</text>", line.name),
    ]
}

/// A power of two with its unit.
fn bytes(count: f64) -> String {
    const UNITS: [(f64, &str); 2] = [(1_048_576.0, "M"), (1024.0, "K")];
    let unit = UNITS.iter().find(|(size, _)| count >= *size);
    unit.map_or_else(|| count.to_string(), |(size, name)| format!("{}{name}", count / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_corner_to_corner_of_its_decades() {
        let line = Line { name: "a", points: vec![(1.0, 0.1), (1024.0, 1000.0)] };
        let text = svg("title", &[line]);
        let corners = format!("{LEFT:.1},{:.1} {:.1},{TOP:.1}", HEIGHT - BOTTOM, WIDTH - RIGHT);
        assert!(text.contains(&corners), "{text}");
        for label in [">1K<", ">0.1<", ">1000<", ">a<", ">title<"] {
            assert!(text.contains(label), "{label}: {text}");
        }
    }

    #[test]
    fn a_chart_without_lines_has_its_title() {
        assert!(svg("title", &[]).contains("title"));
    }
}
