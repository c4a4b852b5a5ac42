//! Tests of the job table with a real etcd.

use std::ops::{Deref, DerefMut};

use super::members::Members;
use super::*;
use crate::head::job_table::tests::record;
use kumi_control::join::{JoinSecret, JoinTokens, TokenChanges};
use kumi_control::message::{JobState, Outcome};
use kumi_etcd::Candidate;
use kumi_etcd::api::{OrderCheck, Outcome as Written};
use kumi_sched::NodeId;
use nix::sys::signal::Signal;

fn settings(etcd: &Members, prefix: &str) -> Etcd {
    Etcd {
        endpoints: etcd.endpoints(),
        prefix: format!("/{prefix}"),
        // Nobody renews it.
        lease: Duration::from_secs(3_600),
        advertise: "here".to_owned(),
        ..Etcd::default()
    }
}

/// The table of a head that leads, with a folder for its accounts.
struct Leading {
    table: EtcdTable,
    guard: Guard,
    news: StateNews,
    _accounts: tempfile::TempDir,
}

impl Deref for Leading {
    type Target = EtcdTable;

    fn deref(&self) -> &EtcdTable {
        &self.table
    }
}

impl DerefMut for Leading {
    fn deref_mut(&mut self) -> &mut EtcdTable {
        &mut self.table
    }
}

/// The table of a head that leads from now on: the one before gives its lease back.
fn lead(etcd: &Members, prefix: &str) -> Leading {
    let settings = settings(etcd, prefix);
    let runtime = event_loop::make().unwrap();
    let guard = LocalSet::new().block_on(&runtime, async {
        let gateway = || Gateway::new(&settings.clone().into(), &Leadership::default().into());
        let mut gateway = gateway().unwrap();
        // etcd may not answer yet.
        let found = loop {
            match api::get(&mut gateway, &format!("/{prefix}/leader")).await {
                Ok(found) => break found,
                Err(_) => sleep(AGAIN.0).await,
            }
        };
        if let Some(found) = found {
            api::revoke(&mut gateway, found.lease).await.unwrap();
        }
        Candidate::new(&settings, "test").unwrap().win().await.guard.clone()
    });
    let accounts = tempfile::tempdir().unwrap();
    let path = accounts.path().join("head.db");
    let news = StateNews::default();
    let table = EtcdTable::open(settings, guard.clone(), (&path, news.clone())).unwrap();
    Leading { table, guard, news, _accounts: accounts }
}

fn batch(records: impl IntoIterator<Item = JobRecord>) -> Batch {
    Batch { records: records.into_iter().map(Into::into).collect(), ..Batch::default() }
}

impl EtcdTable {
    fn write(&mut self, changes: &[Change]) {
        self.tasks.block_on(&self.runtime, self.records.write(changes)).unwrap();
    }

    fn count(&mut self, folder: &str) -> usize {
        let prefix = format!("{}{folder}", self.records.prefix);
        self.tasks.block_on(&self.runtime, self.records.all(&prefix)).unwrap().len()
    }
}

#[test]
fn the_state_survives_the_head() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "survives");
    let known = table.load().unwrap();
    assert_eq!((known.records, known.revoked), (Vec::new(), Vec::new()));
    assert_eq!(known.term.unwrap().number, 1);
    let mut first = record(1, JobState::Running);
    first.spec.request.args = vec!["a long one".repeat(20_000)];
    let second = record(2, JobState::Queued);
    table.persist(&batch([first.clone(), second])).unwrap();
    let second = record(2, JobState::Ended(Outcome::Success));
    let revoked = vec![Revocation { node: NodeId(3), until_us: u64::MAX }];
    let far = WrittenOutput { end: u64::MAX, bytes: 1 << 40 };
    let near = WrittenOutput { end: 9, bytes: 7 };
    let written = vec![(JobId(1), far), (JobId(2), near)];
    let more = Batch { revoked: Some(revoked.clone()), written, ..batch([second.clone()]) };
    table.persist(&more).unwrap();
    let mut table = lead(&etcd, "survives");
    let known = table.load().unwrap();
    assert_eq!((known.records, known.revoked), (vec![first.clone(), second], revoked));
    let term = known.term.unwrap();
    let written = BTreeMap::from([(JobId(1), far), (JobId(2), near)]);
    assert_eq!((term.number, term.written), (2, written));
    table.remove(&BTreeSet::from([JobId(2), JobId(9)])).unwrap();
    let known = table.load().unwrap();
    assert_eq!((known.records, known.term.unwrap().written.len()), (vec![first], 1));
}

