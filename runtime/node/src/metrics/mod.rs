//! HTTP server of metrics for Prometheus: `GET /metrics`.
//!
//! Off unless an address is configured.
//!
//! A scrape cannot hold the daemon up: its page is bounded, is made at most every [`FRESH`], and few
//! connections are served at a time, each for one request and a bounded time.

mod page;
pub(crate) mod process;

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) use page::{MetricKind, MetricsPage};

/// How long a page serves further requests.
const FRESH: Duration = Duration::from_millis(250);
/// Connections served at a time; others wait.
const MOST_CONNECTIONS: usize = 4;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MOST_HEAD: usize = 8 << 10;
/// The text format's content type.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Source of the metrics on a page.
pub(crate) trait MetricsSource: 'static {
    /// Writes all metrics as they are now.
    fn write(&self, page: &mut MetricsPage);
}

/// The page made last, and when.
struct Cache<F> {
    figures: F,
    last: RefCell<Option<(Instant, Bytes)>>,
}

impl<F: MetricsSource> Cache<F> {
    fn page(&self) -> Bytes {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((made, bytes)) if made.elapsed() < FRESH => bytes.clone(),
            _ => {
                let mut page = MetricsPage::default();
                self.figures.write(&mut page);
                let bytes = Bytes::from(page.finish());
                *last = Some((Instant::now(), bytes.clone()));
                bytes
            }
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let plain = |status, text: &'static str| respond(status, "text/plain", text.into());
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {
                respond(StatusCode::OK, FORMAT, self.page())
            }
            (&Method::GET | &Method::HEAD, _) => {
                plain(StatusCode::NOT_FOUND, "the figures are at /metrics\n")
            }
            _ => {
                let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
        }
    }
}

fn respond(status: StatusCode, format: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Answers scrapes for ever.
pub(crate) async fn serve(listener: TcpListener, figures: impl MetricsSource) {
    let cache = Rc::new(Cache { figures, last: RefCell::new(None) });
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let cache = Rc::clone(&cache);
                tokio::task::spawn_local(async move {
                    attend(stream, &cache).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a scrape could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn attend<F: MetricsSource>(stream: TcpStream, cache: &Cache<F>) {
    let service =
        service_fn(|request| std::future::ready(Ok::<_, Infallible>(cache.answer(&request))));
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a scrape ended"),
        Err(_) => tracing::debug!("a scrape took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Counts how often it is asked.
    struct Count(Cell<u64>);

    impl MetricsSource for Count {
        fn write(&self, page: &mut MetricsPage) {
            self.0.set(self.0.get() + 1);
            page.family("asked", MetricKind::Counter, "Pages made.");
            page.sample(&[], self.0.get());
        }
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
        tasks.spawn_local(serve(listener, Count(Cell::new(0))));
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        tasks
            .run_until(async {
                let good = ask(address, &get("/metrics")).await;
                assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
                assert!(good.contains("text/plain; version=0.0.4"), "{good}");
                assert!(good.ends_with("# TYPE kumi_asked_total counter\nkumi_asked_total 1\n"));
                assert!(ask(address, &get("/")).await.starts_with("HTTP/1.1 404"));
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
