//! Ideal completion times under perfect sharing, for comparison.

/// The end of each job if all started at once, and the running jobs always had exactly equal shares of the
/// processors at no cost.
///
/// `alone` holds the times of the jobs with the processors to themselves; the answer has the same order and
/// unit. This is egalitarian processor sharing (Kleinrock, Queueing Systems II, §4.4): with times ascending
/// a₁ ≤ … ≤ aₙ, job k ends at Σ (aᵢ − aᵢ₋₁)·(n − i + 1) for i ≤ k.
pub fn completion_times(alone: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..alone.len()).collect();
    order.sort_by(|&a, &b| alone[a].total_cmp(&alone[b]));
    let mut ends = vec![0.0; alone.len()];
    let (mut now, mut done) = (0.0, 0.0);
    for (finished, &job) in order.iter().enumerate() {
        let running = (alone.len() - finished) as f64;
        now += (alone[job] - done) * running;
        done = alone[job];
        ends[job] = now;
    }
    ends
}

/// By how many per cent the jobs took longer together than one after another: `100 × (last completion / sum
/// of the times alone − 1)`.
///
/// Perfect sharing takes the same time, so this is the cost of switches, cold caches and launches. Noise can
/// make it slightly negative.
pub fn overhead_percent(alone: &[f64], together: &[f64]) -> f64 {
    let last = together.iter().copied().fold(0.0, f64::max);
    100.0 * (last / alone.iter().sum::<f64>() - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: &[f64], right: &[f64]) {
        assert_eq!(left.len(), right.len());
        for (a, b) in left.iter().zip(right) {
            assert!((a - b).abs() < 1e-12, "{left:?} is not {right:?}");
        }
    }

    #[test]
    fn one_job_takes_its_own_time() {
        close(&completion_times(&[4.5]), &[4.5]);
        close(&completion_times(&[]), &[]);
    }

    #[test]
    fn equal_jobs_end_together() {
        close(&completion_times(&[2.0, 2.0, 2.0]), &[6.0, 6.0, 6.0]);
    }

    #[test]
    fn shares_grow_as_jobs_end() {
        // Until 3: a third each, then the first job ends. Until 5: half each. Then alone.
        close(&completion_times(&[1.0, 2.0, 4.0]), &[3.0, 5.0, 7.0]);
        close(&completion_times(&[4.0, 1.0, 2.0]), &[7.0, 3.0, 5.0]);
    }

    #[test]
    fn work_is_conserved_whatever_the_sizes() {
        let alone = [0.1, 7.3, 2.2, 2.2, 5.0];
        let ends = completion_times(&alone);
        let last = ends.iter().copied().fold(0.0, f64::max);
        close(&[last], &[alone.iter().sum()]);
        for (end, own) in ends.iter().zip(&alone) {
            assert!(*end >= *own && *end <= own * alone.len() as f64 + 1e-12);
        }
        close(&[overhead_percent(&alone, &ends)], &[0.0]);
    }

    #[test]
    fn overhead_is_relative_to_all_the_work() {
        close(&[overhead_percent(&[1.0, 1.0], &[2.1, 1.9])], &[5.0]);
        close(&[overhead_percent(&[1.0, 3.0], &[1.9, 3.96])], &[-1.0]);
    }
}
