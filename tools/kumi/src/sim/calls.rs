//! `kumi sim calls`: simulates calls of routines over a network.

use super::calls_args::{CallsArgs, DisciplineArg, NetworkArgs, ServersArgs};
use super::{check_place, progress, write};
use crate::error::Error;
use crate::output;
use crate::table::{Table, printable};
use kumi_sim::SimError;
use kumi_sim::calls::{
    self, Clients, Law, Link, Model, Options, Report, Row, Server, Site, Source,
};
use kumi_sim::stats::Estimate;
use std::path::Path;

/// Runs the command.
pub fn run(args: &CallsArgs) -> Result<(), Error> {
    if let Some(folder) = &args.figures {
        return figures(folder, args.quick);
    }
    let files = [&args.json, &args.csv, &args.write_model];
    for path in files.into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        check_place(path)?;
    }
    let outputs = files.into_iter().flatten().filter(|path| path.as_os_str() == "-").count();
    if outputs > 1 {
        let advice = "standard output takes one of --json, --csv and --write-model";
        let value = "-".to_owned();
        return Err(SimError::Parameter { name: "a second FILE", value, advice }.into());
    }
    let model = match &args.model {
        Some(path) => read(path)?,
        None => model(args),
    };
    if let Some(path) = &args.write_model {
        save(path, &json(&model)?)?;
    }
    let cases = cases(args, &model);
    let simulations = cases.len() * args.replications as usize;
    let reports = progress::watch(simulations, |monitor| calls::run_all(&cases, monitor))?;
    if let Some(path) = &args.csv {
        save(path, &calls::csv(&reports))?;
    }
    let text = match &reports[..] {
        [one] => json(one)?,
        many => json(&many)?,
    };
    if let Some(path) = &args.json {
        save(path, &text)?;
    }
    if outputs > 0 {
        return Ok(());
    }
    output::text(&reports.iter().map(show).collect::<Vec<String>>().join("\n"))
}

fn figures(folder: &Path, quick: bool) -> Result<(), Error> {
    let simulations = calls::figures::simulations(quick);
    let summary =
        progress::watch(simulations, |monitor| calls::figures::make(folder, quick, monitor))?;
    output::text(&super::figures::told("tables", &summary))
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|error| Error::Output(error.into()))? + "\n")
}

fn save(path: &Path, text: &str) -> Result<(), Error> {
    if path.as_os_str() == "-" { output::text(text) } else { write(path, text) }
}

fn read(path: &Path) -> Result<Model, Error> {
    let unreadable = |source| SimError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let wrong = |error: serde_json::Error| SimError::Model {
        reason: format!("{}: {error}", path.display()),
    };
    Ok(serde_json::from_str(&text).map_err(wrong)?)
}

/// The model of the options: equal sites and equal servers.
fn model(args: &CallsArgs) -> Model {
    let names = |count: u32, name: &str| (1..=count).map(|n| format!("{name}{n}")).collect();
    let sites: Vec<String> = names(args.sites, "site");
    let servers: Vec<String> = names(args.server.servers, "server");
    let source = match (args.think, args.rate) {
        (Some(mean), _) => Source::Think(mean.as_secs_f64()),
        (None, Some(rate)) => Source::Poisson(rate),
        (None, None) => {
            Source::Step { every_s: args.step.as_secs_f64(), probability: args.probability }
        }
    };
    let called: Vec<String> = args.routine.iter().map(|routine| routine.name.clone()).collect();
    let clients = |site: &String| Clients {
        site: site.clone(),
        count: args.clients,
        user: 0,
        routines: called.clone(),
        source: source.clone(),
    };
    Model {
        clients: sites.iter().map(clients).collect(),
        sites: sites.into_iter().map(|name| site(name, &args.network)).collect(),
        servers: servers.into_iter().map(|name| server(name, &args.server)).collect(),
        routines: args.routine.clone(),
        policy: args.policy.first().cloned().unwrap_or_default(),
        metaserver_s: args.metaserver.as_secs_f64(),
        most_waiting: args.most_waiting,
    }
}

