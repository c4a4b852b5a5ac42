//! Traces in the Standard Workload Format: the parser's rules, and a synthetic and a real trace against
//! other simulators.
#![forbid(unsafe_code)]

use kumi_sim::generate::{Poisson, Service, Sizes, WorkloadMix};
use kumi_sim::sweep::{self, Case, JobSource};
use kumi_sim::{Instant, Monitor, Options, Report, SECOND, SimError, Source, Workload, swf};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

fn summary(workload: &Workload) -> &swf::Summary {
    match &workload.source {
        Source::Swf(summary) => summary,
        other => panic!("{other:?}"),
    }
}

/// A line whose fields are -1 but for those given (counted from 1).
fn line(fields: &[(usize, &str)]) -> String {
    let mut words = vec!["-1"; 18];
    fields.iter().for_each(|&(index, word)| words[index - 1] = word);
    words.join(" ") + "\n"
}

const RIGHT: [(usize, &str); 6] = [(1, "7"), (2, "100"), (4, "60"), (5, "4"), (9, "90"), (12, "3")];

fn with(changes: &[(usize, &'static str)]) -> String {
    line(&RIGHT.iter().chain(changes).copied().collect::<Vec<_>>())
}

#[test]
fn the_rules_for_what_is_known_and_what_is_not() {
    let text = [
        "; MaxProcs: 128\n;comment\n\n".to_owned(),
        with(&[]),
        with(&[(9, "-1")]),
        with(&[(9, "30")]),
        with(&[(5, "-1"), (8, "16")]),
        with(&[(5, "8"), (8, "16")]),
        with(&[(4, "-1")]),
        with(&[(5, "0"), (8, "-1")]),
        with(&[(2, "99.0"), (6, "0.25")]),
    ];
    let workload = swf::parse("t", &text.concat(), true).unwrap();
    let found = summary(&workload);
    assert_eq!((found.jobs, found.unknown_run_time, found.unknown_size), (6, 1, 1));
    assert_eq!((found.unknown_estimate, found.out_of_order, found.malformed), (1, 1, 0));
    assert_eq!(found.max_procs, Some(128));
    let seen: Vec<_> = workload
        .jobs
        .iter()
        .map(|job| (job.submit / SECOND, job.service / SECOND, job.estimate / SECOND, job.size))
        .collect();
    // Sorted; the last line was submitted first. Run time is the lesser, the estimate the greater.
    let expected = [(99, 60, 90, 4), (100, 60, 90, 4), (100, 60, 60, 4), (100, 30, 60, 4)];
    assert_eq!(seen[..4], expected);
    assert_eq!(seen[4..], [(100, 60, 90, 16), (100, 60, 90, 8)]);
    assert!(workload.jobs.iter().all(|job| (job.number, job.user) == (7, 3)));
}

#[test]
fn malformed_lines_are_counted_with_their_numbers_or_stop_a_strict_reader() {
    let wrong = [
        "1 2 3\n".to_owned(),
        with(&[]).trim_end().to_owned() + " 19\n",
        with(&[(3, "x")]),
        with(&[(2, "-1")]),
        with(&[(2, "-5")]),
        with(&[(4, "-60")]),
        with(&[(4, "1.5")]),
        with(&[(5, "99999999999")]),
        with(&[(4, "nan")]),
        with(&[(2, "1e400")]),
        "\0\u{1b}[2J garbage\n".to_owned(),
    ];
    let text = format!("; head\n{}{}", with(&[]), wrong.concat());
    let workload = swf::parse("t", &text, false).unwrap();
    let found = summary(&workload);
    assert_eq!((found.jobs, found.malformed), (1, wrong.len() as u64));
    let lines: Vec<u64> = found.malformed_lines.iter().map(|&(line, _)| line).collect();
    assert_eq!(lines, (3..3 + wrong.len() as u64).collect::<Vec<_>>());
    for text in wrong {
        let error = swf::parse("t", &format!("; head\n{text}"), true).unwrap_err();
        assert!(matches!(error, SimError::Trace { line: 2, .. }), "{text}: {error}");
    }
}

#[test]
fn compressed_traces_are_read_and_broken_ones_are_not() {
    let folder = std::env::temp_dir().join(format!("kumi-swf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.swf.gz");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(with(&[]).as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    std::fs::write(&path, &packed).unwrap();
    assert_eq!(swf::read(&path, true).unwrap().jobs.len(), 1);
    std::fs::write(&path, &packed[..packed.len() - 6]).unwrap();
    assert!(matches!(swf::read(&path, false), Err(SimError::Unreadable { .. })));
    assert!(matches!(swf::read(&folder.join("none"), false), Err(SimError::Unreadable { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Policy, order of an instant's events, and what other simulators give: mean wait, mean bounded slowdown,
/// utilisation and longest wait.
type Reference = (&'static str, Instant, [f64; 4]);

/// Of the KTH trace of the Parallel Workloads Archive (100 processors, 27,992 jobs). Those of a single
/// instant's events one by one are pyss's.
const KTH: [Reference; 4] = [
    ("fcfs", Instant::Batched, [218_980.575, 4_297.070_5, 0.685_50, 705_687.0]),
    ("easy", Instant::Batched, [6_419.028, 86.397_7, 0.685_92, 248_239.0]),
    ("easy", Instant::Single, [6_412.240, 86.281_2, 0.685_92, 248_239.0]),
    ("conservative", Instant::Single, [7_035.946, 90.044_1, 0.685_92, 235_103.0]),
];

/// A trace of our own. This made it:
///
/// ```text
/// kumi sim jobs --policy fcfs --procs 64 --load 0.9 --units 40000 --service exp:400 --drain --seed 2 --write-swf synthetic.swf
/// ```
///
/// Estimates are exact. Where a job arrives at the very second that was planned as another's end, simulators differ in
/// whose processors EASY backfilling counts; in this list it makes no difference.
const SYNTHETIC: &str = include_str!("traces/synthetic.swf");

/// Of the synthetic trace, on 64 processors, as pyss gives it.
const SYNTHETIC_REFERENCE: [Reference; 3] = [
    ("fcfs", Instant::Single, [1_871.092_105, 20.842_743_6, 0.745_314, 4_197.0]),
    ("easy", Instant::Single, [334.667_293, 3.655_901_6, 0.793_943, 2_382.0]),
    ("conservative", Instant::Single, [377.937_970, 3.629_370_1, 0.794_099, 2_439.0]),
];

/// Simulates all of them and compares to the last digit that is known.
fn compare(workload: Workload, procs: u32, references: &[Reference]) {
    let workload = Arc::new(workload);
    let case = |&(policy, instant, _): &Reference| Case {
        policy: policy.to_owned(),
        load: None,
        seed: None,
        jobs: JobSource::Made(Arc::clone(&workload)),
        options: Options { instant, ..Options::new(procs) },
    };
    let cases: Vec<Case> = references.iter().map(case).collect();
    let reports = sweep::run(&cases, &Monitor::default(), |_, _, done| Ok(done.report)).unwrap();
    for ((policy, instant, expected), report) in references.iter().zip(&reports) {
        let Report { mean_wait_s, mean_bounded_slowdown, utilisation, max_wait_s, .. } = report;
        let found = [*mean_wait_s, *mean_bounded_slowdown, *utilisation, *max_wait_s];
        let right = [5e-4, 5e-5, 5e-6, 0.0];
        for ((found, expected), most) in found.iter().zip(expected).zip(right) {
            assert!((found - expected).abs() <= most, "{policy} {instant:?}: {found} {expected}");
        }
    }
}

#[test]
fn a_synthetic_trace_as_another_simulator_sees_it() {
    let workload = swf::parse("synthetic.swf", SYNTHETIC, true).unwrap();
    assert_eq!(summary(&workload).max_procs, Some(64));
    compare(workload, 64, &SYNTHETIC_REFERENCE);
}

#[test]
fn the_synthetic_trace_is_the_one_that_its_seed_makes() {
    let service = Service::Exponential { mean: 400.0 };
    let mix = WorkloadMix { procs: 64, sizes: Sizes::Uniform, largest: None, service, seed: 2 };
    let poisson = Poisson { mix, load: 0.9, arrivals: 40_000, units: None };
    let made = poisson.workload().unwrap();
    let note = "synthetic jobs of kumi sim jobs, load 0.9, seed 2";
    assert_eq!(swf::text(&made.jobs, 64, note), SYNTHETIC);
    // What is written is what is read.
    assert_eq!(swf::parse("synthetic.swf", SYNTHETIC, true).unwrap().jobs, made.jobs);
}

/// Where the trace is. If it is not there, that is told even if tests' output is hidden.
fn trace() -> Option<PathBuf> {
    let names = ["KTH-SP2-1996-2.1-cln.swf.gz", "KTH-SP2-1996-2.1-cln.swf"];
    let folder = std::env::var_os("KUMI_TRACES").filter(|folder| !folder.is_empty());
    let why = match folder.map(PathBuf::from) {
        None => format!("KUMI_TRACES names no folder with {}", names[0]),
        Some(folder) => {
            let paths = names.map(|name| folder.join(name));
            match paths.iter().find(|path| path.exists()) {
                Some(path) => return Some(path.clone()),
                None => format!("there is no {}", paths[0].display()),
            }
        }
    };
    kumi_skip::impossible("a_real_trace_as_other_simulators_see_it", &why);
    None
}

#[test]
fn a_real_trace_as_other_simulators_see_it() {
    let Some(path) = trace() else { return };
    let workload = swf::read(&path, true).unwrap();
    assert_eq!(workload.jobs.len(), 27_992);
    compare(workload, 100, &KTH);
}
