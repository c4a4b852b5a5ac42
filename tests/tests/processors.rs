//! Jobs on nodes of several processors: beside each other, with several for a rank, with memory, alone, on nodes that differ.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, wait_for};
use kumi_tests::machine;
use serde_json::Value;

/// Says on which processors it may run, and computes until it is killed.
const COMPUTES: &str =
    "grep Cpus_allowed_list /proc/self/status | tr -d '[:space:]'; echo; while :; do :; done";

/// Starts a job of this name that runs the script in each rank.
fn start(cluster: &TestCluster, name: &str, options: &[&str], script: &str) -> RunningCommand {
    cluster.start(&[&["run", "--name", name], options, &["sh", "-c", script]].concat())
}

/// A cluster whose nodes have these processors of the machine, by their places in its list. `None` if it has too few.
fn up(test: &str, nodes: &[&[usize]], settings: &[(&str, &str)]) -> Option<TestCluster> {
    let all = machine::processors();
    let most = nodes.iter().flat_map(|places| places.iter()).max().map_or(0, |last| last + 1);
    if all.len() < most {
        kumi_skip::skip(test, &format!("needs {most} processors"));
        return None;
    }
    let cpus = |places: &[usize]| places.iter().map(|&place| all[place]).collect();
    let cpus: Vec<Vec<usize>> = nodes.iter().map(|places| cpus(places)).collect();
    Some(TestCluster::up_with_nodes(&cpus, settings))
}

/// The places of a job's processors by node.
fn layout(job: &Value) -> Vec<(u64, Vec<u64>)> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let part = |part: &Value| {
        let processors = part["processors"].as_array().expect("processors");
        (number(&part["node"]), processors.iter().map(number).collect())
    };
    job["layout"].as_array().expect("a layout").iter().map(part).collect()
}

/// What the first line of a job's first rank says of processors.
fn allowed(cluster: &TestCluster, job: &Value) -> String {
    let lines = cluster.wait_lines(job, 1);
    lines[0].strip_prefix("Cpus_allowed_list:").expect("the list of processors").to_owned()
}

/// The jobs of each slot of a node.
fn slots(cluster: &TestCluster, node: usize) -> Vec<Vec<u64>> {
    let status = cluster.json(&["cluster", "status", "--json"]);
    let slots = status["nodes"][node]["timetable"].as_array().expect("slots").clone();
    let jobs =
        |slot: Value| slot.as_array().expect("jobs").iter().filter_map(Value::as_u64).collect();
    slots.into_iter().map(jobs).collect()
}

fn number(job: &Value) -> u64 {
    job["job"].as_u64().expect("a number")
}

fn kill(cluster: &TestCluster, jobs: &[&Value]) {
    for job in jobs {
        cluster.kumi(&["kill", &number(job).to_string()]).ok();
    }
}

/// Processor time of the job's ranks, in what the kernel counts it in.
fn computed(name: &str) -> u64 {
    let mark = format!("computes-{name}");
    let found = machine::processes(&mark);
    let pids =
        found.iter().filter(|line| !line.contains("kumi")).map(|line| line.split(' ').next());
    let times = pids.flatten().map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let times = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        times.sum::<u64>()
    });
    times.sum()
}

