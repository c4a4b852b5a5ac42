//! What a job may use of its node: memory, processes and processors are those of its control groups.

mod common;

use std::time::{Duration, Instant};

use common::{Cluster, ModeName, Ran, collect, request, run, start};
use kumi_control::message::{
    Binding, ClientReply, DeviceCount, JobRequest, Outcome, RankStatus, Resources, Stream,
};
use kumi_node::cgroup::{Controller, DaemonGroup, NodeGroups};
use kumi_node::client::Client;
use kumi_sched::NodeId;
use nix::sys::signal::Signal;

const MIB: u64 = 1 << 20;
/// A program that touches 200 MB. Reads that a freeze cuts short go on.
const TOUCH: &str = "dd if=/dev/zero of=/dev/null bs=200000000 count=1 iflag=fullblock";

/// Whether jobs can be limited by it here; otherwise the test is skipped.
fn can(test: &str, controller: Controller) -> bool {
    let name = format!("can-{}-{}", std::process::id(), controller.name());
    let reason = match NodeGroups::make(&name, NodeId(0), DaemonGroup::Keep) {
        Err(reason) => Some(reason),
        Ok(groups) => {
            groups.destroy(Duration::from_secs(1)).unwrap();
            groups.remove_empty_parents();
            let missing = groups.missing().iter().find(|(one, _)| *one == controller);
            missing.map(|(one, why)| format!("no controller {}: {why}", one.name()))
        }
    };
    if let Some(reason) = &reason {
        kumi_skip::skip(test, reason);
    }
    reason.is_none()
}

fn script(text: &str, ranks: u32, resources: Resources) -> JobRequest {
    JobRequest { resources, ..request(&["/bin/sh", "-c", text], ranks) }
}

fn with_memory(text: &str, ranks: u32, bytes: u64) -> JobRequest {
    script(text, ranks, Resources { memory_per_rank: Some(bytes), ..Resources::default() })
}

/// A job that ends well when it is told to, and that needs processes of its own all the time.
struct Bystander {
    client: Client,
    file: std::path::PathBuf,
}

impl Bystander {
    async fn start(cluster: &Cluster) -> Self {
        let file = cluster.path().join("end");
        let text = format!("while [ ! -e {} ]; do sleep 0.02 || exit 9; done", file.display());
        let (_, client) = start(cluster, request(&["/bin/sh", "-c", &text], 1)).await;
        Self { client, file }
    }

    async fn end(mut self, cluster: &Cluster) -> Ran {
        std::fs::write(&self.file, "").unwrap();
        collect(cluster, &mut self.client, |_| {}).await
    }
}

