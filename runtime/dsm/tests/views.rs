//! What a view shows and reports, by both mechanisms.
#![allow(clippy::single_range_in_vec_init)] // None is meant as a list of numbers.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Barrier, Mutex, OnceLock};

use common::{alone, collect, drop_units, mechanisms, memory, read, view, view_with, word, write};
use kumi_dsm::node_memory::NodeMemory;
use kumi_dsm::view::{Mechanism, View, ViewError, Writes};
use proptest::prelude::*;

const KIB: u32 = 1 << 10;
const UNITS: [u32; 3] = [4 * KIB, 16 * KIB, 64 * KIB];

#[derive(Debug, Clone)]
enum Step {
    Read(u64),
    Write(u64, usize, u8),
    Map(Range<u64>),
    Drop(Range<u64>),
    /// Several ranges at once.
    DropAll(Vec<Range<u64>>),
    Collect(Range<u64>),
    /// The library changes the copy.
    Fill(u64, usize, u8),
}

const COUNT: u64 = 150;

fn step() -> impl Strategy<Value = Step> {
    let unit = || 0..COUNT;
    let range =
        || (0..COUNT, 0..40u64).prop_map(|(start, length)| start..(start + length).min(COUNT));
    prop_oneof![
        3 => unit().prop_map(Step::Read),
        6 => (unit(), 0..4096usize, 1..=255u8).prop_map(|(unit, at, value)| Step::Write(unit, at, value)),
        2 => range().prop_map(Step::Map),
        2 => range().prop_map(Step::Drop),
        2 => prop::collection::vec((1..20u64, 0..9u64), 0..12).prop_map(apart),
        2 => range().prop_map(Step::Collect),
        1 => (unit(), 0..4096usize, 1..=255u8).prop_map(|(unit, at, value)| Step::Fill(unit, at, value)),
    ]
}

/// Ranges, each of which begins so many units after the one before.
fn apart(lengths: Vec<(u64, u64)>) -> Step {
    let mut end = 0;
    let ranges = lengths.into_iter().map(|(gap, length)| {
        let start = (end + gap).min(COUNT);
        end = (start + length).min(COUNT);
        start..end
    });
    Step::DropAll(ranges.collect())
}

/// What a view has to know.
#[derive(Default)]
struct Model {
    mapped: BTreeSet<u64>,
    dirty: BTreeSet<u64>,
    bytes: BTreeMap<(u64, usize), u8>,
}

impl Model {
    fn take(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &unit in self.dirty.range(range.clone()) {
            match runs.last_mut() {
                Some(last) if last.end == unit => last.end += 1,
                _ => runs.push(unit..unit + 1),
            }
        }
        self.dirty.retain(|unit| !range.contains(unit));
        runs
    }
}

fn follow(view: &View, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Read(unit) => {
            let at = unit as usize % 4096;
            let byte = model.bytes.get(&(unit, at)).copied().unwrap_or(0);
            prop_assert_eq!(read(view, unit, at), byte);
            model.mapped.insert(unit);
        }
        Step::Write(unit, at, value) => {
            write(view, unit, at, value);
            model.bytes.insert((unit, at), value);
            model.mapped.insert(unit);
            model.dirty.insert(unit);
        }
        Step::Map(range) => {
            view.map(range.clone()).expect("map");
            model.mapped.extend(range);
        }
        Step::Drop(range) => {
            prop_assert_eq!(drop_units(view, range.clone()), model.take(&range));
            model.mapped.retain(|unit| !range.contains(unit));
        }
        Step::DropAll(ranges) => {
            let mut dirty = Vec::new();
            view.drop_all(&ranges, &mut dirty).expect("drop");
            let taken: Vec<_> = ranges.iter().flat_map(|range| model.take(range)).collect();
            // Ranges that touch are told as one.
            let units = |ranges: Vec<Range<u64>>| ranges.into_iter().flatten().collect::<Vec<_>>();
            prop_assert_eq!(units(dirty), units(taken));
            model.mapped.retain(|unit| !ranges.iter().any(|range| range.contains(unit)));
        }
        Step::Collect(range) => {
            let mut dirty = vec![7..8];
            view.collect(range.clone(), &mut dirty).expect("collect");
            prop_assert_eq!(dirty.remove(0), 7..8, "what was there before");
            prop_assert_eq!(dirty, model.take(&range));
        }
        Step::Fill(unit, at, value) => {
            view.memory().write(unit, at, &[value]).expect("write");
            model.bytes.insert((unit, at), value);
        }
    }
    Ok(())
}

