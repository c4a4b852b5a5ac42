//! Attackers on the wire and within a node, while a job runs that compares its memory with a reference.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::faults::{possible, within};
use kumi_tests::scribbler::{Region, Scribbler};
use kumi_tests::{binaries, machine};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Longest datagram of a wire with an MTU of 1,500.
const DATAGRAM: usize = 1_472;
/// Bytes of a long packet that its checksum covers with `--checksum headers`.
const COVERED: usize = 128;
/// Datagrams that the attacker keeps, to send old ones too.
const KEPT: usize = 64;

/// The attacker's own port; those of ranks are not that low.
const PORT: u16 = 4_242;

/// A packet of the channel protocol on the wire: to whom, and what.
type Seen = (SocketAddrV4, Vec<u8>);

/// Hands on packets of ranks that pass the switch, as fast as the attacker takes them.
fn listen(stop: &AtomicBool, seen: &SyncSender<Seen>) {
    let everything = SockProtocol::EthAll;
    let tap = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, everything);
    let tap = tap.expect("a packet socket");
    setsockopt(&tap, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20)).expect("timeout");
    let mut frame = vec![0; 1 << 17];
    while !stop.load(Ordering::Acquire) {
        let Ok(length) = recv(tap.as_raw_fd(), &mut frame, MsgFlags::empty()) else { continue };
        // Ethernet 14 bytes, IPv4 20, UDP 8; protocol 17; the packet has `K` `U` at byte 4.
        let frame = &frame[..length];
        let Some(payload) = frame.get(42..).filter(|payload| payload.len() <= DATAGRAM) else {
            continue;
        };
        let own = frame[34..36] == PORT.to_be_bytes();
        if frame[23] != 17 || own || payload.get(4..6) != Some(b"KU") {
            continue;
        }
        let [a, b, c, d] = [frame[30], frame[31], frame[32], frame[33]];
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port);
        // What the attacker has no time for is not attacked.
        drop(seen.try_send((to, payload.to_vec())));
    }
}

/// Sends again what was seen: as it was, old, to somebody else, cut, longer, of another version, with bits
/// changed among the first `reach` bytes, and noise. How many.
fn attack(seen: &Receiver<Seen>, reach: usize) -> u64 {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a socket");
    let mut kept: Vec<Seen> = Vec::new();
    let mut sent = 0;
    let mut send = |to: SocketAddrV4, bytes: &[u8]| {
        // A rank that has ended has no socket: the kernel says so at the next one.
        if socket.send_to(bytes, to).is_ok() {
            sent += 1;
        }
    };
    for (turn, (to, packet)) in seen.iter().enumerate() {
        send(to, &packet);
        if let Some((other, old)) = kept.get(turn % KEPT) {
            send(*other, old);
            send(to, old);
        }
        send(to, &packet[..turn % packet.len()]);
        send(to, &[&packet[..], &[turn as u8; 9]].concat());
        let mut version = packet.clone();
        version[6] ^= 3;
        send(to, &version);
        for at in [turn, turn * 7 + 1, turn * 31 + 2] {
            let mut changed = packet.clone();
            let bit = at % (8 * packet.len().min(reach));
            changed[bit / 8] ^= 1 << (bit % 8);
            send(to, &changed);
        }
        let noise: Vec<u8> =
            packet.iter().map(|byte| byte.wrapping_mul(167) ^ turn as u8).collect();
        send(to, &noise);
        if kept.len() < KEPT {
            kept.push((to, packet));
        } else {
            kept[turn % KEPT] = (to, packet);
        }
    }
    sent
}

/// The highest sum over the ranks of a counter so far, from `kumi stats`.
fn counter(cluster: &TestCluster, name: &str) -> u64 {
    let stats = cluster.json(&["stats", "--json"]);
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    let ranks = nodes.flat_map(|node| node["ranks"].as_array().into_iter().flatten());
    ranks.filter_map(|rank| rank["counters"][name].as_u64()).sum()
}

fn soak(rounds: &str) -> [String; 3] {
    let program = binaries::path("kumi-bench-soak").display().to_string();
    [program, "--rounds".to_owned(), rounds.to_owned()]
}

