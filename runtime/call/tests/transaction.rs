//! Transactions over several servers.
#![forbid(unsafe_code)]

mod common;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{TestServer, config, eventually, served};
use kumi_call::server::{Config, Peers};
use kumi_call::transaction::{MovedBytes, RunOptions, Transaction, TransactionError, TxArg};
use kumi_call::{Arg, Array, ArrayMut, CallError, Traffic};
use kumi_idl::Order;

/// Servers, their addresses and counters.
struct Servers {
    served: Vec<TestServer>,
    addresses: Vec<String>,
    traffic: Vec<Arc<Traffic>>,
}

fn servers(count: usize, change: impl Fn(&mut Config)) -> Servers {
    let mut all = Servers { served: vec![], addresses: vec![], traffic: vec![] };
    for _ in 0..count {
        let mut config = config();
        change(&mut config);
        all.traffic.push(Arc::clone(&config.traffic));
        let server = served(config);
        all.addresses.push(server.address.to_string());
        all.served.push(server);
    }
    all
}

/// Calls of each routine go to the servers in turn.
fn in_turn() -> RunOptions {
    RunOptions { policy: "round-robin".to_owned(), ..RunOptions::default() }
}

const N: usize = 1000;
const BYTES: u64 = 8 * N as u64;

#[test]
fn a_chain_brings_only_its_end() {
    let all = servers(1, |_| {});
    let (a, mut end) = (vec![2.0; N], vec![-1.0; N]);
    let mut tx = Transaction::new();
    let (a, d, x, y) = (tx.input(&a), tx.array(&mut end), tx.intermediate(), tx.intermediate());
    let n = N as i32;
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
    tx.call("add", vec![n.into(), a.into(), x.into()]);
    tx.call("fill", vec![n.into(), 0.into(), 5.0.into(), y.into()]);
    tx.call("fill", vec![n.into(), 0.into(), 0.0.into(), d.into()]);
    let last = tx.call("add", vec![n.into(), x.into(), d.into()]);
    let report = tx.run(&all.addresses).expect("it runs");
    assert!(report.is_complete());
    assert!(report.outcome(last).is_some_and(|outcome| outcome.scalar(3).is_some()));
    let moved = MovedBytes { sent: BYTES, received: BYTES, between: 0, stayed: 3 * BYTES };
    assert_eq!(report.moved, moved);
    eventually("the last byte", || Traffic::of(&all.traffic[0].to_clients) == BYTES);
    assert_eq!(Traffic::of(&all.traffic[0].from_clients), BYTES);
    assert_eq!(Traffic::of(&all.traffic[0].copied), 3 * BYTES);
    let svg = report.svg();
    assert_eq!(svg.matches("<rect").count(), 5);
    assert_eq!(svg.matches(&all.addresses[0]).count(), 5, "{svg}");
    assert_eq!(svg.matches("<line").count(), 3);
    drop(tx);
    assert!(end.iter().all(|cell| *cell == 3.0), "{}", end[0]);
}

#[test]
fn a_diamond_goes_from_server_to_server() {
    let all = servers(2, |_| {});
    let mut sum = vec![1.0; N];
    let mut tx = Transaction::new();
    let (n, top) = (N as i32, tx.intermediate());
    let (left, right) = (tx.intermediate(), tx.intermediate());
    let bottom = tx.array(&mut sum);
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), top.into()]);
    tx.call("fill", vec![n.into(), 0.into(), 10.0.into(), left.into()]);
    tx.call("fill", vec![n.into(), 0.into(), 100.0.into(), right.into()]);
    tx.call("add", vec![n.into(), top.into(), left.into()]);
    tx.call("add", vec![n.into(), top.into(), right.into()]);
    tx.call("add", vec![n.into(), left.into(), bottom.into()]);
    tx.call("add", vec![n.into(), right.into(), bottom.into()]);
    let plan = tx.plan(&all.addresses, &in_turn()).expect("it fits");
    assert_eq!(plan.dot().matches("->").count(), 7, "{}", plan.dot());
    let report = tx.run_with(&all.addresses, &in_turn(), &|| false).expect("it runs");
    drop(tx);
    assert!(sum.iter().all(|sum| *sum == 113.0), "{}", sum[0]);
    assert_eq!((report.moved.sent, report.moved.received), (BYTES, BYTES));
    let total =
        |counter: fn(&Traffic) -> u64| all.traffic.iter().map(|it| counter(it)).sum::<u64>();
    assert_eq!(total(|it| Traffic::of(&it.from_servers)), report.moved.between);
    eventually("the last byte", || total(|it| Traffic::of(&it.fetched)) == report.moved.between);
    assert_eq!(total(|it| Traffic::of(&it.copied)), report.moved.stayed);
    eventually("the last byte", || total(|it| Traffic::of(&it.to_clients)) == BYTES);
    assert_eq!(report.moved.between + report.moved.stayed, 7 * BYTES);
    assert!(report.moved.between >= BYTES, "both servers had calls");
}

