//! Slots of the file of history, as another version, a bad disk or somebody else may have written them. A row that is read must
//! fit a slot again and be the same. `core/monitor/tests/fuzzed.rs` runs the same with inputs from a seed.

use kumi_monitor::fold::Fold;
use kumi_monitor::ring::RingLayout;
use kumi_monitor::slot::{decode, encode};

/// The input as the body of a slot with its right checksum, and as a whole slot. Returns whether there was a row in it.
pub fn slot(input: &[u8]) -> bool {
    drop(decode(input));
    let length = u32::try_from(input.len()).expect("it is short");
    let sum = blake3::hash(input);
    let whole = [&length.to_le_bytes()[..], &sum.as_bytes()[..8], input].concat();
    // Without its last byte, it is not there.
    assert_eq!(decode(&whole[..whole.len() - 1]), None);
    let Some(row) = decode(&whole) else { return false };
    assert!(row.nodes.len() + row.jobs.len() <= input.len(), "there is more than was written");
    assert_eq!(decode(&encode(row.clone(), whole.len())), Some(row.clone()));
    // In a smaller slot something is left out.
    let small = RingLayout::new(1).slot_bytes().min(whole.len());
    let bytes = encode(row.clone(), small);
    assert!(bytes.len() <= small && decode(&bytes).is_some());
    let mut fold = Fold::default();
    fold.add(&row);
    fold.add(&row);
    assert_eq!(fold.take().map(|mean| mean.at_s), Some(row.at_s));
    true
}
