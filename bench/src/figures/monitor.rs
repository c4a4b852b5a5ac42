//! What it costs to watch 64 ranks in a browser: processor time of all daemons while somebody watches and while nobody does, in
//! windows of one run that alternate, and how many pictures come.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: u32 = 2;
const RANKS: &str = "64";
/// Time for all ranks to start, and for the monitor to slow down when nobody watches any more.
const SETTLE: Duration = Duration::from_secs(3);
/// Most of a processor that watching may take, in per cent.
const COST: f64 = 0.5;
/// Least pictures a second.
const PICTURES: f64 = 5.0;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let window = Duration::from_secs(if setting.quick { 3 } else { 10 });
    let settings = [("max_ranks_per_processor", 64)];
    let cluster = Cluster::up_with(NODES, &["--slice", "10ms"], &settings)?;
    let program = cluster::program("lockstep")?;
    let nodes = usize::try_from(NODES).unwrap_or(1);
    let mut job = cluster.start_with(&["-n", RANKS], nodes, &program, &["--seconds", "100000"])?;
    let measured = windows(&cluster, window, runs);
    // The cluster's end ends it as well.
    let _ = job.kill().and_then(|()| job.wait());
    let (watched, unwatched, rates) = measured?;
    let more: Vec<f64> =
        watched.iter().zip(&unwatched).map(|(with, without)| with - without).collect();
    Ok(vec![
        Record::new(
            "watching 64 ranks, processor time",
            "% of a core",
            &more,
            &Peer::Nobody,
            Goal::OursAtMost(COST),
        ),
        Record::new(
            "daemons with 64 ranks that are watched",
            "% of a core",
            &watched,
            &Peer::Measured("while nobody watches", &unwatched),
            Goal::None,
        ),
        Record::new(
            "pictures of 64 ranks",
            "a second",
            &rates,
            &Peer::Nobody,
            Goal::OursAtLeast(PICTURES),
        ),
    ])
}

/// Per cent of a processor with and without somebody who watches, and pictures a second, for each run.
type Windows = (Vec<f64>, Vec<f64>, Vec<f64>);

fn windows(cluster: &Cluster, window: Duration, runs: usize) -> Result<Windows, BenchError> {
    let mut all = Windows::default();
    for _ in 0..runs {
        std::thread::sleep(SETTLE);
        all.1.push(share(cluster, window)?);
        let watcher = Watcher::start(cluster)?;
        std::thread::sleep(SETTLE);
        let before = watcher.pictures.load(Ordering::Relaxed);
        let begin = Instant::now();
        all.0.push(share(cluster, window)?);
        let seen = watcher.pictures.load(Ordering::Relaxed) - before;
        all.2.push(seen as f64 / begin.elapsed().as_secs_f64());
    }
    Ok(all)
}

/// Per cent of a processor that all daemons use over a window.
fn share(cluster: &Cluster, window: Duration) -> Result<f64, BenchError> {
    Ok(cluster.share_of_all(window)? * 100.0)
}

/// Somebody who watches, as a browser does.
struct Watcher {
    /// Carries the bytes; its own processor time is the user's.
    carrier: Child,
    pictures: Arc<AtomicU64>,
}

impl Watcher {
    fn start(cluster: &Cluster) -> Result<Self, BenchError> {
        let mut command = cluster.command(&["web", "--port", "0"]);
        let what = format!("{command:?}");
        let mut carrier = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| BenchError::Start { what: what.clone(), source })?;
        let mut line = String::new();
        let failed = |source| BenchError::Start { what: what.clone(), source };
        if let Some(out) = carrier.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let pictures = Arc::<AtomicU64>::default();
        let watcher = Self { carrier, pictures: Arc::clone(&pictures) };
        let stream = watch(line.trim()).map_err(failed)?;
        std::thread::spawn(move || {
            // Ends with the carrier.
            for line in stream.lines().map_while(Result::ok) {
                pictures.fetch_add(u64::from(line.starts_with("data: ")), Ordering::Relaxed);
            }
        });
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If it has ended already, that is what is wanted.
        let _ = self.carrier.kill().and_then(|()| self.carrier.wait());
    }
}

/// Opens a session with the address that `kumi web` printed, and the stream of pictures.
fn watch(url: &str) -> std::io::Result<BufReader<TcpStream>> {
    let wrong = || std::io::Error::other(format!("kumi web printed {url:?}"));
    let (host, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let ask = |path: &str, cookie: &str| {
        let mut stream = TcpStream::connect(host)?;
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n");
        stream.write_all(request.as_bytes())?;
        Ok::<_, std::io::Error>(BufReader::new(stream))
    };
    let mut answer = ask(path, "")?.lines();
    let cookie = answer.find_map(|line| {
        line.ok()?.strip_prefix("set-cookie: ")?.split(';').next().map(str::to_owned)
    });
    ask("api/live", &format!("Cookie: {}\r\n", cookie.ok_or_else(wrong)?))
}