fn agrees(
    mechanism: Mechanism,
    writes: Writes,
    unit: u32,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let memory = memory(COUNT * u64::from(unit), unit);
    let (view, shower) = view_with(&memory, mechanism, writes, COUNT);
    let (mut model, mut first_writes) = (Model::default(), 0);
    for step in steps {
        if let (Step::Write(unit, ..), Writes::Asked) = (&step, writes) {
            first_writes += u64::from(!model.dirty.contains(unit));
        }
        let (known, asked) = (model.mapped.len(), shower.count.load(SeqCst));
        let access = matches!(step, Step::Read(_) | Step::Write(..));
        follow(&view, &mut model, step)?;
        if access {
            let new = (model.mapped.len() - known) as u64;
            prop_assert_eq!(
                shower.count.load(SeqCst) - asked,
                new,
                "faults of units that were not there"
            );
        }
        prop_assert_eq!(shower.writes.load(SeqCst), first_writes, "writes that were asked for");
        for unit in 0..COUNT {
            prop_assert_eq!(view.is_mapped(unit), model.mapped.contains(&unit), "unit {}", unit);
        }
    }
    prop_assert_eq!(collect(&view), model.take(&(0..COUNT)));
    for ((unit, at), byte) in model.bytes {
        let mut copy = vec![0; 4096];
        memory.read_page(unit, &mut copy).expect("read");
        prop_assert_eq!(copy[at], byte, "the copy of unit {}", unit);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn what_is_reported_is_what_was_written(
        size in 0..3usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let _alone = alone();
        static MECHANISMS: OnceLock<Vec<Mechanism>> = OnceLock::new();
        let found = MECHANISMS.get_or_init(|| mechanisms("what_is_reported_is_what_was_written"));
        for &mechanism in found {
            for writes in [Writes::Noted, Writes::Asked] {
                agrees(mechanism, writes, UNITS[size], steps.clone())?;
            }
        }
    }
}

/// Whether all twins have the words of this round.
fn check_twins(memory: &NodeMemory, round: u64) {
    for unit in 0..memory.pages() {
        let twin = memory.twin(unit).expect("twin").shared();
        let words = [0, 1, 2].map(|writer| twin.load_u64((500 - writer) * 8));
        assert_eq!(words, [round; 3], "unit {unit}");
    }
}

/// Each writer has a word in each unit, which it writes once in a round. Meanwhile another thread releases, and copies
/// whatever is reported to the twin, as a protocol would. After each round the twins are what was written in it: a report
/// that was lost would have left an older value.
fn writers_lose_nothing(
    mechanism: Mechanism,
    writes: Writes,
    unit: u32,
    release: fn(&View, &mut Vec<Range<u64>>),
) {
    const UNITS: u64 = 32;
    const WRITERS: usize = 3;
    const ROUNDS: u64 = 300;
    let memory = memory(UNITS * u64::from(unit), unit);
    let (view, _shower) = view_with(&memory, mechanism, writes, UNITS);
    let (over, round_ends) = (AtomicBool::new(false), Barrier::new(WRITERS + 1));
    let flush = || {
        let mut dirty = Vec::new();
        release(&view, &mut dirty);
        for unit in dirty.into_iter().flatten() {
            memory.twin(unit).expect("twin").copy_from(memory.page(unit).expect("page").shared());
        }
    };
    let write_rounds = |writer: usize| {
        for round in 1..=ROUNDS {
            (0..UNITS).for_each(|unit| word(&view, unit, 500 - writer).store(round, Relaxed));
            round_ends.wait();
            round_ends.wait();
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write_rounds = &write_rounds;
            scope.spawn(move || write_rounds(writer));
        }
        let releases = Mutex::new(());
        let wrong = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let _one = releases.lock().expect("the other thread is well");
                    flush();
                }
            });
            let mut wrong = None;
            for round in 1..=ROUNDS {
                round_ends.wait();
                let one = releases.lock().expect("the other thread is well");
                flush();
                // The writers go on whatever is found, so that this ends.
                wrong = wrong
                    .or(std::panic::catch_unwind(AssertUnwindSafe(|| check_twins(&memory, round)))
                        .err());
                drop(one);
                round_ends.wait();
            }
            over.store(true, SeqCst);
            wrong
        });
        if let Some(wrong) = wrong {
            std::panic::resume_unwind(wrong);
        }
    });
}

