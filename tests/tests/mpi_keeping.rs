//! Stock MPI programs run on while the daemons of their nodes are killed and started again: between exchanges, during one, and
//! at their end.
#![forbid(unsafe_code)]

use kumi_tests::binaries::repository;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::mpi::{self, Library, Programs};
use kumi_tests::{keeping, machine};
use nix::sys::signal::Signal::{self, SIGKILL, SIGTERM};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A job of `steps` over both nodes, one rank on each, with a folder of its own.
struct Steps {
    folder: PathBuf,
    job: RunningCommand,
    record: serde_json::Value,
}

impl Steps {
    fn start(cluster: &TestCluster, programs: &Programs, name: &str, way: &[&str]) -> Self {
        let folder = cluster.state().join(format!("of-{name}"));
        std::fs::create_dir(&folder).expect("our own directory");
        let folder_word = folder.display().to_string();
        let options = [way, &["--folder", &folder_word]].concat();
        let mut words = mpi::words(2, 2, &programs.path("steps"), &options);
        words.splice(1..1, ["--name".to_owned(), name.to_owned()]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let job = cluster.start(&words);
        let record = cluster.wait_state(name, "running");
        Self { folder, job, record }
    }

    /// Waits until it is in so many steps of both ranks.
    fn wait_steps(&self, cluster: &TestCluster, count: usize) {
        cluster.wait_lines(&self.record, 2 * count);
    }

    /// Has it stop, and waits until each rank does.
    fn stop(&self) {
        std::fs::write(self.folder.join("stop"), "").expect("our own directory");
        for rank in 0..2 {
            let stopped = self.folder.join(format!("stopped-{rank}"));
            command::wait_for("end of the steps", || stopped.exists().then_some(()));
        }
    }

    /// It ends well, and all of its output is there.
    fn ends_well(self) {
        let done = mpi::finish(self.job, "end of the steps").ok();
        let mut steps: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut folders = Vec::new();
        for line in done.out.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["rank", rank, "step", step] => steps.entry(rank).or_default().push(step),
                ["rank", rank, "stops"] => steps.entry(rank).or_default().push("end"),
                ["rank", rank, "stops", "with", folder] => {
                    steps.entry(rank).or_default().push("end");
                    folders.push(PathBuf::from(folder));
                }
                _ => panic!("{line}: {done:#?}"),
            }
        }
        let count = steps.get("0").map_or(0, Vec::len).saturating_sub(1);
        let mut expected: Vec<String> = (0..count).map(|step| step.to_string()).collect();
        expected.push("end".to_owned());
        assert_eq!(steps.len(), 2, "{done:#?}");
        for (rank, steps) in steps {
            assert!(steps == expected, "rank {rank}: {steps:?}, not {expected:?}");
        }
        for folder in folders {
            command::wait_for("the end of its folder", || (!folder.exists()).then_some(()));
        }
    }
}

/// Takes it down. Nothing is left.
fn down(mut cluster: TestCluster, daemons: Vec<RunningCommand>) {
    cluster.down().ok();
    for daemon in daemons {
        daemon.finish();
    }
    command::wait_for("the end of all", || cluster.traces().is_empty().then_some(()));
}

fn start_again(cluster: &TestCluster, node: u32, signal: Signal) -> RunningCommand {
    keeping::end(cluster, node, signal);
    keeping::start(cluster, node, 2)
}

/// Two jobs take turns, so one of them is stopped with its server when a daemon dies.
fn programs_go_on(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = keeping::up(2);
    let jobs = ["first", "second"].map(|name| Steps::start(&cluster, &programs, name, &[]));
    let mut daemons = Vec::new();
    for (number, (node, signal)) in
        [(1, SIGKILL), (0, SIGTERM), (1, SIGKILL)].into_iter().enumerate()
    {
        for job in &jobs {
            job.wait_steps(&cluster, 20 * (number + 1));
        }
        daemons.push(start_again(&cluster, node, signal));
    }
    for job in &jobs {
        job.wait_steps(&cluster, 80);
        job.stop();
    }
    for job in jobs {
        job.ends_well();
    }
    down(cluster, daemons);
}

