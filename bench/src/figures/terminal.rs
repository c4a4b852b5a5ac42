//! Echo of keys in a shell of `kumi run -it`, while another job computes, beside a local shell on the same machine.

use super::Setting;
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::pseudo_terminal::PseudoTerminal;
use crate::record::{Goal, Peer, Record, quantile};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Keys of one run.
const KEYS: usize = 200;
/// Keys of one line, which is then cleared.
const LINE: usize = 60;
/// Slice, in milliseconds.
const SLICE: f64 = 10.0;
/// What the echo may take beside a slice, in milliseconds.
const MOST: f64 = 5.0;

/// A shell that reads no files of the user's.
const SHELL: [&str; 5] = ["env", "PS1=ready> ", "bash", "--norc", "-i"];

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "10ms"])?;
    let computes = ["-c", "while :; do :; done"];
    let mut other = cluster.start(2, Path::new("sh"), &computes)?;
    let measured = echoes(&cluster, runs);
    // Taking the cluster down would end it too.
    let ended = other.kill().and_then(|()| other.wait());
    let [prompt, busy, local] = measured?;
    ended.map_err(|source| BenchError::Start { what: "sh".to_owned(), source })?;
    let name = "bash in a local terminal, beside the same job";
    let record = |figure: &str, ours: &[Vec<f64>], share: f64, most: f64| {
        let of = |runs: &[Vec<f64>]| -> Vec<f64> {
            runs.iter().map(|run| quantile(run, share)).collect()
        };
        let (ours, local) = (of(ours), of(&local));
        Record::new(figure, "ms", &ours, &Peer::Measured(name, &local), Goal::OursAtMost(most))
    };
    Ok(vec![
        record("echo of a key at the prompt of kumi run -it, p50", &prompt, 0.5, MOST),
        record("echo of a key at the prompt of kumi run -it, p99", &prompt, 0.99, SLICE + MOST),
        record("echo of a key in a shell whose own job computes, p50", &busy, 0.5, MOST),
        record("echo of a key in a shell whose own job computes, p99", &busy, 0.99, SLICE + MOST),
    ])
}

/// Of each run: keys at the prompt, in a shell with something in the background, and in a local one.
fn echoes(cluster: &Cluster, runs: usize) -> Result<[Vec<Vec<f64>>; 3], BenchError> {
    let words = ["run", "-it", "--exclusive", "--nodes", "2", "-n", "2"];
    // The second rank only makes it a job on both nodes, so that it takes turns with the other.
    let script = "test $KUMI_RANK = 0 || exec sleep 100000; exec \"$@\"";
    let inner = ["sh", "-c", script, "sh"];
    let mut shell =
        PseudoTerminal::start(&cluster.command(&[&words[..], &inner, &SHELL].concat()))?;
    shell.wait_text("ready> ")?;
    let mut own = Command::new(SHELL[0]);
    own.args(&SHELL[1..]);
    let mut local = PseudoTerminal::start(&own)?;
    local.wait_text("ready> ")?;
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..runs {
        // Until the shell is idle.
        std::thread::sleep(Duration::from_secs(3));
        all[0].push(keys(&mut shell)?);
        all[2].push(keys(&mut local)?);
        shell.type_keys("while :; do :; done &\r")?;
        shell.wait_text("ready> ")?;
        std::thread::sleep(Duration::from_secs(1));
        all[1].push(keys(&mut shell)?);
        shell.type_keys("kill %1; wait\r")?;
        shell.wait_text("ready> ")?;
    }
    Ok(all)
}

/// Milliseconds until each of some keys was shown, typed as by a person.
fn keys(shell: &mut PseudoTerminal) -> Result<Vec<f64>, BenchError> {
    let mut took = Vec::with_capacity(KEYS);
    for key in 0..KEYS {
        took.push(shell.echo("x")?);
        // Between 30 and 70 ms, in steps that no slice divides.
        let pause = 30 + (key * 17) % 41;
        std::thread::sleep(Duration::from_micros(1_000 * pause as u64 + 313));
        if key % LINE == LINE - 1 {
            shell.type_keys("\x15")?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    shell.type_keys("\x15")?;
    std::thread::sleep(Duration::from_millis(50));
    Ok(took)
}