#[test]
fn a_head_that_leads_no_more_writes_nothing() {
    let Some(etcd) = Members::start(1) else { return };
    let mut old = lead(&etcd, "deposed");
    let mut new = lead(&etcd, "deposed");
    let write = old.persist(&batch([record(1, JobState::Queued)]));
    assert!(matches!(write, Err(TableError::Deposed)), "{write:?}");
    assert!(matches!(old.remove(&BTreeSet::from([JobId(1)])), Err(TableError::Deposed)));
    assert_eq!(new.load().unwrap().records, []);
    new.persist(&batch([record(1, JobState::Queued)])).unwrap();
}

/// A request that was given up lay in a member that stood still, or on its way. The same head leads, and has written since.
#[test]
fn a_request_that_comes_late_changes_nothing() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "late");
    table.persist(&batch([record(1, JobState::Queued)])).unwrap();
    let order = format!("{}-last-write", table.guard.0);
    let Leading { table: EtcdTable { runtime, tasks, records, .. }, guard, .. } = &mut table;
    let before = tasks.block_on(runtime, api::get(&mut records.gateway, &order)).unwrap().unwrap();
    let late = (records.job_key(JobId(1)), Some(encode(&record(1, JobState::Queued)).unwrap()));
    let guard = guard.clone();
    table.persist(&batch([record(1, JobState::Running)])).unwrap();
    let EtcdTable { runtime, tasks, records, .. } = &mut table.table;
    let order = OrderCheck { key: &order, last: before.changed, name: &before.value };
    let guard = (guard.0.as_str(), guard.1);
    let late = [late];
    let answer = api::ordered(&mut records.gateway, guard, order, &late);
    let answer = tasks.block_on(runtime, answer).unwrap();
    assert!(matches!(answer, Written::Refused { leads: true, .. }), "{answer:?}");
    assert_eq!(table.load().unwrap().records, [record(1, JobState::Running)]);
}

/// The answer to a write is lost: it is asked for again, and is made once.
#[test]
fn a_write_whose_answer_is_lost_is_made_once() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "lost");
    table.load().unwrap();
    etcd.signal(0, Signal::SIGSTOP);
    let lost = std::thread::scope(|scope| {
        // Longer than a request may take, so that there are at least two.
        scope.spawn(|| {
            std::thread::sleep(settings(&etcd, "lost").patience * 2);
            etcd.signal(0, Signal::SIGCONT);
        });
        table.persist(&batch([record(1, JobState::Queued)]))
    });
    lost.unwrap();
    table.persist(&batch([record(1, JobState::Running)])).unwrap();
    assert_eq!(table.load().unwrap().records, [record(1, JobState::Running)]);
}

/// More than a transaction takes, by number and by bytes.
#[test]
fn a_large_batch_is_written_in_one_step() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "large");
    let random = |seed: u64| {
        let mut bytes = vec![0; 300_000];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        crate::paths::hex(&bytes)
    };
    let long = |job| {
        let mut record = record(job, JobState::Queued);
        record.spec.request.args = vec![random(job)];
        record
    };
    let all: Vec<JobRecord> =
        (1..=250).map(|job| record(job, JobState::Queued)).chain((251..=260).map(long)).collect();
    table.persist(&batch(all.clone())).unwrap();
    assert_eq!(table.count("/log"), 0);
    assert_eq!(lead(&etcd, "large").load().unwrap().records, all);
}

