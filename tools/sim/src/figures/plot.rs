//! Plots of figures: as SVG, where text stays text, and as PNG ([`super::bitmap`]) without fonts.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;

use super::bitmap::Bitmap;
use crate::error::SimError;

/// Formats of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// Scalable vector graphics.
    Svg,
    /// Pixels.
    Png,
    /// Each figure twice.
    Both,
}

impl Formats {
    /// Endings of file names; the first is the one to show.
    pub(super) fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Svg => &["svg"],
            Self::Png => &["png"],
            Self::Both => &["svg", "png"],
        }
    }
}

/// Destination of all files.
pub(super) struct Folder {
    path: PathBuf,
    pub(super) formats: Formats,
}

impl Folder {
    pub(super) fn new(path: &Path, formats: Formats) -> Self {
        Self { path: path.to_owned(), formats }
    }

    /// Writes a page. Returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, SimError> {
        let path = self.path.join(name);
        match std::fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(source) => Err(SimError::Unwritable { path, source }),
        }
    }
}

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

/// The text around a drawing.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// The upper end of the y axis; `None`: the largest value.
    pub(super) top: Option<f64>,
}

/// Colours that people with colour blindness can distinguish (those of Okabe and Ito).
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

/// Pixels of a bitmap for each of [`SIZE`].
const SCALE: u32 = 2;

/// Draws the series into one frame, and writes a file for each format.
pub(super) fn chart(
    folder: &Folder,
    stem: &str,
    frame: &Frame<'_>,
    series: &[Series],
) -> Result<(), SimError> {
    for ending in folder.formats.endings() {
        let path = folder.path.join(format!("{stem}.{ending}"));
        let written = if *ending == "png" {
            let mut bitmap = Bitmap::new((SIZE.0 * SCALE, SIZE.1 * SCALE));
            draw(&bitmap.canvas().into_drawing_area(), frame, series, SCALE)
                .map_err(std::io::Error::other)
                .and_then(|()| bitmap.write(&path))
        } else {
            let root = SVGBackend::new(&path, SIZE).into_drawing_area();
            draw(&root, frame, series, 1).map_err(|error| std::io::Error::other(error.to_string()))
        };
        written.map_err(|source| SimError::Unwritable { path, source })?;
    }
    Ok(())
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

/// Draws with all lengths `scale` times as long.
fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    frame: &Frame<'_>,
    series: &[Series],
    scale: u32,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let points = || series.iter().flat_map(|series| series.points.iter());
    let (left, right) = range(points().map(|point| point.0));
    let (bottom, needed) = range(points().map(|point| point.1));
    let top = frame.top.unwrap_or(needed);
    let letters = ("sans-serif", 12 * scale);
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .caption(frame.title, ("sans-serif", 16 * scale))
        .margin(12 * scale)
        .x_label_area_size(42 * scale)
        .y_label_area_size(58 * scale)
        .build_cartesian_2d(left..right, bottom..top)?;
    chart
        .configure_mesh()
        .x_desc(frame.x)
        .y_desc(frame.y)
        .label_style(letters)
        .axis_desc_style(letters)
        .set_all_tick_mark_size(5 * scale)
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dots = |radius: u32| {
            let dot = move |&point: &(f64, f64)| Circle::new(point, radius, colour.filled());
            series.points.iter().map(dot)
        };
        let drawn = if series.kind == Kind::Dots {
            chart.draw_series(dots(scale))?
        } else {
            let points = series.points.iter().copied();
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2 * scale)))?
        };
        let (long, thick) = (18 * scale as i32, 2 * scale as i32);
        drawn.label(series.name.as_str()).legend(move |(x, y)| {
            Rectangle::new([(x, y - thick), (x + long, y + thick)], colour.filled())
        });
        if series.kind == Kind::Marked {
            chart.draw_series(dots(3 * scale))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .legend_area_size(26 * scale)
        .margin(10 * scale)
        .label_font(letters)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()
}
