//! Plain text tables, and the formats of quantities.

use std::fmt::Write as _;

/// A table whose columns are as wide as their widest cell.
pub struct Table {
    /// Whether each column is aligned to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; a heading that starts with `>` makes its column align right.
    pub fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let first = headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect();
        Self { right, rows: vec![first] }
    }

    /// Adds a row; it must have as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.right.len());
        self.rows.push(cells);
    }

    /// The table as lines, each ended by a newline, without spaces at line ends.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let written = if right {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
                debug_assert!(written.is_ok(), "writing to a string cannot fail");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Nanoseconds with a unit that leaves one to four digits: `850ns`, `12.3us`, `4.10ms`, `1.50s`.
pub fn nanos(value: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let number = value as f64;
    match value {
        0..1_000 => format!("{value}ns"),
        1_000..1_000_000 => format!("{:.1}us", number / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", number / 1e6),
        _ => format!("{:.2}s", number / 1e9),
    }
}

/// `512 MiB`, `1.5 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut shown, mut unit) = (value as f64, "B");
    for next in UNITS {
        if shown < 1024.0 {
            break;
        }
        (shown, unit) = (shown / 1024.0, next);
    }
    if shown.fract() < 0.05 { format!("{shown:.0} {unit}") } else { format!("{shown:.1} {unit}") }
}

/// Milliseconds in the usual form of run times: `0.4s`, `12.3s`, `4m05s`, `2h03m`, `3d04h`.
pub fn elapsed(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// A slice in the notation of the command line: `250us`, `1.5ms`, `10ms`, `2s`.
pub fn slice(nanos: u64) -> String {
    let (unit, name) = match nanos {
        0..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{}.{:03}", nanos / unit, nanos % unit * 1000 / unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Numbers as ranges: `0-3,8`; `-` for none.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut sorted: Vec<u32> = numbers.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let parts: Vec<String> = sorted
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(",") }
}

/// The text with control characters made visible, so that a name cannot upset a terminal, nor show in another order than it has.
pub fn printable(text: &str) -> String {
    let obeyed = |c: char| c.is_control() || kumi_rpc::reorders_text(c);
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// The text cut to `most` characters, with `…` in place of the rest.
pub fn shortened(text: &str, most: usize) -> String {
    let clean = printable(text);
    if clean.chars().count() <= most {
        return clean;
    }
    clean.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_spaces() {
        let mut table = Table::new(&["name", ">ranks", "state"]);
        table.row(vec!["cg".into(), "8".into(), "running".into()]);
        table.row(vec!["a long one".into(), "1024".into(), String::new()]);
        let expected = "\
name        ranks  state
cg              8  running
a long one   1024
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn quantities() {
        assert_eq!(nanos(850), "850ns");
        assert_eq!(nanos(12_345), "12.3us");
        assert_eq!(nanos(4_100_000), "4.10ms");
        assert_eq!(nanos(1_500_000_000), "1.50s");
        assert_eq!(elapsed(400), "0.4s");
        assert_eq!(elapsed(245_000), "4m05s");
        assert_eq!(elapsed(7_380_000), "2h03m");
        assert_eq!(elapsed(273_600_000), "3d04h");
        assert_eq!(slice(250_000), "250us");
        assert_eq!(slice(1_500_000), "1.5ms");
        assert_eq!(slice(10_000_000), "10ms");
        assert_eq!(slice(2_000_000_000), "2s");
        assert_eq!(ranges([3, 0, 1, 2, 8, 8]), "0-3,8");
        assert_eq!(ranges([]), "-");
    }

    #[test]
    fn names_cannot_upset_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(printable("\u{9b}31m\u{202e}toor\r"), "\u{fffd}31m\u{fffd}toor\u{fffd}");
        assert_eq!(shortened("abcdefgh", 5), "abcd…");
        assert_eq!(shortened("abc", 5), "abc");
    }
}
