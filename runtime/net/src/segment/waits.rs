//! Waits of a rank, as its context describes them. Anything can be there: what is read is well-formed, not necessarily true.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use kumi_verdict::RankReading;

use super::idle_and_delivered;
use crate::segment::counters::Counter;
use crate::segment::layout::{ATTACH_DONE, ATTACH_NOW, RankContext, SharedLines};
use crate::shm::wait_place;
use crate::wait::description::decode;

/// Reads what a rank of a job of `ranks` ranks does. It is idle only if that is certain.
pub(super) fn read(
    context: &RankContext,
    lines: &SharedLines,
    rank: u32,
    ranks: u32,
) -> RankReading {
    let attached = context.state.attached.load(Acquire);
    // The count first, then the flag, then all that was written before the flag was set.
    let (idle, delivered) = idle_and_delivered(context, lines);
    let mut certain = idle && attached == ATTACH_NOW;
    let mut waits = Vec::new();
    for place in &context.waits.places {
        match wait_place::read(place).map(|words| decode(&words, ranks)) {
            Some(None) => {}
            Some(Some(Ok((wait, counter)))) => {
                let raised = counter.is_some_and(|(index, at_least)| {
                    let counter = lines.notifies.0.get(index);
                    counter.is_none_or(|counter| counter.count.load(Relaxed) >= at_least)
                });
                certain &= !raised;
                waits.push(wait);
            }
            None | Some(Some(Err(_))) => certain = false,
        }
    }
    certain &= context.waits.undescribed.load(Relaxed) == 0;
    let held = context.waits.held.iter().filter_map(|lock| lock.load(Relaxed).checked_sub(1));
    RankReading {
        rank,
        over: attached == ATTACH_DONE,
        idle: certain,
        waits,
        held: held.collect(),
        sent: context.counters[Counter::Sent as usize].load(Relaxed),
        delivered,
    }
}
