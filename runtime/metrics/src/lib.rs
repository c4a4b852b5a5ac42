//! Pages of a daemon over HTTP, read-only: figures for Prometheus at `/metrics`, and others.
//!
//! A reader cannot hold the daemon up: a page is made at most every [`FRESH`], and few connections are served at a time, each
//! for one request and a bounded time.
#![forbid(unsafe_code)]

mod page;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
pub use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use page::{MetricKind, MetricsPage};

/// How long a page serves further requests.
const FRESH: Duration = Duration::from_millis(250);
/// Connections served at a time; others wait.
const MOST_CONNECTIONS: usize = 16;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MOST_HEAD: usize = 8 << 10;
/// Content type of Prometheus' text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Pages load nothing from elsewhere.
const ONLY_OWN: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// A page that is made when it is asked for.
pub struct Page {
    path: &'static str,
    format: &'static str,
    make: Box<dyn Fn() -> Bytes>,
    /// The page made last, and when.
    last: RefCell<Option<(Instant, Bytes)>>,
}

impl Page {
    /// What `make` gives, at this path, with this content type.
    pub fn new(
        path: &'static str,
        format: &'static str,
        make: impl Fn() -> Bytes + 'static,
    ) -> Page {
        Page { path, format, make: Box::new(make), last: RefCell::default() }
    }

    /// The figures that `write` writes as they are then, at `/metrics`.
    pub fn metrics(write: impl Fn(&mut MetricsPage) + 'static) -> Page {
        Page::new("/metrics", FORMAT, move || {
            let mut page = MetricsPage::default();
            write(&mut page);
            page.finish().into()
        })
    }

    fn bytes(&self) -> Bytes {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((made, bytes)) if made.elapsed() < FRESH => bytes.clone(),
            _ => {
                let bytes = (self.make)();
                *last = Some((Instant::now(), bytes.clone()));
                bytes
            }
        }
    }
}

fn answer(pages: &[Page], request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let body = "only GET and HEAD\n".into();
        let mut answer = respond(StatusCode::METHOD_NOT_ALLOWED, "text/plain", body);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match pages.iter().find(|page| page.path == request.uri().path()) {
        Some(page) => respond(StatusCode::OK, page.format, page.bytes()),
        None => {
            let paths: Vec<&str> = pages.iter().map(|page| page.path).collect();
            let body = format!("there is: {}\n", paths.join(", "));
            respond(StatusCode::NOT_FOUND, "text/plain", body.into())
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

/// Answers requests for these pages until this is dropped, in a `LocalSet`.
pub async fn serve(listener: TcpListener, pages: Vec<Page>) {
    let pages: Rc<[Page]> = pages.into();
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Rc::clone(&pages);
                tokio::task::spawn_local(async move {
                    attend(stream, &pages).await;
                    drop(place);
                });
            }
            // The reader has gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "a reader of pages could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, pages: &[Page]) {
    let service =
        service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(pages, &request))));
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a reader of pages has gone"),
        Err(_) => tracing::debug!("a reader of pages took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Counts how often it is asked.
    fn count() -> Page {
        let asked = Cell::new(0);
        Page::metrics(move |page| {
            asked.set(asked.get() + 1);
            page.family("asked", MetricKind::Counter, "Pages made.");
            page.sample(&[], asked.get());
        })
    }

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(flavor = "current_thread")]
    async fn requests_right_and_wrong() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = tokio::task::LocalSet::new();
        tasks.spawn_local(serve(
            listener,
            vec![count(), Page::new("/", "text/html", || Bytes::from("whole"))],
        ));
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        tasks
            .run_until(async {
                let good = ask(address, &get("/metrics")).await;
                assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
                assert!(good.contains("text/plain; version=0.0.4"), "{good}");
                assert!(good.ends_with("# TYPE kumi_asked_total counter\nkumi_asked_total 1\n"));
                assert!(ask(address, &get("/")).await.ends_with("\r\n\r\nwhole"));
                let other = ask(address, &get("/other")).await;
                assert!(other.starts_with("HTTP/1.1 404"), "{other}");
                assert!(other.ends_with("\r\n\r\nthere is: /metrics, /\n"), "{other}");
                let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
                assert!(ask(address, post).await.starts_with("HTTP/1.1 405"));
                assert!(ask(address, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
                let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MOST_HEAD));
                assert!(ask(address, &long).await.starts_with("HTTP/1.1 431"));
                // Connections that say nothing keep nobody out for ever, and many at once are served.
                let silent = TcpStream::connect(address).await.unwrap();
                for _ in 0..2 * MOST_CONNECTIONS {
                    assert!(ask(address, &get("/metrics")).await.starts_with("HTTP/1.1 200"));
                }
                drop(silent);
            })
            .await;
    }
}
