//! Several heads with their state in etcd: the leading one is killed, frozen, or cut off with a member of etcd.

mod common;
#[path = "common/etcd.rs"]
mod etcd;
#[path = "heads/joining.rs"]
mod joining;
#[path = "heads/nodes.rs"]
mod nodes;
#[path = "heads/output.rs"]
mod output;
#[path = "common/seed.rs"]
mod seed;
#[path = "heads/standbys.rs"]
mod standbys;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, request};
use etcd::{Certificates, Members};
use kumi_control::message::{
    ClientReply, ClientRequest, JobRecord, JobRequest, JobState, JobsQuery, Outcome,
};
use kumi_node::client::Client;
use kumi_node::config::{ClusterConfig, EtcdAccess};
use kumi_node::paths;
use kumi_sched::{JobId, NodeId};
use nix::sys::signal::Signal;
use seed::{next_random, number};

/// Longest time until another head leads, on whatever machine.
const TAKEOVER: Duration = Duration::from_secs(180);
/// Seconds of a lease: a slow machine renews it in time.
const LEASE: u64 = 10;

/// A cluster with a folder for each head, as on machines of their own. Nodes use the first one.
struct Heads {
    cluster: Cluster,
    folders: Vec<tempfile::TempDir>,
    heads: Vec<Option<Child>>,
}

impl Heads {
    async fn start(etcd: &Members, nodes: u8, count: usize) -> Self {
        Self::with(etcd, nodes, count, |_| {}).await
    }

    async fn with(
        etcd: &Members,
        nodes: u8,
        count: usize,
        change: impl FnOnce(&mut ClusterConfig),
    ) -> Self {
        let mut heads = Self::configured(etcd, nodes, count, change);
        for head in 0..count {
            heads.start_head(head);
        }
        for node in 0..nodes {
            heads.cluster.start_node(node.into());
        }
        heads.attached(nodes.into()).await;
        heads
    }

    /// The same, and nothing is started.
    fn configured(
        etcd: &Members,
        nodes: u8,
        count: usize,
        change: impl FnOnce(&mut ClusterConfig),
    ) -> Self {
        let mut cluster = Cluster::configured(nodes, ModeName::Gang);
        let first = cluster.config.head;
        let other = |_| (first.ip(), common::free_port(first.ip())).into();
        cluster.config.heads = [first].into_iter().chain((1..count).map(other)).collect();
        cluster.config.state = Some(etcd.state());
        cluster.config.etcd.lease_s = Some(LEASE);
        cluster.config.lease_ms = Some(60_000);
        cluster.config.grace_ms = Some(10_000);
        change(&mut cluster.config);
        cluster.config.save(cluster.path()).unwrap();
        let folders = (0..count).map(|_| copy_of(cluster.path())).collect();
        Self { cluster, folders, heads: (0..count).map(|_| None).collect() }
    }

    fn dir(&self, head: usize) -> &Path {
        self.folders[head].path()
    }

    fn start_head(&mut self, head: usize) {
        let log = paths::head_log(self.dir(head));
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumid"));
        command.args(["head", "--head", &head.to_string(), "--cluster-dir"]).arg(self.dir(head));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.heads[head] = Some(command.spawn().unwrap());
    }

