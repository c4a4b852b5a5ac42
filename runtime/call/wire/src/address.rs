//! What an address says of the way to it: encrypted, within this machine, or open to whoever listens.

use std::net::IpAddr;

/// Prefix of addresses whose connections are encrypted.
const TLS: &str = "tls://";
/// Prefix of Unix sockets.
const UNIX: &str = "unix:";

/// Whether connections to this address are encrypted.
pub fn is_encrypted(address: &str) -> bool {
    address.starts_with(TLS)
}

/// Whether nobody on the network can read what goes to this address: it is encrypted, or within this machine.
/// A name other than `localhost` counts as another machine, because a name service says where it leads.
pub fn is_private(address: &str) -> bool {
    is_encrypted(address) || address.starts_with(UNIX) || is_loopback(address)
}

fn is_loopback(address: &str) -> bool {
    let bare = address.strip_prefix("kumi://").unwrap_or(address);
    let host = bare.rsplit_once(':').map_or(bare, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_and_local_ways_are_private() {
        let private = [
            "tls://meta.example:7071",
            "unix:/run/meta",
            "127.0.0.1:7071",
            "127.8.0.1:7071",
            "[::1]:7071",
            "[::ffff:127.0.0.1]:7071",
            "localhost:7071",
            "kumi://localhost:7071",
        ];
        let open = [
            "meta.example:7071",
            "10.0.0.1:7071",
            "0.0.0.0:7071",
            "[2001:db8::1]:7071",
            "localhost.example:7071",
            "127.0.0.1.example:7071",
            "kumi://10.0.0.1:7071",
            "",
        ];
        assert_eq!(private.iter().find(|address| !is_private(address)), None);
        assert_eq!(open.iter().find(|address| is_private(address)), None);
    }
}
