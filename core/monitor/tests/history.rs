//! Properties of history: means, slots and their places.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use kumi_monitor::fold::Fold;
use kumi_monitor::ring::{HEADER, LEVELS, RingError, RingLayout};
use kumi_monitor::slot::{decode, encode};
use kumi_monitor::{JobRow, NodeCell, Row, UNKNOWN};
use proptest::collection::vec;
use proptest::prelude::*;

fn node() -> impl Strategy<Value = NodeCell> {
    (0u32..50, 0u8..=100, 0u8..=100, 0u16..=10_000, any::<u32>()).prop_map(
        |(node, busy, memory, switching, network_kib)| NodeCell {
            node,
            busy,
            memory,
            switching,
            network_kib,
        },
    )
}

fn load() -> impl Strategy<Value = u8> {
    prop_oneof![9 => 0u8..=100, 1 => Just(UNKNOWN)]
}

fn row(most_ranks: usize) -> impl Strategy<Value = Row> {
    let job = (0u64..40, vec(load(), 1..most_ranks));
    (any::<u32>(), vec(node(), 0..8), vec(job, 0..8)).prop_map(|(at, mut nodes, jobs)| {
        nodes.sort_by_key(|node| node.node);
        nodes.dedup_by_key(|node| node.node);
        let mut jobs: Vec<JobRow> = jobs
            .into_iter()
            .map(|(job, loads)| JobRow { job, ranks: loads.len() as u32, loads })
            .collect();
        jobs.sort_by_key(|job| job.job);
        jobs.dedup_by_key(|job| job.job);
        Row { at_s: at.into(), nodes, jobs }
    })
}

proptest! {
    #[test]
    fn a_slot_has_the_row_that_was_put_into_it(row in row(60)) {
        let bytes = encode(row.clone(), 4096);
        let mut slot = vec![0xAA; 4096];
        slot[..bytes.len()].copy_from_slice(&bytes);
        prop_assert_eq!(decode(&slot), Some(row));
    }

    #[test]
    fn every_row_fits_and_keeps_what_it_can(row in row(400), slot in 40usize..800) {
        let bytes = encode(row.clone(), slot);
        prop_assert!(bytes.len() <= slot);
        let kept = decode(&bytes).expect("what was encoded");
        prop_assert_eq!(kept.at_s, row.at_s);
        for job in &kept.jobs {
            let whole = row.jobs.iter().find(|whole| whole.job == job.job).expect("no job is made up");
            prop_assert_eq!(job.ranks, whole.ranks);
            prop_assert!(job.loads.len() as u32 * job.ranks_per_load() >= job.ranks);
            let known = || whole.loads.iter().filter(|&&load| load != UNKNOWN);
            for load in job.loads.iter().filter(|&&load| load != UNKNOWN) {
                prop_assert!(known().min() <= Some(load) && Some(load) <= known().max());
            }
        }
        if !kept.jobs.is_empty() {
            prop_assert_eq!(&kept.nodes, &row.nodes, "nodes go last");
        }
    }

    #[test]
    fn a_damaged_slot_is_no_row(row in row(60), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = encode(row, 4096);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert_eq!(decode(&bytes), None);
    }

    #[test]
    fn no_bytes_stop_the_reader(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_mean_lies_between_what_it_is_the_mean_of(rows in vec(row(6), 1..12)) {
        let mut fold = Fold::default();
        for row in &rows {
            fold.add(row);
        }
        let folded = fold.take().expect("there are rows");
        prop_assert_eq!(folded.at_s, rows[0].at_s);
        for cell in &folded.nodes {
            let all = || rows.iter().flat_map(|row| &row.nodes).filter(|it| it.node == cell.node);
            prop_assert!(all().map(|it| it.busy).min() <= Some(cell.busy));
            prop_assert!(all().map(|it| it.busy).max() >= Some(cell.busy));
            let sum: u64 = all().map(|it| u64::from(it.network_kib)).sum();
            let count = all().count() as u64;
            prop_assert_eq!(u64::from(cell.network_kib), (sum + count / 2) / count);
        }
        let jobs = |rows: &[Row]| -> BTreeSet<u64> {
            rows.iter().flat_map(|row| &row.jobs).map(|job| job.job).collect()
        };
        prop_assert_eq!(jobs(&[folded]), jobs(&rows));
        prop_assert_eq!(fold.take(), None, "it begins anew");
    }

}

proptest! {
    // A case looks at all places.
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_level_has_a_place_for_each_time_it_reaches(nodes in 1u32..5000, at in 0u64..4_000_000_000) {
        let layout = RingLayout::new(nodes);
        let mut places = BTreeSet::new();
        for (index, level) in LEVELS.iter().enumerate() {
            for slot in 0..level.slots {
                let offset = layout.offset(index, at + slot * level.seconds);
                prop_assert!(offset + layout.slot_bytes() as u64 <= layout.bytes());
                prop_assert!(offset >= HEADER as u64);
                prop_assert!(places.insert(offset), "two times share a slot");
            }
            prop_assert_eq!(layout.offset(index, at), layout.offset(index, at + level.reach()));
            prop_assert_eq!(layout.offset(index, at), layout.offset(index, level.begin(at)));
        }
    }
}

#[test]
fn one_unknown_load_does_not_count() {
    let row = |load| Row {
        at_s: 5,
        nodes: Vec::new(),
        jobs: vec![JobRow { job: 1, ranks: 1, loads: vec![load] }],
    };
    let mut fold = Fold::default();
    for load in [10, UNKNOWN, 20] {
        fold.add(&row(load));
    }
    assert_eq!(fold.take().unwrap().jobs[0].loads, [15]);
    fold.add(&row(UNKNOWN));
    assert_eq!(fold.take().unwrap().jobs[0].loads, [UNKNOWN]);
}

#[test]
fn only_the_history_of_this_cluster_is_taken() {
    let layout = RingLayout::new(4);
    let header = layout.header();
    assert_eq!(header.len(), HEADER);
    assert_eq!(layout.check(&header, layout.bytes()), Ok(()));
    assert_eq!(layout.check(&header, layout.bytes() - 1), Err(RingError::Size));
    assert_eq!(RingLayout::new(5).check(&header, layout.bytes()), Err(RingError::Size));
    let mut other = header.clone();
    other[8] ^= 2;
    assert_eq!(layout.check(&other, layout.bytes()), Err(RingError::Header));
    assert_eq!(layout.check(&header[..7], layout.bytes()), Err(RingError::Header));
    // The file of a cluster of 64 nodes.
    assert_eq!(RingLayout::new(64).bytes(), 32 + 2760 * (4096 + 64 * 12));
}

#[test]
fn the_bytes_of_a_slot() {
    let row = Row {
        at_s: 0x0102,
        nodes: vec![NodeCell { node: 1, busy: 2, memory: 3, switching: 4, network_kib: 5 }],
        jobs: vec![JobRow { job: 6, ranks: 2, loads: vec![7, UNKNOWN] }],
    };
    let bytes = encode(row, 4096);
    assert_eq!(bytes[..4], [46, 0, 0, 0]);
    let body = [
        2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, //
        1, 0, 0, 0, 2, 3, 4, 0, 5, 0, 0, 0, //
        6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 7, 255,
    ];
    assert_eq!(bytes[12..], body);
}
