//! Transactions whose calls a metaserver places.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Gate, TestServer, eventually, interfaces, library, served, served_by};
use grid::{Meta, config, kept, meta, meta_at};
use kumi_call::meta::{ServerCondition, State};
use kumi_call::server::{self, Membership, Registry};
use kumi_call::transaction::{
    MovedBytes, Report, RunOptions, StepReport, Transaction, TransactionError, TxArg,
};
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{Grid, Options, Traffic};
use kumi_idl::Interface;

const N: usize = 1000;
const BYTES: u64 = 8 * N as u64;

/// A server with all routines, once it is registered.
fn joined(meta: &Meta, config: server::Config, count: usize) -> TestServer {
    let server = served(config);
    meta.until_servers(count);
    server
}

/// A server with some routines, once it is registered.
fn offering(
    meta: &Meta,
    config: server::Config,
    which: impl Fn(&mut Interface) -> bool,
) -> TestServer {
    let before = meta.state().servers.len();
    let mut registry = Registry::default();
    for mut interface in interfaces() {
        if which(&mut interface) {
            registry.add(interface, &[library()]).expect("a routine");
        }
    }
    let server = served_by(config, registry);
    meta.until_servers(before + 1);
    server
}

fn fill(ms: i32, x: f64, y: impl Into<TxArg>) -> Vec<TxArg> {
    vec![(N as i32).into(), ms.into(), x.into(), y.into()]
}

/// A fill that ends when the gate opens.
fn flood(gate: &Gate, x: f64, y: impl Into<TxArg>) -> Vec<TxArg> {
    vec![(N as i32).into(), gate.path().as_str().into(), x.into(), y.into()]
}

fn sum(x: impl Into<TxArg>, y: impl Into<TxArg>) -> Vec<TxArg> {
    vec![(N as i32).into(), x.into(), y.into()]
}

/// Does something once, when a metaserver's state satisfies a condition; asked from time to time by a
/// transaction.
fn when<'a>(
    state: impl Fn() -> State + 'a,
    is: impl Fn(&State) -> bool + 'a,
    what: impl Fn() + 'a,
) -> impl Fn() -> bool + 'a {
    let done = Cell::new(false);
    move || {
        if !done.get() && is(&state()) {
            done.set(true);
            what();
        }
        false
    }
}

/// Whether the first server reports a running call.
fn first_runs(state: &State) -> bool {
    state.servers.first().is_some_and(|server| server.running == 1)
}

#[test]
fn a_diamond_goes_from_server_to_server() {
    let meta = meta(config("round-robin"));
    let (one, two) = (meta.member("one", 2), meta.member("two", 2));
    let traffic = [Arc::clone(&one.traffic), Arc::clone(&two.traffic)];
    let _servers = (joined(&meta, one, 1), joined(&meta, two, 2));
    let mut all = vec![1.0; N];
    let mut tx = Transaction::new();
    let (top, left, right) = (tx.intermediate(), tx.intermediate(), tx.intermediate());
    let bottom = tx.array(&mut all);
    tx.call("fill", fill(0, 1.0, top));
    tx.call("fill", fill(0, 10.0, left));
    tx.call("fill", fill(0, 100.0, right));
    tx.call("add", sum(top, left));
    tx.call("add", sum(top, right));
    tx.call("add", sum(left, bottom));
    tx.call("add", sum(right, bottom));
    let grid = meta.grid();
    let plan = tx.plan_on(&grid, &RunOptions::default()).expect("it fits");
    assert_eq!(plan.dot().matches("->").count(), 7, "{}", plan.dot());
    let report = tx.run_on(&grid).expect("it runs");
    drop(tx);
    assert!(all.iter().all(|all| *all == 113.0), "{}", all[0]);
    assert_eq!((report.moved.sent, report.moved.received), (BYTES, BYTES));
    assert_eq!(report.moved.between + report.moved.stayed, 7 * BYTES);
    let total = |counter: fn(&Traffic) -> u64| traffic.iter().map(|it| counter(it)).sum::<u64>();
    eventually("the last byte", || total(|it| Traffic::of(&it.to_clients)) == BYTES);
    assert_eq!(total(|it| Traffic::of(&it.from_servers)), report.moved.between);
    assert_eq!(total(|it| Traffic::of(&it.copied)), report.moved.stayed);
    assert!(report.moved.between >= BYTES, "both servers had calls");
    // The reported ends are the real ones.
    let state = meta.until("all ends", |state| state.counters.done == 7);
    assert_eq!((state.counters.done, state.counters.placed), (7, 7), "{state:?}");
    assert_eq!((state.running, state.waiting), (0, 0));
}