/// Pseudorandom numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn slices_that_overlap_are_as_if_run_one_after_the_other() {
    const LONG: u64 = 24;
    let all = servers(3, |_| {});
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut array: Vec<f64> = (0..LONG).map(|at| at as f64).collect();
        let mut expected = array.clone();
        let mut tx = Transaction::new();
        let data = tx.array(&mut array);
        for call in 0..10 {
            let count = 1 + random.below(10);
            let (from, to) = (random.below(LONG - count), random.below(LONG - count));
            let range = |at: u64| at as usize..(at + count) as usize;
            let n = count as i32;
            let y = data.part(to..to + count);
            if random.below(3) == 0 {
                let x = f64::from(call) * 100.0;
                tx.call("fill", vec![n.into(), 0.into(), x.into(), y.into()]);
                expected[range(to)].fill(x);
            } else {
                let x = data.part(from..from + count);
                tx.call("add", vec![n.into(), x.into(), y.into()]);
                let read = expected[range(from)].to_vec();
                expected[range(to)].iter_mut().zip(read).for_each(|(y, x)| *y += x);
            }
        }
        let report = tx.run_with(&all.addresses, &in_turn(), &|| false);
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        drop(tx);
        assert_eq!(array, expected, "seed {seed}\n{}", report.dot());
    }
}

#[test]
fn other_orders_and_sections_go_through_the_client() {
    let all = servers(2, |_| {});
    // Row-major here, column-major at the routine.
    let mut a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut y = [10.0, 20.0];
    let mut every = [1, 2, 3, 4, 5];
    let mut tx = Transaction::new();
    let flat = tx.array(&mut a);
    let y_data = tx.array(&mut y);
    tx.call("fill", vec![2.into(), 0.into(), 7.0.into(), flat.part(0..2).into()]);
    tx.call("addcol", vec![2.into(), 3.into(), flat.into(), y_data.into()]);
    let every_data = tx.array(&mut every);
    tx.call("negate", vec![5.into(), every_data.into()]);
    tx.call("negate", vec![5.into(), every_data.into()]);
    tx.call("negate", vec![3.into(), every_data.part(1..4).into()]);
    tx.run_with(&all.addresses, &in_turn(), &|| false).expect("it runs");
    drop(tx);
    assert_eq!(y, [17.0, 27.0]);
    assert_eq!(every, [1, -2, 3, -4, 5]);
    let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut tx = Transaction::new();
    let (rows, y_data) = (tx.shaped(&rows, &[2, 3], Order::Row), tx.array(&mut y));
    tx.call("addcol", vec![2.into(), 3.into(), rows.into(), y_data.into()]);
    tx.run(&all.addresses).expect("it runs");
    drop(tx);
    assert_eq!(y, [18.0, 31.0]);
}

