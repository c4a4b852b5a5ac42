//! Routines that are parallel jobs of a cluster: arguments and results, jobs that are kept, and what happens when they end.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use kumi_tests::cluster::TestCluster;
use kumi_tests::command;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the routines here do with their ranks.
const OWN: &str = r#"
Globals {
#include <kumi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
}
Define look(mode_in int n, mode_in int ranks, mode_in string word, mode_in double own[n], mode_in double all[n],
    mode_inout double back[n], mode_out double seen[64], mode_out int64 job, mode_out string text[32])
Parallel ranks
@broadcast(all)
{
    double mine = 0, found[64];
    for (int i = 0; i < n; i++)
        mine += own[i] * 1000 + all[i] + (double)strlen(word) * 1e6;
    kumi_gather(0, &mine, found, 1, KUMI_F64);
    memset(seen, 0, 64 * sizeof *seen);
    if (kumi_rank() == 0)
        memcpy(seen, found, (size_t)kumi_size() * sizeof *seen);
    for (int i = 0; i < n; i++)
        back[i] = -back[i];
    *job = (int64_t)kumi_job();
    strcpy(text, word);
    text[0] = 'W';
}
Define crash(mode_in int rank)
Parallel 2
{
    if (kumi_rank() == rank)
        raise(SIGSEGV);
    kumi_barrier();
}
Define endless(mode_in int n)
Parallel 2
{
    for (;;)
        pause();
}
Define leave(mode_in int rank)
Parallel 2
{
    if (kumi_rank() == rank)
        exit(0);
    kumi_barrier();
}
Define stubborn(mode_in int n)
Parallel 2
{
    signal(SIGTERM, SIG_IGN);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    for (;;)
        pause();
}
"#;

fn run(mut command: Command) -> (String, String, Option<i32>) {
    let output = command.output().expect("kumi runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Builds executables; their manifests.
fn built(folder: &Path, files: &[&Path]) -> Vec<PathBuf> {
    let mut command = Command::new(binaries::path("kumi"));
    command.args(["call", "build", "-o"]).arg(folder).args(files);
    let (printed, said, code) = run(command);
    assert_eq!(code, Some(0), "{said}");
    printed.lines().map(PathBuf::from).collect()
}

/// Of the routines of this file.
fn own(folder: &Path) -> Vec<PathBuf> {
    let described = folder.join("own.idl");
    std::fs::write(&described, OWN).expect("written");
    built(folder, &[&described])
}

/// A server of the cluster's machine.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(cluster: &TestCluster, manifests: &[PathBuf], options: &[&str]) -> Server {
        let mut command = cluster.command(&["call", "serve", "--listen", "127.0.0.1:0"]);
        command.args(options).args(manifests).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kumi starts");
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("its messages"));
        stderr.read_line(&mut said).expect("a line");
        assert!(said.contains("serves"), "{said}");
        let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
        std::thread::spawn(move || {
            let mut rest = String::new();
            let _read = stderr.read_to_string(&mut rest);
            eprint!("{rest}");
        });
        Server { child, address }
    }

    fn run(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        let mut command = Command::new(binaries::path("kumi"));
        command.args(["call", "run", "--server", &self.address]).args(arguments);
        run(command)
    }

    fn results(&self, arguments: &[&str]) -> String {
        let (printed, said, code) = self.run(arguments);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
        printed
    }

    fn end(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `end` it is gone.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// What stands behind `name = `.
fn value<'a>(results: &'a str, name: &str) -> &'a str {
    let line = results.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
    line.unwrap_or_else(|| panic!("no {name} in {results}"))
}

/// Jobs of this name that are not over.
fn jobs(cluster: &TestCluster, name: &str) -> usize {
    let all = cluster.json(&["ps", "--json"]);
    let all = all.as_array().expect("an array");
    all.iter().filter(|job| job["name"] == name && job["state"] != "ended").count()
}

/// Arrays that go to the server through the memory of the call, and through the socket, come to the ranks as ever.
fn large_arrays(server: &Server, folder: &Path) {
    let file = |name: &str, number: f64| {
        let path = folder.join(name);
        std::fs::write(&path, number.to_le_bytes().repeat(60_000)).expect("written");
        format!("@{}", path.display())
    };
    let (own, all, back) = (file("own.f64", 1.0), file("all.f64", 2.0), file("back.f64", 3.0));
    let to = folder.join("out.f64");
    for shared in ["yes", "no"] {
        let mut command = Command::new(binaries::path("kumi"));
        command.args(["call", "run", "--server", &server.address, "look", "60000", "2", "word"]);
        command.args([own.as_str(), &all, &back, "-o"]).arg(format!("back={}", to.display()));
        command.env("KUMI_CALL_SHARED", shared);
        let (printed, said, code) = run(command);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            value(&printed, "seen").starts_with("[240060120000.0, 240000120000.0, 0.0,"),
            "{printed}"
        );
        let numbers = std::fs::read(&to).expect("it is there");
        assert!(numbers == (-3.0_f64).to_le_bytes().repeat(60_000));
        std::fs::remove_file(&to).expect("it was there");
    }
}

