//! HTTP interface of the metaserver, read-only: a page, the state as JSON, and metrics for Prometheus.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::dispatcher::Dispatcher;
use super::view::{self, ServerCondition, State};

/// How long an answer is reused.
const FRESH: Duration = Duration::from_millis(250);
/// Most connections at a time; others wait.
const MOST_CONNECTIONS: usize = 16;
/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MOST_HEAD: usize = 8 << 10;
/// The page loads nothing from elsewhere.
const ONLY_OWN: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// The latest answers and when they were made.
struct Cache {
    dispatcher: Rc<RefCell<Dispatcher>>,
    json: RefCell<Option<(Instant, Bytes)>>,
    figures: RefCell<Option<(Instant, Bytes)>>,
}

/// Serves for ever. Without a listener it waits for ever.
pub async fn serve(dispatcher: &Rc<RefCell<Dispatcher>>) -> io::Result<()> {
    let listener = dispatcher.borrow().config.http.clone();
    let Some(listener) = listener else { return pending().await };
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (json, figures) = (RefCell::new(None), RefCell::new(None));
    let cache = Rc::new(Cache { dispatcher: Rc::clone(dispatcher), json, figures });
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let cache = Rc::clone(&cache);
                tokio::task::spawn_local(async move {
                    attend(stream, &cache).await;
                    drop(place);
                });
            }
            Err(error) => kumi_call_access::pause(&error).await,
        }
    }
}

async fn attend(stream: TcpStream, cache: &Cache) {
    let service =
        service_fn(|request| std::future::ready(Ok::<_, Infallible>(cache.answer(&request))));
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a reader has gone"),
        Err(_) => tracing::debug!("a reader takes too long"),
    }
}

fn fresh(last: &RefCell<Option<(Instant, Bytes)>>, make: impl FnOnce() -> String) -> Bytes {
    let mut last = last.borrow_mut();
    match &*last {
        Some((made, bytes)) if made.elapsed() < FRESH => bytes.clone(),
        _ => {
            let bytes = Bytes::from(make());
            *last = Some((Instant::now(), bytes.clone()));
            bytes
        }
    }
}

impl Cache {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let body = "only GET and HEAD\n".into();
            let mut answer = respond(StatusCode::METHOD_NOT_ALLOWED, "text/plain", body);
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/" => {
                let page = include_str!("page.html").into();
                respond(StatusCode::OK, "text/html; charset=utf-8", page)
            }
            "/status.json" => {
                let json = fresh(&self.json, || view::json(&self.dispatcher.borrow()));
                respond(StatusCode::OK, "application/json", json)
            }
            "/metrics" => {
                let made =
                    fresh(&self.figures, || figures(&view::state(&self.dispatcher.borrow())));
                respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", made)
            }
            _ => {
                let body = "there are /, /status.json and /metrics\n".into();
                respond(StatusCode::NOT_FOUND, "text/plain", body)
            }
        }
    }
}

fn respond(status: StatusCode, format: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(ONLY_OWN));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Escapes a text as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The metrics of each server.
fn of_servers(state: &State, text: &mut String) {
    for (name, help, of) in [
        ("server_up", "Whether a server is there.", 0),
        ("server_in_flight", "Calls that a server has from this metaserver.", 1),
        ("server_load", "Processors that other programs keep busy.", 2),
    ] {
        let _written =
            write!(text, "# HELP kumi_call_{name} {help}\n# TYPE kumi_call_{name} gauge\n");
        // A server that is gone has no load.
        for server in state.servers.iter().filter(|server| of != 2 || server.state.is_there()) {
            let value = match of {
                0 => f64::from(u8::from(server.state == ServerCondition::Up)),
                1 => f64::from(server.in_flight),
                _ => server.load,
            };
            let (server, address) = (label(&server.name), label(&server.address));
            let _written = writeln!(
                text,
                "kumi_call_{name}{{server=\"{server}\",address=\"{address}\"}} {value}"
            );
        }
    }
}

/// All metrics in the format of Prometheus.
fn figures(state: &State) -> String {
    let mut text = String::new();
    let counters = &state.counters;
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        // Writing to a string does not fail.
        let _written = write!(
            text,
            "# HELP kumi_call_{name} {help}\n# TYPE kumi_call_{name} {kind}\nkumi_call_{name} {value}\n"
        );
    };
    let count = |number: u64| number as f64;
    one("waiting", "gauge", "Calls that wait for a server.", state.waiting as f64);
    one("running", "gauge", "Calls that have a server.", state.running as f64);
    one("connections", "gauge", "Connections of clients and servers.", state.connections as f64);
    one("placed_total", "counter", "Attempts that were placed.", count(counters.placed));
    one("retried_total", "counter", "Attempts after the first of a call.", count(counters.retried));
    one("done_total", "counter", "Calls that succeeded.", count(counters.done));
    one("failed_total", "counter", "Calls that failed.", count(counters.failed));
    one("rejected_total", "counter", "Calls that were rejected.", count(counters.rejected));
    one(
        "cancelled_total",
        "counter",
        "Calls that were cancelled or took too long.",
        count(counters.cancelled),
    );
    one(
        "hostile_total",
        "counter",
        "Connections that broke the protocol.",
        count(counters.hostile),
    );
    one("refused_total", "counter", "Connections without a valid token.", count(counters.refused));
    let mean = counters.decision_mean;
    one("decision_seconds", "gauge", "Mean time of a decision.", mean);
    if let Some(leader) = &state.leader {
        let leads = f64::from(u8::from(leader.leading));
        one("leader", "gauge", "Whether this metaserver leads.", leads);
        one("etcd_requests_total", "counter", "Requests to etcd.", count(leader.requests));
        one("etcd_errors_total", "counter", "Requests to etcd that failed.", count(leader.errors));
        one("etcd_seconds", "gauge", "Mean time of a request to etcd.", leader.mean);
        one("etcd_longest_seconds", "gauge", "Longest time of a request to etcd.", leader.longest);
        let stuck = f64::from(u8::from(!leader.trouble.is_empty()));
        one("etcd_stuck", "gauge", "Whether the state cannot be written.", stuck);
    }
    of_servers(state, &mut text);
    text
}
