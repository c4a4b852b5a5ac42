//! The monitor on a real cluster: `kumi web` as a browser sees it, by hand and in Chromium.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{PATIENCE, RunningCommand, run, wait_for};
use kumi_tests::machine;
use serde_json::Value;

/// A session with the address that `kumi web` has printed.
struct Browser {
    host: String,
    cookie: String,
    _web: RunningCommand,
}

impl Browser {
    fn open(cluster: &TestCluster, options: &[&str]) -> Self {
        let words: Vec<&str> = ["web", "--port", "0"].iter().chain(options).copied().collect();
        let web = cluster.start(&words);
        let url = web.output_line();
        let rest = url.strip_prefix("http://").expect("an address");
        let (host, path) = rest.split_once('/').expect("a path");
        let mut browser = Self { host: host.to_owned(), cookie: String::new(), _web: web };
        let answer = browser.raw("GET", &format!("/{path}"));
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.unwrap_or_else(|| panic!("no session: {answer}"));
        browser.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        browser
    }

    fn send(&self, method: &str, path: &str, connection: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).expect("kumi web listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let Self { host, cookie, .. } = self;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nX-Kumi-Request: 1\r\nConnection: {connection}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    fn raw(&self, method: &str, path: &str) -> String {
        let mut answer = String::new();
        self.send(method, path, "close").read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.raw("GET", path);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    /// Pictures until one is as it should be.
    fn picture(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let lines = BufReader::new(self.send("GET", path, "keep-alive")).lines();
        for line in lines {
            let line = line.expect("the stream goes on");
            let Some(text) = line.strip_prefix("data: ") else { continue };
            let picture: Value = serde_json::from_str(text).expect("JSON");
            if wanted(&picture) {
                return picture;
            }
        }
        panic!("the stream ended")
    }
}

fn lockstep(cluster: &TestCluster, name: &str) -> RunningCommand {
    let program = binaries::path("lockstep").display().to_string();
    cluster.start(&["run", "-n", "4", "--name", name, &program, "--seconds", "100000"])
}

/// Waits until the first of the job's four ranks has sent something: they compute before.
fn wait_for_sending_ranks(browser: &Browser, job: &Value) {
    wait_for("ranks that send", || {
        let ranks = browser.json(&format!("/api/jobs/{}/ranks", job["job"]));
        assert_eq!(ranks.as_array().expect("ranks").len(), 4);
        ranks[0]["counters"]["sent"].as_u64().filter(|&sent| sent > 0)
    });
}

#[test]
fn what_a_browser_sees_is_what_runs() {
    let mut cluster = TestCluster::up_with(2, &["--slice", "5ms"]);
    let jobs = [lockstep(&cluster, "left"), lockstep(&cluster, "right")];
    let [left, right] = ["left", "right"].map(|name| cluster.wait_state(name, "running"));
    let browser = Browser::open(&cluster, &[]);
    // Both compute all the time.
    let busy = |job: &Value| {
        let loads = job["loads"].as_str().expect("digits").as_bytes().chunks(2);
        let mut loads =
            loads.map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16));
        loads.len() == 4 && loads.all(|load| load.is_ok_and(|load| (40..=100).contains(&load)))
    };
    let picture = browser.picture("/api/live?slices=true", |picture| {
        let jobs = picture["jobs"].as_array().expect("jobs");
        let slices = |node: &Value| node["slices"].as_array().is_some_and(|all| all.len() > 2);
        let nodes = picture["nodes"].as_array().expect("nodes");
        jobs.len() == 2 && jobs.iter().all(busy) && nodes.len() == 2 && nodes.iter().all(slices)
    });
    let turns: Vec<&Value> =
        picture["nodes"][0]["slices"].as_array().expect("slices").iter().collect();
    for job in [&left, &right] {
        assert!(turns.iter().any(|slice| slice["jobs"][0] == job["job"]), "{picture}");
    }
    let cluster_view = browser.json("/api/cluster");
    assert_eq!(
        (&cluster_view["nodes"][1]["up"], &cluster_view["slice_ns"]),
        (&true.into(), &5_000_000.into())
    );
    let listed = browser.json("/api/jobs?text=LEFT");
    assert_eq!(listed["jobs"].as_array().expect("jobs").len(), 1);
    assert_eq!(
        (&listed["jobs"][0]["name"], &listed["jobs"][0]["state"]),
        (&"left".into(), &"running".into())
    );
    wait_for_sending_ranks(&browser, &left);
    // History has rows of the job; its file keeps its size.
    let history = cluster.path().join("history");
    let size = std::fs::metadata(&history).expect("history").len();
    wait_for("two seconds of history", || {
        let past = browser.json(&format!("/api/history?span=600&job={}", left["job"]));
        past["rows"].as_array().filter(|rows| rows.len() >= 2).map(|rows| rows.len())
    });
    assert_eq!(std::fs::metadata(&history).expect("history").len(), size);
    // It only looks.
    let answer = browser.raw("POST", &format!("/api/jobs/{}/kill", left["job"]));
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    // One that acts kills; the command that follows the job hears of it.
    let acting = Browser::open(&cluster, &["--act"]);
    let answer = acting.raw("POST", &format!("/api/jobs/{}/kill", left["job"]));
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let one = browser.json(&format!("/api/jobs/{}", left["job"]));
    assert_eq!((&one["state"], &one["outcome"]), (&"ended".into(), &"killed".into()));
    cluster.kumi(&["kill", &right["job"].to_string()]).ok();
    jobs.into_iter().for_each(|job| assert_ne!(job.finish().code(), 0));
    cluster.down().ok();
    assert!(!cluster.path().join("web.sock").exists());
}

