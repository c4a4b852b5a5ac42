//! A head and nodes as real processes, and jobs on them. The same as root (control groups) and as
//! anybody else (signals).

mod common;

use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, collect, request, run, start};
use kumi_control::message::{
    ClientReply, ClientRequest, JobsPage, JobsQuery, Outcome, RankStatus, Refusal, RefusalKind,
    Stream,
};
use kumi_node::paths;
use kumi_sched::NodeId;
use nix::sys::signal::Signal;

async fn until(cluster: &Cluster, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: never\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn nothing_left(cluster: &Cluster) -> bool {
    let Some(groups) = cluster.groups() else { return true };
    (0..cluster.nodes.len()).all(|node| {
        let node = groups.join(format!("node-{node}"));
        std::fs::read_dir(node).is_ok_and(|entries| {
            !entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("job-"))
        })
    })
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_run_and_leave_nothing() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let sh = |script: &str, ranks| request(&["/bin/sh", "-c", script], ranks);

    let done = run(&cluster, request(&["/bin/true"], 4)).await;
    assert_eq!(done.outcome, Outcome::Success, "{}", cluster.logs());
    assert!(nothing_left(&cluster));

    let failed = run(&cluster, sh("exit 3", 2)).await;
    let Outcome::RankFailed { status, .. } = failed.outcome else { panic!("{failed:?}") };
    assert_eq!(status, RankStatus::Exited(3));

    let killed = run(&cluster, sh("kill -9 $$", 1)).await;
    let Outcome::RankFailed { rank: 0, status, .. } = killed.outcome else { panic!("{killed:?}") };
    assert_eq!(status, RankStatus::Signalled(9));

    let said =
        run(&cluster, sh("echo $WORD $KUMI_RANK of $KUMI_RANKS; echo wrong >&2; pwd", 3)).await;
    let mut lines: Vec<_> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/", "/", "/", "kumi 0 of 3", "kumi 1 of 3", "kumi 2 of 3"]);
    assert_eq!(said.err, "wrong\n".repeat(3));

    // One rank fails: the others end too, whatever they do.
    let begin = Instant::now();
    let one = run(&cluster, sh("[ $KUMI_RANK = 1 ] && exit 7; sleep 100", 4)).await;
    let Outcome::RankFailed { rank: 1, status: RankStatus::Exited(7), .. } = one.outcome else {
        panic!("{one:?}");
    };
    assert!(begin.elapsed() < Duration::from_secs(60));

    // What a rank leaves in the background goes with it.
    let left = run(&cluster, sh("sleep 1000 & exec sleep 0", 2)).await;
    assert_eq!(left.outcome, Outcome::Success);
    assert!(nothing_left(&cluster));
}

#[tokio::test(flavor = "current_thread")]
async fn ranks_have_only_what_they_should() {
    let cluster = Cluster::up(1, ModeName::Gang).await;
    let listed =
        run(&cluster, request(&["/bin/sh", "-c", "ls -l /proc/self/fd; echo $KUMI_FDS"], 2)).await;
    assert_eq!(listed.outcome, Outcome::Success, "{listed:?}");
    // Per rank: three streams, job file and shared file, socket; of each of two ranks a doorbell and two files; two pages;
    // and the folder that `ls` reads.
    let links = listed.out.lines().filter(|line| line.contains("->")).count();
    assert_eq!(links, 2 * 15, "{}", listed.out);
}

#[tokio::test(flavor = "current_thread")]
async fn refusals_are_typed() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let refused = |outcome| match outcome {
        Outcome::Refused(Refusal { kind, message }) => (kind, message),
        other => panic!("{other:?}\n{}", cluster.logs()),
    };
    let mut nowhere = request(&["/bin/true"], 2);
    nowhere.cwd = "/no/such/folder".into();
    let (kind, message) = refused(run(&cluster, nowhere).await.outcome);
    assert_eq!(kind, RefusalKind::NotFound);
    assert!(message.contains("/no/such/folder"), "{message}");

    let script = cluster.path().join("script");
    let words = [script.to_str().unwrap()];
    let programs = [
        ("#!/no/such/interpreter\n", 0o755, "the interpreter it names is not on the node"),
        // Nodes would run copies of it, which this client does not send.
        ("#!/bin/sh\n", 0o644, "the client that could send it is not connected"),
    ];
    for (content, mode, why) in programs {
        std::fs::write(&script, content).unwrap();
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
        std::fs::set_permissions(&script, mode).unwrap();
        let (kind, message) = refused(run(&cluster, request(&words, 2)).await.outcome);
        assert_eq!(kind, RefusalKind::NotFound, "{message}");
        assert!(message.contains(why), "{message}");
    }
    assert!(nothing_left(&cluster));
}