#[test]
fn what_a_head_was_about_to_write_is_finished_or_removed() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "log");
    let change = |table: &EtcdTable, job| {
        let key = table.records.job_key(JobId(job));
        (key, Some(encode(&record(job, JobState::Queued)).unwrap()))
    };
    let logged = |table: &EtcdTable, step, job| {
        let value = postcard::to_allocvec(&vec![change(table, job)]).unwrap();
        (table.records.log_key(step), Some(value))
    };
    // It died before the log was whole.
    let steps = [logged(&table, 0, 1), logged(&table, 1, 2)];
    table.write(&steps);
    let mut table = lead(&etcd, "log");
    assert_eq!((table.load().unwrap().records.len(), table.count("/log")), (0, 0));
    // It died after that, with one step done.
    table.write(&steps);
    let whole = (table.records.whole_key(), Some(b"2".to_vec()));
    let done = change(&table, 1);
    table.write(&[whole.clone(), done]);
    let mut table = lead(&etcd, "log");
    assert_eq!((table.load().unwrap().records.len(), table.count("/log")), (2, 0));
    // A step is missing.
    let first = logged(&table, 0, 3);
    table.write(&[whole, first]);
    let error = lead(&etcd, "log").load().unwrap_err();
    assert!(error.to_string().contains("/log/log/00000001"), "{error}");
}

#[test]
fn other_versions_and_damage_are_told() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "versions");
    let key = table.records.job_key(JobId(5));
    let with = |version: u32| {
        let mut value = postcard::to_allocvec(&(version, false)).unwrap();
        value.extend(postcard::to_allocvec(&record(5, JobState::Queued)).unwrap());
        value
    };
    table.write(&[(key.clone(), Some(with(CONTROL_VERSION + 1)))]);
    let error = table.load().unwrap_err();
    assert!(matches!(error, TableError::EtcdVersion { .. }), "{error}");
    assert_eq!(crate::exit::Failure::from(error).code, crate::exit::ExitCode::Version);
    table.write(&[(key.clone(), Some(vec![0xff]))]);
    assert!(matches!(table.load(), Err(TableError::Damaged { job: 5, .. })));
    let other = table.records.job_key(JobId(6));
    table.write(&[(other, Some(with(CONTROL_VERSION))), (key, None)]);
    assert!(matches!(table.load(), Err(TableError::Damaged { job: 6, .. })));
}

/// Output and accounts of the jobs of this host would go.
#[test]
fn a_head_whose_host_has_jobs_does_not_lead_with_a_state_without_any() {
    let Some(etcd) = Members::start(1) else { return };
    let refused = |table: &mut Leading| {
        let error = table.load().unwrap_err();
        assert!(matches!(error, TableError::StateElsewhere { .. }), "{error}");
        let failure = crate::exit::Failure::from(error);
        assert_eq!(failure.code, crate::exit::ExitCode::BadConfig);
        assert!(failure.message.contains("/elsewhere"), "{}", failure.message);
    };
    let mut table = lead(&etcd, "elsewhere-1");
    table.accounts.persist(&[record(1, JobState::Running)]).unwrap();
    refused(&mut table);
    assert_eq!(table.count("/terms"), 0, "and it leaves no trace");
    table.accounts.remove(&BTreeSet::from([JobId(1)])).unwrap();
    let spool = crate::paths::spool(table.accounts_path.parent().unwrap());
    std::fs::create_dir(&spool).unwrap();
    std::fs::write(spool.join("1.0"), "output").unwrap();
    refused(&mut table);
    std::fs::remove_file(spool.join("1.0")).unwrap();
    table.load().unwrap();
    // Later terms find their state, whatever is here.
    std::fs::write(spool.join("1.0"), "output").unwrap();
    table.load().unwrap();
}