/// Before, the second job had the processor of the first, and one of the node's two was idle.
#[test]
fn small_jobs_run_beside_each_other_and_are_never_stopped() {
    let Some(cluster) =
        up("small_jobs_run_beside_each_other_and_are_never_stopped", &[&[0, 1]], &[])
    else {
        return;
    };
    let script = |name: &str| format!(": computes-{name}; {COMPUTES}");
    let one = start(&cluster, "one", &[], &script("one"));
    let first = cluster.wait_state("one", "running");
    let two = start(&cluster, "two", &[], &script("two"));
    let second = cluster.wait_state("two", "running");
    assert_eq!((layout(&first), layout(&second)), (vec![(0, vec![0])], vec![(0, vec![1])]));
    assert_ne!(allowed(&cluster, &first), allowed(&cluster, &second));
    let both = vec![number(&first), number(&second)];
    assert!(slots(&cluster, 0).iter().all(|slot| *slot == both), "{:?}", slots(&cluster, 0));
    // Both have computed for more than a slice since, and nobody was switched.
    let before = ["one", "two"].map(computed);
    wait_for("work of both jobs", || {
        let now = ["one", "two"].map(computed);
        (now[0] > before[0] + 20 && now[1] > before[1] + 20).then_some(())
    });
    let stats = cluster.json(&["stats", "--json"]);
    assert_eq!(stats["nodes"][0]["switching"]["count"], 0, "{stats}");
    let status = cluster.json(&["cluster", "status", "--json"]);
    let node = &status["nodes"][0];
    assert_eq!((&node["processors"], &node["processors_free"]), (&2.into(), &0.into()), "{node}");
    kill(&cluster, &[&first, &second]);
    for job in [one, two] {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn a_rank_has_as_many_processors_as_it_asks_for() {
    let Some(cluster) = up("a_rank_has_as_many_processors_as_it_asks_for", &[&[0, 1]], &[]) else {
        return;
    };
    assert_eq!(cluster.kumi(&["run", "--cpus-per-rank", "2", "nproc"]).ok().out, "2\n");
    assert_eq!(cluster.kumi(&["run", "nproc"]).ok().out, "1\n");
    // `nproc` also reads OMP_NUM_THREADS, which is that of a rank's own processors whatever its binding.
    let allowed = |options: &[&str]| {
        let looks = ["grep", "Cpus_allowed_list", "/proc/self/status"];
        cluster.kumi(&[&["run"], options, &looks].concat()).ok().out
    };
    let both = allowed(&["--cpus-per-rank", "2"]);
    assert_eq!(allowed(&["--bind", "none"]), both);
    assert_ne!(allowed(&["--bind", "cpuset"]), both, "its job has one");
    cluster.kumi(&["run", "--cpus-per-rank", "3", "true"]).fails(78, &["processors"]);
    // The environment says it for a whole script, and a file for a job.
    let mut command = cluster.command(&["run", "nproc"]);
    command.env("KUMI_CPUS_PER_RANK", "2");
    assert_eq!(kumi_tests::command::run(command).ok().out, "2\n");
    let file = cluster.state().join("job.toml");
    let file = file.to_str().expect("UTF-8");
    std::fs::write(file, "cpus-per-rank = 2\nname = \"filed\"\n").expect("our file");
    assert_eq!(cluster.kumi(&["run", "--job-file", file, "nproc"]).ok().out, "2\n");
    assert_eq!(cluster.job("filed").expect("the job")["cpus_per_rank"], 2);
    let over = ["run", "--job-file", file, "--cpus-per-rank", "1", "nproc"];
    assert_eq!(cluster.kumi(&over).ok().out, "1\n");
    std::fs::write(file, "\ncpus-per-rank = 0\n").expect("our file");
    cluster.kumi(&["run", "--job-file", file, "nproc"]).fails(65, &["line 2", "cpus-per-rank"]);
}

#[test]
fn memory_is_reserved_while_a_job_has_its_node() {
    let Some(cluster) =
        up("memory_is_reserved_while_a_job_has_its_node", &[&[0, 1]], &[("memory", "1GiB")])
    else {
        return;
    };
    let one = start(&cluster, "one", &["--mem-per-rank", "600M"], "exec sleep 600");
    let first = cluster.wait_state("one", "running");
    let mut two = start(&cluster, "two", &["--mem-per-rank", "600M"], "exec sleep 600");
    let second = cluster.wait_state("two", "queued");
    assert_eq!(second["waits_for"]["kind"], "resources_taken", "{second}");
    let table = cluster.kumi(&["ps"]).ok().out;
    assert!(table.contains("memory or devices") && table.contains("600 MiB"), "{table}");
    let line = two.error_line();
    assert!(line.contains("other jobs have the memory"), "{line}");
    assert!(two.runs());
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["nodes"][0]["memory"].as_u64(), Some(1 << 30), "{status}");
    assert_eq!(status["nodes"][0]["memory_free"].as_u64(), Some(424 << 20), "{status}");
    cluster.kumi(&["run", "--mem-per-rank", "1025M", "true"]).fails(78, &["memory"]);
    kill(&cluster, &[&first]);
    let second = cluster.wait_state("two", "running");
    kill(&cluster, &[&second]);
    for job in [one, two] {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn an_exclusive_job_is_alone_in_its_turns() {
    let Some(cluster) = up("an_exclusive_job_is_alone_in_its_turns", &[&[0, 1]], &[]) else {
        return;
    };
    let alone = start(&cluster, "alone", &["--exclusive"], COMPUTES);
    let first = cluster.wait_state("alone", "running");
    assert_eq!(layout(&first), [(0, vec![0, 1])]);
    let other = start(&cluster, "other", &[], COMPUTES);
    let second = cluster.wait_state("other", "running");
    let (first_job, second_job) = (number(&first), number(&second));
    let slots = slots(&cluster, 0);
    assert!(slots.contains(&vec![first_job]) && slots.contains(&vec![second_job]), "{slots:?}");
    assert!(slots.iter().all(|slot| slot.len() == 1), "{slots:?}");
    kill(&cluster, &[&first, &second]);
    for job in [alone, other] {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn nodes_may_have_different_numbers_of_processors() {
    let Some(cluster) = up("nodes_may_have_different_numbers_of_processors", &[&[0], &[0, 1]], &[])
    else {
        return;
    };
    let say = ["run", "-n", "3", "sh", "-c", "echo $KUMI_NODE"];
    let out = cluster.kumi(&say).ok().out;
    let mut nodes: Vec<&str> = out.lines().collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["0", "1", "1"], "a processor for each rank");
    let say = ["run", "--cpus-per-rank", "2", "sh", "-c", "echo $KUMI_NODE"];
    assert_eq!(cluster.kumi(&say).ok().out, "1\n", "the first node has one only");
    let two = ["run", "-n", "2", "--cpus-per-rank", "2", "true"];
    cluster.kumi(&two).fails(78, &["processors"]);
    let status = cluster.json(&["cluster", "status", "--json"]);
    let processors = |node: usize| status["nodes"][node]["processors"].as_u64();
    assert_eq!((processors(0), processors(1)), (Some(1), Some(2)));
}
