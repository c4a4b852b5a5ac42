//! A network that loses, throttles and parts: in the namespaces that the test's cluster made, and
//! nowhere else.
#![forbid(unsafe_code)]

use kumi_tests::cluster::{TestCluster, Wire};
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::faults::{
    lose, lose_on_the_way, lost, lost_on_the_way, on_node, possible, refuse, refused,
};
use kumi_tests::{binaries, machine};

/// Verified runs of kernels that exchange much, on two nodes.
#[track_caller]
fn kernels_verify(cluster: &TestCluster) {
    for (name, file) in [("IS", "is"), ("CG", "cg"), ("FT", "ft")] {
        let path = binaries::path(file).display().to_string();
        let args = ["run", "-n", "2", "--nodes", "2", "--name", name, &path, "--class", "S"];
        let out = cluster.kumi(&args).ok().out;
        assert!(is_verified(&out), "{name}: {out}");
    }
}

/// Whether a kernel found its own result right.
fn is_verified(out: &str) -> bool {
    out.lines()
        .any(|line| line.trim_start().starts_with("Verification") && line.ends_with(" SUCCESSFUL"))
}

fn survives_loss(test: &str, probability: &str) {
    if !possible(test) {
        return;
    }
    let cluster = TestCluster::up(2);
    for node in 0..2 {
        lose(&cluster, node, probability);
    }
    kernels_verify(&cluster);
    assert!(lost(&cluster, 0) + lost(&cluster, 1) > 0, "no packet was lost");
}

/// The same, of ranks with AF_XDP: frames pass no filter of their nodes, so the switch loses them.
fn survives_loss_with_af_xdp(test: &str, probability: &str) {
    if !possible(test) {
        return;
    }
    let cluster = TestCluster::up_with(2, &Wire::Xdp.options());
    if !lose_on_the_way(&cluster, probability) {
        return kumi_skip::skip(test, "bridges have no filter (br_netfilter)");
    }
    kernels_verify(&cluster);
    assert!(lost_on_the_way(&cluster) > 0, "no packet was lost");
}

#[test]
fn five_per_cent_of_all_packets_lost() {
    survives_loss("five_per_cent_of_all_packets_lost", "0.05");
}

#[test]
fn twenty_per_cent_of_all_packets_lost() {
    survives_loss("twenty_per_cent_of_all_packets_lost", "0.20");
}

#[test]
fn five_per_cent_of_all_packets_lost_with_af_xdp() {
    survives_loss_with_af_xdp("five_per_cent_of_all_packets_lost_with_af_xdp", "0.05");
}

#[test]
fn twenty_per_cent_of_all_packets_lost_with_af_xdp() {
    survives_loss_with_af_xdp("twenty_per_cent_of_all_packets_lost_with_af_xdp", "0.20");
}

#[test]
fn loss_while_jobs_are_switched() {
    if !possible("loss_while_jobs_are_switched") {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--slice", "1ms"]);
    for node in 0..2 {
        lose(&cluster, node, "0.05");
    }
    // Whatever else runs takes turns with this one.
    let lockstep = binaries::path("lockstep").display().to_string();
    let on_both = ["run", "-n", "2", "--nodes", "2", "--name", "beside", &lockstep];
    let beside = cluster.start(&[&on_both[..], &["--seconds", "600"]].concat());
    let number = cluster.wait_state("beside", "running")["job"].to_string();
    let path = binaries::path("is").display().to_string();
    let args = ["run", "-n", "2", "--nodes", "2", &path, "--class", "S"];
    let jobs: Vec<RunningCommand> = (0..3).map(|_| cluster.start(&args)).collect();
    for job in jobs {
        let out = job.finish().ok().out;
        assert!(is_verified(&out), "{out}");
    }
    assert!(lost(&cluster, 0) + lost(&cluster, 1) > 0, "no packet was lost");
    let stats = cluster.json(&["stats", "--json"]);
    for node in stats["nodes"].as_array().expect("nodes") {
        assert!(node["switching"]["count"].as_u64() > Some(0), "{node}");
    }
    cluster.kumi(&["kill", &number]).ok();
    beside.finish().fails(137, &[]);
}

#[test]
fn a_slow_wire() {
    if !possible("a_slow_wire") {
        return;
    }
    let cluster = TestCluster::up(2);
    let interface = |node| {
        let links = on_node(&cluster, node, "ip -o link show type veth");
        let name = links.split(": ").nth(1).and_then(|name| name.split('@').next());
        name.expect("the node's interface").to_owned()
    };
    for node in 0..2 {
        let limit = "root tbf rate 100mbit burst 32kbit latency 20ms";
        on_node(&cluster, node, &format!("tc qdisc add dev {} {limit}", interface(node)));
    }
    kernels_verify(&cluster);
    for node in 0..2 {
        // Packets that had to wait: "... (dropped 0, overlimits 12 requeues 0)".
        let queue = on_node(&cluster, node, &format!("tc -s qdisc show dev {}", interface(node)));
        let late = queue.split("overlimits ").nth(1).and_then(|rest| rest.split(' ').next());
        let late: u64 = late.and_then(|word| word.parse().ok()).expect("a count");
        assert!(late > 0, "the wire of node {node} was fast enough: {queue}");
    }
}

/// What the other node or a router says of a path is no reason to end.
#[test]
fn a_path_that_is_refused_for_a_while() {
    if !possible("a_path_that_is_refused_for_a_while") {
        return;
    }
    let cluster = TestCluster::up(2);
    let enough = cluster.state().join("enough").display().to_string();
    let program = binaries::path("kumi-bench-soak").display().to_string();
    let mut args = vec!["run", "-n", "2", "--nodes", "2", "--name", "refused"];
    args.extend([&*program, "--rounds", "1", "--until", &enough]);
    let job = cluster.start(&args);
    cluster.wait_state("refused", "running");
    for answer in ["icmp-proto-unreachable", "icmp-host-prohibited", "icmp-net-unreachable"] {
        refuse(&cluster, 1, answer);
        command::wait_for(answer, || (refused(&cluster, 1) > 3).then_some(()));
    }
    on_node(&cluster, 1, "iptables -F INPUT");
    std::fs::write(&enough, "").expect("the sign that it is enough");
    let out = job.finish().ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
}

#[test]
fn a_node_that_is_cut_off_ends_its_jobs_and_comes_back() {
    if !possible("a_node_that_is_cut_off_ends_its_jobs_and_comes_back") {
        return;
    }
    let cluster = TestCluster::up_with(3, &["--lease", "2s"]);
    let script = "echo $$; exec sleep 600";
    let args = ["run", "-n", "3", "--nodes", "3", "--name", "cut", "sh", "-c", script];
    let job = cluster.start(&args);
    let record = cluster.wait_state("cut", "running");
    let ranks = cluster.wait_lines(&record, 3);
    on_node(&cluster, 2, "iptables -A INPUT ! -i lo -j DROP");
    on_node(&cluster, 2, "iptables -A OUTPUT ! -o lo -j DROP");
    job.finish().fails(75, &["node2", "lost"]);
    // The side without the head ends its ranks by itself, when its lease runs out.
    command::wait_for("end of the ranks on both sides", || {
        let living = |rank: &String| machine::lives(rank.parse().expect("a process number"));
        (!ranks.iter().any(living)).then_some(())
    });
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "true"]).ok();
    on_node(&cluster, 2, "iptables -F");
    command::wait_for("return of the node", || (cluster.nodes_up() == 3).then_some(()));
    cluster.kumi(&["run", "-n", "3", "--nodes", "3", "true"]).ok();
}