#[test]
fn ranks_share_the_work_and_are_kept() {
    let mut cluster = TestCluster::up(2);
    let folder = tempfile::tempdir().expect("a folder");
    let mut manifests = own(folder.path());
    let ep = repository().join("examples/call/ep_parallel.idl");
    manifests.extend(built(folder.path(), &[&ep]));
    let server = Server::start(&cluster, &manifests, &["--ranks", "4"]);
    let mut info = Command::new(binaries::path("kumi"));
    info.args(["call", "info", "ep_parallel", "--server", &server.address]);
    assert!(run(info).0.contains("a job of ranks ranks"));
    // The NAS kernel EP of class S: the official sums and counts, whatever the number of ranks.
    for ranks in ["3", "0"] {
        let ep = server.results(&["ep_parallel", "16777216", &format!("ranks={ranks}")]);
        let near = |name: &str, official: f64| {
            (value(&ep, name).parse::<f64>().expect("a number") / official - 1.0).abs() < 1e-8
        };
        assert!(near("sx", -3.24783465203474e3) && near("sy", -6.958407078382297e3), "{ep}");
        assert!(value(&ep, "q").starts_with("[6140517.0, 5865300.0, 1100361.0, 68546.0,"), "{ep}");
    }
    // Scalars, texts and arrays that say so come to all ranks, others to rank 0.
    let look = |ranks: &str| server.results(&["look", "2", ranks, "word", "1,2", "3,4", "5,6"]);
    let first = look("2");
    assert!(value(&first, "seen").starts_with("[8003007.0, 8000007.0, 0.0,"), "{first}");
    assert_eq!((value(&first, "back"), value(&first, "text")), ("[-5.0, -6.0]", "\"Word\""));
    assert_eq!(value(&look("2"), "job"), value(&first, "job"), "the job is kept");
    // Nothing is called: it takes no turns.
    command::wait_for("an idle job", || cluster.job("look").filter(|job| job["idle"] == true));
    assert_eq!(value(&look("2"), "job"), value(&first, "job"), "an idle job wakes");
    let other = look("4");
    assert!(value(&other, "seen").starts_with("[8003007.0, 8000007.0, 8000007.0, 8000007.0, 0.0"));
    assert_ne!(value(&other, "job"), value(&first, "job"));
    large_arrays(&server, folder.path());
    let (_, said, code) = server.run(&["look", "2", "5", "word", "1,2", "3,4", "5,6"]);
    assert!(code != Some(0) && said.contains("--ranks 5"), "{said}");
    let (_, said, code) = server.run(&["look", "2", "-1", "word", "1,2", "3,4", "5,6"]);
    assert!(code == Some(64) && said.contains("the number of ranks, `ranks`, is -1"), "{said}");
    // The server's end takes its jobs along.
    server.end();
    command::wait_for("the end of the jobs", || {
        (jobs(&cluster, "look") + jobs(&cluster, "ep_parallel") == 0).then_some(())
    });
    cluster.down().ok();
}