#[test]
fn threads_write_while_units_are_collected() {
    let _alone = alone();
    for mechanism in mechanisms("threads_write_while_units_are_collected") {
        for (unit, writes) in UNITS.into_iter().zip([Writes::Noted, Writes::Asked, Writes::Noted]) {
            writers_lose_nothing(mechanism, writes, unit, |view, dirty| {
                view.collect(0..view.units(), dirty).expect("collect");
            });
        }
    }
}

#[test]
fn threads_write_while_units_are_dropped() {
    let _alone = alone();
    for mechanism in mechanisms("threads_write_while_units_are_dropped") {
        for (unit, writes) in UNITS.into_iter().zip([Writes::Noted, Writes::Asked, Writes::Noted]) {
            writers_lose_nothing(mechanism, writes, unit, |view, dirty| {
                for start in (0..view.units()).step_by(2) {
                    view.drop_units(start..start + 2, dirty).expect("drop");
                }
            });
        }
    }
}

#[test]
fn threads_map_the_same_units() {
    let _alone = alone();
    for mechanism in mechanisms("threads_map_the_same_units") {
        let memory = memory(4096 * u64::from(4 * KIB), 4 * KIB);
        let (view, shower) = view(&memory, mechanism, 4096);
        for round in 0..20 {
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let view = &view;
                    scope.spawn(move || {
                        for start in (0..4096).step_by(64) {
                            let end = (start + 64 + thread * 7).min(4096);
                            view.map(start..end).expect("map");
                        }
                        write(view, 1000 + thread, 0, 1);
                    });
                }
            });
            assert_eq!(collect(&view), [1000..1004], "{mechanism}, round {round}");
            assert_eq!(drop_units(&view, 0..4096), [], "{mechanism}, round {round}");
        }
        assert_eq!(shower.count.load(SeqCst), 0, "mapped units faulted");
    }
}

#[test]
fn a_unit_that_nobody_filled_reads_as_zeros() {
    let _alone = alone();
    for mechanism in mechanisms("a_unit_that_nobody_filled_reads_as_zeros") {
        for unit in UNITS {
            let memory = memory(1000 * u64::from(unit), unit);
            let (view, _) = view(&memory, mechanism, 1000);
            memory.write(11, 5, b"x").expect("write");
            view.map(10..13).expect("map");
            let last = unit as usize - 1;
            let seen = [
                read(&view, 10, 0),
                read(&view, 11, 5),
                read(&view, 11, last),
                read(&view, 12, last),
            ];
            assert_eq!(seen, [0, b'x', 0, 0], "{mechanism}");
            // By a fault.
            assert_eq!(read(&view, 500, 17), 0);
            assert_eq!(collect(&view), [], "{mechanism}: reads are no writes");
        }
    }
}

