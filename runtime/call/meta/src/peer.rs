//! Peer of a connection, as the dispatcher knows it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use kumi_broker::Request;
use kumi_rpc::{Failure, Metaserver};
use tokio::sync::Notify;

use crate::users::User;

/// The peer of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its number.
    pub id: u64,
    /// Its protocol state. Its task writes pending output when woken.
    pub rpc: RefCell<Metaserver>,
    /// Wakes its task.
    pub wake: Notify,
    /// Its address.
    pub from: Option<IpAddr>,
    /// Its own description of itself.
    pub program: RefCell<String>,
    /// Its site.
    pub site: RefCell<String>,
    /// The user of its calls. `None`: users are not distinguished.
    pub user: RefCell<Option<User>>,
    /// The connection is closing: nothing more is read.
    pub closing: Cell<bool>,
}

impl Peer {
    /// A new connection.
    pub fn new(id: u64, from: Option<IpAddr>, streams: usize) -> Peer {
        Peer {
            id,
            rpc: RefCell::new(Metaserver::new(streams)),
            wake: Notify::new(),
            from,
            program: RefCell::default(),
            site: RefCell::default(),
            user: RefCell::default(),
            closing: Cell::new(false),
        }
    }

    /// The user's name. Empty: users are not distinguished.
    pub fn user(&self) -> String {
        self.user.borrow().as_ref().map_or_else(String::new, |user| user.name().to_owned())
    }

    /// The highest priority of its calls.
    pub fn priority(&self) -> u8 {
        self.user.borrow().as_ref().map_or(Request::MOST_PRIORITY, User::priority)
    }

    /// Writes to it and wakes its task.
    pub fn tell(&self, write: impl FnOnce(&mut Metaserver)) {
        write(&mut self.rpc.borrow_mut());
        self.wake.notify_one();
    }

    /// Fails a request.
    pub fn fail(&self, stream: u32, failure: &Failure) {
        self.tell(|rpc| rpc.fail(stream, failure));
    }

    /// Tells it why it is closed, and closes it.
    pub fn end(&self, failure: Failure) {
        self.tell(|rpc| rpc.end(failure));
        self.close();
    }

    /// Closes it.
    pub fn close(&self) {
        self.closing.set(true);
        self.wake.notify_one();
    }
}

/// The network of an address, which stands for a site: the first 24 bits of IPv4, the first 48 of IPv6.
pub fn network(from: Option<IpAddr>) -> String {
    match from {
        None => "local".to_owned(),
        Some(address) if address.is_loopback() => "local".to_owned(),
        Some(IpAddr::V4(address)) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        Some(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => network(Some(mapped.into())),
            None => {
                let [a, b, c, ..] = address.segments();
                format!("{a:x}:{b:x}:{c:x}::/48")
            }
        },
    }
}

/// The address at which clients reach a server that announces `told` and connects from `from`.
pub fn reachable(told: &str, from: Option<IpAddr>) -> String {
    let (scheme, told) = match told.strip_prefix("tls://") {
        Some(bare) => ("tls://", bare),
        None => ("", told),
    };
    let any = ["0.0.0.0:", "[::]:"].iter().find_map(|any| told.strip_prefix(any));
    let address = match (any, from) {
        (Some(port), Some(IpAddr::V4(address))) => format!("{address}:{port}"),
        (Some(port), Some(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
            Some(mapped) => format!("{mapped}:{port}"),
            None => format!("[{address}]:{port}"),
        },
        (Some(port), None) => format!("127.0.0.1:{port}"),
        (None, _) => told.to_owned(),
    };
    format!("{scheme}{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_for_sites_and_hosts() {
        let from = |text: &str| Some(text.parse().expect("an address"));
        assert_eq!(network(from("10.1.2.3")), "10.1.2.0/24");
        assert_eq!(network(from("::ffff:10.1.2.3")), "10.1.2.0/24");
        assert_eq!(network(from("2001:db8:1:2::3")), "2001:db8:1::/48");
        assert_eq!((network(from("127.0.0.1")), network(None)), ("local".into(), "local".into()));
        assert_eq!(reachable("0.0.0.0:7", from("10.1.2.3")), "10.1.2.3:7");
        assert_eq!(reachable("[::]:7", from("2001:db8::1")), "[2001:db8::1]:7");
        assert_eq!(reachable("[::]:7", from("::ffff:10.1.2.3")), "10.1.2.3:7");
        assert_eq!(reachable("host:7", from("10.1.2.3")), "host:7");
        assert_eq!(reachable("tls://0.0.0.0:7", from("10.1.2.3")), "tls://10.1.2.3:7");
        assert_eq!(reachable("tls://host:7", None), "tls://host:7");
        assert_eq!(reachable("0.0.0.0:7", None), "127.0.0.1:7");
    }
}
