//! Encrypted packets between nodes, as somebody sees them who reads the wire.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::wire::{Capture, CapturedTraffic};
use kumi_tests::{binaries, machine};

/// What `kumi-bench-pingpong` writes, and nothing else has on this wire.
const WORDS: [u8; 48] = [b'k'; 48];

fn possible(test: &str) -> bool {
    if machine::has_namespaces() {
        return true;
    }
    kumi_skip::skip(test, "network namespaces are not permitted");
    false
}

/// Two ranks on two nodes put words into each other's windows, as a job of this name.
fn listen(cluster: &TestCluster, name: &str, options: &[&str]) -> CapturedTraffic {
    let capture = Capture::start(cluster, &WORDS);
    let path = binaries::path("kumi-bench-pingpong").display().to_string();
    let mut args = vec!["run", "-n", "2", "--nodes", "2", "--name", name];
    args.extend(options);
    args.extend([&*path, "--size", "64", "--batches", "1", "--batch", "50"]);
    cluster.kumi(&args).ok();
    capture.finish()
}

/// What `kumi ps` says of it.
fn is_encrypted(cluster: &TestCluster, name: &str) -> bool {
    let job = cluster.job(name).expect("the job");
    job["encrypted"].as_bool().expect("true or false")
}

#[test]
fn what_ranks_send_is_on_the_wire_in_clear_or_not_at_all() {
    if !possible("what_ranks_send_is_on_the_wire_in_clear_or_not_at_all") {
        return;
    }
    let cluster = TestCluster::up(2);
    // 21 batches of 50 round trips, a packet each way.
    let clear = listen(&cluster, "clear", &[]);
    assert!(clear.with_words > 1_000 && clear.clear > 1_000, "{clear:?}");
    assert_eq!(clear.encrypted, 0);
    assert!(!is_encrypted(&cluster, "clear"));
    let sealed = listen(&cluster, "sealed", &["--encrypt"]);
    assert!(sealed.encrypted > 1_000, "{sealed:?}");
    assert_eq!((sealed.clear, sealed.with_words), (0, 0));
    assert!(is_encrypted(&cluster, "sealed"));
    // A program that exchanges much and checks its result.
    let path = binaries::path("is").display().to_string();
    let args = ["run", "-n", "4", "--nodes", "2", "--encrypt", &path, "--class", "S"];
    let out = cluster.kumi(&args).ok().out;
    assert!(out.lines().any(|line| line.ends_with(" SUCCESSFUL")), "{out}");
}

#[test]
fn a_cluster_encrypts_unless_told_otherwise() {
    if !possible("a_cluster_encrypts_unless_told_otherwise") {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--encrypt"]);
    let config = std::fs::read_to_string(cluster.path().join("cluster.toml")).expect("readable");
    assert!(config.lines().any(|line| line == "encrypt = true"), "{config}");
    let sealed = listen(&cluster, "sealed", &[]);
    assert!(sealed.encrypted > 1_000, "{sealed:?}");
    assert_eq!((sealed.clear, sealed.with_words), (0, 0));
    let clear = listen(&cluster, "clear", &["--encrypt=off"]);
    assert!(clear.with_words > 1_000, "{clear:?}");
    assert_eq!(clear.encrypted, 0);
    assert!(is_encrypted(&cluster, "sealed") && !is_encrypted(&cluster, "clear"));
}