#[test]
fn what_failed_and_what_did_not_run_because_of_it_is_told() {
    let all = servers(2, |_| {});
    let (bad, mut sum, mut other) = (vec![-1.0; N], vec![0.0; N], vec![0.0; N]);
    let mut tx = Transaction::new();
    let (bad, sum, other) = (tx.input(&bad), tx.array(&mut sum), tx.array(&mut other));
    let n = N as i32;
    let x = tx.intermediate();
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
    let fails = tx.call("add", vec![n.into(), bad.into(), x.into()]);
    let behind = tx.call("add", vec![n.into(), x.into(), sum.into()]);
    let apart = tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), other.into()]);
    let Err(TransactionError::Failed(report)) = tx.run(&all.addresses) else { panic!("it fails") };
    let told = report.to_string();
    let server = report.steps[1].server.clone().expect("it ran");
    let expected = format!(
        "2 of 4 calls have run\n\
         call 1 (add) failed: `add` failed: info is 1 (at {server})\n\
         call 2 (add) did not run, because of 1 (add) -> 2 (add): `add` failed: info is 1 (at {server})"
    );
    assert_eq!(told, expected);
    assert!(report.explain(fails).contains("failed") && report.explain(behind).contains("->"));
    assert!(report.outcome(apart).is_some() && report.outcome(behind).is_none());
    let failure = |step: usize| report.steps[step].failure.as_deref();
    assert!(matches!(failure(1), Some(CallError::Status { value: 1, .. })), "{:?}", failure(1));
    assert!([0, 2, 3].into_iter().all(|step| failure(step).is_none()));
}

#[test]
fn calls_have_limits_of_their_own() {
    let all = servers(1, |_| {});
    let mut tx = Transaction::new();
    let late = tx.call("nap", vec![60_000.into()]);
    let in_time = tx.call("nap", vec![1.into()]);
    tx.limit(late, Duration::from_millis(50));
    tx.limit(in_time, Duration::from_secs(600));
    let options = RunOptions { time: Some(Duration::from_secs(300)), ..RunOptions::default() };
    let Err(TransactionError::Failed(report)) = tx.run_with(&all.addresses, &options, &|| false)
    else {
        panic!("one is late")
    };
    assert!(matches!(report.steps[0].failure.as_deref(), Some(CallError::TimedOut(_))));
    assert!(report.outcome(in_time).is_some() && report.steps[1].failure.is_none());
}

#[test]
fn arguments_of_other_calls_are_taken() {
    let all = servers(1, |_| {});
    let (one, mut sum) = (vec![1.0; N], vec![2.0; N]);
    let mut tx = Transaction::new();
    let file = Arg::File(kumi_call::FileArgument::from(std::path::PathBuf::from("/a")));
    // What is refused lends nothing, also not what is before it: the next array is the first.
    assert_eq!(tx.lend(vec![Arg::In(Array::flat(&one)), file]), None);
    assert_eq!(tx.intermediate(), Transaction::new().intermediate());
    let given: Vec<Arg<'_>> =
        vec![(N as i32).into(), Arg::In(Array::flat(&one)), Arg::Out(ArrayMut::flat(&mut sum))];
    let taken = tx.lend(given).expect("numbers and arrays");
    tx.call("add", taken);
    tx.run(&all.addresses).expect("it runs");
    drop(tx);
    assert!(sum.iter().all(|sum| *sum == 3.0), "{}", sum[0]);
}

#[test]
fn arguments_are_checked_before_anything_runs() {
    let all = servers(1, |_| {});
    let numbers = vec![0.0; N];
    let wrong = |routine: &str, length: i32, late: bool| {
        let mut own = numbers.clone();
        let mut tx = Transaction::new();
        let (a, own) = (tx.input(&numbers), tx.array(&mut own));
        let x = tx.intermediate();
        tx.call("fill", vec![(N as i32).into(), 0.into(), 1.0.into(), own.into()]);
        let y = if late { x } else { a };
        tx.call(routine, vec![length.into(), y.into(), own.into()]);
        tx.run(&all.addresses).expect_err("it does not fit").to_string()
    };
    let n = N as i32;
    assert!(wrong("ad", n, false).contains("did you mean add"), "{}", wrong("ad", n, false));
    let told = wrong("add", 7, false);
    assert!(
        told.starts_with("call 1 (`add`): `x` has 1000 elements, the routine wants 7"),
        "{told}"
    );
    let told = wrong("add", n, true);
    assert!(told.contains("`x` is an intermediate array that no earlier call makes"), "{told}");
    let mut tx = Transaction::new();
    let a = tx.input(&numbers);
    tx.call("add", vec![n.into(), a.into(), a.into()]);
    let told = tx.run(&all.addresses).expect_err("it does not fit").to_string();
    assert!(told.contains("`y` is written; lend it"), "{told}");
    assert_eq!(Traffic::of(&all.traffic[0].from_clients), 0);
    assert_eq!(all.served[0].client().names("ad").expect("it is there"), ["add", "addcol"]);
    let nobody = Transaction::new().run(&["127.0.0.1:1"]);
    assert!(matches!(nobody, Err(TransactionError::NoServer(_))), "{nobody:?}");
}