/// The kernel may take pages out of a page table when memory is short. The test does so in its place.
#[test]
fn pages_that_the_kernel_reclaims_lose_no_write() {
    let _alone = alone();
    for mechanism in mechanisms("pages_that_the_kernel_reclaims_lose_no_write") {
        let memory = memory(16 << 14, 16 * KIB);
        let (view, shower) = view(&memory, mechanism, 16);
        let reclaim = || {
            // SAFETY: the pages stay in the memory file, and come back as they were.
            let done = unsafe { libc::madvise(view.base().cast(), 16 << 14, libc::MADV_DONTNEED) };
            assert_eq!(done, 0);
        };
        view.map(2..10).expect("map");
        write(&view, 3, 5000, 33);
        write(&view, 9, 0, 99);
        reclaim();
        assert_eq!(drop_units(&view, 8..10), [9..10], "{mechanism}: dropped while they are away");
        let dirty = collect(&view);
        assert!(
            dirty.contains(&(3..4)),
            "{mechanism}: {dirty:?}, without the unit that was written"
        );
        write(&view, 4, 1, 44);
        reclaim();
        // They come back without the resolver.
        let seen = [read(&view, 3, 5000), read(&view, 4, 1), read(&view, 5, 0)];
        assert_eq!((seen, shower.count.load(SeqCst)), ([33, 44, 0], 0), "{mechanism}");
        let dirty: Vec<_> = collect(&view).into_iter().flatten().collect();
        assert!(dirty.contains(&4) && dirty.iter().all(|unit| (2..8).contains(unit)), "{dirty:?}");
    }
}

#[test]
fn the_last_unit_is_one_as_others() {
    let _alone = alone();
    for mechanism in mechanisms("the_last_unit_is_one_as_others") {
        // 12 KiB: units need not be powers of two.
        for unit in [4 * KIB, 12 * KIB, 64 * KIB] {
            let memory = memory(65 * u64::from(unit), unit);
            let (view, _) = view(&memory, mechanism, 65);
            write(&view, 64, unit as usize - 1, 9);
            assert_eq!(collect(&view), [64..65], "{mechanism}");
            write(&view, 64, 0, 8);
            assert_eq!(drop_units(&view, 0..65), [64..65], "{mechanism}");
            assert_eq!(read(&view, 64, unit as usize - 1), 9);
            let end = view.base().wrapping_add(65 * unit as usize);
            assert_eq!((view.unit_at(end.wrapping_sub(1)), view.unit_at(end)), (Some(64), None));
        }
    }
}

#[test]
fn what_is_outside_is_refused() {
    let _alone = alone();
    for mechanism in mechanisms("what_is_outside_is_refused") {
        let memory = memory(64 << 10, 4 * KIB);
        let (view, _) = view(&memory, mechanism, 16);
        #[expect(clippy::reversed_empty_ranges)]
        let ranges = [0..17, 17..17, 3..2, 16..u64::MAX];
        for units in ranges {
            let mut dirty = Vec::new();
            let results = [
                view.map(units.clone()),
                view.collect(units.clone(), &mut dirty),
                view.drop_units(units.clone(), &mut dirty),
            ];
            for result in results {
                assert!(matches!(result, Err(ViewError::Outside { count: 16, .. })), "{units:?}");
            }
        }
        view.map(16..16).expect("nothing");
        assert!(!view.is_mapped(16) && !view.is_mapped(u64::MAX));
    }
}

#[test]
fn a_million_units_come_and_go() {
    const ROUNDS: u64 = 16;
    const EACH: u64 = 1 << 16;
    let _alone = alone();
    for mechanism in mechanisms("a_million_units_come_and_go") {
        let memory = memory(EACH * 4096, 4 * KIB);
        let (view, shower) = view(&memory, mechanism, EACH);
        for round in 0..ROUNDS {
            view.map(0..EACH).expect("map");
            // Every eighth, in groups, so that access rights do not divide the view too often.
            for group in 0..EACH / 512 {
                for unit in 0..64 {
                    write(&view, group * 512 + round * 8 + unit, 1, 1);
                }
            }
            let wanted = (0..EACH / 512).map(|group| group * 512 + round * 8);
            let wanted: Vec<_> = wanted.map(|start| start..start + 64).collect();
            assert_eq!(collect(&view), wanted, "{mechanism}, round {round}");
            assert_eq!(drop_units(&view, 0..EACH), [], "{mechanism}, round {round}");
        }
        assert_eq!(shower.count.load(SeqCst), 0);
    }
}

