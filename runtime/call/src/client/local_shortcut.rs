//! A shorter way to a server that turned out to be on this machine.

use std::time::{Duration, Instant};

use kumi_rpc::{ClientHello, ServerHello};

use super::link::Link;
use super::wire::Wire;

/// How long it may take; there is another way.
const TIME: Duration = Duration::from_secs(2);

/// Connects to the server that has said to be found by this, if it is there and gives memory. `None`: the connection that
/// there is will do. It may be the other end of a tunnel, or have reached its limit of connections.
pub(super) fn connect(
    local: &[u8; 16],
    hello: &ClientHello,
    deadline: Option<Instant>,
) -> Option<(Link, ServerHello)> {
    let link = Link::new(Wire::nearby(local).ok()?);
    let most = Instant::now() + TIME;
    let deadline = deadline.map_or(most, |deadline| deadline.min(most));
    let server = link.hello(&hello.encode(), Some(deadline)).ok()?;
    let is_same = server.local.is_some_and(|it| it.secret == *local);
    (is_same && server.shares_memory).then_some((link, server))
}
