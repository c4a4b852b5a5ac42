//! A rank that goes around its library, and writes wherever it may.

use crate::{by_af_xdp, counter, is_verified, soak};
use kumi_tests::cluster::{TestCluster, Wire};
use kumi_tests::command::{FinishedCommand, PATIENCE};
use kumi_tests::faults::possible;
use kumi_tests::machine;
use kumi_tests::scribbler::{Region, Scribbler};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Overwrites all files of its job's segment with noise again and again, as far as it can open them for writing. With AF_XDP it
/// says at once that it is ready, so that its socket is bound, and overwrites the memory of frames, too.
const SCRIBBLER: &str = "
    files=$(echo $KUMI_FDS ${KUMI_XDP%,*} | tr , ' ')
    if test $KUMI_XDP; then
        echo > /proc/self/fd/${KUMI_XDP##*,}
        echo ready with AF_XDP
    else
        echo ready
    fi
    while :; do
        for number in $files; do
            file=/proc/self/fd/$number
            dd if=/dev/urandom of=$file bs=64k count=80 conv=notrunc 2>/dev/null
            dd if=/dev/zero of=$file bs=64k count=80 conv=notrunc 2>/dev/null
            tr '\\0' '\\377' < /dev/zero | dd of=$file bs=64k count=80 conv=notrunc 2>/dev/null
        done
    done";

fn scribbles_over_its_files(driver: Wire) {
    let cluster = TestCluster::up_with(2, &[&driver.options()[..], &["--slice", "2ms"]].concat());
    let evil = ["run", "-n", "4", "--nodes", "2", "--name", "evil", "sh", "-c", SCRIBBLER];
    let evil = cluster.start(&evil);
    let record = cluster.wait_state("evil", "running");
    let lines = cluster.wait_lines(&record, 4);
    let expected = match driver {
        Wire::Udp => ["ready"; 4],
        Wire::Xdp => ["ready", "ready", "ready with AF_XDP", "ready with AF_XDP"],
    };
    assert_eq!(lines, expected);
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
    assert!(is_verified(&out), "{out}");
    assert_eq!(cluster.job("evil").expect("it runs")["state"], "running");
    cluster.kumi(&["kill", &number]).ok();
    drop(evil.finish());
    assert!(pids.iter().all(|pid| machine::lives(*pid)), "a daemon has ended");
    all_is_well(&cluster, driver);
}

/// A job that is checked runs as ever, with AF_XDP if the cluster has it.
fn all_is_well(cluster: &TestCluster, driver: Wire) {
    let words = soak("20");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let out = cluster.kumi(&[&["run", "-n", "4", "--nodes", "2"], &words[..]].concat()).ok().out;
    assert!(is_verified(&out), "{out}");
    assert_eq!(by_af_xdp(&out) > 0, driver == Wire::Xdp, "{out}");
}

#[test]
fn a_rank_that_scribbles_over_its_segment_harms_its_own_job_only() {
    scribbles_over_its_files(Wire::Udp);
}

#[test]
fn a_rank_with_af_xdp_that_scribbles_over_its_files_harms_its_own_job_only() {
    if possible("a_rank_with_af_xdp_that_scribbles_over_its_files_harms_its_own_job_only") {
        scribbles_over_its_files(Wire::Xdp);
    }
}

/// What a rank does before it becomes the program: it says which process it is.
const INTRODUCTION: &str = "echo \"$KUMI_RANK $$\"; exec \"$0\" \"$@\"";

/// How long a segment is scribbled over.
const SCRIBBLING: Duration = Duration::from_secs(3);

/// What a library says that finds rings that cannot be.
const STRAY: &str = "the rings that this rank shares with the kernel for AF_XDP hold numbers";

/// What a program says whose memory differs from its reference.
const NONSENSE: &str = "is not as it should be";

/// Signals by which a library ends its program that believed a wrong word.
const CRASHES: [u64; 5] = [4, 6, 7, 8, 11];

/// The rank that goes around its library. Ranks 0 and 1 are on its node, and the first of a node has AF_XDP.
fn evil_rank(driver: Wire) -> u64 {
    match driver {
        Wire::Udp => 1,
        Wire::Xdp => 0,
    }
}

/// A case of [`scribbled_over`].
#[derive(Clone, Copy, Debug)]
struct Case {
    driver: Wire,
    options: &'static [&'static str],
    region: Region,
    seed: u64,
}

impl Case {
    fn name(self) -> String {
        format!("evil-{}", self.seed)
    }

    /// The region is none of its segment: it is shared with the kernel only.
    fn is_of_af_xdp(self) -> bool {
        matches!(self.region, Region::Rings | Region::Frames)
    }

    fn pause(self) -> Duration {
        match self.region {
            // Many wrong words in its own state end the evil rank before others get anything of them.
            Region::Channel if self.seed > 4 => Duration::from_millis(50),
            // A frame lies there for some microseconds.
            Region::Frames => Duration::ZERO,
            _ => Duration::from_micros(200),
        }
    }
}

