//! What ranks may do is what their users may do, not what the daemons may.

mod common;

use common::{Cluster, ModeName, collect, request, run};
use kumi_control::message::{
    ClientReply, ClientRequest, JobRequest, Limit, Outcome, ProcessLimits, Resource, UNLIMITED,
};
use kumi_node::client::Client;
use kumi_node::{paths, process_limits};
use kumi_sched::NodeId;

/// A rank that says its mask, open files (soft and hard), core dumps, real-time priority and locked memory.
const SAY: &str = "umask; ulimit -n; ulimit -H -n; ulimit -c; ulimit -r; ulimit -l";

fn own() -> ProcessLimits {
    process_limits::own().expect("/proc tells")
}

fn asking(limits: Option<ProcessLimits>, env: &[(&str, &str)]) -> JobRequest {
    let mut job = request(&["/bin/sh", "-c", SAY], 1);
    job.env.extend(env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    JobRequest { limits, ..job }
}

/// Kilobytes, as the shell says them.
fn kilobytes(bytes: u64) -> String {
    if bytes == UNLIMITED { "unlimited".to_owned() } else { (bytes / 1024).to_string() }
}

#[tokio::test(flavor = "current_thread")]
async fn ranks_have_their_users_limits_and_never_the_daemons() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head();
    drop(cluster.client().await);
    // As under the unit for systemd, as far as this user may.
    let script = "umask 0\nulimit -n $(ulimit -H -n)\nulimit -l unlimited || :\nulimit -r 50 || :";
    cluster.start_node_after(0, script);
    cluster.wait_attached(1).await;
    let mut limits = own();
    limits.umask = 0o027;
    limits.set(Resource::Nofile, Limit::new(321, 400));
    limits.set(Resource::Core, Limit::new(0, 0));
    let ran = run(&cluster, asking(Some(limits), &[])).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    let locked = kilobytes(own().get(Resource::Memlock).soft);
    assert_eq!(ran.out, format!("0027\n321\n400\n0\n0\n{locked}\n"), "{}", cluster.logs());
    // Of a client that says nothing the kernel is asked, and the mask is the usual one.
    let ran = run(&cluster, asking(None, &[])).await;
    let files = own().get(Resource::Nofile);
    let said: Vec<_> = ran.out.lines().collect();
    assert_eq!(said[..2], ["0022".to_owned(), files.soft.to_string()], "{ran:?}");
    assert_eq!(said[4..], ["0".to_owned(), locked], "{ran:?}");
}

/// Through the head's socket, and through that of a node.
#[tokio::test(flavor = "current_thread")]
async fn a_client_cannot_claim_more_than_it_has() {
    let cluster = Cluster::up(1, ModeName::Gang).await;
    let mut claimed = own();
    for resource in [Resource::Rtprio, Resource::Nice, Resource::Memlock] {
        claimed.set(resource, Limit::new(UNLIMITED, UNLIMITED));
    }
    // The daemon was started with one more.
    let before = own().get(Resource::Sigpending);
    let less = before.hard - 1;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_SIGPENDING, less, less)
        .unwrap();
    claimed.set(Resource::Sigpending, before);
    let has = own().get(Resource::Rtprio).hard;
    // Its handler needs 11.
    let expected = if has < 11 { 0 } else { 11 };
    let locked = kilobytes(own().get(Resource::Memlock).hard);
    for socket in
        [paths::head_socket(cluster.path()), paths::node_socket(cluster.path(), NodeId(0))]
    {
        let mut client = Client::connect_to(&socket).await.unwrap();
        let mut job = asking(Some(claimed), &[("KUMI_HANDLER", "fifo:high")]);
        job.args[2] = format!("{SAY}; grep pending /proc/self/limits");
        client.send(&ClientRequest::Submit(Box::new(job))).await.unwrap();
        let ran = collect(&cluster, &mut client, |_| {}).await;
        let said: Vec<_> = ran.out.lines().collect();
        assert!(said[6].contains(&format!(" {less} ")), "{ran:?}");
        assert_eq!(
            said[4..6],
            [expected.to_string(), locked.clone()],
            "{ran:?}\n{}",
            cluster.logs()
        );
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_cluster_gives_less_and_says_so_once() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.config.limits.nofile = Some(99);
    cluster.config.limits.core = Some(512);
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let mut limits = own();
    limits.set(Resource::Core, Limit::new(0, UNLIMITED));
    let job = asking(Some(limits), &[]);
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Submit(Box::new(job))).await.unwrap();
    let mut notes = Vec::new();
    let ran = collect(&cluster, &mut client, |reply| {
        if let ClientReply::Note(text) = reply {
            notes.push(text.clone());
        }
    })
    .await;
    let said: Vec<_> = ran.out.lines().collect();
    assert_eq!(said[1..4], ["99", "99", "0"], "{ran:?}");
    let [note] = &notes[..] else { panic!("{notes:?}") };
    let had = process_limits::words(own().get(Resource::Nofile).soft);
    assert!(note.contains(&format!("nofile 99 instead of {had}")), "{note}");
    assert!(!note.contains("core"), "only what a rank has less of: {note}");
}

