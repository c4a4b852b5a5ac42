//! HTTP interface of the metaserver, read-only: a page, the state as JSON, and metrics for Prometheus.

use std::cell::RefCell;
use std::future::pending;
use std::io;
use std::rc::Rc;

use kumi_metrics::MetricKind::{Counter, Gauge};
use kumi_metrics::{Bytes, MetricsPage, Page};
use tokio::net::TcpListener;

use super::dispatcher::Dispatcher;
use super::view::{self, ServerCondition, ServerState, State};

/// Serves for ever. Without a listener it waits for ever.
pub async fn serve(dispatcher: &Rc<RefCell<Dispatcher>>) -> io::Result<()> {
    let listener = dispatcher.borrow().config.http.clone();
    let Some(listener) = listener else { return pending().await };
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (of_json, of_figures) = (Rc::clone(dispatcher), Rc::clone(dispatcher));
    let pages = vec![
        Page::new("/", "text/html; charset=utf-8", || {
            Bytes::from_static(include_bytes!("page.html"))
        }),
        Page::new("/status.json", "application/json", move || view::json(&of_json.borrow()).into()),
        Page::metrics(move |page| figures(&view::state(&of_figures.borrow()), page)),
    ];
    kumi_metrics::serve(listener, pages).await;
    Ok(())
}

/// The metrics of each server.
fn of_servers(servers: &[ServerState], page: &mut MetricsPage) {
    let mut all = |name: &str, help: &str, value: fn(&ServerState) -> Option<f64>| {
        page.family(name, Gauge, help);
        for server in servers {
            let labels = [("server", server.name.as_str()), ("address", server.address.as_str())];
            if let Some(value) = value(server) {
                page.sample(&labels, value);
            }
        }
    };
    all("call_server_up", "Whether a server is there.", |server| {
        Some(f64::from(server.state == ServerCondition::Up))
    });
    let help = "Calls that a server has from this metaserver.";
    all("call_server_in_flight", help, |server| Some(server.in_flight.into()));
    // A server that is gone has no load.
    all("call_server_load", "Processors that other programs keep busy.", |server| {
        server.state.is_there().then_some(server.load)
    });
}

/// All metrics.
fn figures(state: &State, page: &mut MetricsPage) {
    let counters = &state.counters;
    page.single("call_waiting", Gauge, "Calls that wait for a server.", state.waiting);
    page.single("call_running", Gauge, "Calls that have a server.", state.running);
    let help = "Connections of clients and servers.";
    page.single("call_connections", Gauge, help, state.connections);
    page.single("call_placed", Counter, "Attempts that were placed.", counters.placed);
    page.single("call_retried", Counter, "Attempts after the first of a call.", counters.retried);
    page.single("call_done", Counter, "Calls that succeeded.", counters.done);
    page.single("call_failed", Counter, "Calls that failed.", counters.failed);
    page.single("call_rejected", Counter, "Calls that were rejected.", counters.rejected);
    let help = "Calls that were cancelled or took too long.";
    page.single("call_cancelled", Counter, help, counters.cancelled);
    page.single("call_hostile", Counter, "Connections that broke the protocol.", counters.hostile);
    page.single("call_refused", Counter, "Connections without a valid token.", counters.refused);
    page.single("call_decision_seconds", Gauge, "Mean time of a decision.", counters.decision_mean);
    if let Some(leader) = &state.leader {
        let leads = u8::from(leader.leading);
        page.single("call_leader", Gauge, "Whether this metaserver leads.", leads);
        page.single("call_etcd_requests", Counter, "Requests to etcd.", leader.requests);
        page.single("call_etcd_errors", Counter, "Requests to etcd that failed.", leader.errors);
        page.single("call_etcd_seconds", Gauge, "Mean time of a request to etcd.", leader.mean);
        let help = "Longest time of a request to etcd.";
        page.single("call_etcd_longest_seconds", Gauge, help, leader.longest);
        let stuck = u8::from(!leader.trouble.is_empty());
        page.single("call_etcd_stuck", Gauge, "Whether the state cannot be written.", stuck);
    }
    of_servers(&state.servers, page);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name and label is an interface: dashboards have them.
    #[test]
    fn all_figures() {
        let state = serde_json::from_str(include_str!("testdata/state.json")).expect("a state");
        let mut page = MetricsPage::default();
        figures(&state, &mut page);
        assert_eq!(page.finish(), include_str!("testdata/metrics.txt"));
    }
}
