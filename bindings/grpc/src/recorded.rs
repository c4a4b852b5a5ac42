//! The calls that a transaction has recorded.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::ops::Range;
use std::time::Duration;

use kumi_call_client::KnownRoutine;
use kumi_call_client::transaction::{Data, Transaction, TxArg};

use crate::argument::{Arguments, PassedValue, is_passed};
use crate::code::{Code, Failure};
use crate::returned::ReturnedValue;

/// Calls with the memory that the program has lent for them.
#[derive(Default)]
pub struct RecordedCalls {
    /// The calls, without their numbers and texts that come back.
    pub transaction: Transaction<'static>,
    /// Destinations of the numbers and texts that each call gives.
    pub calls: Vec<Vec<ReturnedValue>>,
    /// Arrays that stay at the servers, by the addresses that stand for them.
    pub intermediate: HashMap<usize, Data>,
    /// Priority at a metaserver.
    pub priority: u8,
    /// The program's memory to which results go.
    written: AddressRanges,
    /// Copies of arguments. Dropped after the transaction, which refers to them.
    copies: Vec<Box<[u8]>>,
}

impl RecordedCalls {
    /// Checks that a call takes no value from where an earlier one gives another: that is not known yet. The call itself reads
    /// arrays, when it runs.
    ///
    /// # Errors
    /// It takes one.
    pub fn check_values(
        &self,
        known: &KnownRoutine,
        given: &[PassedValue<'_>],
    ) -> Result<(), Failure> {
        let passed = known.params.iter().filter(|param| is_passed(param));
        for (param, given) in passed.zip(given).filter(|(param, _)| param.mode.is_sent()) {
            let what = if given.is_short_lived() {
                "is a copy from before of what an earlier call of the transaction gives: pass the array itself"
            } else if param.dims.is_empty() {
                "is what an earlier call of the transaction gives, and is known when that has ended: only arrays go from call to call"
            } else {
                continue;
            };
            if given.memory(param).iter().any(|memory| self.written.overlaps(memory)) {
                let text = format!("`{}`: `{}` {what}", known.name, param.name);
                return Err(Failure::argument(text));
            }
        }
        Ok(())
    }

    /// Adds a call; returns its number.
    ///
    /// # Errors
    /// It has arguments that calls of transactions do not take, or there are too many calls. Then none of its memory is used.
    pub fn add(
        &mut self,
        known: &KnownRoutine,
        time: Option<Duration>,
        read: Arguments,
    ) -> Result<c_int, Failure> {
        let number = c_int::try_from(self.calls.len()).map_err(|_| {
            Failure::new(Code::OtherErrorCode, "there are too many calls in the transaction")
        })?;
        let Arguments { args, back, written, copies, intermediate, .. } = read;
        let mut taken = self.transaction.lend(args).ok_or_else(|| {
            Failure::argument(format!(
                "`{}`: calls of transactions take no files, no functions and no held arrays",
                known.name
            ))
        })?;
        // The memory is lent: from here on nothing fails.
        self.copies.extend(copies);
        for (position, data) in intermediate {
            taken[position] = TxArg::Data(data);
        }
        let step = self.transaction.call(&known.name, taken);
        if let Some(time) = time {
            self.transaction.limit(step, time);
        }
        written.into_iter().for_each(|range| self.written.add(range));
        self.calls.push(back);
        Ok(number)
    }
}

/// Ranges of addresses. Those that overlap are one.
#[derive(Default)]
struct AddressRanges {
    /// Their ends, by their starts.
    ends: BTreeMap<usize, usize>,
}

impl AddressRanges {
    /// Adds a range.
    fn add(&mut self, mut added: Range<usize>) {
        while let Some(known) = self.last_within(&added) {
            self.ends.remove(&known.start);
            added = known.start.min(added.start)..known.end.max(added.end);
        }
        if !added.is_empty() {
            self.ends.insert(added.start, added.end);
        }
    }

    /// Whether one of them has an address of this range.
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.last_within(range).is_some()
    }

    /// The last range that overlaps with this one.
    fn last_within(&self, range: &Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() {
            return None;
        }
        let (start, end) = self.ends.range(..range.end).next_back()?;
        (*end > range.start).then_some(*start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::AddressRanges;

    #[test]
    fn ranges_that_overlap_are_one() {
        let mut ranges = AddressRanges::default();
        for range in [10..20, 30..40, 50..60, 5..5, 15..35] {
            ranges.add(range);
        }
        assert_eq!(ranges.ends.clone().into_iter().collect::<Vec<_>>(), [(10, 40), (50, 60)]);
        let overlaps = |range| ranges.overlaps(&range);
        assert!(overlaps(0..11) && overlaps(39..50) && overlaps(12..13) && overlaps(0..100));
        assert!(!overlaps(0..10) && !overlaps(40..50) && !overlaps(60..70) && !overlaps(12..12));
        ranges.add(0..100);
        assert_eq!(ranges.ends.into_iter().collect::<Vec<_>>(), [(0, 100)]);
    }
}