/// The value of a key in a unit for systemd.
fn of_unit(unit: &str, key: &str) -> String {
    let path = format!("{}/../../packaging/{unit}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("{path} has no {key}")).to_owned()
}

/// What its unit leaves it is all that the head needs.
#[tokio::test(flavor = "current_thread")]
async fn the_head_runs_with_the_rights_of_its_unit() {
    const TEST: &str = "the_head_runs_with_the_rights_of_its_unit";
    let has_setpriv = std::process::Command::new("setpriv").arg("--version").output().is_ok();
    if !nix::unistd::geteuid().is_root() || !has_setpriv {
        return kumi_skip::skip(TEST, "needs root, and setpriv");
    }
    let kept = of_unit("kumid-head.service", "CapabilityBoundingSet").to_lowercase();
    let kept: String = kept.split(' ').map(|name| name.replace("cap_", ",+")).collect();
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head_with(&format!("-all{kept}"));
    drop(cluster.client().await);
    let head = cluster.head.as_ref().unwrap().id();
    let status = std::fs::read_to_string(format!("/proc/{head}/status")).unwrap();
    // CAP_SYS_NICE alone.
    assert!(status.contains(&format!("CapBnd:\t{:016x}", 1 << 23)), "{status}");
    cluster.start_node(0);
    cluster.wait_attached(1).await;
    let mut limits = own();
    limits.set(Resource::Rtprio, Limit::new(7, 7));
    let ran = run(&cluster, asking(Some(limits), &[])).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert!(!cluster.logs().contains("no preference"), "{}", cluster.logs());
}

/// The unit protects daemons from the OOM killer; ranks are not protected.
#[tokio::test(flavor = "current_thread")]
async fn ranks_are_not_protected_from_the_oom_killer() {
    let score = of_unit("kumid-node@.service", "OOMScoreAdjust");
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head();
    drop(cluster.client().await);
    cluster.start_node_after(0, &format!("echo {score} > /proc/$$/oom_score_adj || :"));
    cluster.wait_attached(1).await;
    let daemon = cluster.nodes[0].as_ref().unwrap().id();
    let of_daemon = std::fs::read_to_string(format!("/proc/{daemon}/oom_score_adj")).unwrap();
    let ran = run(&cluster, request(&["/bin/cat", "/proc/self/oom_score_adj"], 1)).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert!(!ran.out.starts_with('-'), "{}", ran.out);
    if of_daemon.trim() != score {
        let reason = "the system does not let the daemon be protected (CAP_SYS_RESOURCE)";
        kumi_skip::impossible("ranks_are_not_protected_from_the_oom_killer", reason);
    }
}
