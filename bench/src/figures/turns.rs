//! One figure compared with several peers, each of which runs between two of our own runs.

use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Measures once.
pub(super) type Measure<'a> = Box<dyn FnMut() -> Result<f64, BenchError> + 'a>;

/// The peer of a figure.
pub(super) struct PeerComparison<'a> {
    /// Its name with its version, or why it is absent.
    pub(super) name: Result<String, String>,
    pub(super) goal: Goal,
    pub(super) measure: Measure<'a>,
}

/// Ours and the peers in turn: ours, a peer, ours, the next peer, ours, and so on. Each peer is compared
/// with the mean of ours before and after it, because processors drift within seconds.
pub(super) fn measure(
    figure: &str,
    unit: &'static str,
    runs: usize,
    mut ours: Measure<'_>,
    mut against: Vec<PeerComparison<'_>>,
) -> Result<Vec<Record>, BenchError> {
    let mut columns = vec![(Vec::new(), Vec::new()); against.len()];
    for _ in 0..runs {
        let mut before = ours()?;
        for (peer, (own, other)) in against.iter_mut().zip(&mut columns) {
            if peer.name.is_ok() {
                other.push((peer.measure)()?);
            }
            let after = ours()?;
            own.push(f64::midpoint(before, after));
            before = after;
        }
    }
    let record = |(peer, (own, other)): (&PeerComparison<'_>, &(Vec<f64>, Vec<f64>))| {
        Record::new(figure, unit, own, &Peer::if_present(&peer.name, other), peer.goal)
    };
    Ok(against.iter().zip(&columns).map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_compared_with_the_runs_around_it() {
        let mut next = 0.0;
        let ours: Measure<'_> = Box::new(move || {
            next += 1.0;
            Ok(next)
        });
        let absent = PeerComparison {
            name: Err("not installed".to_owned()),
            goal: Goal::RatioAtMost(1.0),
            measure: Box::new(|| panic!("an absent peer is not run")),
        };
        let present = PeerComparison {
            name: Ok("peer 1".to_owned()),
            goal: Goal::RatioAtMost(1.3),
            measure: Box::new(|| Ok(2.0)),
        };
        let records = measure("f", "us", 1, ours, vec![absent, present]).unwrap();
        assert_eq!((records[0].met, records[0].ratio), (None, None));
        // Our runs 2 and 3 are before and after it.
        assert_eq!((records[1].ours, records[1].ratio), (2.5, Some(1.25)));
        assert_eq!(records[1].met, Some(true));
    }
}
