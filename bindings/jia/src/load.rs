//! Settings, the clock, and the division of loops by how fast hosts are.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::state::{Jia, fail, good, running};

/// Time that this host has waited for others, in nanoseconds.
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Does what may wait for others, and counts its time.
pub(crate) fn waiting<T>(call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    WAITED.fetch_add(nanoseconds, Ordering::Relaxed);
    result
}

fn waited() -> Duration {
    Duration::from_nanos(WAITED.load(Ordering::Relaxed))
}

/// `LOADBAL` of `jia.h`.
const LOADBAL: c_int = 3;
/// The last option.
const WVEC: c_int = 4;

/// Loops are divided by how fast hosts are.
static BALANCED: AtomicBool = AtomicBool::new(false);

/// What the division of the next loop goes by.
struct Load {
    /// Each host's share of the work; they sum to 1. None: all alike.
    shares: Vec<f64>,
    /// Iterations that this host got since the last check, and when it got the first, with what it had waited then.
    iterations: u64,
    begin: Option<(Instant, Duration)>,
}

static LOAD: Mutex<Load> = Mutex::new(Load { shares: Vec::new(), iterations: 0, begin: None });

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_config(option: c_int, value: c_int) {
    running("jia_config");
    if !(0..=WVEC).contains(&option) {
        fail("jia_config", format_args!("there is no option {option}"));
    }
    if option == LOADBAL {
        BALANCED.store(value != 0, Ordering::Relaxed);
    }
}

/// See `jia.h`.
///
/// # Safety
/// Both point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_divtask(begin: *mut c_int, end: *mut c_int) {
    let jia = running("jia_divtask");
    if begin.is_null() || end.is_null() {
        fail("jia_divtask", "a pointer is NULL");
    }
    // SAFETY: promised by the caller.
    let (first, last) = unsafe { (begin.read(), end.read()) };
    let (own_first, own_last) = divide(&jia, first, last);
    // SAFETY: promised by the caller.
    unsafe {
        begin.write(own_first);
        end.write(own_last);
    }
}

/// This host's part of the numbers from `first` to `last`.
fn divide(jia: &Jia, first: c_int, last: c_int) -> (c_int, c_int) {
    let (host, hosts) = (jia.context.rank() as usize, jia.context.ranks() as usize);
    let count = i64::from(last) - i64::from(first) + 1;
    if count <= 0 {
        return (first, last);
    }
    let mut load = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    let bounds = match BALANCED.load(Ordering::Relaxed) && load.shares.len() == hosts {
        true => bounds_of_shares(&load.shares, count),
        false => (0..=hosts as i64).map(|before| count * before / hosts as i64).collect(),
    };
    load.iterations += (bounds[host + 1] - bounds[host]).unsigned_abs();
    load.begin.get_or_insert_with(|| (Instant::now(), waited()));
    // Between the bounds of the caller, or an empty part right before one of them.
    let number = |offset: i64| c_int::try_from(i64::from(first) + offset).unwrap_or(last);
    (number(bounds[host]), number(bounds[host + 1] - 1))
}

/// Where each host's part of `count` iterations begins, and where the last one's ends.
fn bounds_of_shares(shares: &[f64], count: i64) -> Vec<i64> {
    let mut bounds = vec![0];
    let mut sum = 0.0;
    for share in shares {
        sum += share;
        let bound = (sum * count as f64).round() as i64;
        bounds.push(bound.clamp(bounds[bounds.len() - 1], count));
    }
    let hosts = shares.len();
    bounds[hosts] = count;
    bounds
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_loadcheck() {
    let jia = running("jia_loadcheck");
    let mut load = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    let computed = load.begin.take().map_or(Duration::ZERO, |(begin, waited_before)| {
        begin.elapsed().saturating_sub(waited().saturating_sub(waited_before))
    });
    // A host without iterations has no speed; it counts as an average one.
    let speed = load.iterations as f64 / computed.as_secs_f64().max(1e-9);
    load.iterations = 0;
    let mut speeds = vec![0.0; jia.context.ranks() as usize];
    good("jia_loadcheck", waiting(|| jia.context.group().allgather(&[speed], &mut speeds)));
    load.shares = shares_of(&speeds);
}

fn shares_of(speeds: &[f64]) -> Vec<f64> {
    let known = speeds.iter().filter(|speed| **speed > 0.0);
    let average = known.clone().sum::<f64>() / known.count().max(1) as f64;
    let average = if average > 0.0 { average } else { 1.0 };
    let speeds = speeds.iter().map(|speed| if *speed > 0.0 { *speed } else { average });
    let sum: f64 = speeds.clone().sum();
    speeds.map(|speed| speed / sum).collect()
}

/// Time since the first call of this. Programs ask for it before `jia_init`, too.
pub(crate) fn elapsed() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed()
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_clock() -> f64 {
    elapsed().as_secs_f64()
}

/// See `jia.h`. It begins anew after 71 minutes, as a number of this size does.
#[unsafe(no_mangle)]
pub extern "C" fn jia_startstat() -> c_uint {
    elapsed().as_micros() as c_uint
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_stopstat() -> c_uint {
    elapsed().as_micros() as c_uint
}