/// Four ranks on two nodes work, and one of them changes one word after the other of a region that it may write. It also
/// tries all that it may not. Each of the others finds it out, or waits for ever, or verifies; its library never crashes.
/// The evil rank may harm itself. Says whether others could meet wrong words: the evil rank was there to the end, or another
/// one has ended the job, or only the kernel reads the region.
fn scribbled_over(cluster: &TestCluster, case: Case) -> bool {
    let (name, words) = (case.name(), soak("100000000"));
    let mut args = vec!["run", "-n", "4", "--nodes", "2", "--label", "--name", &name];
    args.extend(case.options);
    args.extend(["sh", "-c", INTRODUCTION]);
    args.extend(words.iter().map(String::as_str));
    let job = cluster.start(&args);
    let record = cluster.wait_state(&name, "running");
    let lines = cluster.wait_lines(&record, 4);
    let process = |rank: u64| lines.iter().find_map(|line| line.strip_prefix(&format!("{rank} ")));
    let pid = process(evil_rank(case.driver)).expect("each says it").parse().expect("a number");
    let scribbler = Scribbler::new(pid, case.driver);
    let refused = scribbler.try_what_is_refused(case.seed);
    assert!(refused >= 300, "job file, a peer's rank file and arena file: {refused}");
    let start = Instant::now();
    let dropped = || counter(cluster, "xdp_dropped");
    let counted = || case.region != Region::Frames || start.elapsed() > PATIENCE || dropped() > 0;
    let over = || start.elapsed() > SCRIBBLING && counted() || !machine::lives(pid);
    let count = scribbler.scribble(case.region, case.seed, case.pause(), over);
    assert!(count > 0, "{case:?}");
    let lasted = machine::lives(pid);
    let number = record["job"].to_string();
    let dropped = dropped();
    assert!(case.region != Region::Frames || dropped > 0, "{case:?}: damaged frames are counted");
    // Whatever lies there now is read by the daemons for this.
    cluster.kumi(&["stats"]).ok();
    cluster.kumi(&["stats", "--peers", &number]);
    // It may have ended meanwhile.
    cluster.kumi(&["kill", &number]);
    let said = job.finish();
    let job = cluster.job(&name).expect("it was started");
    let end = if lasted { "alive" } else { "ended" };
    println!(
        "{case:?}: {count} words changed, {refused} refused, {dropped} frames dropped, then {end}; {}",
        job["outcome"]
    );
    others_have_lived(case, &job["outcome"], &said);
    let first = job["outcome"]["rank"].as_u64();
    let others = first.is_some_and(|rank| rank != evil_rank(case.driver));
    lasted || others || case.is_of_af_xdp()
}

/// Nobody stumbled over wrong words but the evil rank over its own.
fn others_have_lived(case: Case, outcome: &Value, said: &FinishedCommand) {
    let evil = outcome["rank"].as_u64() == Some(evil_rank(case.driver));
    if case.is_of_af_xdp() {
        // What a frame holds is checked by its receiver, and an entry of a ring by its reader. The evil rank says so and leaves.
        // Others may notice first that its windows are gone. Nobody computes nonsense.
        let gone = format!("rank: {}", evil_rank(case.driver));
        let found = said.err.contains(STRAY) || said.err.contains(&gone);
        let harmless = outcome["kind"] == "killed" || found;
        assert!(harmless && !said.err.contains(NONSENSE), "{case:?}: {outcome} {said:?}");
    } else if evil {
        return;
    }
    let crash = outcome["signal"].as_u64().filter(|signal| CRASHES.contains(signal));
    assert_eq!(crash, None, "{case:?}: {outcome} {said:?}");
    // The program may find wrong results and say so; the library finds wrong words, and does not stumble over them. The evil
    // rank may still say that it stumbled over its own while another one has already ended the job.
    let its_own = format!("[{}] ", evil_rank(case.driver));
    let mut by_others = said.err.lines().filter(|line| !line.starts_with(&its_own));
    let stumbles = ["panicked at runtime/", "panicked at core/"];
    let stumbled = by_others.find(|line| stumbles.iter().any(|part| line.contains(part)));
    assert_eq!(stumbled, None, "{case:?}: {said:?}");
}

/// Further seeds for a region whose wrong words others have not met yet. The evil rank may end before, by its own wrong words.
const FURTHER_SEEDS: u64 = 12;

/// So many seeds, over all regions, and more for those of which others met no wrong words.
fn scribbled_over_all(driver: Wire, regions: &[Region], seeds: u64) {
    let cluster = TestCluster::up_with(2, &driver.options());
    let pids = [cluster.pid("node-0"), cluster.pid("node-1"), cluster.pid("head")];
    let all_options: [&[&str]; 3] =
        [&["--checksum", "headers"], &["--checksum", "all"], &["--encrypt"]];
    let mut met = vec![0; regions.len()];
    let turns = regions.len() as u64;
    for seed in 1..=seeds + FURTHER_SEEDS * turns {
        let at = (seed % turns) as usize;
        if seed > seeds && met[at] > 0 {
            continue;
        }
        // Another one in each turn, also where the number of regions is a multiple of that of options.
        let turn = if turns.is_multiple_of(3) { seed / turns } else { 0 };
        let options = all_options[((seed + turn) % all_options.len() as u64) as usize];
        let others = scribbled_over(&cluster, Case { driver, options, region: regions[at], seed });
        met[at] += u32::from(others);
    }
    let met: Vec<_> = regions.iter().zip(met).collect();
    assert!(met.iter().all(|(_, seeds)| *seeds > 0), "others met no wrong words: {met:?}");
    assert!(pids.iter().all(|pid| machine::lives(*pid)), "a daemon has ended");
    // All others are as they were.
    all_is_well(&cluster, driver);
}

const REGIONS: [Region; 6] = [
    Region::Lines,
    Region::RankFile,
    Region::OpenArenas,
    Region::Channel,
    Region::Rings,
    Region::Frames,
];

#[test]
fn no_word_that_a_rank_may_write_crashes_another() {
    scribbled_over_all(Wire::Udp, &REGIONS[..4], 12);
}

#[test]
fn no_word_that_a_rank_with_af_xdp_may_write_crashes_another() {
    if possible("no_word_that_a_rank_with_af_xdp_may_write_crashes_another") {
        scribbled_over_all(Wire::Xdp, &REGIONS, 12);
    }
}