#[test]
fn programs_of_open_mpi_go_on_under_the_next_daemon() {
    programs_go_on("programs_of_open_mpi_go_on_under_the_next_daemon", Library::OpenMpi4);
}

#[test]
fn programs_of_mpich_go_on_under_the_next_daemon() {
    programs_go_on("programs_of_mpich_go_on_under_the_next_daemon", Library::Mpich);
}

/// Their last exchange is under way meanwhile.
fn programs_finish(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = keeping::up(2);
    let mut daemons = Vec::new();
    for (name, nodes) in [("one", &[1][..]), ("both", &[0, 1])] {
        let job = Steps::start(&cluster, &programs, name, &[]);
        job.wait_steps(&cluster, 1);
        nodes.iter().for_each(|&node| keeping::end(&cluster, node, SIGKILL));
        job.stop();
        let (&last, others) = nodes.split_last().expect("a node");
        for &node in others {
            daemons.push(cluster.start_daemon(node, &["node", "--node", &node.to_string()]));
        }
        daemons.push(keeping::start(&cluster, last, 2));
        job.ends_well();
    }
    down(cluster, daemons);
}

#[test]
fn programs_of_open_mpi_finish_without_a_daemon() {
    programs_finish("programs_of_open_mpi_finish_without_a_daemon", Library::OpenMpi4);
}

#[test]
fn programs_of_mpich_finish_without_a_daemon() {
    programs_finish("programs_of_mpich_finish_without_a_daemon", Library::Mpich);
}

/// How the last rank ends before the next daemon is there or after that, what `kumi run` returns, and what it says.
const ENDS: [(&str, i32, &[&str]); 2] = [
    ("abort", 7, &["rank 1 called MPI_Abort with code 7", "rank 1 on node1 exited with code 7"]),
    ("leave", 1, &["rank 1 on node1 ended between MPI_Init and MPI_Finalize"]),
];

fn the_rank_is_named(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = keeping::up(2);
    let mut daemons = Vec::new();
    for (way, code, words) in ENDS {
        for is_there in [true, false] {
            let name = format!("{way}-{is_there}");
            let job = Steps::start(&cluster, &programs, &name, &[way]);
            job.wait_steps(&cluster, 1);
            keeping::end(&cluster, 1, SIGKILL);
            if is_there {
                daemons.push(keeping::start(&cluster, 1, 2));
                job.stop();
            } else {
                job.stop();
                daemons.push(keeping::start(&cluster, 1, 2));
            }
            let ended = mpi::finish(job.job, &name).fails(code, words);
            let said = ended.err.matches(words[0]).count();
            assert_eq!(said, 1, "once: {ended:#?}");
        }
    }
    down(cluster, daemons);
}

#[test]
fn the_rank_that_ends_a_program_of_open_mpi_is_named() {
    the_rank_is_named("the_rank_that_ends_a_program_of_open_mpi_is_named", Library::OpenMpi4);
}

#[test]
fn the_rank_that_ends_a_program_of_mpich_is_named() {
    the_rank_is_named("the_rank_that_ends_a_program_of_mpich_is_named", Library::Mpich);
}