/// A verified job of four ranks on nodes 0 and 1 while the third node sends them what it sees on the wire.
fn survives_the_wire(options: &[&str], reach: usize) {
    let cluster = TestCluster::up(3);
    let enough = cluster.state().join("enough").display().to_string();
    let words = soak("1");
    let mut args = vec!["run", "-n", "4", "--nodes", "2", "--name", "victim"];
    args.extend(options);
    args.extend(words.iter().map(String::as_str));
    args.extend(["--until", &enough]);
    let stop = Arc::new(AtomicBool::new(false));
    let (give, take) = sync_channel(256);
    let stopped = Arc::clone(&stop);
    let switch = format!("kumi-{}-sw", cluster.name());
    let tap = within(&switch, move || listen(&stopped, &give));
    let attacker = cluster.namespace(2).expect("three namespaces");
    let attacker = within(&attacker, move || attack(&take, reach));
    let job = cluster.start(&args);
    cluster.wait_state("victim", "running");
    let mut most = (0, 0);
    wait_for("packets that were dropped", || {
        let now = (counter(&cluster, "invalid"), counter(&cluster, "duplicates"));
        most = (most.0.max(now.0), most.1.max(now.1));
        (most.0 > 100 && most.1 > 10).then_some(())
    });
    std::fs::write(&enough, "").expect("the sign that it is enough");
    let out = job.finish().ok().out;
    stop.store(true, Ordering::Release);
    tap.join().expect("the tap does not fail");
    let sent = attacker.join().expect("the attacker does not fail");
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
    assert!(sent > most.0, "{sent} packets were sent, {} dropped", most.0);
}

#[test]
fn what_is_sent_again_or_changed_on_the_wire() {
    if possible("what_is_sent_again_or_changed_on_the_wire") {
        survives_the_wire(&["--checksum", "all"], DATAGRAM);
    }
}

/// Against somebody who reads the wire and changes the later bytes of long packets before they arrive, the usual
/// checksum promises nothing; of all before them it does.
#[test]
fn what_is_sent_again_or_changed_in_what_the_usual_checksum_covers() {
    if possible("what_is_sent_again_or_changed_in_what_the_usual_checksum_covers") {
        survives_the_wire(&["--checksum", "headers"], COVERED);
    }
}

#[test]
fn what_is_sent_again_or_changed_of_an_encrypted_job() {
    if possible("what_is_sent_again_or_changed_of_an_encrypted_job") {
        survives_the_wire(&["--encrypt"], DATAGRAM);
    }
}

/// Overwrites all files of its job's segment with noise again and again, as far as it can open them for writing.
const SCRIBBLER: &str = "
    files=$(echo $KUMI_FDS | tr , ' ')
    echo ready
    while :; do
        for number in $files; do
            file=/proc/self/fd/$number
            dd if=/dev/urandom of=$file bs=64k count=80 conv=notrunc 2>/dev/null
            dd if=/dev/zero of=$file bs=64k count=80 conv=notrunc 2>/dev/null
            tr '\\0' '\\377' < /dev/zero | dd of=$file bs=64k count=80 conv=notrunc 2>/dev/null
        done
    done";

#[test]
fn a_rank_that_scribbles_over_its_segment_harms_its_own_job_only() {
    let cluster = TestCluster::up_with(2, &["--slice", "2ms"]);
    let evil = ["run", "-n", "4", "--nodes", "2", "--name", "evil", "sh", "-c", SCRIBBLER];
    let evil = cluster.start(&evil);
    let record = cluster.wait_state("evil", "running");
    let lines = cluster.wait_lines(&record, 4);
    assert!(lines.iter().all(|line| line == "ready"), "{lines:?}");
    let pids = [cluster.pid("node-0"), cluster.pid("node-1"), cluster.pid("head")];
    let words = soak("10");
    let mut args = vec!["run", "-n", "4", "--nodes", "2", "--name", "victim"];
    args.extend(words.iter().map(String::as_str));
    let victim = cluster.start(&args);
    cluster.wait_state("victim", "running");
    let number = record["job"].to_string();
    // Whatever lies there is read by the daemons for this.
    for _ in 0..20 {
        let stats: Value = cluster.json(&["stats", "--json"]);
        assert_eq!(stats["nodes"].as_array().map(Vec::len), Some(2), "{stats}");
        cluster.kumi(&["stats", "--peers", &number]).ok();
    }
    let out = victim.finish().ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
    assert_eq!(cluster.job("evil").expect("it runs")["state"], "running");
    cluster.kumi(&["kill", &number]).ok();
    drop(evil.finish());
    assert!(pids.iter().all(|pid| machine::lives(*pid)), "a daemon has ended");
    cluster.kumi(&["run", "-n", "4", "--nodes", "2", "true"]).ok();
}