/// More ranges than the kernel takes by one call, near each other and far apart.
#[test]
fn thousands_of_ranges_are_dropped_at_once() {
    let _alone = alone();
    for mechanism in mechanisms("thousands_of_ranges_are_dropped_at_once") {
        for stride in [2, 300] {
            let memory = memory(3000 * stride * 4096, 4 * KIB);
            let (view, _) = view(&memory, mechanism, memory.pages());
            let ranges: Vec<_> = (0..3000).map(|at| at * stride..at * stride + 1).collect();
            ranges.iter().for_each(|range| view.map(range.clone()).expect("map"));
            let written = ranges.iter().step_by(7).cloned().collect::<Vec<_>>();
            written.iter().for_each(|range| write(&view, range.start, 1, 1));
            view.map(1..2).expect("one between them");
            write(&view, 1, 1, 1);
            let mut dirty = Vec::new();
            view.drop_all(&ranges, &mut dirty).expect("drop");
            assert_eq!(dirty, written, "{mechanism}, every {stride}");
            assert!(view.is_mapped(1) && ranges.iter().all(|range| !view.is_mapped(range.start)));
            assert_eq!(collect(&view), [1..2], "{mechanism}: what stays is known still");
            let twice = [5..9, 8..10];
            let refused = view.drop_all(&twice, &mut dirty);
            assert!(matches!(refused, Err(ViewError::Outside { units, .. }) if units == (8..10)));
        }
    }
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count()
}

#[test]
fn scattered_units_do_not_divide_a_view_by_userfaultfd() {
    const UNITS: u64 = 200_000;
    const STRIDE: u64 = 83;
    let name = "scattered_units_do_not_divide_a_view_by_userfaultfd";
    let _alone = alone();
    if !mechanisms(name).contains(&Mechanism::UserFault) {
        return;
    }
    let memory = memory(64 << 30, 4 * KIB);
    let (view, _) = view(&memory, Mechanism::UserFault, memory.pages());
    for unit in 0..UNITS {
        view.map(unit * STRIDE..unit * STRIDE + 1).expect("map");
    }
    for unit in (0..UNITS).step_by(1000) {
        write(&view, unit * STRIDE, 0, 1);
    }
    assert!(mappings() < 100, "{} mappings", mappings());
    let wanted: Vec<_> =
        (0..UNITS).step_by(1000).map(|unit| unit * STRIDE..unit * STRIDE + 1).collect();
    assert_eq!(collect(&view), wanted);
    write(&view, 77 * STRIDE, 0, 1);
    assert_eq!(drop_units(&view, 0..view.units()), [77 * STRIDE..77 * STRIDE + 1]);
    assert!(mappings() < 100, "{} mappings", mappings());
}

/// In a process of its own: nothing else gets a mapping when the limit is reached.
#[test]
fn access_rights_say_how_to_raise_the_limit_of_mappings() {
    let name = "access_rights_say_how_to_raise_the_limit_of_mappings";
    if common::case().is_none() {
        common::succeed(name, "mprotect");
        return;
    }
    let memory = memory(64 << 30, 4 * KIB);
    let (view, _) = view(&memory, Mechanism::Protect, memory.pages());
    let refused = (0..memory.pages())
        .step_by(2)
        .find_map(|unit| view.map(unit..unit + 1).err().map(|error| (unit, error)));
    let Some((unit, error)) = refused else {
        kumi_skip::impossible(name, "the kernel's limit of mappings is above eight million");
        return;
    };
    let ViewError::TooManyMappings { limit } = &error else { panic!("{error}") };
    let mappings = unit + 1;
    assert!(limit.0.is_none_or(|limit| mappings <= limit), "{mappings} mappings, {limit}");
    assert!(error.to_string().contains("sysctl vm.max_map_count"), "{error}");
    assert!(!view.is_mapped(unit), "it failed and is mapped");
    // What was mapped still works, and room comes back with drops.
    assert_eq!(read(&view, 0, 0), 0);
    assert_eq!(drop_units(&view, 0..view.units()), []);
    view.map(unit..unit + 1).expect("there is room again");
    write(&view, unit, 0, 1);
    assert_eq!(collect(&view), [unit..unit + 1]);
}