#[tokio::test(flavor = "current_thread")]
async fn programs_are_distributed_once() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("greet");
    let content = b"#!/bin/sh\necho from the cache\n".to_vec();
    std::fs::write(&path, &content).unwrap();
    let wanted = request(&[path.to_str().unwrap()], 2);
    // The file at the path is another one now, so only the client has what it asked for.
    std::fs::write(&path, "#!/bin/sh\nexit 9\n").unwrap();
    for round in 0..2 {
        let mut again = wanted.clone();
        again.token += round << 32;
        let mut client = cluster.client().await;
        client.send(&ClientRequest::Submit(Box::new(again))).await.unwrap();
        let mut asked = 0;
        let ran = loop {
            let reply = client.next().await.unwrap().unwrap();
            match reply {
                ClientReply::ProgramWanted(hash) => {
                    asked += 1;
                    let (offset, total, data) = (0, content.len() as u64, content.clone());
                    let chunk = ClientRequest::ProgramChunk { hash, offset, total, data };
                    client.send(&chunk).await.unwrap();
                }
                ClientReply::State { state: kumi_control::message::JobState::Running, .. } => {
                    break collect(&cluster, &mut client, |_| {}).await;
                }
                ClientReply::Ended { outcome, .. } => panic!("{outcome:?}\n{}", cluster.logs()),
                _ => {}
            }
        };
        assert_eq!(ran.outcome, Outcome::Success);
        assert_eq!(ran.out, "from the cache\n".repeat(2));
        assert_eq!(asked, usize::from(round == 0), "round {round}");
    }
    let mode = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    let mut cached = 0;
    for node in 0..2 {
        let cache = paths::cache(cluster.path(), NodeId(node));
        assert_eq!(mode(&cache), 0o711);
        for entry in std::fs::read_dir(&cache).unwrap() {
            cached += 1;
            assert_eq!(mode(&entry.unwrap().path()), 0o500);
        }
    }
    assert!(cached > 0, "no node keeps it");
}

