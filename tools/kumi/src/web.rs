//! `kumi web`: a browser's way to the cluster.
//!
//! The command gets a ticket as its user, and prints an address with it. If the head does not listen for browsers on the
//! network, the address is one of this machine, from which the command carries bytes to the head's local socket. Other users
//! of the machine can reach that address too, and their servers get the cookies that browsers have for it. So the command
//! carries only what its own user or root connects.

use crate::context::Context;
use crate::error::Error;
use crate::interrupts::{Interrupts, exit_code};
use crate::{loopback, output};
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::paths;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

/// Connections that are carried at a time.
const MOST_CONNECTIONS: usize = 64;

/// `kumi web`
#[derive(Clone, Copy, Debug, Args)]
pub struct WebArgs {
    /// Let the browser stop and kill jobs of yours, not only look
    #[arg(long)]
    pub act: bool,
    /// Carry the browser's connections from this port of 127.0.0.1, even if the head listens on the network; 0: any port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &WebArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let request = ClientRequest::WebTicket { act: args.act };
    let (ticket, url) = match client.ask(&request).await? {
        ClientReply::WebTicket { ticket, url } => (ticket, url),
        other => return Err(Error::unexpected(&other)),
    };
    drop(client);
    if let Some(url) = url.filter(|_| args.port.is_none()) {
        return output::text(&format!("{url}/login?ticket={ticket}\n"));
    }
    let socket = paths::web_socket(&context.dir);
    if UnixStream::connect(&socket).await.is_err() {
        return Err(Error::Usage(
            "the head is on another machine; run `kumi web` there, or set `listen` under [web] in its cluster.toml"
                .to_owned(),
        ));
    }
    serve(&socket, args.port.unwrap_or(0), &ticket).await
}

/// Carries connections until the user ends it.
async fn serve(socket: &Path, port: u16, ticket: &str) -> Result<(), Error> {
    let mut interrupts = Interrupts::listen()?;
    let set_up = |source| Error::SetUp { what: "the address for the browser", source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(set_up)?;
    let address = listener.local_addr().map_err(set_up)?;
    output::text(&format!("http://{address}/login?ticket={ticket}\n"))?;
    output::note(
        "the address serves once, within 5 minutes; this command carries what the browser asks, Ctrl-C ends it",
    );
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let socket: Arc<PathBuf> = Arc::new(socket.to_owned());
    loop {
        tokio::select! {
            number = interrupts.next() => return Err(Error::Silent(exit_code(number))),
            accepted = accept(&listener, &places) => {
                let Ok((browser, place)) = accepted else { continue };
                let socket = Arc::clone(&socket);
                tokio::spawn(async move {
                    if is_permitted(&browser).await {
                        carry(browser, &socket).await;
                    }
                    drop(place);
                });
            }
        }
    }
}

/// The next connection, when there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (browser, _) = listener.accept().await?;
    browser.set_nodelay(true)?;
    Ok((browser, place))
}

/// Whether this user has connected, or root.
async fn is_permitted(browser: &TcpStream) -> bool {
    let (Ok(SocketAddr::V4(from)), Ok(SocketAddr::V4(to))) =
        (browser.peer_addr(), browser.local_addr())
    else {
        // It is closed already.
        return false;
    };
    let own = rustix::process::geteuid().as_raw();
    // The kernel's table may be long.
    match tokio::task::spawn_blocking(move || loopback::user_of(from, to)).await {
        Ok(Ok(Some(uid))) if uid == own || uid == 0 => true,
        Ok(Ok(None)) => false,
        Ok(Ok(Some(uid))) => refuse(&format!(
            "user {uid} of this machine has connected, and is not served; for browsers of other users set `listen` under [web] in cluster.toml"
        )),
        Ok(Err(error)) => refuse(&format!(
            "a connection is not served: the system does not say whose it is: {error}"
        )),
        Err(error) => refuse(&format!("a connection is not served: {error}")),
    }
}

/// Says why a connection is not served, once: others could fill the terminal.
fn refuse(why: &str) -> bool {
    static SAID: Once = Once::new();
    SAID.call_once(|| output::note(why));
    false
}

/// Carries bytes both ways until one end closes.
async fn carry(mut browser: TcpStream, socket: &Path) {
    match UnixStream::connect(socket).await {
        Ok(mut head) => {
            // However a connection ends, the browser makes another.
            let _ = tokio::io::copy_bidirectional(&mut browser, &mut head).await;
        }
        Err(error) => output::note(&format!("the head cannot be reached: {error}")),
    }
}