#[test]
fn a_call_goes_where_its_arguments_lie() {
    let meta = meta(config("min-completion"));
    let _one = offering(&meta, meta.member("one", 2), |it| it.name == "add");
    let two = offering(&meta, meta.member("two", 2), |it| ["add", "fill"].contains(&&*it.name));
    let mut all = vec![1.0; N];
    let mut tx = Transaction::new();
    let (x, all_data) = (tx.intermediate(), tx.array(&mut all));
    tx.call("fill", fill(0, 1.0, x));
    tx.call("add", sum(x, all_data));
    let report = tx.run_on(&meta.grid()).expect("it runs");
    drop(tx);
    assert!(all.iter().all(|all| *all == 2.0), "{}", all[0]);
    let at = two.address.to_string();
    assert!(report.steps.iter().all(|step| step.server.as_ref() == Some(&at)), "{report:?}");
    let moved = MovedBytes { sent: BYTES, received: BYTES, between: 0, stayed: BYTES };
    assert_eq!(report.moved, moved);
}

/// Runs a call on each of two servers; the first server goes when `is` holds and the second call runs. A
/// third call reads what both made. The first call ends at once unless it `waits`; then both end after the
/// server has gone.
fn with_a_death(
    waits: bool,
    twice: bool,
    is: impl Fn(&State) -> bool,
) -> (Result<Report, TransactionError>, Vec<f64>) {
    let meta = meta(config("round-robin"));
    let may = |it: &mut Interface| {
        it.idempotent &= twice;
        true
    };
    let doomed = RefCell::new(offering(&meta, meta.member("one", 2), may));
    let _two = offering(&meta, meta.member("two", 2), may);
    let mut all = vec![0.0; N];
    let gate = Gate::new();
    let mut tx = Transaction::new();
    let (x, all_data) = (tx.intermediate(), tx.array(&mut all));
    match waits {
        true => tx.call("flood", flood(&gate, 1.0, x)),
        false => tx.call("fill", fill(0, 1.0, x)),
    };
    tx.call("flood", flood(&gate, 2.0, all_data));
    tx.call("add", sum(x, all_data));
    let both_begun = |state: &State| is(state) && gate.begun() == if waits { 2 } else { 1 };
    let kill = when(
        || meta.state(),
        both_begun,
        || {
            doomed.borrow_mut().stop();
            gate.open();
        },
    );
    let result = tx.run_on_with(&meta.grid(), &RunOptions::default(), &kill);
    drop(tx);
    meta.until("all ends", |state| state.running + state.waiting == 0);
    (result, all)
}

#[test]
fn what_a_dead_server_held_is_made_again() {
    let (report, all) = with_a_death(false, true, |state| state.counters.done == 1);
    let report = report.expect("it runs all the same");
    assert!(all.iter().all(|all| *all == 3.0), "{}", all[0]);
    assert_eq!(report.steps[0].attempts, 2);
    assert_eq!(report.steps[0].server, report.steps[1].server);
}

#[test]
fn what_ran_on_a_dead_server_runs_elsewhere_if_it_may() {
    let (report, all) = with_a_death(true, true, first_runs);
    let report = report.expect("it runs all the same");
    assert!(all.iter().all(|all| *all == 3.0), "{}", all[0]);
    assert_eq!(report.steps[0].attempts, 2);
    let (report, _) = with_a_death(true, false, first_runs);
    let Err(TransactionError::Failed(report)) = report else { panic!("{report:?}") };
    let told = report.to_string();
    assert!(
        told.contains("call 0 (flood) failed: the connection to the server was lost"),
        "{told}"
    );
    assert!(told.contains("call 2 (add) did not run, because of 0 (flood) -> 2 (add)"), "{told}");
    assert_eq!(report.steps[0].attempts, 1);
}

