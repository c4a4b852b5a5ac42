//! Slices that are chosen for the jobs that take turns.

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{
    ClusterTime, JobId, LONGEST_CHOSEN, NodeId, NodeResources, Numbering, ProcessorId, Request,
    SHORTEST_CHOSEN, SliceChooser, SliceLength, round_slots,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
/// What a round may last where a slice is kept that is not quite what would be chosen.
const LONGEST_ROUND: u64 = 250 * MS;

fn rounds() -> impl Strategy<Value = Vec<(u64, bool)>> {
    let slots = prop_oneof![0..6u64, 1..40u64, 1..2_000u64, Just(u64::MAX)];
    prop::collection::vec((slots, any::<bool>()), 1..60)
}

fn fresh(slots: u64, interactive: bool) -> u64 {
    SliceChooser::new(SliceLength::Auto).choose(slots, interactive)
}

proptest! {
    #[test]
    fn slices_keep_their_bounds_and_rounds_are_short(rounds in rounds()) {
        let mut chooser = SliceChooser::new(SliceLength::Auto);
        for (slots, interactive) in rounds {
            let slice = chooser.choose(slots, interactive);
            prop_assert_eq!(slice, chooser.current());
            prop_assert!((SHORTEST_CHOSEN..=LONGEST_CHOSEN).contains(&slice));
            let most = if interactive { LONGEST_ROUND / 2 } else { LONGEST_ROUND };
            let short = slots <= 1 || slice.saturating_mul(slots) <= most;
            prop_assert!(short || slice == SHORTEST_CHOSEN, "{slots} slots of {slice}");
        }
    }

    #[test]
    fn a_slice_changes_by_more_than_a_quarter_or_not_at_all(rounds in rounds()) {
        let mut chooser = SliceChooser::new(SliceLength::Auto);
        let mut before = None;
        for (slots, interactive) in rounds {
            let slice = chooser.choose(slots, interactive);
            if let Some(before) = before.filter(|&before| before != slice) {
                let (low, high) = (slice.min(before), slice.max(before));
                prop_assert!((high - low) * 4 > low, "{before} became {slice}");
                prop_assert_eq!(slice, fresh(slots, interactive), "the best, if any other");
            }
            prop_assert_eq!(chooser.choose(slots, interactive), slice, "asked again");
            before = Some(slice);
        }
    }

    #[test]
    fn a_fixed_slice_stays(slice in 1..10_000 * MS, rounds in rounds()) {
        let mut chooser = SliceChooser::new(SliceLength::Fixed(slice));
        for (slots, interactive) in rounds {
            prop_assert_eq!(chooser.choose(slots, interactive), slice);
        }
    }

    #[test]
    fn more_jobs_have_no_longer_slices(few in 0..3_000u64, more in 0..3_000u64) {
        for interactive in [false, true] {
            prop_assert!(fresh(few + more, interactive) <= fresh(few, interactive));
        }
        prop_assert!(fresh(few, true) <= fresh(few, false), "whoever is waited for comes sooner");
    }

    /// Under every policy that shares time, jobs on the whole machine have as many slots in a round as they are.
    #[test]
    fn a_round_has_a_slot_for_each_job_on_all_processors(
        jobs in 1..12u64,
        name in prop::sample::select(vec!["dqt", "fair-dqt", "dqt4:apa", "matrix", "dhc"]),
        passed in 0..40u64,
    ) {
        let mut policy = by_name(name, Limits::of_cluster(4, 16)).expect("a policy");
        for processor in (0..4).map(ProcessorId) {
            policy.add_node(&NodeResources::single(processor));
        }
        let now = ClusterTime(0);
        for job in (1..=jobs).map(JobId) {
            policy.arrive(&Request::new(job, 4), now).expect("it fits");
            let placement = policy.next_placement(now).expect("there is room");
            policy.set_active(placement.job, true);
        }
        policy.advance(passed);
        let numbering = Numbering::new(2, (0..4).map(|node| (NodeId(node), 1)));
        prop_assert_eq!(round_slots(&numbering.columns(&policy.columns())), jobs);
    }
}