/// Waits until the node has no group of a job any more.
async fn no_job_group(cluster: &Cluster) {
    let end = Instant::now() + common::PATIENCE;
    loop {
        let nodes = cluster.all_groups().into_iter().map(|path| path.join("node-0"));
        let jobs = nodes.filter_map(|node| std::fs::read_dir(node).ok()).flatten().flatten();
        let left: Vec<_> = jobs
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("job-"))
            .map(|entry| entry.path())
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{left:?} is left\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_rank_that_uses_up_the_memory_of_its_job_is_named_and_others_live() {
    let test = "a_rank_that_uses_up_the_memory_of_its_job_is_named_and_others_live";
    if !can(test, Controller::Memory) {
        return;
    }
    let cluster = Cluster::up(1, ModeName::Gang).await;
    let other = Bystander::start(&cluster).await;
    // Two ranks have 128 MiB, of which one takes more.
    let text = format!("[ $KUMI_RANK = 0 ] || exec {TOUCH}; sleep 100");
    let ran = run(&cluster, with_memory(&text, 2, 64 * MIB)).await;
    let status = RankStatus::OutOfMemory(128 * MIB);
    let expected = Outcome::RankFailed { rank: 1, node: NodeId(0), status };
    assert_eq!(ran.outcome, expected, "{}", cluster.logs());
    // A program that the rank started counts, if the rank says that it ended so.
    let text = format!("{TOUCH}; exit $?");
    let ran = run(&cluster, with_memory(&text, 1, 64 * MIB)).await;
    let status = RankStatus::OutOfMemory(64 * MIB);
    assert_eq!(ran.outcome, Outcome::RankFailed { rank: 0, node: NodeId(0), status });
    // Killed for another reason, and without a limit.
    let ran = run(&cluster, with_memory("kill -9 $$", 1, 64 * MIB)).await;
    let status = RankStatus::Signalled(9);
    assert_eq!(ran.outcome, Outcome::RankFailed { rank: 0, node: NodeId(0), status });
    let text = format!("exec {TOUCH}");
    assert_eq!(run(&cluster, with_memory(&text, 1, 0)).await.outcome, Outcome::Success);
    assert_eq!(other.end(&cluster).await.outcome, Outcome::Success, "{}", cluster.logs());
    no_job_group(&cluster).await;
}

/// A rank outlives a program of its own that used up the memory, and is killed otherwise later.
#[tokio::test(flavor = "current_thread")]
async fn a_rank_that_outlives_want_of_memory_does_not_end_by_it() {
    let test = "a_rank_that_outlives_want_of_memory_does_not_end_by_it";
    if !can(test, Controller::Memory) {
        return;
    }
    let cluster = Cluster::up(1, ModeName::Gang).await;
    let file = cluster.path().join("told");
    let text =
        format!("{TOUCH}; while [ ! -e {} ]; do sleep 0.02; done; kill -9 $$", file.display());
    let (_, mut client) = start(&cluster, with_memory(&text, 1, 64 * MIB)).await;
    let mut told = String::new();
    let ran = collect(&cluster, &mut client, |reply| {
        if let ClientReply::Output { stream: Stream::Err, data, .. } = reply {
            told.push_str(&String::from_utf8_lossy(data));
            if told.contains("kumi: memory ran out on node 0") {
                std::fs::write(&file, "").unwrap();
            }
        }
    });
    let status = RankStatus::Signalled(9);
    let expected = Outcome::RankFailed { rank: 0, node: NodeId(0), status };
    assert_eq!(ran.await.outcome, expected, "{}", cluster.logs());
}

/// A limit that cannot be enforced is told to who asked for it.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_cannot_limit_memory_says_so() {
    const TEST: &str = "a_node_that_cannot_limit_memory_says_so";
    let unshare = std::process::Command::new("unshare").args(["-m", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        return kumi_skip::skip(TEST, "no namespace of mounts can be made");
    }
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head();
    drop(cluster.client().await);
    // Without the hierarchy that has memory, or without any.
    let hide = "for one in memory unified .; do umount -l /sys/fs/cgroup/$one && break; done";
    let script = format!(
        "[ $HIDDEN ] || HIDDEN=1 exec unshare -m /bin/sh -c '{hide}; exec \"$0\" \"$@\"' \"$0\" \"$@\""
    );
    cluster.start_node_after(0, &script);
    cluster.wait_attached(1).await;
    let said =
        "kumi: node 0 reserves the job's memory and cannot limit it; see `kumi doctor` there\n";
    let ran = run(&cluster, with_memory("exit 0", 1, MIB)).await;
    assert_eq!((ran.outcome, &*ran.err), (Outcome::Success, said), "{}", cluster.logs());
    let ran = run(&cluster, request(&["/bin/true"], 1)).await;
    assert_eq!((ran.outcome, &*ran.err), (Outcome::Success, ""));
    assert!(
        cluster.logs().contains("memory of jobs is not limited")
            || cluster.logs().contains("their memory and processes are not limited")
    );
}

#[tokio::test(flavor = "current_thread")]
async fn what_the_cluster_gives_each_rank_holds_for_jobs_that_do_not_say() {
    let test = "what_the_cluster_gives_each_rank_holds_for_jobs_that_do_not_say";
    if !can(test, Controller::Memory) {
        return;
    }
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.config.job.memory_per_rank = Some("48MiB".to_owned());
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let text = format!("exec {TOUCH}");
    let ran = run(&cluster, script(&text, 1, Resources::default())).await;
    let status = RankStatus::OutOfMemory(48 * MIB);
    assert_eq!(ran.outcome, Outcome::RankFailed { rank: 0, node: NodeId(0), status });
    // So little that a rank does not even start.
    let ran = run(&cluster, with_memory("exit 0", 1, 4_096)).await;
    let Outcome::Refused(refused) = &ran.outcome else { panic!("{ran:?}\n{}", cluster.logs()) };
    assert!(refused.message.contains("4096 bytes of memory"), "{refused:?}");
    no_job_group(&cluster).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_that_forks_without_end_is_refused_more_and_others_live() {
    let test = "a_job_that_forks_without_end_is_refused_more_and_others_live";
    if !can(test, Controller::Pids) {
        return;
    }
    let mut cluster = Cluster::configured(1, ModeName::Os);
    cluster.config.job.processes_per_rank = Some(32);
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let other = Bystander::start(&cluster).await;
    // Bounded, if nothing else bounds it.
    let text = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); echo $i; done; exit 0";
    let ran = run(&cluster, script(text, 1, Resources::default())).await;
    let Outcome::RankFailed { rank: 0, status: RankStatus::Exited(_), .. } = ran.outcome else {
        panic!("{ran:?}\n{}", cluster.logs());
    };
    assert!(ran.err.to_lowercase().contains("fork"), "{}", ran.err);
    let children: u32 = ran.out.lines().last().unwrap().parse().unwrap();
    assert!((16..32).contains(&children), "{children}");
    assert_eq!(other.end(&cluster).await.outcome, Outcome::Success, "{}", cluster.logs());
    no_job_group(&cluster).await;
}

/// What a rank says of its processors.
const SAY: &str =
    "echo $KUMI_RANK $KUMI_PROCESSORS $OMP_NUM_THREADS $(grep Cpus_allowed_list /proc/self/status)";

#[tokio::test(flavor = "current_thread")]
async fn ranks_run_on_their_processors_and_know_their_number() {
    let mut all = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus: Vec<usize> = (0..1024).filter(|&cpu| all.is_set(cpu).unwrap_or(false)).collect();
    let [first, second, ..] = cpus[..] else {
        let reason = "needs two processors";
        return kumi_skip::skip("ranks_run_on_their_processors_and_know_their_number", reason);
    };
    all.unset(first).unwrap();
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.config.nodes[0].cpus = vec![second, first];
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let lines = |ran: &Ran| {
        let mut lines: Vec<_> = ran.out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (low, high) = (first.min(second), first.max(second));
    let both = if high == low + 1 { format!("{low}-{high}") } else { format!("{low},{high}") };
    let list = "Cpus_allowed_list:";
    for (binding, each, ranks, expected) in [
        (None, 1, 1, vec![format!("0 1 1 {list} {second}")]),
        (
            None,
            1,
            3,
            vec![
                format!("0 2 1 {list} {second}"),
                format!("1 2 1 {list} {first}"),
                format!("2 2 1 {list} {second}"),
            ],
        ),
        (Some(Binding::Core), 2, 1, vec![format!("0 2 2 {list} {both}")]),
        (Some(Binding::None), 1, 1, vec![format!("0 2 1 {list} {both}")]),
        (
            Some(Binding::Cpuset),
            1,
            2,
            vec![format!("0 2 1 {list} {both}"), format!("1 2 1 {list} {both}")],
        ),
    ] {
        let processors_per_rank = Some(each);
        let resources = Resources { processors_per_rank, binding, ..Resources::default() };
        let ran = run(&cluster, script(SAY, ranks, resources)).await;
        assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
        assert_eq!(lines(&ran), expected, "{binding:?}");
    }
    let mut job = script(SAY, 1, Resources::default());
    job.env.push(("OMP_NUM_THREADS".to_owned(), "7".to_owned()));
    assert_eq!(lines(&run(&cluster, job).await), [format!("0 1 7 {list} {second}")]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_program_cannot_leave_the_processors_of_its_job() {
    let test = "a_program_cannot_leave_the_processors_of_its_job";
    if !can(test, Controller::Cpuset) {
        return;
    }
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.config.nodes[0].cpus = vec![0];
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    // As many processors as there are: the set is what is left of them.
    let text = "taskset -p ffff $$ >/dev/null; grep Cpus_allowed_list /proc/$$/status";
    let ran = run(&cluster, request(&["/bin/sh", "-c", text], 1)).await;
    assert_eq!(ran.out, "Cpus_allowed_list:\t0\n", "{ran:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_is_left_in_any_hierarchy_of_a_daemon_that_is_killed() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    // With keepers the job would go on.
    cluster.config.keep_ms = None;
    cluster.config.save(cluster.path()).unwrap();
    let mut cluster = cluster.start().await;
    let groups = cluster.all_groups();
    if groups.is_empty() {
        let test = "nothing_is_left_in_any_hierarchy_of_a_daemon_that_is_killed";
        return kumi_skip::skip(test, "no control groups");
    }
    let (job, client) = start(&cluster, request(&["/bin/sleep", "100"], 2)).await;
    for group in &groups {
        let procs = group.join(format!("node-0/job-{job}/cgroup.procs"));
        let text = std::fs::read_to_string(&procs).unwrap();
        assert_eq!(text.lines().count(), 2, "{}: {text}", procs.display());
    }
    let mut daemon = cluster.nodes[0].take().unwrap();
    Cluster::signal(&daemon, Signal::SIGKILL);
    daemon.wait().unwrap();
    let end = Instant::now() + common::PATIENCE;
    while !cluster.all_groups().is_empty() {
        assert!(Instant::now() < end, "{:?} is left", cluster.all_groups());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Started again it has them anew, and jobs run.
    drop(client);
    cluster.start_node(0);
    cluster.wait_attached(1).await;
    assert_eq!(cluster.all_groups().len(), groups.len());
    assert_eq!(run(&cluster, request(&["/bin/true"], 1)).await.outcome, Outcome::Success);
    let mut daemon = cluster.nodes[0].take().unwrap();
    Cluster::signal(&daemon, Signal::SIGTERM);
    daemon.wait().unwrap();
    assert_eq!(cluster.all_groups(), Vec::<std::path::PathBuf>::new());
}

/// Character devices of a test's own, which read as `/dev/zero` and `/dev/full` do.
fn devices(test: &str, cluster: &Cluster) -> Option<Vec<std::path::PathBuf>> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let numbers = [(0, 5), (1, 7)];
    let files = numbers.map(|(name, _)| cluster.path().join(format!("card{name}")));
    for (file, (_, minor)) in files.iter().zip(numbers) {
        let mode = Mode::from_bits_truncate(0o666);
        if let Err(error) = mknod(file, SFlag::S_IFCHR, mode, makedev(1, minor)) {
            kumi_skip::skip(test, &format!("devices cannot be made: {error}"));
            return None;
        }
        // The mask of this process may have taken something away.
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o666)).unwrap();
    }
    Some(files.to_vec())
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_have_devices_of_their_own_and_cannot_open_others() {
    let test = "jobs_have_devices_of_their_own_and_cannot_open_others";
    if !can(test, Controller::Devices) {
        return;
    }
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    let Some(files) = devices(test, &cluster) else { return };
    let list = kumi_node::config::DeviceList::Files(files.clone());
    cluster.config.nodes[0].devices = [("gpu".to_owned(), list)].into();
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let gpu = DeviceCount { name: "gpu".to_owned(), count: 1 };
    let with = |devices| Resources { devices, ..Resources::default() };
    let tries: Vec<_> = files
        .iter()
        .map(|file| format!("head -c 1 {} >/dev/null 2>&1 && echo yes || echo no", file.display()))
        .collect();
    let text = format!("echo $KUMI_DEVICES_GPU:$CUDA_VISIBLE_DEVICES\n{}", tries.join("\n"));
    let file = cluster.path().join("go");
    let wait = format!("{text}\nwhile [ ! -e {} ]; do sleep 0.02; done", file.display());
    let (_, mut first) = start(&cluster, script(&wait, 1, with(vec![gpu.clone()]))).await;
    let second = run(&cluster, script(&text, 1, with(vec![gpu.clone()]))).await;
    assert_eq!(second.out, format!("{}:0\nno\nyes\n", files[1].display()), "{}", cluster.logs());
    let none = run(&cluster, script(&text, 1, Resources::default())).await;
    assert_eq!(none.out, ":\nno\nno\n");
    std::fs::write(&file, "").unwrap();
    let first = collect(&cluster, &mut first, |_| {}).await;
    assert_eq!(first.out, format!("{}:0\nyes\nno\n", files[0].display()));
    // All are free again.
    let both = run(&cluster, script(&text, 2, with(vec![gpu]))).await;
    let mut lines: Vec<_> = both.out.lines().collect();
    lines.sort_unstable();
    let [zero, one] = [0, 1].map(|at| format!("{}:{at}", files[at].display()));
    assert_eq!(lines, [&*zero, &*one, "yes", "yes", "yes", "yes"]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_node_without_its_devices_does_not_start_and_leaves_nothing() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    let list = kumi_node::config::DeviceList::Files(vec!["/dev/no-such-card".into()]);
    cluster.config.nodes[0].devices = [("gpu".to_owned(), list)].into();
    cluster.config.save(cluster.path()).unwrap();
    cluster.start_node(0);
    let code = cluster.nodes[0].take().unwrap().wait().unwrap().code();
    assert_eq!(code, Some(65), "{}", cluster.logs());
    assert!(cluster.logs().contains("/dev/no-such-card cannot be used"), "{}", cluster.logs());
    assert_eq!(cluster.all_groups(), Vec::<std::path::PathBuf>::new());
}
