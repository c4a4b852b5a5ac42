//! `kumid`: the daemon of a node, the head of a cluster, and helpers of the daemon.
//!
//! People start it through `kumi cluster up`, or from a service unit.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use kumi_node::exit::{ExitCode as Code, Failure};
use kumi_node::log::LevelFilter;
use kumi_node::{head, job, keep, log, node, watch};
use kumi_sched::NodeId;

const HELP: &str = "\
kumid: daemon of a Kumi cluster; started by `kumi cluster up`, or by hand on real hosts:

    kumid head --cluster-dir DIR [--head I] [--metrics [ADDRESS:]PORT]
                                           the head of the cluster, or one of several: number I, or
                                           the first whose address is of this machine
    kumid node --cluster-dir DIR --node I [--metrics [ADDRESS:]PORT]
                                           the daemon of node I; with --metrics each serves figures
                                           to Prometheus there, whatever cluster.toml says

DIR holds cluster.toml and tls/, made by `kumi cluster init`. Logs go to standard error;
KUMI_LOG sets how much (error, warn, info, debug). SIGTERM stops it, and jobs run on: without their
head, and on real hosts for a minute without their node's daemon. keep_ms in cluster.toml gives
another time; at 0 a node kills its jobs, and those of MPI programs or with AF_XDP always.

    kumid rank, kumid keep, kumid watch    used by the daemon itself
";

enum Invocation {
    Head(PathBuf, Option<usize>, Option<String>),
    Node(PathBuf, NodeId, Option<String>),
    Rank(i32, u32, Option<u32>),
    Keep(i32),
    Watch(Vec<PathBuf>),
    Help,
    Version,
}

fn usage(message: &str) -> Failure {
    Failure::new(Code::Usage, format!("{message}; see `kumid --help`"))
}

/// Takes `--head I` out of the words for a head.
fn take_head(words: &mut Vec<&str>) -> Result<Option<usize>, Failure> {
    let Some(at) = words.iter().position(|word| *word == "--head") else { return Ok(None) };
    if words.first() != Some(&"head") {
        return Err(usage("--head is for `kumid head`"));
    }
    let Some(number) = words.get(at + 1).and_then(|word| word.parse().ok()) else {
        return Err(usage("--head needs the number of a head"));
    };
    words.drain(at..at + 2);
    Ok(Some(number))
}

fn parse(arguments: &[String]) -> Result<Invocation, Failure> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut metrics = None;
    if matches!(words.first(), Some(&("head" | "node")))
        && let Some(at) = words.iter().position(|word| *word == "--metrics")
    {
        let Some(address) = words.get(at + 1) else {
            return Err(usage("--metrics needs a port or an address with a port"));
        };
        metrics = Some((*address).to_owned());
        words.drain(at..at + 2);
    }
    let head = take_head(&mut words)?;
    match words[..] {
        ["rank", spec, local, ref keeper @ ..] if keeper.len() <= 1 => {
            let keeper = keeper.first().map(|keeper| keeper.parse()).transpose().ok();
            let parsed = spec.parse().ok().zip(local.parse().ok()).zip(keeper);
            parsed
                .map(|((spec, local), keeper)| Invocation::Rank(spec, local, keeper))
                .ok_or_else(|| usage("`kumid rank` is not for people"))
        }
        ["keep", "--cluster-dir", _, order] => {
            let order = order.parse().map_err(|_| usage("`kumid keep` is not for people"))?;
            Ok(Invocation::Keep(order))
        }
        ["watch", ref groups @ ..] => {
            Ok(Invocation::Watch(groups.iter().map(PathBuf::from).collect()))
        }
        ["head", "--cluster-dir", dir] => Ok(Invocation::Head(dir.into(), head, metrics)),
        ["node", "--cluster-dir", dir, "--node", node]
        | ["node", "--node", node, "--cluster-dir", dir] => {
            let node =
                node.parse().map_err(|_| usage(&format!("{node:?} is not a node's number")))?;
            Ok(Invocation::Node(dir.into(), NodeId(node), metrics))
        }
        ["--help" | "-h" | "help"] => Ok(Invocation::Help),
        ["--version" | "-V"] => Ok(Invocation::Version),
        [] => Err(usage("nothing to do")),
        _ => Err(usage("the arguments are not understood")),
    }
}

/// Closes what whoever started this process forgot to: ranks would inherit it. To be called before
/// anything is opened.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open {
        if fd > 2 {
            // The folder that was read is among them, and closed already.
            let _ = nix::unistd::close(fd);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let result = parse(&arguments).and_then(|call| match call {
        Invocation::Rank(spec, local, keeper) => Ok(job::shim::main(spec, local, keeper)),
        Invocation::Keep(order) => Ok(keep::keeper::main(order)),
        Invocation::Watch(groups) => Ok(watch::main(groups)),
        Invocation::Head(dir, number, metrics) => {
            close_inherited();
            let _logging = log::start(LevelFilter::INFO)?;
            head::run(&dir, number, metrics.as_deref()).map(|()| Code::Ok)
        }
        Invocation::Node(dir, number, metrics) => {
            close_inherited();
            let _logging = log::start(LevelFilter::INFO)?;
            node::run(&dir, number, metrics.as_deref()).map(|()| Code::Ok)
        }
        Invocation::Help => {
            print!("{HELP}");
            Ok(Code::Ok)
        }
        Invocation::Version => {
            println!("kumid {}", env!("CARGO_PKG_VERSION"));
            Ok(Code::Ok)
        }
    });
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            eprintln!("kumid: {failure}");
            failure.code.into()
        }
    }
}