#[tokio::test(flavor = "current_thread")]
async fn input_signals_and_kill_reach_ranks() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let (job, mut client) = start(&cluster, request(&["/bin/cat"], 1)).await;
    let input = |data: &[u8]| ClientRequest::Input { job, data: data.to_vec() };
    client.send(&input(b"hello ")).await.unwrap();
    client.send(&input(b"there")).await.unwrap();
    client.send(&input(b"")).await.unwrap();
    let echoed = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!((echoed.outcome, echoed.out.as_str()), (Outcome::Success, "hello there"));

    let script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done";
    let (job, mut client) = start(&cluster, request(&["/bin/sh", "-c", script], 2)).await;
    let mut other = cluster.client().await;
    let mut ready = 0;
    while ready < 2 {
        if let ClientReply::Output { stream: Stream::Out, data, .. } =
            client.next().await.unwrap().unwrap()
        {
            ready += data.iter().filter(|&&byte| byte == b'\n').count();
        }
    }
    other.send(&ClientRequest::Signal { job, signal: 2 }).await.unwrap();
    let caught = collect(&cluster, &mut client, |_| {}).await;
    let Outcome::RankFailed { status: RankStatus::Exited(5), .. } = caught.outcome else {
        panic!("{caught:?}");
    };
    assert!(caught.out.contains("caught"));

    let (job, mut client) = start(&cluster, request(&["/bin/sleep", "1000"], 4)).await;
    let mut other = cluster.client().await;
    assert_eq!(
        other.ask(&ClientRequest::Kill { job, grace_ns: 0 }).await.unwrap(),
        ClientReply::Done
    );
    assert_eq!(collect(&cluster, &mut client, |_| {}).await.outcome, Outcome::Killed);
    assert!(nothing_left(&cluster));
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_take_turns() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let busy = ["/bin/sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done"];
    let both = || kumi_control::message::JobRequest { nodes: Some(2), ..request(&busy, 2) };
    let (first, mut a) = start(&cluster, both()).await;
    let (second, mut b) = start(&cluster, both()).await;
    assert_ne!(first, second);
    let ended = collect(&cluster, &mut a, |_| {}).await;
    assert_eq!((ended.outcome, ended.out.as_str()), (Outcome::Success, "done\ndone\n"));
    assert_eq!(collect(&cluster, &mut b, |_| {}).await.outcome, Outcome::Success);
    let mut client = cluster.client().await;
    let ClientReply::Samples(samples) = client.ask(&ClientRequest::Sample).await.unwrap() else {
        panic!("no samples");
    };
    assert_eq!(samples.len(), 2);
    for sample in &samples {
        assert!(sample.switching.count > 0, "{sample:?}\n{}", cluster.logs());
        assert_eq!(sample.refused, []);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_killed_daemon_leaves_nothing_and_comes_back() {
    let mut cluster = Cluster::up(2, ModeName::Gang).await;
    let (_, mut client) = start(&cluster, request(&["/bin/sleep", "4321"], 4)).await;
    let mut daemon = cluster.nodes[1].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let lost = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(lost.outcome, Outcome::NodeLost(NodeId(1)), "{}", cluster.logs());
    if let Some(groups) = cluster.groups() {
        until(&cluster, "the watcher cleans up", || !groups.join("node-1").exists()).await;
    }
    until(&cluster, "no rank is left", || !sleeps("4321")).await;
    cluster.start_node(1);
    cluster.wait_attached(2).await;
    assert_eq!(run(&cluster, request(&["/bin/true"], 4)).await.outcome, Outcome::Success);
}

#[tokio::test(flavor = "current_thread")]
async fn nodes_below_a_lost_one_find_another_parent() {
    let mut cluster = Cluster::configured(7, ModeName::Gang);
    cluster.config.fan_out = 2;
    cluster.config.save(cluster.path()).unwrap();
    let mut cluster = cluster.start().await;
    let on = |nodes| kumi_control::message::JobRequest {
        nodes: Some(nodes),
        ..request(&["/bin/sh", "-c", "echo $KUMI_NODE"], nodes)
    };
    let all = run(&cluster, on(7)).await;
    assert_eq!(all.outcome, Outcome::Success, "{}", cluster.logs());
    assert_eq!(all.out.lines().count(), 7);
    assert!(cluster.logs().contains("parent=Node(NodeId(2))"), "{}", cluster.logs());
    // Above nodes 2, 3 and 6.
    let mut inner = cluster.nodes[0].take().unwrap();
    inner.kill().unwrap();
    inner.wait().unwrap();
    cluster.wait_attached(6).await;
    let rest = run(&cluster, on(6)).await;
    assert_eq!(rest.outcome, Outcome::Success, "{}", cluster.logs());
    let mut nodes: Vec<_> = rest.out.lines().collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["1", "2", "3", "4", "5", "6"]);
}

/// While the head runs, and of what it has written.
#[tokio::test(flavor = "current_thread")]
async fn of_ended_jobs_no_more_is_kept_than_is_configured() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.config.retention.jobs = 1;
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let mut jobs = Vec::new();
    for word in ["one", "two", "three"] {
        let ran = run(&cluster, request(&["/bin/echo", word], 1)).await;
        assert_eq!((ran.outcome, ran.out), (Outcome::Success, format!("{word}\n")));
        jobs.push(ran.job);
    }
    let spool =
        |job: &kumi_sched::JobId| kumi_node::paths::spool(cluster.path()).join(format!("{job}.0"));
    assert_eq!(
        jobs.iter().map(|job| spool(job).exists()).collect::<Vec<_>>(),
        [false, false, true]
    );
    let listed = cluster
        .client()
        .await
        .ask(&ClientRequest::Jobs(JobsQuery::first_page(true)))
        .await
        .unwrap();
    let ClientReply::Jobs(JobsPage { list, .. }) = listed else { panic!("{listed:?}") };
    assert_eq!(list.records.iter().map(|record| record.spec.job).collect::<Vec<_>>(), jobs[2..]);
    let table = rusqlite::Connection::open(kumi_node::paths::head_db(cluster.path())).unwrap();
    let rows = || table.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0));
    until(&cluster, "their records are removed", || rows() == Ok(1)).await;
}

