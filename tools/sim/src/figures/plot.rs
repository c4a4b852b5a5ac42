//! Drawing, with plotters' SVG backend: text stays text, so no fonts are needed here.

use std::path::Path;

use plotters::prelude::*;

use crate::error::SimError;

/// A set of points that belong together.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dots,
    Line,
    /// A line with its points marked.
    Marked,
}

impl Series {
    pub(super) fn new(name: &str, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, kind }
    }
}

/// What is written around a drawing.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// The upper end of the y axis; `None`: what the points need.
    pub(super) top: Option<f64>,
}

/// Colours that can be told apart also without seeing red or green (those of Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 60),
];

const SIZE: (u32, u32) = (800, 500);

/// Draws the series into one frame.
pub(super) fn chart(path: &Path, frame: &Frame<'_>, series: &[Series]) -> Result<(), SimError> {
    draw(path, frame, series).map_err(|error| {
        let source = std::io::Error::other(error.to_string());
        SimError::Unwritable { path: path.to_owned(), source }
    })
}

/// The ends of an axis over these values, with some room.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return (0.0, 1.0);
    }
    let room = ((high - low) * 0.04).max(1e-3);
    (if low >= 0.0 { (low - room).max(0.0) } else { low - room }, high + room)
}

fn draw(
    path: &Path,
    frame: &Frame<'_>,
    series: &[Series],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|series| series.points.iter());
    let (left, right) = range(points().map(|point| point.0));
    let (bottom, needed) = range(points().map(|point| point.1));
    let top = frame.top.unwrap_or(needed);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(frame.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(left..right, bottom..top)?;
    chart
        .configure_mesh()
        .x_desc(frame.x)
        .y_desc(frame.y)
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let drawn = if series.kind == Kind::Dots {
            let dot = |&(x, y): &(f64, f64)| Circle::new((x, y), 1, colour.filled());
            chart.draw_series(series.points.iter().map(dot))?
        } else {
            let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line)?
        };
        drawn
            .label(series.name.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 18, y + 2)], colour.filled()));
        if series.kind == Kind::Marked {
            let mark = |&(x, y): &(f64, f64)| Circle::new((x, y), 3, colour.filled());
            chart.draw_series(series.points.iter().map(mark))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}
