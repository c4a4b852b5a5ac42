//! Control groups of slots: what bounds a routine with all that it starts, ends it, and is removed after it.
#![forbid(unsafe_code)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Gate, TestServer, compiled, config, eventually, served_text};
use kumi_call::log_records::{LineSource, LogLine};
use kumi_call::server::{Config, SANDBOX_PROCESSES, ServerGroups, SlotLimits};
use kumi_call::{Arg, CallError, Client, LogRequest, Outcome, Resources};
use kumi_idl::Scalar;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROUTINES: &str = "
Define use(mode_in int mib, mode_out int no) Calls \"C\" no = use(mib);
Define share_out(mode_in int children, mode_in int mib, mode_out int no) Calls \"C\" no = share_out(children, mib);
Define fill(mode_in string path, mode_in int mib, mode_out int no) Calls \"C\" no = fill(path, mib);
Define breed(mode_in int children, mode_in int crashes, mode_out int made) Calls \"C\" made = breed(children, crashes);
Define stay_with_a_daemon(mode_in string path, mode_out int no) Calls \"C\" no = stay_with_a_daemon(path);
DefClass hoard {
    DefMethod use_later(IN string path, IN int mib) Calls \"C\" use_later(path, mib);
}
";

const LIMITS: SlotLimits =
    SlotLimits { memory: Some(64 << 20), processes: Some(20), processors: None };

/// A server whose slots have groups with limits.
struct Grouped {
    server: TestServer,
    client: Client,
    groups: Arc<ServerGroups>,
}

impl Grouped {
    /// `None`: there can be no groups here, or not with these limits, and the test is skipped.
    fn start(test: &str, change: impl FnOnce(&mut Config)) -> Option<Grouped> {
        Grouped::start_within(test, LIMITS, change)
    }

    /// With other limits.
    fn start_within(
        test: &str,
        limits: SlotLimits,
        change: impl FnOnce(&mut Config),
    ) -> Option<Grouped> {
        let groups = match ServerGroups::make(limits) {
            Ok(groups) if groups.missing().is_empty() => Arc::new(groups),
            Ok(groups) => {
                groups.destroy(Duration::from_secs(5)).expect("they are empty");
                kumi_skip::skip(test, &groups.to_string());
                return None;
            }
            Err(reason) => {
                kumi_skip::skip(test, &reason);
                return None;
            }
        };
        let mut config = Config { groups: Some(Arc::clone(&groups)), ..config() };
        change(&mut config);
        // Others than its user see the folder.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        let library = compiled(folder.path(), "groups", include_str!("common/groups.c"));
        let mut server = served_text(config, ROUTINES, library);
        server.keep(folder);
        let client = server.client();
        Some(Grouped { server, client, groups })
    }

    fn call<'a>(&self, routine: &str, args: Vec<Arg<'a>>) -> Result<Outcome, CallError> {
        self.client.call(routine, args)
    }

    /// The groups of slots in all hierarchies.
    fn slots(&self) -> Vec<PathBuf> {
        let paths = self.groups.paths();
        let entries = paths.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten();
        let folders = entries.map(|entry| entry.expect("an entry").path());
        folders.filter(|path| path.is_dir()).collect()
    }

    /// Ends the server, which leaves no group.
    fn end(mut self) {
        self.server.stop();
        for path in self.groups.paths() {
            assert!(!path.exists(), "{} is left", path.display());
        }
    }
}

fn number(outcome: &Outcome, at: usize) -> i64 {
    match outcome.scalar(at) {
        Some(Scalar::I64(number)) => number,
        other => panic!("{other:?}"),
    }
}