/// What a rank does before it becomes the program: it says which process it is.
const INTRODUCTION: &str = "echo \"$KUMI_RANK $$\"; exec \"$0\" \"$@\"";

/// How long a segment is scribbled over.
const SCRIBBLING: Duration = Duration::from_secs(3);

/// Signals by which a library ends its program that believed a wrong word.
const CRASHES: [u64; 5] = [4, 6, 7, 8, 11];

/// The rank that goes around its library. Ranks 0 and 1 are on its node.
const EVIL: u64 = 1;

/// Four ranks on two nodes work, and one of them changes one word after the other of a region that it may write. It also
/// tries all that it may not. Each of the others finds it out, or waits for ever, or verifies; its library never crashes.
/// The evil rank may harm itself. Says whether others have met wrong words: the evil rank was there to the end, or another
/// one has ended the job.
fn scribbled_over(cluster: &TestCluster, options: &[&str], region: Region, seed: u64) -> bool {
    let name = format!("evil-{seed}");
    let words = soak("100000000");
    let mut args = vec!["run", "-n", "4", "--nodes", "2", "--name", &name];
    args.extend(options);
    args.extend(["sh", "-c", INTRODUCTION]);
    args.extend(words.iter().map(String::as_str));
    let evil = cluster.start(&args);
    let record = cluster.wait_state(&name, "running");
    let lines = cluster.wait_lines(&record, 4);
    let process = |rank: u64| lines.iter().find_map(|line| line.strip_prefix(&format!("{rank} ")));
    let pid = process(EVIL).expect("each says it").parse().expect("a number");
    let scribbler = Scribbler::new(pid);
    let refused = scribbler.try_what_is_refused(seed);
    assert!(refused >= 300, "job file, a peer's rank file and arena file: {refused}");
    let end = Instant::now() + SCRIBBLING;
    let pause = match region {
        // Many wrong words in its own state end the evil rank before others get anything of them.
        Region::Channel if seed > 4 => Duration::from_millis(50),
        _ => Duration::from_micros(200),
    };
    let over = || Instant::now() > end || !machine::lives(pid);
    let count = scribbler.scribble(region, seed, pause, over);
    assert!(count > 0, "{region:?}, seed {seed}");
    let lasted = machine::lives(pid);
    let number = record["job"].to_string();
    // Whatever lies there now is read by the daemons for this.
    cluster.kumi(&["stats"]).ok();
    cluster.kumi(&["stats", "--peers", &number]);
    // It may have ended meanwhile.
    cluster.kumi(&["kill", &number]);
    let said = evil.finish();
    let job = cluster.job(&name).expect("it was started");
    let case = format!("{options:?}, {region:?}, seed {seed}");
    let end = if lasted { "alive" } else { "ended" };
    println!("{case}: {count} words changed, {refused} refused, then {end}; {}", job["outcome"]);
    let first = job["outcome"]["rank"].as_u64();
    if first == Some(EVIL) {
        return lasted;
    }
    let crash = job["outcome"]["signal"].as_u64().filter(|signal| CRASHES.contains(signal));
    assert_eq!(crash, None, "{case}: {job} {said:?}");
    // The program may find wrong results and say so; the library finds wrong words, and does not stumble over them.
    for part in ["panicked at runtime/", "panicked at core/"] {
        assert!(!said.err.contains(part), "{case}: {said:?}");
    }
    lasted || first.is_some()
}

#[test]
fn no_word_that_a_rank_may_write_crashes_another() {
    let cluster = TestCluster::up(2);
    let options: [&[&str]; 3] =
        [&["--checksum", "headers"], &["--checksum", "all"], &["--encrypt"]];
    let regions = [Region::Lines, Region::RankFile, Region::OpenArenas, Region::Channel];
    let mut met = [0; 4];
    for seed in 1..=12 {
        let (option, region) = (seed as usize % options.len(), seed as usize % regions.len());
        let others = scribbled_over(&cluster, options[option], regions[region], seed);
        met[region] += u32::from(others);
    }
    let met: Vec<_> = regions.iter().zip(met).collect();
    assert!(met.iter().all(|(_, seeds)| *seeds > 0), "others met no wrong words: {met:?}");
    // All others are as they were.
    let words = soak("20");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let out = cluster.kumi(&[&["run", "-n", "4", "--nodes", "2"], &words[..]].concat()).ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
}
