//! Tables 1 to 3 and figure 3 of the Ninf paper, simulated, and with the paper's numbers beside them.

mod density;
mod ep;
mod linpack;

use std::fmt::Write as _;
use std::path::Path;

use super::model::{Clients, Discipline, Link, Model, Routine, Server, Site, Source};
use super::report::Report;
use super::run::{Options, run_all};
use crate::engine::Monitor;
use crate::error::SimError;
use crate::figures::{Statement, Summary, Verdict, line};

pub use density::frequencies;

type Case = (Model, Options);

/// Outcome of a table.
#[derive(Default)]
struct Section {
    title: &'static str,
    text: String,
    statements: Vec<Statement>,
}

impl Section {
    fn new(title: &'static str, how: &str) -> Self {
        Self { title, text: format!("{how}\n\n"), statements: Vec::new() }
    }

    fn claim(&mut self, what: impl Into<String>, holds: bool, numbers: String) {
        let verdict = if holds { Verdict::Holds } else { Verdict::Fails };
        self.statements.push(Statement { what: what.into(), verdict, numbers });
    }
}

/// A table of the paper.
trait Part {
    fn cases(&self, quick: bool) -> Vec<Case>;

    /// One report for each case, in order.
    fn judge(&self, reports: &[Report]) -> Section;
}

fn parts() -> [Box<dyn Part>; 4] {
    [
        Box::new(linpack::OneSite),
        Box::new(linpack::ManySites),
        Box::new(ep::Ep),
        Box::new(density::Density),
    ]
}

/// Number of simulations in [`make`]: its monitor counts to this, in thousands.
#[must_use]
pub fn simulations(quick: bool) -> usize {
    let cases = parts().into_iter().flat_map(|part| part.cases(quick));
    cases.map(|(_, options)| options.replications as usize).sum()
}

/// Simulates everything and writes `calls.md` into `folder`, which is created if it is missing. `quick` needs
/// fewer and shorter replications, as a trial.
///
/// # Errors
/// The file cannot be written, or the monitor says stop.
pub fn make(folder: &Path, quick: bool, monitor: &Monitor) -> Result<Summary, SimError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |source| SimError::Unwritable { path, source }
    };
    std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let parts = parts();
    let cases: Vec<Vec<Case>> = parts.iter().map(|part| part.cases(quick)).collect();
    let reports = run_all(&cases.concat(), monitor)?;
    let mut reports = reports.as_slice();
    let mut sections = Vec::new();
    for (part, cases) in parts.iter().zip(&cases) {
        let (own, others) = reports.split_at(cases.len());
        sections.push(part.judge(own));
        reports = others;
    }
    let path = folder.join("calls.md");
    std::fs::write(&path, text(&sections, quick)).map_err(unwritable(&path))?;
    let figures = sections.iter().map(|section| section.title.to_owned()).collect();
    let statements = sections.into_iter().flat_map(|section| section.statements).collect();
    Ok(Summary { index: path, figures, statements })
}

fn text(sections: &[Section], quick: bool) -> String {
    let mut text = String::from("# Calls over networks, simulated\n\n");
    line!(text, "Made by `kumi sim calls --figures`, version {}.", env!("CARGO_PKG_VERSION"));
    if quick {
        line!(text, "\n**Quick**: fewer and shorter replications.");
    }
    let statements = || sections.iter().flat_map(|section| &section.statements);
    let hold = statements().filter(|statement| statement.verdict == Verdict::Holds).count();
    line!(text, "\nOf {} statements of the paper {hold} hold.", statements().count());
    for section in sections {
        line!(text, "\n## {}\n", section.title);
        line!(text, "{}", section.text.trim_end());
        line!(text, "\n| the paper says | here | holds |\n|---|---|---|");
        for statement in &section.statements {
            let Statement { what, numbers, verdict } = statement;
            line!(text, "| {what} | {numbers} | {} |", verdict.word());
        }
    }
    text
}

/// The paper's clients: every 3 seconds with probability 1/2.
const SOURCE: Source = Source::Step { every_s: 3.0, probability: 0.5 };

/// The server of section 3: four processors of a Cray J90.
fn j90(speed: f64) -> Server {
    Server {
        name: "J90".to_owned(),
        processors: 4,
        speed,
        discipline: Discipline::Ps,
        limit: None,
        overhead_s: 0.0,
        routines: Vec::new(),
    }
}

fn site(name: &str, bandwidth: f64, latency_s: f64) -> Site {
    let link = Link {
        servers: Vec::new(),
        bandwidth,
        latency_s,
        discipline: Discipline::Ps,
        law: super::model::Law::Constant,
        background: 0.0,
        background_bytes: 1.0,
    };
    Site { name: name.to_owned(), links: vec![link] }
}

/// This many clients at each of the sites, which all call one routine of one server.
fn model(sites: Vec<Site>, count: u32, routine: Routine, server: Server) -> Model {
    let clients = |site: &Site| Clients {
        site: site.name.clone(),
        count,
        user: 0,
        routines: vec![routine.name.clone()],
        source: SOURCE,
    };
    Model {
        clients: sites.iter().map(clients).collect(),
        sites,
        servers: vec![server],
        routines: vec![routine],
        policy: "round-robin".to_owned(),
        metaserver_s: 0.0,
        most_waiting: None,
    }
}

fn options(time_s: f64, quick: bool) -> Options {
    let time_s = if quick { time_s / 4.0 } else { time_s };
    let replications = if quick { 4 } else { 12 };
    Options { time_s: Some(time_s), warm_up_s: time_s / 10.0, replications, seed: 1 }
}

/// Clients of each site in the paper's tables.
const CLIENTS: [u32; 5] = [1, 2, 4, 8, 16];
