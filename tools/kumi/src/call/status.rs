//! `kumi call status`: shows the state of a metaserver.

use crate::error::Error;
use crate::output;
use crate::table::Table;
use clap::Args;
use kumi_call::Grid;
use kumi_call::meta::State;
use std::fmt::Write as _;

use super::client::ServerArgs;

/// Options of `kumi call status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print the whole state as JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the state of a metaserver.
pub fn run(args: &StatusArgs) -> Result<(), Error> {
    let grid = Grid::connect(&args.server.server, &args.server.access.options()?)?;
    let state = grid.status()?;
    if args.json { output::json(&state) } else { output::text(&shown(&state)) }
}

fn seconds(time: f64) -> String {
    crate::table::nanos((time * 1e9) as u64)
}

fn rate(bytes: f64) -> String {
    if bytes > 0.0 { format!("{:.1}", bytes / 1e6) } else { "-".to_owned() }
}

fn user(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.to_owned() }
}

fn shown(state: &State) -> String {
    let counters = &state.counters;
    let mut text = format!(
        "{} ({}): {} servers, {} routines; {} calls wait, {} run; {} done, {} failed, {} again\n",
        state.name,
        state.policy,
        state.servers.len(),
        state.routines.len(),
        state.waiting,
        state.running,
        counters.done,
        counters.failed,
        counters.retried,
    );
    if let Some(leader) = &state.leader {
        let _fits = writeln!(
            text,
            "leads at {}; etcd: {} requests, {} failed, {} each",
            leader.address,
            leader.requests,
            leader.errors,
            seconds(leader.mean),
        );
        if !leader.trouble.is_empty() {
            let _fits = writeln!(
                text,
                "{} calls wait until they are stored: {}",
                leader.unkept, leader.trouble
            );
        }
    }
    if !state.servers.is_empty() {
        let _fits = write!(text, "\n{}", servers(state));
    }
    if !state.users.is_empty() {
        let mut table = Table::new(&["USER", ">WAIT", ">RUN"]);
        for one in &state.users {
            table.row(vec![user(&one.name), one.waiting.to_string(), one.running.to_string()]);
        }
        let _fits = write!(text, "\n{}", table.render());
    }
    if !state.paths.is_empty() {
        let mut table = Table::new(&["FROM", "TO", ">OUT MB/s", ">BACK MB/s", ">LATENCY"]);
        for path in &state.paths {
            let (out, back) = (rate(path.out), rate(path.back));
            table.row(vec![path.from.clone(), path.to.clone(), out, back, seconds(path.latency)]);
        }
        let _fits = write!(text, "\n{}", table.render());
    }
    text
}

fn servers(state: &State) -> String {
    let headings =
        ["SERVER", "ADDRESS", "SITE", "STATE", ">CALLS", ">ELSEWHERE", ">LOAD", ">DONE", ">FAILED"];
    let mut table = Table::new(&headings);
    for server in &state.servers {
        table.row(vec![
            server.name.clone(),
            server.address.clone(),
            server.site.clone(),
            server.state.to_string(),
            format!("{}/{}", server.in_flight, server.limit),
            server.elsewhere.to_string(),
            match server.state.is_there() {
                true => format!("{:.1}/{}", server.load, server.processors),
                // It is gone, and so is its load.
                false => "-".to_owned(),
            },
            server.done.to_string(),
            server.failed.to_string(),
        ]);
    }
    table.render()
}