/// More than the daemons on its way keep of it at a time.
#[tokio::test(flavor = "current_thread")]
async fn much_output_comes_whole_through_daemons_in_between() {
    let mut cluster = Cluster::configured(3, ModeName::Gang);
    cluster.config.fan_out = 1;
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let text = "[ $KUMI_NODE != 2 ] || head -c 24000000 /dev/zero | tr '\\0' x";
    let wide = kumi_control::message::JobRequest {
        nodes: Some(3),
        ..request(&["/bin/sh", "-c", text], 3)
    };
    let ran = run(&cluster, wide).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert!(cluster.logs().contains("parent=Node(NodeId(1))"), "{}", cluster.logs());
    assert_eq!(ran.out.bytes().filter(|&byte| byte == b'x').count(), 24_000_000);
}

#[tokio::test(flavor = "current_thread")]
async fn a_daemon_cleans_up_after_its_former_life() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    // With keepers the job would go on.
    cluster.config.keep_ms = None;
    cluster.config.save(cluster.path()).unwrap();
    let mut cluster = cluster.start().await;
    if cluster.groups().is_none() {
        let reason = "no control groups, nothing would say what is left";
        return kumi_skip::skip("a_daemon_cleans_up_after_its_former_life", reason);
    }
    let script = request(&["/bin/sh", "-c", "/bin/sleep 8765 & echo; wait"], 1);
    let (_, mut client) = start(&cluster, script).await;
    until(&cluster, "the rank sleeps", || sleeps("8765")).await;
    // The watcher dies while the daemon cannot start another.
    let mut daemon = cluster.nodes[0].take().unwrap();
    Cluster::signal(&daemon, Signal::SIGSTOP);
    let watcher = watcher_of(daemon.id()).expect("a watcher");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(watcher), Signal::SIGKILL).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(sleeps("8765"));
    cluster.start_node(0);
    let lost = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(lost.outcome, Outcome::NodeLost(NodeId(0)), "{}", cluster.logs());
    until(&cluster, "the leftover is killed", || !sleeps("8765")).await;
    cluster.wait_attached(1).await;
    assert_eq!(run(&cluster, request(&["/bin/true"], 1)).await.outcome, Outcome::Success);
}

/// Whether a `sleep` for so long runs.
fn sleeps(long: &str) -> bool {
    let wanted = format!("/bin/sleep\0{long}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line == wanted.as_bytes())
}

/// The watcher of a daemon.
fn watcher_of(daemon: u32) -> Option<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.find(|pid| {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let parent = read("stat")
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(daemon) && read("cmdline").contains("\0watch\0")
    })
}

#[tokio::test(flavor = "current_thread")]
async fn a_dead_watcher_is_replaced() {
    let mut cluster = Cluster::up(1, ModeName::Gang).await;
    let (_, mut client) = start(&cluster, request(&["/bin/sleep", "6543"], 1)).await;
    let daemon = cluster.nodes[0].as_ref().unwrap().id();
    let first = watcher_of(daemon).expect("a watcher");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), Signal::SIGKILL).unwrap();
    until(&cluster, "another watcher", || watcher_of(daemon).is_some_and(|pid| pid != first)).await;
    let mut daemon = cluster.nodes[0].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let lost = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(lost.outcome, Outcome::NodeLost(NodeId(0)), "{}", cluster.logs());
    until(&cluster, "no rank is left", || !sleeps("6543")).await;
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_outlive_the_head() {
    let mut cluster = Cluster::up(2, ModeName::Gang).await;
    let script = "echo begin; sleep 0.7; echo end";
    let (job, mut client) = start(&cluster, request(&["/bin/sh", "-c", script], 2)).await;
    // Output that is on its way when the head dies is lost, so both have to be here.
    let mut begun = 0;
    while begun < 2 {
        if let ClientReply::Output { data, .. } = client.next().await.unwrap().unwrap() {
            begun += data.iter().filter(|&&byte| byte == b'\n').count();
        }
    }
    let mut head = cluster.head.take().unwrap();
    head.kill().unwrap();
    head.wait().unwrap();
    cluster.start_head();
    cluster.wait_attached(2).await;
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Follow { job, offset: 0, wait: true }).await.unwrap();
    let ran = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert_eq!(ran.out.matches("begin").count(), 2, "{}", ran.out);
    assert_eq!(ran.out.matches("end").count(), 2, "{}", ran.out);
    assert_eq!(run(&cluster, request(&["/bin/true"], 2)).await.job.0, job.0 + 1);
}

