//! The peer UCX: its own benchmark, `ucx_perftest`, over TCP.

use crate::cluster::{self, Node};
use crate::error::BenchError;
use crate::peer::Server;
use std::path::Path;
use std::process::Command;

/// The port that both ends of the benchmark use.
const PORT: &str = "7901";
/// Measured round trips, and those before them.
const ITERATIONS: [&str; 4] = ["-n", "20000", "-w", "2000"];
/// The column of its table: median half round trip in microseconds.
const COLUMN: &str = "50.0_percentile_lat";

/// "UCX 1.13.1", or why it is absent.
///
/// # Errors
/// Why it is absent.
pub(crate) fn version() -> Result<String, String> {
    let absent = |what: &str| format!("{what} is not installed; `make bench-peers` installs it");
    let output = Command::new("ucx_info").arg("-v").output().map_err(|_| absent("ucx_info"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find_map(|line| line.split("ersion ").nth(1));
    // Without arguments it runs only as a server, so it is asked for its help.
    Command::new("ucx_perftest").arg("-h").output().map_err(|_| absent("ucx_perftest"))?;
    Ok(format!("UCX {}", version.unwrap_or("of unknown version").trim()))
}

/// Median half round trip in microseconds between two nodes; `test` as the benchmark names it.
///
/// # Errors
/// When it fails.
pub(crate) fn latency(test: &str, nodes: &[Node], bytes: &str) -> Result<f64, BenchError> {
    let server = Server::start(end(&nodes[1])?, None)?;
    // It prints nothing when it listens, so the client tries again.
    let mut tries = 0;
    let output = loop {
        let mut client = end(&nodes[0])?;
        client.arg(&nodes[1].address).args(["-t", test, "-s", bytes, "-v"]).args(ITERATIONS);
        match cluster::output(&mut client) {
            Err(_) if tries < 20 => tries += 1,
            done => break done?,
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    drop(server);
    parse(&output)
}

/// The benchmark at one node. It looks for network devices in /sys, which must be the node's own.
fn end(node: &Node) -> Result<Command, BenchError> {
    let mut command = match &node.netns {
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, "ucx_perftest"]);
            command
        }
        None => Command::new("ucx_perftest"),
    };
    command.args(["-p", PORT]);
    if let Some(cpu) = node.cpus.first() {
        command.args(["-c", &cpu.to_string()]);
    }
    command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", device(node)?);
    Ok(command)
}

/// The network device with the node's address.
fn device(node: &Node) -> Result<String, BenchError> {
    let mut command = node.command(Path::new("ip"));
    let output = cluster::output(command.args(["-o", "-4", "addr", "show"]))?;
    // "2: veth0    inet 10.1.0.2/24 brd …"
    let has = |line: &&str| {
        let address = line.split_whitespace().skip_while(|word| *word != "inet").nth(1);
        address.and_then(|address| address.split('/').next()) == Some(node.address.as_str())
    };
    let name = output.lines().find(has).and_then(|line| line.split_whitespace().nth(1));
    name.map(str::to_owned).ok_or_else(|| BenchError::Output {
        wanted: node.address.clone(),
        what: "ip addr".to_owned(),
        output,
    })
}

/// The median from a table of comma-separated values below their names.
fn parse(output: &str) -> Result<f64, BenchError> {
    let mut lines = output.lines().skip_while(|line| !line.contains(COLUMN));
    let at = lines.next().and_then(|names| names.split(',').position(|name| name == COLUMN));
    let value = at.zip(lines.next()).and_then(|(at, values)| values.split(',').nth(at));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| BenchError::Output {
        wanted: COLUMN.to_owned(),
        what: "ucx_perftest".to_owned(),
        output: output.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_median_by_its_name() {
        let text = "iterations,50.0_percentile_lat,avg_lat\n10000,5.432,17.797\n";
        assert!((parse(text).unwrap() - 5.432).abs() < 1e-12);
        let text = "noise\niterations,avg_lat,50.0_percentile_lat\n10000,17.797,5.5\n";
        assert!((parse(text).unwrap() - 5.5).abs() < 1e-12);
        assert!(parse("iterations,avg_lat\n1,2\n").is_err());
    }
}
