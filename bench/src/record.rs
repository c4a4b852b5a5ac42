//! Results of a benchmark: one record per figure, as a table and as JSON.

use crate::error::BenchError;
use crate::origin::Origin;
use serde::Serialize;
use std::path::Path;

/// Goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// No goal: shown for comparison only.
    None,
    /// Ours over the peer's is at most this.
    RatioAtMost(f64),
    /// Ours over the peer's is at least this.
    RatioAtLeast(f64),
    /// Ours is at most this, without a peer.
    OursAtMost(f64),
    /// Ours is at least this, without a peer.
    OursAtLeast(f64),
}

impl Goal {
    /// Whether it is met; `None` without a goal or without a peer to compare with.
    fn met(self, ours: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::None => None,
            Self::RatioAtMost(most) => Some(ratio? <= most),
            Self::RatioAtLeast(least) => Some(ratio? >= least),
            Self::OursAtMost(most) => Some(ours <= most),
            Self::OursAtLeast(least) => Some(ours >= least),
        }
    }

    fn text(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::RatioAtMost(most) => Some(format!("ratio <= {most}")),
            Self::RatioAtLeast(least) => Some(format!("ratio >= {least}")),
            Self::OursAtMost(most) => Some(format!("ours <= {most}")),
            Self::OursAtLeast(least) => Some(format!("ours >= {least}")),
        }
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The figure's name.
    pub figure: String,
    /// Unit of `ours` and `peer`.
    pub unit: &'static str,
    /// Median of our runs.
    pub ours: f64,
    /// Median of the peer's runs; absent when the peer is, or when there is none to compare with.
    pub peer: Option<f64>,
    /// The peer with its version, or the reason why it is absent.
    pub peer_name: String,
    /// Median over the runs of ours over the peer's in the same run.
    pub ratio: Option<f64>,
    /// Where the median of the ratio lies with 95 % confidence; absent with fewer than 6 runs.
    pub ratio_range: Option<[f64; 2]>,
    /// The goal, if any.
    pub goal: Option<String>,
    /// Whether the goal is met; absent without a goal or a peer.
    pub met: Option<bool>,
    /// Number of runs.
    pub runs: usize,
    /// Width of the middle half of our runs, over their median.
    pub spread: f64,
}

/// The peer's side of a figure.
#[derive(Clone, Debug)]
pub enum Peer<'a> {
    /// Measured in the same runs as ours.
    Measured(&'a str, &'a [f64]),
    /// Not installed, with the reason.
    Absent(&'a str),
    /// There is no peer.
    Nobody,
}

impl<'a> Peer<'a> {
    /// Its measurements if it is present, otherwise the reason why it is absent.
    pub fn if_present(name: &'a Result<String, String>, values: &'a [f64]) -> Self {
        match name {
            Ok(name) => Self::Measured(name, values),
            Err(why) => Self::Absent(why),
        }
    }
}

impl Record {
    /// The record of a figure from its runs; run `i` of ours and of the peer belong together.
    ///
    /// # Panics
    /// When there is no run, or not as many of the peer.
    pub fn new(
        figure: &str,
        unit: &'static str,
        ours: &[f64],
        peer: &Peer<'_>,
        goal: Goal,
    ) -> Self {
        let middle = median(ours);
        let (name, peer, ratios) = match *peer {
            Peer::Measured(name, values) => {
                assert_eq!(ours.len(), values.len(), "{figure}: runs go in pairs");
                let ratios: Vec<f64> = ours.iter().zip(values).map(|(a, b)| a / b).collect();
                (name.to_owned(), Some(median(values)), ratios)
            }
            Peer::Absent(why) => (format!("absent: {why}"), None, Vec::new()),
            Peer::Nobody => ("none".to_owned(), None, Vec::new()),
        };
        let ratio = (!ratios.is_empty()).then(|| median(&ratios));
        let middle_half = quantile(ours, 0.75) - quantile(ours, 0.25);
        Self {
            figure: figure.to_owned(),
            unit,
            ours: middle,
            peer,
            peer_name: name,
            ratio,
            ratio_range: median_range(&ratios),
            goal: goal.text(),
            met: goal.met(middle, ratio),
            runs: ours.len(),
            spread: if middle == 0.0 { 0.0 } else { middle_half / middle },
        }
    }
}

impl Record {
    /// Figures that have goals and could not be measured.
    pub fn unmeasured(figures: &str, why: &str) -> Self {
        Self {
            figure: figures.to_owned(),
            unit: "-",
            ours: f64::NAN,
            peer: None,
            peer_name: format!("not measured: {why}"),
            ratio: None,
            ratio_range: None,
            goal: Some("measured".to_owned()),
            met: None,
            runs: 0,
            spread: 0.0,
        }
    }
}

