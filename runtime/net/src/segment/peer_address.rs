//! Address of a rank's socket, as three words of the peer table.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering::Relaxed;

use crate::segment::layout::Peer;

/// The words of a [`Peer`].
fn pack(address: SocketAddr) -> [u64; 3] {
    let (ip, scope) = match address {
        SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(address) => (*address.ip(), address.scope_id()),
    };
    let ip = u128::from_le_bytes(ip.octets());
    [ip as u64, (ip >> 64) as u64, u64::from(scope) << 32 | u64::from(address.port())]
}

/// Any words are some address.
fn unpack([low, high, port]: [u64; 3]) -> SocketAddr {
    let ip = u128::from(high) << 64 | u128::from(low);
    let ip = Ipv6Addr::from(ip.to_le_bytes());
    match ip.to_ipv4_mapped() {
        Some(ip) => SocketAddr::new(IpAddr::V4(ip), port as u16),
        None => SocketAddrV6::new(ip, port as u16, 0, (port >> 32) as u32).into(),
    }
}

impl Peer {
    pub(crate) fn store(&self, address: SocketAddr) {
        let [low, high, port] = pack(address);
        self.address[0].store(low, Relaxed);
        self.address[1].store(high, Relaxed);
        self.port.store(port, Relaxed);
    }

    /// Reads each word once.
    pub(crate) fn load(&self) -> SocketAddr {
        let [low, high] = [0, 1].map(|half| self.address[half].load(Relaxed));
        unpack([low, high, self.port.load(Relaxed)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_addresses() {
        let v4: SocketAddr = "10.0.0.1:258".parse().expect("address");
        assert_eq!(pack(v4), [0, 0x0100_000a_ffff_0000, 258]);
        let v6: SocketAddr = "[fd01:203:405:607:809:a0b:c0d:e0f]:9".parse().expect("address");
        assert_eq!(pack(v6), [0x0706_0504_0302_01fd, 0x0f0e_0d0c_0b0a_0908, 9]);
        let link = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("address"), 7, 0, 3));
        assert_eq!(pack(link), [0x80fe, 1 << 56, 3 << 32 | 7]);
        for address in [v4, v6, link] {
            assert_eq!(unpack(pack(address)), address);
        }
    }
}
