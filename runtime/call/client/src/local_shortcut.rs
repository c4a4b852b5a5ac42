//! Switch from TCP to a Unix socket for a server on the same machine.

use std::time::{Duration, Instant};

use kumi_rpc::{ClientHello, ServerHello};

use super::link::Link;
use super::wire::Wire;

/// Time limit; the TCP connection works anyway.
const TIME: Duration = Duration::from_secs(2);

/// Connects to the local socket that the server at this address named, if it exists and shares memory. `None`: the client
/// stays on TCP. The socket may be missing because the address is a tunnel, or refuse because the server has
/// too many connections.
pub(super) fn connect(
    local: &[u8; 16],
    hello: &ClientHello,
    address: &str,
    deadline: Option<Instant>,
) -> Option<(Link, ServerHello)> {
    let link = Link::new(Wire::nearby(local).ok()?, address);
    let most = Instant::now() + TIME;
    let deadline = deadline.map_or(most, |deadline| deadline.min(most));
    let server = link.hello(&hello.encode(), Some(deadline)).ok()?;
    let is_same = server.local.is_some_and(|it| it.secret == *local);
    (is_same && server.shares_memory).then_some((link, server))
}
