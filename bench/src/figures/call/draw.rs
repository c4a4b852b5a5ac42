//! Elements of SVG plots.

use crate::error::BenchError;
use std::fmt::Write as _;
use std::path::Path;

pub(super) const WIDTH: f64 = 640.0;
pub(super) const HEIGHT: f64 = 420.0;
pub(super) const MARGIN: f64 = 60.0;
pub(super) const COLOURS: [&str; 4] = ["#1b6ca8", "#c8553d", "#588157", "#7b2d8b"];

/// A plot of these elements.
pub(super) fn page(parts: &[String]) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}\n</svg>\n",
        parts.join("\n")
    )
}

/// A measured point.
pub(super) fn circle(colour: &str, (x, y): (f64, f64)) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")
}

/// A text centred there.
pub(super) fn label(x: f64, y: f64, colour: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{text}</text>")
}

/// A line through these points.
pub(super) fn path(colour: &str, points: &[(f64, f64)]) -> String {
    let mut way = String::new();
    for (number, (x, y)) in points.iter().enumerate() {
        let written = write!(way, "{}{x:.1} {y:.1} ", if number == 0 { "M" } else { "L" });
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    format!("<path d=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", way.trim_end())
}

/// Writes a plot into this folder, which is created if needed. Returns a message with the path.
///
/// # Errors
/// The file cannot be written.
pub(super) fn save(folder: &Path, name: &str, svg: &str) -> Result<(), BenchError> {
    let path = folder.join(name);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, svg));
    written.map_err(|source| BenchError::File { path: path.clone(), source })?;
    println!("plot: {}", path.display());
    Ok(())
}