/// Runs a transaction. The metaserver restarts while the first call runs, and the gate opens after this many
/// calls since the first.
fn with_a_restart(
    mut tx: Transaction<'_>,
    first: Meta,
    config: &kumi_call::meta::Config,
    (gate, more): (&Gate, usize),
) -> (Report, Meta) {
    let (address, grid) = (first.address, first.grid());
    let (first, second) = (RefCell::new(first), RefCell::new(None));
    let restart = when(
        || first.borrow().state(),
        |state| first_runs(state) && gate.begun() == 1,
        || {
            first.borrow_mut().stop();
            *second.borrow_mut() = Some(meta_at(config.clone(), address));
        },
    );
    let restart_and_open = || {
        let cancelled = restart();
        if second.borrow().is_some() && gate.begun() > more {
            gate.open();
        }
        cancelled
    };
    let report = tx.run_on_with(&grid, &RunOptions::default(), &restart_and_open);
    let report = report.expect("it runs");
    drop(restart);
    (report, second.into_inner().expect("it was begun anew"))
}

#[test]
fn the_metaserver_shows_why_a_call_of_a_transaction_failed() {
    let meta = meta(config("round-robin"));
    let _server = joined(&meta, meta.member("a", 1), 1);
    let mut tx = Transaction::new();
    tx.call("crash", vec![]);
    let failed = tx.run_on(&meta.grid());
    assert!(matches!(failed, Err(TransactionError::Failed(_))), "{failed:?}");
    let state = meta.until("its end", |state| state.recent.len() == 1);
    let shown = &state.recent[0];
    let begin = format!("a ({}): ", state.servers[0].address);
    assert!(shown.reason.starts_with(&begin) && shown.reason.contains("crash"), "{shown:?}");
}

#[test]
fn a_metaserver_that_comes_back_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = kept(config("round-robin"), &folder);
    let first = meta(config.clone());
    let _server = joined(&first, first.member("one", 1), 1);
    let mut all = vec![0.0; N];
    let mut tx = Transaction::new();
    let (x, y, all_data) = (tx.intermediate(), tx.intermediate(), tx.array(&mut all));
    // One slot: when the server goes, one call runs and the other waits.
    let gate = Gate::new();
    tx.call("flood", flood(&gate, 1.0, x));
    tx.call("flood", flood(&gate, 2.0, y));
    tx.call("add", sum(x, y));
    tx.call("fill", fill(0, 4.0, all_data));
    tx.call("add", sum(y, all_data));
    let (report, second) = with_a_restart(tx, first, &config, (&gate, 0));
    assert!(all.iter().all(|all| *all == 7.0), "{}", all[0]);
    assert!(report.steps.iter().all(|step| step.attempts == 1), "{report:?}");
    let state = second.until("all ends", |state| state.running + state.waiting == 0);
    assert_eq!(state.counters.done, 5, "each of them ended there: {state:?}");
}

#[test]
fn a_metaserver_that_has_forgotten_what_ran_is_asked_again() {
    let first = meta(config("round-robin"));
    let server = joined(&first, first.member("one", 1), 1);
    let mut all = vec![0.0; N];
    let mut tx = Transaction::new();
    let all_data = tx.array(&mut all);
    let gate = Gate::new();
    tx.call("flood", flood(&gate, 1.0, all_data));
    tx.call("add", sum(all_data, all_data.part(0..N as u64)));
    let (report, second) = with_a_restart(tx, first, &config("round-robin"), (&gate, 1));
    assert!(all.iter().all(|all| *all == 2.0), "{}", all[0]);
    // It made the server stop the unknown call.
    assert_eq!((report.steps[0].attempts, report.steps[1].attempts), (2, 1));
    second.until("all ends", |state| state.running + state.waiting == 0);
    drop(server);
}