/// Sends a request of an administrator.
fn administer(etcd: &Members, path: &str, body: &serde_json::Value) -> Option<serde_json::Value> {
    let settings = settings(etcd, "administrator");
    let runtime = event_loop::make().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let gateway = Gateway::new(&settings.into(), &Leadership::default().into());
        // What was done before is refused.
        gateway.unwrap().post(path, body).await.ok()
    })
}

/// Makes space in an etcd that has none left.
fn make_space(etcd: &Members) {
    use serde_json::json;
    let found = administer(etcd, "/v3/kv/range", &json!({ "key": "AA==" })).unwrap();
    let compaction = json!({ "revision": found["header"]["revision"], "physical": true });
    administer(etcd, "/v3/kv/compaction", &compaction);
    administer(etcd, "/v3/maintenance/defragment", &json!({}));
    let found = administer(etcd, "/v3/maintenance/alarm", &json!({ "action": "GET" })).unwrap();
    for alarm in found["alarms"].as_array().into_iter().flatten() {
        let (member, alarm) = (&alarm["memberID"], &alarm["alarm"]);
        let off = json!({ "action": "DEACTIVATE", "memberID": member, "alarm": alarm });
        administer(etcd, "/v3/maintenance/alarm", &off);
    }
}

/// etcd has no space left until an administrator has made some. Clients can be told why meanwhile, and nothing is lost.
#[test]
fn a_refusal_is_told_and_the_write_is_made_when_it_is_mended() {
    let Some(etcd) = Members::start_small(4 << 20) else { return };
    let mut table = lead(&etcd, "refused");
    table.load().unwrap();
    let refusal = table.news.refusal.clone();
    let end = std::time::Instant::now() + Duration::from_secs(300);
    let mend = || {
        let reason = loop {
            if let Some(reason) = refusal.get() {
                break reason;
            }
            assert!(std::time::Instant::now() < end, "etcd takes everything");
            std::thread::sleep(Duration::from_millis(20));
        };
        while refusal.get().is_some() {
            assert!(std::time::Instant::now() < end, "{reason}");
            make_space(&etcd);
            std::thread::sleep(Duration::from_millis(500));
        }
        reason
    };
    let (last, reason) = std::thread::scope(|scope| {
        let mender = scope.spawn(mend);
        let mut number = 0_u64;
        // Earlier versions of records take space, too.
        while !mender.is_finished() {
            number += 1;
            let mut bytes = vec![0; 200_000];
            blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
            let mut record = record(1, JobState::Queued);
            record.spec.request.args = vec![crate::paths::hex(&bytes), number.to_string()];
            table.persist(&batch([record])).unwrap();
        }
        (number, mender.join().unwrap())
    });
    let says = ["space exceeded", "compact", "alarm disarm"];
    assert!(says.iter().all(|text| reason.contains(text)), "{reason}");
    make_space(&etcd);
    let known = table.load().unwrap().records;
    assert_eq!(known[0].spec.request.args[1], last.to_string());
}

#[test]
fn settings_that_change_survive_the_head() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "settings");
    assert!(table.load().unwrap().settings.is_empty());
    let drained = |reason: &str| {
        let (reason, by) = (reason.to_owned(), "ada".to_owned());
        let drain = kumi_control::drain::Drain { node: NodeId(1), reason, by, since_ms: 7 };
        SharedSettings { drains: Some(vec![drain]), ..SharedSettings::default() }
    };
    for reason in ["disk", "fan"] {
        table.persist(&Batch { settings: drained(reason), ..Batch::default() }).unwrap();
    }
    assert_eq!(lead(&etcd, "settings").load().unwrap().settings, drained("fan"));
    let mut old = table;
    let late = old.persist(&Batch { settings: drained("late"), ..Batch::default() });
    assert!(matches!(late, Err(TableError::Deposed)), "{late:?}");
    let mut table = lead(&etcd, "settings");
    let key = table.records.settings_key("drained");
    table.write(&[(key, Some(b"?".to_vec()))]);
    let error = table.load().unwrap_err().to_string();
    assert!(error.contains("settings/drained"), "{error}");
}

