//! What tests of views share.
#![allow(dead_code)] // Each test program uses a part of it.

use std::process::{Command, Output};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kumi_dsm::node_memory::{NodeMemory, UnitSize};
use kumi_dsm::view::{FaultRefusal, FaultResolver, Mechanism, View, Writes};

/// Tells a test in a process of its own what to do.
const CASE: &str = "KUMI_DSM_TEST_CASE";

/// The mechanisms that this machine has.
pub fn mechanisms(test: &str) -> Vec<Mechanism> {
    match Mechanism::best().missing {
        None => vec![Mechanism::UserFault, Mechanism::Protect],
        Some(missing) => {
            kumi_skip::skip(test, &missing.to_string());
            vec![Mechanism::Protect]
        }
    }
}

/// Views of a process are few, and tests count its mappings: one test at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn memory(bytes: u64, unit: u32) -> Arc<NodeMemory> {
    let unit = UnitSize::new(unit).expect("unit");
    Arc::new(NodeMemory::create(bytes, unit).expect("memory"))
}

/// Shows each unit below `end` that is asked for, and refuses the others.
pub struct Shower {
    view: Weak<View>,
    end: u64,
    /// Faults in order, and whether each is known to be a write.
    pub faults: Mutex<Vec<(u64, bool)>>,
    pub count: AtomicU64,
    /// First writes that were asked for.
    pub writes: AtomicU64,
}

impl FaultResolver for Shower {
    fn resolve(&self, unit: u64, write: bool) -> Result<(), FaultRefusal> {
        self.count.fetch_add(1, SeqCst);
        if unit >= self.end {
            return Err(FaultRefusal::new("it is not allocated"));
        }
        self.faults.lock().expect("faults").push((unit, write));
        let view = self.view.upgrade().ok_or(FaultRefusal::new("the view is gone"))?;
        Ok(view.map(unit..unit + 1)?)
    }

    fn before_write(&self, _: u64) -> Result<(), FaultRefusal> {
        self.writes.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A view whose units below `end` appear when they are used.
pub fn view(memory: &Arc<NodeMemory>, mechanism: Mechanism, end: u64) -> (Arc<View>, Arc<Shower>) {
    view_with(memory, mechanism, Writes::Noted, end)
}

/// The same, with what happens at first writes.
pub fn view_with(
    memory: &Arc<NodeMemory>,
    mechanism: Mechanism,
    writes: Writes,
    end: u64,
) -> (Arc<View>, Arc<Shower>) {
    let view = Arc::new(View::with_writes(memory, mechanism, writes).expect("view"));
    let shower = Arc::new(Shower {
        view: Arc::downgrade(&view),
        end,
        faults: Mutex::default(),
        count: AtomicU64::new(0),
        writes: AtomicU64::new(0),
    });
    assert!(view.serve(shower.clone()), "it had a resolver");
    (view, shower)
}

/// The address of byte `offset` of a unit.
pub fn at(view: &View, unit: u64, offset: usize) -> *mut u8 {
    let unit_bytes = view.memory().unit().bytes() as usize;
    view.base().wrapping_add(unit as usize * unit_bytes + offset)
}

pub fn read(view: &View, unit: u64, offset: usize) -> u8 {
    assert!(unit < view.units());
    // SAFETY: inside of the view, whose resolver provides the unit or ends the process.
    unsafe { at(view, unit, offset).read_volatile() }
}

pub fn write(view: &View, unit: u64, offset: usize, value: u8) {
    assert!(unit < view.units());
    // SAFETY: as in `read`.
    unsafe { at(view, unit, offset).write_volatile(value) };
}

/// A word of a unit, that threads may write at the same time.
pub fn word(view: &View, unit: u64, index: usize) -> &AtomicU64 {
    assert!(unit < view.units());
    // SAFETY: an aligned word inside of the view, which outlives the result; all threads use atomics for it.
    unsafe { &*at(view, unit, index * 8).cast() }
}

pub fn collect(view: &View) -> Vec<std::ops::Range<u64>> {
    let mut dirty = Vec::new();
    view.collect(0..view.units(), &mut dirty).expect("collect");
    dirty
}

pub fn drop_units(view: &View, units: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
    let mut dirty = Vec::new();
    view.drop_units(units, &mut dirty).expect("drop");
    dirty
}

/// What this process is to do if it is one of a test's own.
pub fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// The mechanism that a case begins with.
pub fn mechanism_of(case: &str) -> Mechanism {
    let name = case.split(' ').next().unwrap_or_default();
    name.parse().expect("a mechanism")
}

/// Runs a test of this program again, in a process of its own, which is told the case.
pub fn process(test: &str, case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command
}

/// As [`process`], to its end.
pub fn run(test: &str, case: &str) -> Output {
    process(test, case).output().expect("it starts")
}

/// As [`run`]; it must succeed.
pub fn succeed(test: &str, case: &str) {
    let output = run(test, case);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {:?}\n{text}", output.status);
}