/// The call has an attempt when the metaserver goes, and none when another comes.
#[test]
fn a_call_whose_server_dies_while_no_metaserver_is_there_is_asked_for_again() {
    let first = meta(config("round-robin"));
    let doomed = RefCell::new(joined(&first, first.member("one", 1), 1));
    let (address, grid) = (first.address, first.grid());
    let (first, others) = (RefCell::new(first), RefCell::new(None));
    let mut all = vec![0.0; N];
    let mut tx = Transaction::new();
    let all_data = tx.array(&mut all);
    let gate = Gate::new();
    tx.call("flood", flood(&gate, 1.0, all_data));
    // The transaction asks from time to time. It hears of each loss before the next.
    let (step, since) = (Cell::new(0), Cell::new(Instant::now()));
    let next = || {
        let due = match step.get() {
            0 => gate.begun() == 1 && first_runs(&first.borrow().state()),
            1 | 2 => since.get().elapsed() > Duration::from_millis(500),
            _ => return since.get().elapsed() > Duration::from_secs(120),
        };
        if due {
            match step.get() {
                0 => first.borrow_mut().stop(),
                1 => doomed.borrow_mut().stop(),
                _ => {
                    let second = meta_at(config("round-robin"), address);
                    let two = joined(&second, second.member("two", 1), 1);
                    gate.open();
                    *others.borrow_mut() = Some((two, second));
                }
            }
            step.set(step.get() + 1);
            since.set(Instant::now());
        }
        false
    };
    let report = tx.run_on_with(&grid, &RunOptions::default(), &next);
    let report = report.expect("the other server runs it");
    assert_eq!(report.steps[0].attempts, 2);
    assert!(all.iter().all(|all| *all == 1.0), "{}", all[0]);
}

#[test]
fn a_cancelled_transaction_leaves_nothing_behind() {
    let meta = meta(config("round-robin"));
    let _server = joined(&meta, meta.member("one", 1), 1);
    let mut all = vec![0.0; N];
    let mut tx = Transaction::new();
    let (x, y, all_data) = (tx.intermediate(), tx.intermediate(), tx.array(&mut all));
    tx.call("fill", fill(600_000, 1.0, x));
    tx.call("fill", fill(600_000, 1.0, y));
    tx.call("add", sum(x, all_data));
    let begin = Instant::now();
    let runs = Cell::new(false);
    let cancelled = || {
        let state = meta.state();
        runs.set(runs.get() || first_runs(&state) && state.waiting == 1);
        runs.get()
    };
    let result = tx.run_on_with(&meta.grid(), &RunOptions::default(), &cancelled);
    let Err(TransactionError::Cancelled(report)) = result else { panic!("{result:?}") };
    assert!(begin.elapsed() < Duration::from_secs(60), "the routine was stopped");
    let told = report.to_string();
    assert!(told.contains("call 2 (add) was cancelled"), "{told}");
    let attempts: u32 = report.steps.iter().map(|step| step.attempts).sum();
    assert_eq!(attempts, 1, "one ran, one waited");
    meta.until("its end", |state| state.running + state.waiting == 0);
}

#[test]
fn more_calls_than_may_wait_take_turns() {
    let meta = meta(kumi_call::meta::Config { waiting: 3, ..config("least-load") });
    let _server = joined(&meta, meta.member("one", 2), 1);
    let mut rows = vec![0.0; 40 * N];
    let mut tx = Transaction::new();
    let rows_data = tx.array(&mut rows);
    for row in 0..40_u64 {
        let part = rows_data.part(row * N as u64..(row + 1) * N as u64);
        tx.call("fill", fill(1, row as f64, part));
    }
    let report = tx.run_on(&meta.grid()).expect("it runs");
    drop(tx);
    assert!(report.is_complete());
    assert!(rows.iter().enumerate().all(|(at, x)| *x == (at / N) as f64));
    let state = meta.until("all ends", |state| state.running + state.waiting == 0);
    assert_eq!(state.counters.done, 40);
    assert!(state.counters.rejected > 0, "there were too many");
}

#[test]
fn what_is_wrong_is_told_before_anything_runs() {
    let meta = meta(config("round-robin"));
    let server = joined(&meta, meta.member("one", 1), 1);
    let grid = meta.grid();
    let mut all = vec![0.0; N];
    let mut tx = Transaction::new();
    let all_data = tx.array(&mut all);
    tx.call("fill", fill(0, 1.0, all_data));
    tx.call("ad", sum(all_data, all_data));
    let told = tx.run_on(&grid).expect_err("no such routine").to_string();
    assert!(told.contains("call 1") && told.contains("did you mean add"), "{told}");
    // A metaserver given as a server reports that.
    let mut tx = Transaction::new();
    tx.call("noop", vec![]);
    let told = tx.run(&[meta.address.to_string()]).expect_err("it runs nothing").to_string();
    assert!(told.contains("is a metaserver"), "{told}");
    assert!(Grid::connect(&server.address.to_string(), &Options::default()).is_err());
    assert_eq!(meta.state().counters.placed, 0);
}

