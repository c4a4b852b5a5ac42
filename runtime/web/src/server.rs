//! Connections of browsers: how many, and how long each may take for what.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::Shared;
use crate::connections::{Connections, CountedConnection, Peer, PeerService};
use crate::routes::{App, router};
use crate::stall::StallGuard;

/// Connections served at a time by a listener; those of further peers wait.
const MOST_CONNECTIONS: usize = 256;
/// Most bytes of a request's head.
const MOST_HEAD: usize = 16 << 10;

/// How long browsers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the head of a request; a connection without one stays as long.
    pub head: Duration,
    /// For the handshake of TLS.
    pub handshake: Duration,
    /// For taking anything of what is written.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [head, handshake, stall] = [10, 5, 30].map(Duration::from_secs);
        Self { head, handshake, stall }
    }
}

/// Where browsers connect.
#[derive(Debug)]
pub enum Listener {
    /// The local socket, to which `kumi web` connects.
    Local(StdUnixListener),
    /// An address, encrypted unless it is the machine's own.
    Network {
        /// The listening socket.
        listener: std::net::TcpListener,
        /// Its address.
        address: SocketAddr,
        /// Certificate and key; none for the machine's own address.
        tls: Option<Arc<rustls::ServerConfig>>,
    },
}

/// The server's thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    _end: oneshot::Sender<()>,
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread or no event loop.
    pub fn start(shared: Shared, listeners: Vec<Listener>, limits: Limits) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()?;
        let (end, ended) = oneshot::channel::<()>();
        let shared = Arc::new(shared);
        std::thread::Builder::new().name("kumi-web".to_owned()).spawn(move || {
            runtime.block_on(async {
                for listener in listeners {
                    tokio::spawn(serve(listener, Arc::clone(&shared), limits));
                }
                // An error says that the other end was dropped, which is the sign to end.
                let _ = ended.await;
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { _end: end })
    }
}

/// Names by which browsers reach the machine's own addresses.
fn own_names() -> Vec<String> {
    ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).into()
}

async fn serve(listener: Listener, shared: Arc<Shared>, limits: Limits) {
    let served = match listener {
        Listener::Local(listener) => serve_local(listener, shared, limits).await,
        Listener::Network { listener, address, tls } => {
            serve_network(listener, (address, tls), shared, limits).await
        }
    };
    if let Err(error) = served {
        tracing::error!(%error, "browsers are not served any more");
    }
}

async fn serve_local(
    listener: StdUnixListener,
    shared: Arc<Shared>,
    limits: Limits,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let router = router(Arc::new(App { shared, secure: false, hosts: own_names() }));
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let connections = Connections::default();
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| Ok((Peer::User(stream.peer_cred()?.uid()), stream))) {
            Ok((peer, stream)) => {
                let Some(counted) = admit(&connections, peer) else { continue };
                let service = PeerService::new(router.clone(), peer);
                tokio::spawn(async move {
                    attend(stream, service, limits).await;
                    drop((counted, place));
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn serve_network(
    listener: std::net::TcpListener,
    (address, tls): (SocketAddr, Option<Arc<rustls::ServerConfig>>),
    shared: Arc<Shared>,
    limits: Limits,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let acceptor = tls.map(TlsAcceptor::from);
    let mut hosts = Vec::new();
    if acceptor.is_none() {
        hosts = own_names();
        hosts.push(SocketAddr::new(address.ip(), 0).to_string().trim_end_matches(":0").to_owned());
    }
    let router = router(Arc::new(App { shared, secure: acceptor.is_some(), hosts }));
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let connections = Connections::default();
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, from)) => {
                let peer = Peer::Address(from.ip().to_canonical());
                // Whatever is not encrypted comes from this machine, perhaps for many users by way of one program.
                let counted = acceptor.is_some().then(|| admit(&connections, peer));
                if matches!(counted, Some(None)) {
                    continue;
                }
                let (service, acceptor) =
                    (PeerService::new(router.clone(), peer), acceptor.clone());
                tokio::spawn(async move {
                    attend_network(stream, acceptor, service, limits).await;
                    drop((counted, place));
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Counts a connection. One of a peer that has too many is closed at once, and so leaves its place to others.
fn admit(connections: &Connections, peer: Peer) -> Option<CountedConnection> {
    let counted = connections.count(peer);
    if counted.is_none() {
        tracing::debug!(?peer, "a browser has too many connections");
    }
    counted
}

/// Serves a connection from the network, after its handshake if it is to be encrypted.
async fn attend_network(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    service: PeerService,
    limits: Limits,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small answers may come late");
    }
    let Some(acceptor) = acceptor else { return attend(stream, service, limits).await };
    match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => attend(stream, service, limits).await,
        Ok(Err(error)) => tracing::debug!(%error, "a browser's handshake failed"),
        Err(_) => tracing::debug!("a browser's handshake took too long"),
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a browser could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Serves the requests of a connection.
async fn attend<S>(stream: S, service: PeerService, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(StallGuard::new(stream, limits.stall));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MOST_HEAD)
        .serve_connection(stream, service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a browser's connection ended");
    }
}