/// Returns true once, after this much time since its first call.
fn after(time: Duration, what: impl Fn()) -> impl Fn() -> bool {
    let (begin, done) = (Cell::new(None), Cell::new(false));
    move || {
        let begun = begin.get().unwrap_or_else(Instant::now);
        begin.set(Some(begun));
        if begun.elapsed() >= time && !done.replace(true) {
            what();
        }
        false
    }
}

#[test]
fn what_a_dead_server_held_is_made_again() {
    let mut all = servers(2, |_| {});
    let doomed = RefCell::new(all.served.remove(0));
    let mut sum = vec![0.0; N];
    let mut tx = Transaction::new();
    let (n, x, sum_data) = (N as i32, tx.intermediate(), tx.array(&mut sum));
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
    tx.call("fill", vec![n.into(), 3000.into(), 2.0.into(), sum_data.into()]);
    tx.call("add", vec![n.into(), x.into(), sum_data.into()]);
    let kill = after(Duration::from_millis(1000), || doomed.borrow_mut().stop());
    let report = tx.run_with(&all.addresses, &in_turn(), &kill).expect("it runs all the same");
    drop(tx);
    assert!(sum.iter().all(|sum| *sum == 3.0), "{}", sum[0]);
    assert_eq!(report.steps[0].attempts, 2);
    assert_eq!(report.steps[0].server.as_ref(), Some(&all.addresses[1]));
}

#[test]
fn what_must_not_run_twice_is_reported() {
    let mut all = servers(2, |_| {});
    let doomed = RefCell::new(all.served.remove(0));
    let (ones, mut sum) = (vec![1.0; 4], vec![0.0; 4]);
    let mut tx = Transaction::new();
    let (ones, x, sum_data) = (tx.input(&ones), tx.intermediate(), tx.array(&mut sum));
    tx.call("dmmul", vec![2.into(), ones.into(), ones.into(), x.into()]);
    // The first of its kind goes to the first server and dies there; the second keeps the other busy.
    tx.call("fill", vec![4.into(), 60_000.into(), 2.0.into(), sum_data.into()]);
    tx.call("add", vec![4.into(), x.into(), sum_data.into()]);
    let options = RunOptions { attempts: 1, ..in_turn() };
    let kill = after(Duration::from_millis(1000), || doomed.borrow_mut().stop());
    let Err(TransactionError::Failed(report)) = tx.run_with(&all.addresses, &options, &kill) else {
        panic!("it fails")
    };
    let told = report.to_string();
    assert!(told.contains("call 1 (fill) failed: the connection to the server was lost"), "{told}");
    assert!(told.contains("call 2 (add) did not run, because of 1 (fill) -> 2 (add)"), "{told}");
}

#[test]
fn a_result_that_is_lost_and_must_not_be_made_again() {
    let mut all = servers(2, |_| {});
    let doomed = RefCell::new(all.served.remove(0));
    let (ones, mut sum, mut free) = (vec![1.0; 4], vec![0.0; 4], vec![0.0; 4]);
    let mut tx = Transaction::new();
    let (ones, x, sum_data) = (tx.input(&ones), tx.intermediate(), tx.array(&mut sum));
    let free = tx.array(&mut free);
    tx.call("dmmul", vec![2.into(), ones.into(), ones.into(), x.into()]);
    tx.call("fill", vec![4.into(), 0.into(), 1.0.into(), free.into()]);
    tx.call("fill", vec![4.into(), 3000.into(), 2.0.into(), sum_data.into()]);
    tx.call("add", vec![4.into(), x.into(), sum_data.into()]);
    let kill = after(Duration::from_millis(1000), || doomed.borrow_mut().stop());
    let Err(TransactionError::Failed(report)) = tx.run_with(&all.addresses, &in_turn(), &kill)
    else {
        panic!("it fails")
    };
    let told = report.to_string();
    let lost = format!("its result was lost with {}", all.addresses[0]);
    assert!(told.contains("because of 0 (dmmul) -> 3 (add)") && told.contains(&lost), "{told}");
    assert!(told.contains("it is not marked as one that may run twice"), "{told}");
}