    fn kill_head(&mut self, head: usize) {
        let mut child = self.heads[head].take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn signal(&self, head: usize, signal: Signal) {
        Cluster::signal(self.heads[head].as_ref().expect("it runs"), signal);
    }

    fn logs(&self) -> String {
        let log = |head| std::fs::read_to_string(paths::head_log(self.dir(head)));
        let heads = (0..self.heads.len()).map(|head| format!("== {head}\n{}", log(head).unwrap()));
        heads.collect::<String>() + &self.cluster.logs()
    }

    /// The head that answers clients, which is none of these.
    async fn leader(&self, but: &[usize]) -> usize {
        let end = Instant::now() + TAKEOVER;
        loop {
            for head in (0..self.heads.len()).filter(|head| !but.contains(head)) {
                let socket = paths::head_socket(self.dir(head));
                let connecting = Client::connect_to(&socket);
                let connected = tokio::time::timeout(Duration::from_millis(500), connecting).await;
                if matches!(connected, Ok(Ok(_))) {
                    return head;
                }
            }
            assert!(Instant::now() < end, "nobody leads\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client as users have it: by the daemon of a node.
    async fn client(&self) -> Client {
        let end = Instant::now() + TAKEOVER;
        loop {
            let socket = paths::node_socket(self.cluster.path(), NodeId(0));
            let connecting = Client::connect_to(&socket);
            match tokio::time::timeout(Duration::from_secs(5), connecting).await {
                Ok(Ok(client)) => return client,
                error => assert!(Instant::now() < end, "{error:?}\n{}", self.logs()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks until a head answers, whichever it is.
    async fn ask(&self, request: &ClientRequest) -> ClientReply {
        let end = Instant::now() + TAKEOVER;
        loop {
            let mut client = self.client().await;
            let asked = tokio::time::timeout(Duration::from_secs(10), client.ask(request)).await;
            match asked {
                Ok(Ok(reply)) => return reply,
                error => assert!(Instant::now() < end, "{error:?}\n{}", self.logs()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn attached(&self, count: usize) {
        let end = Instant::now() + TAKEOVER;
        loop {
            let ClientReply::Cluster(status) = self.ask(&ClientRequest::Cluster).await else {
                panic!("no status");
            };
            if status.nodes.iter().filter(|node| node.up).count() == count {
                return;
            }
            assert!(Instant::now() < end, "not attached\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn records(&self) -> BTreeMap<JobId, JobRecord> {
        let all = ClientRequest::Jobs(JobsQuery::first_page(true));
        let ClientReply::Jobs(page) = self.ask(&all).await else { panic!("no jobs") };
        page.list.records.into_iter().map(|record| (record.spec.job, record)).collect()
    }

    /// Submits, again and again if need be, until a head has it: the token makes it one job.
    async fn submit(&self, request: JobRequest) -> JobId {
        let submission = ClientRequest::Submit(Box::new(request));
        let end = Instant::now() + TAKEOVER;
        loop {
            let mut client = self.client().await;
            client.send(&submission).await.unwrap();
            let submitted = async {
                loop {
                    match client.next().await {
                        Ok(Some(ClientReply::Submitted { job })) => return Ok(job),
                        Ok(Some(ClientReply::State { .. })) => {}
                        other => return Err(other),
                    }
                }
            };
            match tokio::time::timeout(Duration::from_secs(10), submitted).await {
                Ok(Ok(job)) => return job,
                other => assert!(Instant::now() < end, "{other:?}\n{}", self.logs()),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What there is of a job's standard output, and how many bytes are marked as missing.
    async fn output(&self, job: JobId) -> (String, u64) {
        let mut client = self.client().await;
        client.send(&ClientRequest::Follow { job, offset: 0, wait: true }).await.unwrap();
        let (mut text, mut missing) = (String::new(), 0);
        loop {
            let next = tokio::time::timeout(PATIENCE, client.next()).await;
            match next.unwrap().unwrap().expect("the head closed the connection") {
                ClientReply::Output { data, .. } => text += std::str::from_utf8(&data).unwrap(),
                ClientReply::OutputLost { bytes, .. } => missing += bytes,
                ClientReply::Ended { .. } => return (text, missing),
                _ => {}
            }
        }
    }

    async fn until(&self, what: &str, is: impl Fn(&BTreeMap<JobId, JobRecord>) -> bool) {
        let end = Instant::now() + TAKEOVER;
        loop {
            let records = self.records().await;
            if is(&records) {
                return;
            }
            assert!(Instant::now() < end, "{what}: never: {records:?}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        for mut head in self.heads.drain(..).flatten() {
            // One that is dead or stopped is no error.
            let _dead = head.kill();
            let _dead = head.wait();
        }
    }
}

/// The folder of a head: configuration and certificates.
fn copy_of(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(paths::tls(copy.path())).unwrap();
    std::fs::copy(paths::config(dir), paths::config(copy.path())).unwrap();
    for file in std::fs::read_dir(paths::tls(dir)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), paths::tls(copy.path()).join(file.file_name())).unwrap();
    }
    copy
}

/// A job that notes its start, counts, and ends well when a file appears.
fn counting(folder: &Path, name: &str) -> JobRequest {
    let script = format!(
        "cd {} && echo s >> {name}.starts && until [ -e end ]; do echo >> {name}; sleep 0.02; done",
        folder.display()
    );
    request(&["/bin/sh", "-c", &script], 1)
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

async fn counts_on(heads: &Heads, file: &Path, by: u64) {
    let (from, end) = (length(file), Instant::now() + PATIENCE);
    while length(file) < from + by {
        assert!(Instant::now() < end, "{} stands still\n{}", file.display(), heads.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A head that takes over, and waits for its disk, ends when it is told to.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_has_not_read_its_state_yet_can_be_stopped() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 1).await;
    heads.kill_head(0);
    // Whoever opens the accounts of this host waits.
    let accounts = paths::head_db(heads.dir(0));
    std::fs::remove_file(&accounts).unwrap();
    nix::unistd::mkfifo(&accounts, nix::sys::stat::Mode::S_IRWXU).unwrap();
    heads.start_head(0);
    let (log, end) = (paths::head_log(heads.dir(0)), Instant::now() + TAKEOVER);
    while std::fs::read_to_string(&log).unwrap().matches("this head leads").count() < 2 {
        assert!(Instant::now() < end, "{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    heads.signal(0, Signal::SIGTERM);
    let status = loop {
        let head = heads.heads[0].as_mut().expect("it was started");
        if let Some(status) = head.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it goes on\n{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}\n{}", heads.logs());
}

/// Jobs that run, and one that waits, over the deaths of heads and of a member of etcd.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_is_killed_has_a_successor_and_no_job_is_lost() {
    let Some(mut etcd) = Members::start(3) else { return };
    let mut heads = Heads::start(&etcd, 2, 3).await;
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..3).map(|job| folder.path().join(format!("j{job}"))).collect();
    let mut jobs = Vec::new();
    for name in ["j0", "j1"] {
        jobs.push(heads.submit(counting(folder.path(), name)).await);
    }
    for file in &files[..2] {
        counts_on(&heads, file, 5).await;
    }
    let first = heads.leader(&[]).await;
    heads.kill_head(first);
    counts_on(&heads, &files[0], 50).await;
    let second = heads.leader(&[first]).await;
    heads.attached(2).await;
    let known = heads.records().await;
    for job in &jobs {
        assert_eq!(known[job].state, JobState::Running, "{}", heads.logs());
    }
    // A member of etcd goes for good, and the second head: what was submitted in between is known.
    etcd.kill(0);
    jobs.push(heads.submit(counting(folder.path(), "j2")).await);
    counts_on(&heads, &files[2], 5).await;
    heads.start_head(first);
    heads.kill_head(second);
    heads.leader(&[second]).await;
    heads.attached(2).await;
    for file in &files {
        counts_on(&heads, file, 20).await;
    }
    std::fs::write(folder.path().join("end"), "").unwrap();
    heads
        .until("all end", |records| {
            records.values().all(|record| record.state == JobState::Ended(Outcome::Success))
        })
        .await;
    let known = heads.records().await;
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), jobs);
    for file in &files {
        assert_eq!(length(&file.with_extension("starts")), 2, "it was started once");
    }
}

/// A head that stands still does nothing when it goes on: another leads by then.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_stood_still_leads_no_more() {
    let Some(etcd) = Members::start(1) else { return };
    let heads = Heads::start(&etcd, 1, 2).await;
    let folder = tempfile::tempdir().unwrap();
    let job = heads.submit(counting(folder.path(), "job")).await;
    let file = folder.path().join("job");
    counts_on(&heads, &file, 5).await;
    let first = heads.leader(&[]).await;
    heads.signal(first, Signal::SIGSTOP);
    heads.leader(&[first]).await;
    heads.signal(first, Signal::SIGCONT);
    heads.attached(1).await;
    let log = paths::head_log(heads.dir(first));
    let end = Instant::now() + TAKEOVER;
    let waits = || std::fs::read_to_string(&log).unwrap().contains("another head leads");
    while !waits() {
        assert!(Instant::now() < end, "{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    counts_on(&heads, &file, 20).await;
    assert_eq!(heads.records().await[&job].state, JobState::Running);
    std::fs::write(folder.path().join("end"), "").unwrap();
    heads
        .until("it ends", |records| records[&job].state == JobState::Ended(Outcome::Success))
        .await;
    assert_eq!(length(&folder.path().join("job.starts")), 2, "it was started once");
}

/// One head, as its disk would: submissions wait or are refused, jobs and links live, and it goes on.
#[tokio::test(flavor = "current_thread")]
async fn while_etcd_is_away_jobs_run_on() {
    let Some(etcd) = Members::start(1) else { return };
    let heads = Heads::with(&etcd, 1, 1, |config| config.etcd.lease_s = Some(60)).await;
    let folder = tempfile::tempdir().unwrap();
    let job = heads.submit(counting(folder.path(), "job")).await;
    let file = folder.path().join("job");
    counts_on(&heads, &file, 5).await;
    etcd.signal(0, Signal::SIGSTOP);
    // Until the head is not sure any more that it leads.
    let end = Instant::now() + TAKEOVER;
    let refused = loop {
        let mut client = Client::connect_to(&paths::head_socket(heads.dir(0))).await.unwrap();
        let next = ClientRequest::Submit(Box::new(request(&["/bin/true"], 1)));
        client.send(&next).await.unwrap();
        match tokio::time::timeout(Duration::from_secs(1), client.next()).await {
            Ok(reply) => break reply.unwrap(),
            Err(_) => assert!(Instant::now() < end, "{}", heads.logs()),
        }
    };
    let Some(ClientReply::Refused(refused)) = refused else { panic!("{refused:?}") };
    assert!(refused.message.contains("etcd"), "{}", refused.message);
    // The node asks the head, which answers and has the node.
    heads.attached(1).await;
    counts_on(&heads, &file, 100).await;
    etcd.signal(0, Signal::SIGCONT);
    let next = heads.submit(request(&["/bin/true"], 1)).await;
    heads
        .until("the next one ends", |records| {
            records[&next].state == JobState::Ended(Outcome::Success)
        })
        .await;
    assert_eq!(heads.records().await[&job].state, JobState::Running);
}

/// A head has the address to itself, so it need not wait for the lease of the process before it: here that is a minute's.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_is_started_again_leads_at_once() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::with(&etcd, 1, 1, |config| config.etcd.lease_s = Some(60)).await;
    let folder = tempfile::tempdir().unwrap();
    let job = heads.submit(counting(folder.path(), "job")).await;
    let file = folder.path().join("job");
    counts_on(&heads, &file, 5).await;
    heads.kill_head(0);
    heads.start_head(0);
    heads.leader(&[]).await;
    heads.attached(1).await;
    counts_on(&heads, &file, 5).await;
    assert_eq!(heads.records().await[&job].state, JobState::Running);
    // It would have said so, had it waited for the lease.
    let log = std::fs::read_to_string(paths::head_log(heads.dir(0))).unwrap();
    assert_eq!(log.matches("this head leads").count(), 2, "{log}");
    assert!(!log.contains("another head leads"), "{log}");
}

/// etcd takes clients with certificates of its authority only, and heads talk to nobody else.
#[tokio::test(flavor = "current_thread")]
async fn a_table_in_an_etcd_with_certificates() {
    let (certificates, foreign) = (Certificates::new(), Certificates::new());
    let Some(etcd) = Members::start_with(1, Some(&certificates)) else { return };
    let access = EtcdAccess {
        ca: Some(certificates.file("ca.pem")),
        certificate: Some(certificates.file("client.pem")),
        key: Some(certificates.file("client.key")),
        lease_s: Some(LEASE),
        ..EtcdAccess::default()
    };
    let mut heads = Heads::with(&etcd, 1, 2, |config| config.etcd = access.clone()).await;
    let job = heads.submit(request(&["/bin/true"], 1)).await;
    let ended = |records: &BTreeMap<JobId, JobRecord>| {
        records[&job].state == JobState::Ended(Outcome::Success)
    };
    heads.until("it ends", ended).await;
    let first = heads.leader(&[]).await;
    heads.kill_head(first);
    heads.leader(&[first]).await;
    heads.attached(1).await;
    heads.until("it is known", ended).await;
    // One with another authority, and one that etcd does not know: each says what is wrong, and none leads.
    for (ca, client, said) in [
        (&foreign, &certificates, "an authority that is not trusted here"),
        (&certificates, &foreign, "nobody can be found to lead"),
    ] {
        let mut config = heads.cluster.config.clone();
        config.etcd.ca = Some(ca.file("ca.pem"));
        config.etcd.certificate = Some(client.file("client.pem"));
        config.etcd.key = Some(client.file("client.key"));
        config.save(heads.dir(first)).unwrap();
        std::fs::remove_file(paths::head_log(heads.dir(first))).unwrap();
        heads.start_head(first);
        let log = paths::head_log(heads.dir(first));
        let end = Instant::now() + TAKEOVER;
        while !std::fs::read_to_string(&log).unwrap().contains(said) {
            assert!(Instant::now() < end, "{said}: never\n{}", heads.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!std::fs::read_to_string(&log).unwrap().contains("this head leads"));
        heads.kill_head(first);
    }
}

/// A head that waits reads its files anew on SIGHUP, as one that leads does, and leads when it is its turn.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_waits_can_be_reloaded() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let job = heads.submit(request(&["/bin/true"], 1)).await;
    let first = heads.leader(&[]).await;
    let other = 1 - first;
    let log = paths::head_log(heads.dir(other));
    let count = |said: &str| std::fs::read_to_string(&log).unwrap().matches(said).count();
    let until = async |said, times| {
        let end = Instant::now() + TAKEOVER;
        while count(said) < times {
            assert!(Instant::now() < end, "{said}: never\n{}", heads.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until("another head leads", 1).await;
    heads.signal(other, Signal::SIGHUP);
    until("begins again", 1).await;
    until("another head leads", 2).await;
    heads.kill_head(first);
    assert_eq!(heads.leader(&[first]).await, other);
    heads.attached(1).await;
    assert!(heads.records().await.contains_key(&job));
}

/// No job that a head has taken is missing. How far a job has come may go back in a list, which shows what is about to be
/// recorded.
fn none_is_lost(taken: &[JobId], records: &BTreeMap<JobId, JobRecord>, logs: impl Fn() -> String) {
    let lost: Vec<_> = taken.iter().filter(|job| !records.contains_key(job)).collect();
    assert!(lost.is_empty(), "{lost:?} are lost\n{}", logs());
}

/// Each job runs for a moment, and notes that it was started.
async fn submit_short(heads: &Heads, folder: &Path, number: u64) -> JobId {
    let script = format!("echo s >> {}/{number}.starts; sleep 0.3", folder.display());
    heads.submit(request(&["/bin/sh", "-c", &script], 1)).await
}

/// `make test-heads`. `KUMI_HEADS_SECONDS` says how long, `KUMI_HEADS_SEED` what dies when.
#[tokio::test(flavor = "current_thread")]
#[ignore = "takes ten minutes"]
async fn heads_and_members_die_at_random() {
    let Some(mut etcd) = Members::start(3) else { return };
    let mut heads = Heads::start(&etcd, 2, 3).await;
    let folder = tempfile::tempdir().unwrap();
    let mut seed = number("KUMI_HEADS_SEED", std::process::id().into());
    eprintln!("KUMI_HEADS_SEED={seed}");
    let end = Instant::now() + Duration::from_secs(number("KUMI_HEADS_SECONDS", 600));
    let (mut taken, mut jobs) = (Vec::new(), 0);
    while Instant::now() < end {
        let victim = (next_random(&mut seed) % 3) as usize;
        let pause = Duration::from_millis(next_random(&mut seed) % 5_000);
        match next_random(&mut seed) % 4 {
            0 => {
                heads.kill_head(victim);
                tokio::time::sleep(pause).await;
                heads.start_head(victim);
            }
            1 => {
                heads.signal(victim, Signal::SIGSTOP);
                tokio::time::sleep(pause).await;
                heads.signal(victim, Signal::SIGCONT);
            }
            2 => {
                etcd.kill(victim);
                tokio::time::sleep(pause).await;
                etcd.start_again(victim);
            }
            _ => {
                let leader = heads.leader(&[]).await;
                heads.kill_head(leader);
                taken.push(submit_short(&heads, folder.path(), jobs).await);
                jobs += 1;
                heads.start_head(leader);
            }
        }
        for _ in 0..3 {
            taken.push(submit_short(&heads, folder.path(), jobs).await);
            jobs += 1;
        }
        none_is_lost(&taken, &heads.records().await, || heads.logs());
    }
    heads.attached(2).await;
    let succeeded = JobState::Ended(Outcome::Success);
    let is_over = |job: &JobRecord| matches!(job.state, JobState::Ended(_));
    heads.until("all end", |all| all.values().all(is_over)).await;
    let known = heads.records().await;
    none_is_lost(&taken, &known, || heads.logs());
    let failed: Vec<_> = known.values().filter(|job| job.state != succeeded).collect();
    assert!(failed.is_empty(), "{failed:?}\n{}", heads.logs());
    for job in 0..jobs {
        let starts = length(&folder.path().join(format!("{job}.starts")));
        assert_eq!(starts, 2, "job {job} was started once\n{}", heads.logs());
    }
    assert_eq!(known.len() as u64, jobs, "nothing runs that nobody asked for");
    eprintln!("{jobs} jobs");
}