/// The signal and the text of a crash.
fn crash(outcome: Result<Outcome, CallError>) -> (i64, String) {
    match outcome {
        Err(CallError::Crashed { detail, text }) => (detail, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_routine_that_uses_up_its_memory_is_told_so_with_the_limit() {
    let test = "a_routine_that_uses_up_its_memory_is_told_so_with_the_limit";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    it.call("use", vec![16.into()]).expect("it fits");
    let (signal, text) = crash(it.call("use", vec![128.into()]));
    assert_eq!(signal, 9);
    let expected = "`use` ran out of memory: the kernel has killed 1 process of it";
    assert!(text.starts_with(expected) && text.contains("may have 64 MiB"), "{text}");
    // The log of the call has the limit as well.
    let latest = it.client.logs(&LogRequest::Latest(1)).expect("logs").calls.remove(0);
    let request = LogRequest::Call { call: latest.call, from: 0 };
    let call = it.client.logs(&request).expect("logs").calls.remove(0);
    let is_limit = |line: &&LogLine| {
        line.source == LineSource::Server && line.text.contains("has reached a limit")
    };
    assert_eq!(call.lines.iter().filter(is_limit).count(), 1, "{call:?}");
    assert!(call.end.is_some_and(|end| end.reason == text));
    it.end();
}

#[test]
fn an_object_that_reaches_a_limit_between_its_calls_has_it_in_its_log() {
    let test = "an_object_that_reaches_a_limit_between_its_calls_has_it_in_its_log";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    let (object, gate) = (it.client.object("hoard").expect("an object"), Gate::new());
    let made = it.client.logs(&LogRequest::Latest(1)).expect("logs").calls.remove(0).call;
    let file = gate.path();
    object.call("use_later", vec![file.as_str().into(), 128.into()]).expect("it begins");
    gate.open();
    let request = LogRequest::Call { call: made, from: 0 };
    let log = || it.client.logs(&request).expect("logs").calls.remove(0);
    eventually("the end of the object", || log().end.is_some());
    let lines = log().lines;
    assert!(lines.iter().any(|line| line.text.contains("has reached a limit")), "{lines:?}");
    drop(object);
    it.end();
}

#[test]
fn a_call_is_kept_to_the_memory_that_it_asks_for() {
    let test = "a_call_is_kept_to_the_memory_that_it_asks_for";
    let Some(it) = Grouped::start(test, |config| config.process_bytes = 1 << 30) else { return };
    let asking = |bytes| it.client.with_resources(Resources::new(0, bytes).expect("memory"));
    let small = asking(32 << 20);
    small.call("use", vec![8.into()]).expect("it fits");
    let (signal, text) = crash(small.call("use", vec![48.into()]));
    assert!(signal == 9 && text.contains("may have 32 MiB"), "{text}");
    it.call("use", vec![48.into()]).expect("others have the server's limit");
    small.call("use", vec![8.into()]).expect("the next one has what it asks for");
    for (bytes, option) in [((64 << 20) + 1, "67108864"), (u64::MAX, "--slot-memory")] {
        match asking(bytes).call("use", vec![1.into()]) {
            Err(error @ CallError::NoResources(_)) => {
                let text = error.to_string();
                assert!(error.has_not_run() && text.contains(option), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    asking(64 << 20).call("use", vec![48.into()]).expect("as much as the server gives");
    it.end();
}

#[test]
fn a_call_may_not_ask_for_more_than_a_process_may_map() {
    let test = "a_call_may_not_ask_for_more_than_a_process_may_map";
    let Some(it) = Grouped::start(test, |config| config.process_bytes = 48 << 20) else { return };
    let asking = it.client.with_resources(Resources::new(0, 49 << 20).expect("memory"));
    match asking.call("use", vec![1.into()]) {
        Err(CallError::NoResources(text)) => assert!(text.contains("--process-memory"), "{text}"),
        other => panic!("{other:?}"),
    }
    it.end();
}

#[test]
fn all_processes_of_a_routine_share_its_memory() {
    let test = "all_processes_of_a_routine_share_its_memory";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    let outcome = it.call("share_out", vec![1.into(), 40.into()]).expect("one fits");
    assert_eq!(number(&outcome, 2), 0);
    // Each would fit alone. The one before lives on in its warm process, which ends here.
    let (signal, text) = crash(it.call("share_out", vec![3.into(), 40.into()]));
    assert_eq!(signal, 6, "{text}");
    assert!(
        text.contains("; the kernel has killed ") && text.contains("may have 64 MiB"),
        "{text}"
    );
    it.end();
}

#[test]
fn a_routine_starts_so_many_processes_and_no_more_and_others_may() {
    let test = "a_routine_starts_so_many_processes_and_no_more_and_others_may";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    let made = number(&it.call("breed", vec![100.into(), 0.into()]).expect("it returns"), 2);
    assert!((1..20).contains(&made), "{made}");
    // Its process is warm and crashes in a call that starts nobody.
    let (signal, text) = crash(it.call("breed", vec![0.into(), 1.into()]));
    let said = "`breed` crashed: its process was killed by signal 6 (SIGABRT)";
    assert_eq!((signal, text.as_str()), (6, said));
    let (signal, text) = crash(it.call("breed", vec![100.into(), 1.into()]));
    assert_eq!(signal, 6);
    assert!(text.ends_with("it may have 20 processes and threads, and was refused more"), "{text}");
    // The limit is each slot's own.
    let outcome = it.call("share_out", vec![2.into(), 1.into()]).expect("it runs");
    assert_eq!(number(&outcome, 2), 0);
    it.end();
}

/// The groups end a daemon that nobody else would: the guard, whose child it would become, is dead.
#[test]
fn a_daemon_of_a_routine_ends_with_its_slot_without_sandbox_and_guard() {
    let test = "a_daemon_of_a_routine_ends_with_its_slot_without_sandbox_and_guard";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    let lock = tempfile::NamedTempFile::new().expect("a file");
    let text = lock.path().to_str().expect("a name");
    let outcome = std::thread::scope(|scope| {
        let call = scope.spawn(|| it.call("stay_with_a_daemon", vec![text.into()]));
        kill(guard_of(lock.path()), Signal::SIGKILL).expect("it is there");
        call.join().expect("it ends")
    });
    assert_eq!(crash(outcome).0, 9);
    lock.as_file().try_lock().expect("the daemon is over");
    it.end();
}

/// The guard that a daemon of [`Grouped`] has named in its file.
fn guard_of(file: &Path) -> Pid {
    let read = || std::fs::read(file).expect("it is there").try_into().ok();
    eventually("a daemon", || read().is_some());
    Pid::from_raw(i32::from_ne_bytes(read().expect("a number")))
}

#[test]
fn a_call_that_takes_too_long_ends_with_its_daemon_and_tells_the_limit() {
    let test = "a_call_that_takes_too_long_ends_with_its_daemon_and_tells_the_limit";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    let lock = tempfile::NamedTempFile::new().expect("a file");
    let text = lock.path().to_str().expect("a name");
    let time = Some(Duration::from_millis(700));
    match it.client.call_within("stay_with_a_daemon", vec![text.into()], time) {
        Err(CallError::TimedOut(text)) => assert!(text.ends_with("its limit is 700 ms"), "{text}"),
        other => panic!("{other:?}"),
    }
    lock.as_file().try_lock().expect("no daemon is left");
    it.end();
}

#[test]
fn the_groups_of_a_slot_go_with_it_and_those_of_the_server_with_the_server() {
    let test = "the_groups_of_a_slot_go_with_it_and_those_of_the_server_with_the_server";
    let Some(it) = Grouped::start(test, |_| {}) else { return };
    assert_eq!(it.slots(), Vec::<PathBuf>::new());
    it.call("use", vec![1.into()]).expect("it runs");
    let kept = it.slots();
    assert!(!kept.is_empty() && kept.iter().all(|path| path.ends_with("slot-0")), "{kept:?}");
    crash(it.call("breed", vec![2.into(), 1.into()]));
    // The caller hears of the end after that.
    assert_eq!(it.slots(), kept);
    it.end();
}

#[test]
fn the_groups_hold_in_a_sandbox_and_count_its_files_in_memory() {
    let test = "the_groups_hold_in_a_sandbox_and_count_its_files_in_memory";
    let change = |config: &mut Config| {
        config.sandbox = true;
        config.call_bytes = 1 << 30;
        config.bytes = 1 << 31;
    };
    let Some(it) = Grouped::start(test, change) else { return };
    match it.call("use", vec![1.into()]) {
        Err(CallError::NotRunnable(text)) if text.contains("there can be no sandbox") => {
            kumi_skip::skip(test, &text);
            return it.end();
        }
        outcome => drop(outcome.expect("it runs")),
    }
    let (signal, text) = crash(it.call("fill", vec!["/tmp/file".into(), 128.into()]));
    assert_eq!(signal, 9);
    assert!(text.starts_with("`fill` ran out of memory") && text.contains("64 MiB"), "{text}");
    let (_, text) = crash(it.call("breed", vec![100.into(), 1.into()]));
    assert!(text.contains("20 processes"), "{text}");
    it.end();
}

#[test]
fn a_sandbox_begins_with_as_few_processes_as_are_told_and_not_with_fewer() {
    let test = "a_sandbox_begins_with_as_few_processes_as_are_told_and_not_with_fewer";
    for processes in [SANDBOX_PROCESSES, SANDBOX_PROCESSES - 1] {
        let limits = SlotLimits { processes: Some(processes), ..SlotLimits::default() };
        let it = Grouped::start_within(test, limits, |config| config.sandbox = true);
        let Some(it) = it else { return };
        match it.call("use", vec![1.into()]) {
            Ok(_) => assert_eq!(processes, SANDBOX_PROCESSES),
            Err(error) if processes < SANDBOX_PROCESSES => drop(error),
            Err(CallError::NotRunnable(text)) if text.contains("there can be no sandbox") => {
                kumi_skip::skip(test, &text);
                return it.end();
            }
            Err(error) => panic!("{processes}: {error}"),
        }
        it.end();
    }
}