#[test]
fn a_cancelled_transaction_starts_nothing_more() {
    let all = servers(2, |_| {});
    let mut sum = vec![0.0; N];
    let mut tx = Transaction::new();
    let (n, x, sum_data) = (N as i32, tx.intermediate(), tx.array(&mut sum));
    tx.call("fill", vec![n.into(), 600_000.into(), 1.0.into(), x.into()]);
    tx.call("add", vec![n.into(), x.into(), sum_data.into()]);
    let begin = Instant::now();
    let cancelled = || begin.elapsed() > Duration::from_millis(500);
    let result = tx.run_with(&all.addresses, &in_turn(), &cancelled);
    let Err(TransactionError::Cancelled(report)) = result else { panic!("{result:?}") };
    assert!(begin.elapsed() < Duration::from_secs(60), "the routine was stopped");
    let told = report.to_string();
    assert!(told.contains("call 0 (fill) failed: the call of `fill` was cancelled"), "{told}");
    assert!(told.contains("call 1 (add) was cancelled"), "{told}");
    assert_eq!(report.steps[1].attempts, 0);
}

#[test]
fn servers_that_do_not_reach_each_other_are_helped_by_the_client() {
    let all = servers(2, |config| config.peers = Peers::Listed(vec![]));
    let mut sum = vec![1.0; N];
    let mut tx = Transaction::new();
    let (n, x, y) = (N as i32, tx.intermediate(), tx.intermediate());
    let sum_data = tx.array(&mut sum);
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
    tx.call("fill", vec![n.into(), 0.into(), 10.0.into(), y.into()]);
    tx.call("add", vec![n.into(), x.into(), y.into()]);
    tx.call("add", vec![n.into(), y.into(), sum_data.into()]);
    let report = tx.run_with(&all.addresses, &in_turn(), &|| false).expect("it runs");
    drop(tx);
    assert!(sum.iter().all(|sum| *sum == 12.0), "{}", sum[0]);
    assert!(report.steps.iter().any(|step| step.attempts == 2), "one was tried without help");
    let between: u64 = all.traffic.iter().map(|it| Traffic::of(&it.from_servers)).sum();
    assert_eq!(between, 0);
}

#[test]
fn what_comes_back_elsewhere_leaves_what_was_sent() {
    let all = servers(2, |_| {});
    let (a, mut sum, mut twice) = (vec![2.0; N], vec![0.0; N], vec![0.0; N]);
    let (mut every, before) = ([0, 9, 0], [1, 2, 3]);
    let mut tx = Transaction::new();
    let (a, to, both) = (tx.input(&a), tx.array(&mut sum), tx.array(&mut twice));
    let (x, y, n) = (tx.intermediate(), tx.intermediate(), N as i32);
    tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
    tx.call("add", vec![n.into(), a.into(), TxArg::InOut(x, y)]);
    tx.call("add", vec![n.into(), x.into(), TxArg::InOut(y, to)]);
    tx.call("add", vec![n.into(), a.into(), TxArg::InOut(a, both)]);
    let (from, back) = (tx.input(&before), tx.array(&mut every));
    tx.call("negate", vec![3.into(), TxArg::InOut(from, back)]);
    tx.run_with(&all.addresses, &in_turn(), &|| false).expect("it runs");
    drop(tx);
    assert!(sum.iter().all(|sum| *sum == 4.0), "{}", sum[0]);
    assert!(twice.iter().all(|twice| *twice == 4.0), "{}", twice[0]);
    assert_eq!(every, [-1, 9, -3]);
    let mut tx = Transaction::new();
    let (sum, twice) = (tx.array(&mut sum), tx.array(&mut twice));
    tx.call("add", vec![n.into(), TxArg::InOut(sum, twice), sum.into()]);
    let wrong = tx.plan(&all.addresses, &in_turn()).expect_err("it does not go both ways");
    assert!(
        wrong.to_string().starts_with("call 0 (`add`): `x` is not both sent and returned"),
        "{wrong}"
    );
}