/// A rank of each node speaks PMI by hand, so a daemon dies when one of them, both or none have contributed.
#[test]
fn exchanges_that_are_under_way_are_completed_under_the_next_daemon() {
    let cluster = keeping::up(2);
    let client = repository().join("tests/mpi/pmi.py").display().to_string();
    let mut daemons = Vec::new();
    for version in ["1", "2"] {
        let folder = cluster.state().join(format!("version-{version}"));
        std::fs::create_dir(&folder).expect("our own directory");
        let go = |turn: u32, rank: u32| {
            std::fs::write(folder.join(format!("{turn}-{rank}")), "").expect("our own directory");
        };
        let (name, folder_word) = (format!("v{version}"), folder.display().to_string());
        let job = cluster.start(&[
            "run",
            "-n",
            "2",
            "--nodes",
            "2",
            "--fabric=tcp",
            "--mpi=mpich",
            "--name",
            &name,
            "python3",
            &client,
            version,
            "wait",
            &folder_word,
        ]);
        let record = cluster.wait_state(&name, "running");
        cluster.wait_lines(&record, 2);
        // Both daemons have one contribution, or none, and the other comes without them.
        go(0, 0);
        daemons.push(start_again(&cluster, 0, SIGKILL));
        keeping::end(&cluster, 1, SIGKILL);
        go(0, 1);
        daemons.push(keeping::start(&cluster, 1, 2));
        cluster.wait_lines(&record, 4);
        // All is contributed to the last one while no daemon is there.
        keeping::end(&cluster, 0, SIGKILL);
        keeping::end(&cluster, 1, SIGTERM);
        go(1, 0);
        go(1, 1);
        daemons.push(cluster.start_daemon(0, &["node", "--node", "0"]));
        daemons.push(keeping::start(&cluster, 1, 2));
        let done = job.finish().ok();
        let mut lines: Vec<&str> = done.out.lines().filter(|line| line.contains("knows")).collect();
        lines.sort_unstable();
        let all = [0, 1].map(|rank| format!("rank {rank} of 2 knows all "));
        assert_eq!(lines, all, "{done:#?}");
    }
    down(cluster, daemons);
}

/// The children of a cluster's keepers that are servers.
fn servers(cluster: &TestCluster) -> Vec<u32> {
    let keepers = machine::processes(&format!("keep --cluster-dir {}", cluster.path().display()));
    let number = |line: &String| line.split(' ').next().and_then(|word| word.parse().ok());
    let keepers: Vec<u32> = keepers.iter().filter_map(number).collect();
    let parent = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let servers = machine::processes("kumi-pmi-server ");
    let servers = servers.iter().filter_map(number);
    servers.filter(|&server| parent(server).is_some_and(|one| keepers.contains(&one))).collect()
}

#[test]
fn a_job_whose_server_dies_without_a_daemon_ends_with_a_sentence() {
    let test = "a_job_whose_server_dies_without_a_daemon_ends_with_a_sentence";
    let Some(programs) = Library::OpenMpi4.programs(test) else { return };
    let cluster = keeping::up(2);
    let job = Steps::start(&cluster, &programs, "steps", &[]);
    job.wait_steps(&cluster, 1);
    assert_eq!(servers(&cluster).len(), 2, "one on each node");
    keeping::end(&cluster, 0, SIGKILL);
    keeping::end(&cluster, 1, SIGKILL);
    servers(&cluster).into_iter().for_each(|server| machine::signal(server, SIGKILL));
    let mut daemons = vec![cluster.start_daemon(0, &["node", "--node", "0"])];
    daemons.push(keeping::start(&cluster, 1, 2));
    let ended = mpi::finish(job.job, "end without a server");
    ended.fails(70, &["the server that tells the job's ranks", "is gone"]);
    down(cluster, daemons);
}

#[test]
fn without_keepers_a_program_ends_with_its_daemon() {
    let test = "without_keepers_a_program_ends_with_its_daemon";
    let Some(programs) = Library::OpenMpi4.programs(test) else { return };
    let cluster = TestCluster::up(2);
    let job = Steps::start(&cluster, &programs, "steps", &[]);
    job.wait_steps(&cluster, 1);
    let folder = job.folder.display().to_string();
    assert_eq!(machine::processes(&folder).iter().filter(|line| is_rank(line)).count(), 2);
    keeping::end(&cluster, 1, SIGKILL);
    mpi::finish(job.job, "end with its daemon").fails(75, &["node1 was lost"]);
    command::wait_for("end of its ranks", || {
        machine::processes(&folder).iter().all(|line| !is_rank(line)).then_some(())
    });
}

/// Whether a process runs the program itself, and is not who started it.
fn is_rank(line: &str) -> bool {
    line.split(' ').nth(1).is_some_and(|program| Path::new(program).ends_with("steps"))
}