fn site(name: String, args: &NetworkArgs) -> Site {
    let discipline = args.network.into();
    let link = args.bandwidth.map(|bandwidth| Link {
        servers: Vec::new(),
        bandwidth,
        latency_s: args.latency.as_secs_f64(),
        discipline,
        law: match args.network {
            DisciplineArg::Ps => Law::Constant,
            DisciplineArg::Fcfs => Law::Exponential,
        },
        background: args.background,
        background_bytes: args.background_bytes,
    });
    Site { name, links: link.into_iter().collect() }
}

fn server(name: String, args: &ServersArgs) -> Server {
    Server {
        name,
        processors: args.processors,
        speed: args.speed,
        discipline: args.discipline.into(),
        limit: args.limit,
        overhead_s: args.overhead.as_secs_f64(),
        routines: Vec::new(),
    }
}

/// One report for each policy.
fn cases(args: &CallsArgs, model: &Model) -> Vec<(Model, Options)> {
    let time_s = args.time.map(|time| time.as_secs_f64());
    let lists = model.clients.iter().all(|c| matches!(c.source, Source::List(_)));
    let time_s = time_s.or((!lists).then_some(100_000.0));
    let warm_up_s = args.warm_up.map(|time| time.as_secs_f64());
    let warm_up_s = warm_up_s.unwrap_or(time_s.unwrap_or(0.0) / 10.0);
    let options = Options { time_s, warm_up_s, replications: args.replications, seed: args.seed };
    let policies =
        if args.policy.is_empty() { vec![model.policy.clone()] } else { args.policy.clone() };
    policies.into_iter().map(|policy| (Model { policy, ..model.clone() }, options)).collect()
}

fn with_interval(estimate: Estimate, digits: usize) -> String {
    format!("{:.digits$} ± {:.digits$}", estimate.mean, estimate.half_width)
}

/// A line for each site and routine.
fn rows(report: &Report) -> String {
    let mut rows = Table::new(&[
        "site",
        "routine",
        ">calls",
        ">calls/s",
        ">Mflops max/min/mean",
        ">MB/s mean",
        ">waiting s",
        ">under way s",
        ">response s",
        ">turned away",
    ]);
    for row in &report.rows {
        let Row { performance, throughput, .. } = row;
        rows.row(vec![
            printable(&row.site).to_string(),
            printable(&row.routine).to_string(),
            row.calls.to_string(),
            with_interval(row.calls_per_s, 4),
            format!(
                "{:.2}/{:.2}/{:.2}",
                performance.max / 1e6,
                performance.min / 1e6,
                performance.mean.mean / 1e6
            ),
            format!("{:.3}", throughput.mean.mean / 1e6),
            with_interval(row.waiting_s.mean, 3),
            with_interval(row.communication_s.mean, 3),
            with_interval(row.response_s.mean, 3),
            format!("{:.1} %", 100.0 * row.turned_away.mean),
        ]);
    }
    rows.render()
}

/// A report as text.
fn show(report: &Report) -> String {
    let mut servers = Table::new(&["server", ">calls/s", ">busy", ">load"]);
    for server in &report.servers {
        servers.row(vec![
            printable(&server.name).to_string(),
            with_interval(server.calls_per_s, 4),
            format!("{:.2} %", 100.0 * server.utilisation.mean),
            with_interval(server.load, 3),
        ]);
    }
    let end = with_interval(report.end_s, 1);
    let mut text = format!(
        "policy {}, {} replications, simulated until {end} s; intervals are of 95 %\n\n{}\n{}",
        report.policy,
        report.replications,
        rows(report),
        servers.render()
    );
    if !report.links.is_empty() {
        let mut links = Table::new(&["path of", ">busy there", ">busy back"]);
        for link in &report.links {
            links.row(vec![
                printable(&link.site).to_string(),
                format!("{:.2} %", 100.0 * link.out.mean),
                format!("{:.2} %", 100.0 * link.back.mean),
            ]);
        }
        text += &format!("\n{}", links.render());
    }
    text
}