/// The median: of an even number of values the mean of the middle two.
///
/// # Panics
/// When there is no value.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this part of the values lies, between two of them in proportion.
///
/// # Panics
/// When there is no value.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let sorted = sorted(values);
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(!values.is_empty(), "a median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Two of the values that enclose the median of their distribution with a confidence of at least about 95 %,
/// for any distribution (by the sign test); `None` if the values are too few.
fn median_range(values: &[f64]) -> Option<[f64; 2]> {
    let count = values.len() as f64;
    if values.len() < 6 {
        return None;
    }
    // Normal approximation of the binomial distribution of how many values lie below the median.
    let below = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
    let sorted = sorted(values);
    Some([sorted[below], sorted[sorted.len() - 1 - below]])
}

/// The records as a table.
pub fn table(records: &[Record]) -> String {
    let figure = records.iter().map(|record| record.figure.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:<figure$}  {:>10} {:>10} {:<8} {:>7} {:<14} {:<14} {:<6} peer\n",
        "figure", "ours", "peer", "unit", "ratio", "95 % range", "goal", "met"
    );
    for record in records {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        let range = record.ratio_range;
        let range = range.map_or_else(|| "-".to_owned(), |[a, b]| format!("{a:.3} to {b:.3}"));
        let met = match record.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        text += &format!(
            "{:<figure$}  {:>10} {:>10} {:<8} {:>7} {:<14} {:<14} {:<6} {} ({} runs, spread {:.0} %)\n",
            record.figure,
            significant(record.ours),
            number(record.peer),
            record.unit,
            record.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
            range,
            record.goal.as_deref().unwrap_or("-"),
            met,
            record.peer_name,
            record.runs,
            100.0 * record.spread,
        );
    }
    text
}

/// Four significant digits, without an exponent.
pub(crate) fn significant(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", usize::try_from(digits.clamp(0, 6)).unwrap_or(0))
}

/// Version of the format of record files; rises when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 2;

/// Contents of a record file.
#[derive(Serialize)]
struct File<'a> {
    schema: u32,
    benchmark: &'a str,
    origin: &'a Origin,
    records: &'a [Record],
}

/// Writes the records to `folder/name.json`.
///
/// # Errors
/// When the file cannot be written.
pub fn write(
    folder: &Path,
    name: &str,
    origin: &Origin,
    records: &[Record],
) -> Result<(), BenchError> {
    let path = folder.join(format!("{name}.json"));
    let failed = |source| BenchError::File { path: path.clone(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let file = File { schema: SCHEMA, benchmark: name, origin, records };
    let text = serde_json::to_string_pretty(&file).map_err(|error| failed(error.into()))?;
    std::fs::write(&path, text + "\n").map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_run() {
        // The machine is twice as slow in the second run, which does not affect the ratio.
        let peer = Peer::Measured("peer 1.0", &[2.0, 4.0, 2.0]);
        let record = Record::new("f", "us", &[3.0, 6.0, 3.2], &peer, Goal::RatioAtMost(1.5));
        assert_eq!(record.ratio, Some(1.5));
        assert_eq!((record.ours, record.peer), (3.2, Some(2.0)));
        assert_eq!((record.met, record.runs), (Some(true), 3));
        // The middle half lies from 3.1 to 4.6.
        assert!((record.spread - 1.5 / 3.2).abs() < 1e-12);
        assert_eq!(record.ratio_range, None, "too few runs");
        assert_eq!(record.goal.as_deref(), Some("ratio <= 1.5"));
    }

    #[test]
    fn an_absent_peer_is_said_to_be_absent() {
        let peer = Peer::Absent("mpirun is not installed");
        let record = Record::new("f", "us", &[3.0], &peer, Goal::RatioAtMost(1.0));
        assert_eq!((record.peer, record.ratio, record.met), (None, None, None));
        assert_eq!(record.peer_name, "absent: mpirun is not installed");
    }

    #[test]
    fn goals_look_at_the_right_side() {
        let peer = Peer::Measured("peer", &[2.0]);
        let met = |goal| Record::new("f", "/s", &[3.0], &peer, goal).met;
        assert_eq!(met(Goal::RatioAtLeast(1.5)), Some(true));
        assert_eq!(met(Goal::RatioAtLeast(1.6)), Some(false));
        assert_eq!(met(Goal::OursAtMost(2.9)), Some(false));
        assert_eq!(met(Goal::None), None);
        let alone = Record::new("f", "us", &[0.0], &Peer::Nobody, Goal::OursAtMost(0.0));
        assert_eq!(alone.met, Some(true));
    }

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }

    #[test]
    fn the_range_of_a_median_comes_from_the_middle() {
        let values: Vec<f64> = (1..=40).map(f64::from).collect();
        // With 40 values 13 or fewer lie below the median once in 52 times, and as often above.
        assert_eq!(median_range(&values), Some([14.0, 27.0]));
        assert_eq!(median_range(&values[..6]), Some([1.0, 6.0]));
        assert_eq!(median_range(&values[..5]), None);
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(significant(0.0), "0");
        assert_eq!(significant(0.168_34), "0.1683");
        assert_eq!(significant(5.012_3), "5.012");
        assert_eq!(significant(1_234_567.8), "1234568");
    }
}
