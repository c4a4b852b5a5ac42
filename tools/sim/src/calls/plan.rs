//! Checked model with its names resolved.

use std::collections::HashMap;

use super::model::{Clients, Law, Link, Model, Server, Source};
use crate::error::SimError;

/// Most clients, servers, links, routines: a larger number is surely a mistake.
const MOST: usize = 100_000;
/// Most sites times servers, which need one entry each.
const MOST_WAYS: usize = 10_000_000;
/// Longest time of any kind, in seconds.
const LONGEST_S: f64 = 1e9;

/// Indices of the model's parts.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub model: &'a Model,
    /// Links of all sites.
    pub links: Vec<&'a Link>,
    /// The link from a site to a server.
    pub ways: Vec<Vec<Option<usize>>>,
    /// Site and routines of each group of clients.
    pub clients: Vec<(usize, Vec<usize>)>,
    /// Whether some calls must run at a given server.
    pub pinned: bool,
}

fn wrong<T>(reason: String) -> Result<T, SimError> {
    Err(SimError::Model { reason })
}

fn index<'a>(
    what: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<HashMap<&'a str, usize>, SimError> {
    let mut index = HashMap::new();
    for (number, name) in names.enumerate() {
        if name.is_empty() || name.contains('@') || name.len() > 200 {
            return wrong(format!("{name:?} is no name for a {what} (1 to 200 bytes, without @)"));
        }
        if index.insert(name.as_str(), number).is_some() {
            return wrong(format!("two {what}s are called {name:?}"));
        }
    }
    match index.len() {
        0 => wrong(format!("there is no {what}")),
        1..=MOST => Ok(index),
        many => wrong(format!("{many} {what}s are too many")),
    }
}

fn find(what: &str, names: &HashMap<&str, usize>, name: &str) -> Result<usize, SimError> {
    names
        .get(name)
        .copied()
        .ok_or_else(|| SimError::Model { reason: format!("there is no {what} called {name:?}") })
}

fn number(what: &str, value: f64, least: f64, most: f64) -> Result<(), SimError> {
    if value.is_finite() && value >= least && value <= most {
        return Ok(());
    }
    wrong(format!("{what} is {value}; it must be a number from {least} to {most}"))
}

impl<'a> Plan<'a> {
    pub fn new(model: &'a Model) -> Result<Self, SimError> {
        kumi_broker::by_name(&model.policy)?;
        number("metaserver_s", model.metaserver_s, 0.0, LONGEST_S)?;
        let sites = index("site", model.sites.iter().map(|site| &site.name))?;
        let servers = index("server", model.servers.iter().map(|server| &server.name))?;
        let routines = index("routine", model.routines.iter().map(|routine| &routine.name))?;
        check_servers(model, &routines)?;
        for routine in &model.routines {
            number("operations", routine.operations, 0.0, 1e30)?;
            check_law(routine.law)?;
        }
        let mut plan =
            Self { model, links: Vec::new(), ways: Vec::new(), clients: Vec::new(), pinned: false };
        if sites.len().saturating_mul(servers.len()) > MOST_WAYS {
            return wrong(format!(
                "{} sites and {} servers are too many ways ({MOST_WAYS} at most)",
                sites.len(),
                servers.len()
            ));
        }
        for site in &model.sites {
            let mut ways = vec![None; servers.len()];
            for link in &site.links {
                check_link(link)?;
                for server in &link.servers {
                    ways[find("server", &servers, server)?] = Some(plan.links.len());
                }
                if link.servers.is_empty() {
                    // It leads to the servers without an earlier link.
                    for way in &mut ways {
                        way.get_or_insert(plan.links.len());
                    }
                }
                plan.links.push(link);
            }
            plan.ways.push(ways);
        }
        let mut all = 0usize;
        for clients in &model.clients {
            plan.pinned |= check_clients(clients, servers.len())?;
            check_think(model, clients)?;
            check_offered(model, clients)?;
            all += clients.count as usize;
            let called = clients.routines.iter().map(|name| find("routine", &routines, name));
            let called = called.collect::<Result<Vec<usize>, SimError>>()?;
            plan.clients.push((find("site", &sites, &clients.site)?, called));
        }
        match all {
            0 => wrong("there is no client".to_owned()),
            1..=MOST => Ok(plan),
            many => wrong(format!("{many} clients are too many")),
        }
    }
}