#[test]
fn users_act_on_their_own_jobs_only() {
    if !machine::is_root() {
        return kumi_skip::skip("users_act_on_their_own_jobs_only", "only root can be two users");
    }
    let cluster = TestCluster::up(1);
    cluster.open_to_others();
    let theirs = cluster.start_as_other(&["run", "-n", "1", "--name", "theirs", "sleep", "100000"]);
    let job = cluster.wait_state("theirs", "running")["job"].to_string();
    // Tickets of root show and do everything; those of others are of others.
    let answer = cluster.run_as_other(&["web", "--help"]).ok().out;
    assert!(answer.contains("--act"), "{answer}");
    let root = Browser::open(&cluster, &["--act"]);
    assert_eq!(root.json("/api/me")["uid"], 0);
    // Whoever has got the cookie gets nowhere with it as another user.
    let script = format!(
        "exec 3<>/dev/tcp/{} && echo connected; printf 'GET /api/me HTTP/1.1\\r\\nHost: {}\\r\\nCookie: {}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3",
        root.host.replace(':', "/"),
        root.host,
        root.cookie
    );
    let mut own = Command::new("bash");
    own.args(["-c", &script]);
    assert!(run(own).ok().out.contains("HTTP/1.1 200"));
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", &script]);
    assert_eq!(run(other).out, "connected\n", "it is not carried");
    let killed = root.raw("POST", &format!("/api/jobs/{job}/kill"));
    assert!(killed.starts_with("HTTP/1.1 204"), "{killed}");
    drop(theirs.finish());
}

/// A Chromium of this machine.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = std::env::split_paths(&folders).flat_map(|it| names.map(|name| it.join(name)));
    all.find(|path| path.is_file())
}

#[test]
fn the_page_in_chromium() {
    let test = "the_page_in_chromium";
    let page = binaries::repository().join("runtime/web/page");
    let Some(chromium) = chromium() else {
        return kumi_skip::skip(test, "there is no Chromium");
    };
    if !page.join("node_modules/playwright-core").exists() {
        return kumi_skip::skip(test, "`make page` has not installed what drives the browser");
    }
    let cluster = TestCluster::up_with(2, &["--slice", "10ms"]);
    let noisy = [
        "run",
        "-n",
        "12",
        "--name",
        "noisy",
        "sh",
        "-c",
        "echo rank $KUMI_RANK begins; while :; do :; done",
    ];
    let jobs = [lockstep(&cluster, "steps"), cluster.start(&noisy)];
    for name in ["steps", "noisy"] {
        cluster.wait_state(name, "running");
    }
    let web = cluster.start(&["web", "--act", "--port", "0"]);
    let mut node = Command::new("node");
    node.arg(page.join("test/browser.mjs")).arg(chromium).args([&web.output_line(), "noisy"]);
    if let Some(pictures) = std::env::var_os("KUMI_SCREENSHOTS") {
        node.arg(pictures);
    }
    let said = run(node).ok().out;
    assert!(said.contains("1 passed"), "{said}");
    cluster.kumi(&["kill", &cluster.wait_state("steps", "running")["job"].to_string()]).ok();
    for job in jobs {
        assert_ne!(job.finish().code(), 0);
    }
}