#[test]
fn jobs_that_end_are_told_and_started_again() {
    let mut cluster = TestCluster::up(2);
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&cluster, &own(folder.path()), &["--ranks", "2"]);
    for (routine, rank) in [("crash", "0"), ("crash", "1"), ("leave", "0"), ("leave", "1")] {
        let (_, said, code) = server.run(&[routine, rank]);
        assert_eq!(code, Some(70), "{said}");
        assert!(said.contains(&format!("the job of `{routine}` is over")), "{said}");
        assert!(said.contains("rank"), "{said}");
    }
    // The job is started anew.
    assert_eq!(server.results(&["crash", "7"]), "");
    let (_, said, code) = server.run(&["endless", "1", "--timeout", "5s"]);
    assert!(code != Some(0) && said.contains("took longer"), "{said}");
    command::wait_for("the end of the job", || (jobs(&cluster, "endless") == 0).then_some(()));
    // A client that goes cancels its call.
    let mut client = Command::new(binaries::path("kumi"));
    client.args(["call", "run", "--server", &server.address, "endless", "1"]);
    let mut client = client.spawn().expect("kumi starts");
    command::wait_for("a job", || (jobs(&cluster, "endless") == 1).then_some(()));
    client.kill().expect("it is there");
    client.wait().expect("it ends");
    command::wait_for("the end of the job", || (jobs(&cluster, "endless") == 0).then_some(()));
    // Ranks that neither hear of the end nor take signals.
    let (_, said, code) = server.run(&["stubborn", "1"]);
    assert_eq!(code, Some(70), "{said}");
    command::wait_for("the end of the job", || (jobs(&cluster, "stubborn") == 0).then_some(()));
    // A job that somebody ends between calls is replaced.
    command::wait_for("the new job", || (jobs(&cluster, "crash") == 1).then_some(()));
    let running = cluster.json(&["ps", "--json"]);
    let mut running = running.as_array().expect("jobs").iter();
    let running = running.find(|job| job["name"] == "crash" && job["state"] != "ended");
    let number = running.expect("the new job")["job"].to_string();
    cluster.kumi(&["kill", &number]).ok();
    command::wait_for("its end", || (jobs(&cluster, "crash") == 0).then_some(()));
    assert_eq!(server.results(&["crash", "7"]), "");
    // A killed server's jobs end too.
    drop(server);
    command::wait_for("the end of the jobs", || (jobs(&cluster, "crash") == 0).then_some(()));
    cluster.down().ok();
}

#[test]
fn jobs_are_the_users_whom_tokens_name_and_clusters_come_and_go() {
    let mut cluster = TestCluster::up(2);
    let folder = tempfile::tempdir().expect("a folder");
    let manifests = own(folder.path());
    for folder in [folder.path(), cluster.state()] {
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("it is ours");
    }
    let root = nix::unistd::geteuid().is_root();
    let tokens = folder.path().join("tokens");
    let tokens = tokens.to_str().expect("UTF-8");
    let add = cluster.command(&["call", "token", "add", "ada", "--file", tokens]);
    let (token, said, code) = run(add);
    assert_eq!(code, Some(0), "{said}");
    if root {
        let text = std::fs::read_to_string(tokens).expect("it was made");
        let text = text.replace("name = \"ada\"", "name = \"ada\"\nrun_as = \"nobody\"");
        std::fs::write(tokens, text).expect("written");
    }
    let server = Server::start(&cluster, &manifests, &["--tokens", tokens, "--ranks", "2"]);
    let call = || {
        let mut call = Command::new(binaries::path("kumi"));
        call.args(["call", "run", "--server", &server.address, "crash", "7"]);
        call.env("KUMI_CALL_TOKEN", token.trim());
        run(call)
    };
    let (_, said, code) = call();
    assert_eq!(code, Some(0), "{said}");
    let job = cluster.job("crash").expect("a job");
    if root {
        assert_eq!(job["user"], "nobody");
    }
    // The cluster goes, which takes the job along, and comes again.
    cluster.down().ok();
    let (_, said, code) = call();
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("cannot be started") && said.contains("kumi cluster up"), "{said}");
    cluster.try_up(2, &[]).ok();
    std::fs::set_permissions(cluster.state(), Permissions::from_mode(0o755)).expect("it is ours");
    let (_, said, code) = call();
    assert_eq!(code, Some(0), "{said}");
    // Both between two calls: what was opened to the network of the first cluster leads nowhere now.
    cluster.down().ok();
    cluster.try_up(2, &[]).ok();
    std::fs::set_permissions(cluster.state(), Permissions::from_mode(0o755)).expect("it is ours");
    for _ in 0..2 {
        let (_, said, code) = call();
        assert_eq!(code, Some(0), "{said}");
    }
    server.end();
    cluster.down().ok();
}

#[test]
fn without_a_cluster_it_is_said_what_to_do() {
    let cluster = TestCluster::prepare();
    let folder = tempfile::tempdir().expect("a folder");
    let manifests = own(folder.path());
    let server = Server::start(&cluster, &manifests, &[]);
    let (_, said, code) = server.run(&["endless", "1"]);
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("cannot be started") && said.contains("kumi cluster up"), "{said}");
    server.end();
    let server = Server::start(&cluster, &manifests, &["--sandbox"]);
    let (_, said, code) = server.run(&["endless", "1"]);
    assert!(code == Some(126) && said.contains("--sandbox"), "{said}");
    server.end();
    // A library is not enough.
    let described = folder.path().join("bound.idl");
    std::fs::write(&described, "Define f(mode_in int n) Parallel 2 Calls f(n);").expect("written");
    let mut serve = cluster.command(&["call", "serve", "--listen", "127.0.0.1:0"]);
    serve.arg(&described);
    let (_, said, code) = run(serve);
    assert!(code != Some(0) && said.contains("kumi call build"), "{said}");
}