#[test]
fn tokens_are_known_to_the_next_head_and_those_of_a_later_version_stay() {
    let Some(etcd) = Members::start(1) else { return };
    let mut table = lead(&etcd, "tokens");
    assert_eq!(table.load().unwrap().tokens, None, "no head has written any");
    let tokens = |changes| Batch { tokens: Some(changes), ..Batch::default() };
    table.persist(&tokens(TokenChanges::new())).unwrap();
    let none = JoinTokens::default();
    assert_eq!(table.load().unwrap().tokens.as_ref(), Some(&none));
    let mut known = none.clone();
    for (node, secret) in [(0, 1), (0x10, 2), (0x11, 3)] {
        known.issue(NodeId(node), &JoinSecret([secret; 16]), 1_000, 86_400_000);
    }
    known.set_used(NodeId(0x10), b"key");
    table.persist(&tokens(known.changes_since(&none))).unwrap();
    let mut next = lead(&etcd, "tokens");
    assert_eq!(next.load().unwrap().tokens.as_ref(), Some(&known));
    let gone = TokenChanges::from([(NodeId(0), None)]);
    assert!(matches!(table.persist(&tokens(gone.clone())), Err(TableError::Deposed)));
    next.persist(&tokens(gone)).unwrap();
    known.remove(NodeId(0));
    assert_eq!(next.load().unwrap().tokens.as_ref(), Some(&known));
    let key = |node: u32| format!("/tokens/tokens/{node:08x}");
    next.write(&[(key(7), Some(vec![2, 0, 0]))]);
    assert_eq!(next.load().unwrap().tokens.as_ref(), Some(&known));
    assert_eq!(next.count("/tokens/"), 3, "what is not known stays");
    next.write(&[(key(7), Some(vec![1, 0, 0]))]);
    let error = next.load().unwrap_err().to_string();
    assert!(error.contains("tokens/00000007"), "{error}");
}

/// The record is removed before another head leads, which has accounts of its own: it learns of the job all the same.
#[test]
fn accounts_of_jobs_are_known_to_heads_that_did_not_lead() {
    let Some(etcd) = Members::start(1) else { return };
    let ended = |job: u64| {
        let mut record = record(job, JobState::Ended(Outcome::Success));
        record.ended_ms = Some(1_000 + job);
        record
    };
    let mut table = lead(&etcd, "accounts");
    table.load().unwrap();
    table.persist(&batch([record(9, JobState::Running), ended(1)])).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while table.count("/jobs/") == 2 {
        // Once the account is on the disk.
        table.remove(&BTreeSet::from([JobId(1)])).unwrap();
        assert!(std::time::Instant::now() < end, "the record stays");
    }
    let mut next = lead(&etcd, "accounts");
    next.load().unwrap();
    assert_eq!(next.accounts.count_accounts(), 1);
    // The oldest go, whatever their numbers.
    next.records.shared_accounts = shared_accounts::SharedAccounts::of_at_most(3);
    next.load().unwrap();
    next.persist(&batch((2..=4).map(ended))).unwrap();
    assert_eq!(next.count("/accounts/"), 3);
    let mut late = ended(0);
    late.ended_ms = Some(5_000);
    next.persist(&batch([late])).unwrap();
    let mut too_old = ended(10);
    too_old.ended_ms = Some(7);
    next.persist(&batch([too_old])).unwrap();
    // What is not understood is passed over.
    next.write(&[("/accounts/accounts/0000000000000003".to_owned(), Some(vec![0xff]))]);
    let mut last = lead(&etcd, "accounts");
    last.load().unwrap();
    assert_eq!(last.count("/accounts/"), 3);
    // Those of jobs 0 and 4, and of all records.
    assert_eq!(last.accounts.count_accounts(), 5);
}