#[tokio::test(flavor = "current_thread")]
async fn shutdown_stops_every_daemon() {
    let mut cluster = Cluster::up(2, ModeName::Os).await;
    let (_, _client) = start(&cluster, request(&["/bin/sleep", "1000"], 2)).await;
    let mut client = cluster.client().await;
    assert_eq!(client.ask(&ClientRequest::Shutdown).await.unwrap(), ClientReply::Done);
    let mut children: Vec<_> = cluster.nodes.iter_mut().map(|node| node.take().unwrap()).collect();
    children.extend(cluster.head.take());
    for child in &mut children {
        until(&cluster, "every daemon ends", || child.try_wait().unwrap().is_some()).await;
        assert!(child.wait().unwrap().success(), "{}", cluster.logs());
    }
    assert_eq!(cluster.groups(), None);
    for name in ["head.sock", "head.pid", "node-0.sock", "node-0.pid"] {
        assert!(!cluster.path().join(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn daemons_say_why_they_do_not_start() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head();
    drop(cluster.client().await);
    let ends = |arguments: &[&str]| {
        let log = cluster.path().join("second.log");
        let status = cluster.command(arguments, &log).status().unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        (status.code().unwrap(), text)
    };
    let (code, text) = ends(&["head"]);
    assert_eq!(code, 73, "{text}");
    assert!(text.contains("kumid: ") && text.contains("runs already, as process"), "{text}");
    let (code, text) = ends(&["node", "--node", "5"]);
    assert_eq!(code, 65, "{text}");
    assert!(text.contains("there is no node 5"), "{text}");
    std::fs::remove_file(cluster.path().join("tls/node-0.key")).unwrap();
    let (code, text) = ends(&["node", "--node", "0"]);
    assert_eq!(code, 65, "{text}");
    assert!(text.contains("node-0.key"), "{text}");
    let (code, _) = ends(&["nonsense"]);
    assert_eq!(code, 64);
}

#[tokio::test(flavor = "current_thread")]
async fn clients_of_a_node_are_relayed() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let socket = paths::node_socket(cluster.path(), NodeId(1));
    let mut client = kumi_node::client::Client::connect_to(&socket).await.unwrap();
    let job = request(&["/usr/bin/id", "-u"], 1);
    client.send(&ClientRequest::Submit(Box::new(job))).await.unwrap();
    let ran = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(ran.out.trim(), nix::unistd::geteuid().to_string());
}

#[tokio::test(flavor = "current_thread")]
async fn a_terminated_node_frees_its_jobs() {
    let mut cluster = Cluster::up(2, ModeName::Gang).await;
    let (_, mut client) = start(&cluster, request(&["/bin/sleep", "5432"], 2)).await;
    let mut daemon = cluster.nodes[0].take().unwrap();
    Cluster::signal(&daemon, Signal::SIGTERM);
    until(&cluster, "the daemon ends", || daemon.try_wait().unwrap().is_some()).await;
    let outcome = collect(&cluster, &mut client, |_| {}).await.outcome;
    assert_ne!(outcome, Outcome::Success, "{}", cluster.logs());
    assert!(!sleeps("5432"));
}

/// Daemons go before ranks: these have the `nice` value that the daemon had, or more where it may not be preferred.
#[tokio::test(flavor = "current_thread")]
async fn ranks_are_not_preferred() {
    let cluster = Cluster::up(1, ModeName::Gang).await;
    let own = kumi_net::priority::nice().expect("a nice value");
    let preferred = std::thread::spawn(|| kumi_net::priority::prefer_this_thread().is_ok());
    let expected = if preferred.join().expect("it ends") { own } else { (own + 5).min(19) };
    let ran = run(&cluster, request(&["/bin/sh", "-c", "nice"], 1)).await;
    assert_eq!((ran.outcome, &*ran.out), (Outcome::Success, &*format!("{expected}\n")));
}