fn check_servers(model: &Model, routines: &HashMap<&str, usize>) -> Result<(), SimError> {
    for server in &model.servers {
        number("speed", server.speed, 1e-9, 1e30)?;
        number("overhead_s", server.overhead_s, 0.0, LONGEST_S)?;
        if server.processors == 0 || server.limit == Some(0) {
            return wrong(format!("server {:?} has no processors or may do nothing", server.name));
        }
        for routine in &server.routines {
            find("routine", routines, routine)?;
        }
    }
    Ok(())
}

fn check_law(law: Law) -> Result<(), SimError> {
    match law {
        Law::Hyper(variation) => number("the coefficient of variation", variation, 1.0, 1000.0),
        Law::Constant | Law::Exponential => Ok(()),
    }
}

fn check_link(link: &Link) -> Result<(), SimError> {
    number("bandwidth", link.bandwidth, 1e-9, 1e30)?;
    number("latency_s", link.latency_s, 0.0, LONGEST_S)?;
    number("background", link.background, 0.0, 0.99)?;
    number("background_bytes", link.background_bytes, 1.0, 1e18)?;
    check_law(link.law)
}

/// A refused client would call again in the same instant, for ever.
fn check_think(model: &Model, clients: &Clients) -> Result<(), SimError> {
    if model.most_waiting.is_some() && clients.source == Source::Think(0.0) {
        let reason = "clients that do not think cannot be turned away: give a time to think, or no most_waiting";
        return wrong(reason.to_owned());
    }
    Ok(())
}

/// Some server offers each routine that clients call; each server offers the routines of calls fixed to it.
fn check_offered(model: &Model, clients: &Clients) -> Result<(), SimError> {
    let offers =
        |server: &Server, name| server.routines.is_empty() || server.routines.contains(name);
    for name in &clients.routines {
        if !model.servers.iter().any(|server| offers(server, name)) {
            return wrong(format!("no server offers routine {name:?}, which clients call"));
        }
        let Source::List(tasks) = &clients.source else { continue };
        let mut pinned = tasks.iter().filter_map(|task| model.servers.get(task.server?));
        if let Some(server) = pinned.find(|server| !offers(server, name)) {
            let server = &server.name;
            return wrong(format!(
                "server {server:?} does not offer {name:?}, which must go to it"
            ));
        }
    }
    Ok(())
}

/// Whether some of their calls are fixed to a server.
fn check_clients(clients: &Clients, servers: usize) -> Result<bool, SimError> {
    if clients.routines.is_empty() {
        return wrong(format!("clients at {:?} call nothing", clients.site));
    }
    match &clients.source {
        Source::Step { every_s, probability } => {
            number("every_s", *every_s, 1e-9, LONGEST_S)?;
            number("probability", *probability, 1e-6, 1.0)?;
        }
        Source::Think(seconds) => number("think", *seconds, 0.0, LONGEST_S)?,
        Source::Poisson(rate) => number("poisson", *rate, 1e-9, 1e9)?,
        Source::List(tasks) => {
            for task in tasks {
                number("at_s", task.at_s, 0.0, LONGEST_S)?;
                number("work", task.work, 0.0, 1e18)?;
                if task.server.is_some_and(|server| server >= servers) {
                    return wrong(format!("a call must go to a server beyond the {servers}"));
                }
            }
            return Ok(tasks.iter().any(|task| task.server.is_some()));
        }
    }
    Ok(false)
}