/// A metaserver with users, and servers that accept only its calls.
struct MetaWithUsers {
    meta: Meta,
    folder: tempfile::TempDir,
    token: String,
}

impl MetaWithUsers {
    fn new() -> MetaWithUsers {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("users.toml");
        let new = NewToken { user: "srv".to_owned(), server: true, ..NewToken::default() };
        let token = add(&file, &new).expect("a token");
        let mut config = config("round-robin");
        config.users = Some(Arc::new(Users::open(&file).expect("users")));
        MetaWithUsers { meta: meta(config), folder, token }
    }

    fn grid(&self, token: &str) -> Grid {
        let options = Options { token: token.to_owned(), ..Options::default() };
        Grid::connect(&self.meta.address.to_string(), &options).expect("a connection")
    }

    fn user(&self, user: &str) -> Grid {
        let new = NewToken { user: user.to_owned(), ..NewToken::default() };
        self.grid(&add(&self.folder.path().join("users.toml"), &new).expect("a token"))
    }

    fn state(&self) -> kumi_call::meta::State {
        self.grid(&self.token).status().expect("its state")
    }

    /// A server with one slot.
    fn serve(&self, name: &str, count: usize) -> (TestServer, Arc<Traffic>) {
        let mut config = self.meta.member(name, 1);
        config.only_sent = true;
        config.membership = Some(Membership {
            token: self.token.clone(),
            ..config.membership.take().expect("a membership")
        });
        let traffic = Arc::clone(&config.traffic);
        let server = served(config);
        let up = || {
            self.state().servers.iter().filter(|server| server.state == ServerCondition::Up).count()
        };
        eventually("a server", || up() == count);
        (server, traffic)
    }
}

#[test]
fn servers_that_take_passes_only_give_arrays_for_vouchers() {
    let fixture = MetaWithUsers::new();
    let servers = [fixture.serve("one", 1), fixture.serve("two", 2)];
    let mut all = vec![1.0; N];
    let mut tx = Transaction::new();
    let (x, y, all_data) = (tx.intermediate(), tx.intermediate(), tx.array(&mut all));
    tx.call("fill", fill(0, 1.0, x));
    tx.call("fill", fill(0, 10.0, y));
    tx.call("add", sum(x, y));
    tx.call("add", sum(y, all_data));
    tx.call("add", sum(x, all_data));
    tx.call("add", sum(y, all_data));
    tx.call("add", sum(x, all_data));
    let report = tx.run_on(&fixture.user("ada")).expect("it runs");
    drop(tx);
    assert!(all.iter().all(|all| *all == 25.0), "{}", all[0]);
    let between: u64 = servers.iter().map(|it| Traffic::of(&it.1.from_servers)).sum();
    assert!(between >= 8 * N as u64, "both servers had calls");
    assert_eq!(between, report.moved.between);
    let is_straight = |step: &StepReport| step.attempts == 1 && step.helped.is_none();
    assert!(report.steps.iter().all(is_straight), "{report:?}");
}

#[test]
fn transactions_of_two_users_share() {
    const CALLS: usize = 8;
    let fixture = MetaWithUsers::new();
    let _server = fixture.serve("one", 1);
    let (ada, bob) = (fixture.user("ada"), fixture.user("bob"));
    // Nothing begins before all wait.
    let busy = fixture.user("eve").call_async("nap", vec![60_000.into()], None).expect("it begins");
    eventually("a call that runs", || fixture.state().running == 1);
    let run = |grid: &Grid| {
        let mut rows = vec![0.0; CALLS * N];
        let mut tx = Transaction::new();
        let rows_data = tx.array(&mut rows);
        for row in 0..CALLS as u64 {
            let part = rows_data.part(row * N as u64..(row + 1) * N as u64);
            tx.call("fill", fill(0, 1.0, part));
        }
        tx.run_on(grid).expect("it runs");
        drop(tx);
        assert!(rows.iter().all(|x| *x == 1.0));
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| run(&ada)), scope.spawn(|| run(&bob))];
        eventually("calls that wait", || fixture.state().waiting == 2 * CALLS);
        drop(busy);
        both.into_iter().for_each(|one| one.join().expect("it runs"));
    });
    eventually("all reports", || fixture.state().counters.done == 2 * CALLS as u64);
}
