//! Whose a connection of this machine is, by the kernel's tables.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Tables of connections: of sockets of IPv4, and of those of IPv6, which reach IPv4 as well.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The user at the other end of a connection within this machine; none if that end is closed.
///
/// # Errors
/// The system has no such table.
pub fn user_of(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Option<u32>> {
    for table in TABLES {
        let text = match std::fs::read_to_string(table) {
            // A machine without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table != TABLES[0] => continue,
            read => read?,
        };
        if let Some(uid) = find(&text, from, to) {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

/// The user of the socket from `from` to `to`. One without an inode is closed, and then its user may be told wrongly.
fn find(table: &str, from: SocketAddrV4, to: SocketAddrV4) -> Option<u32> {
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<&str>>());
    let mut uids = rows.filter_map(|row| {
        let &[_, local, remote, _, _, _, _, uid, _, inode, ..] = &row[..] else { return None };
        (is(local, from) && is(remote, to) && inode != "0").then(|| uid.parse().ok())?
    });
    uids.next()
}

/// Whether a table means this address: words of the machine in hexadecimal digits, and the port.
fn is(text: &str, address: SocketAddrV4) -> bool {
    let digits = |ip: &Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(ip.octets()));
    let mapped = |ip: &Ipv4Addr| {
        let words = [[0; 4], [0; 4], [0, 0, 0xff, 0xff]].map(u32::from_ne_bytes);
        let words: String = words.iter().map(|word| format!("{word:08X}")).collect();
        words + &digits(ip)
    };
    let Some((ip, port)) = text.split_once(':') else { return false };
    (ip == digits(address.ip()) || ip == mapped(address.ip()))
        && u16::from_str_radix(port, 16) == Ok(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => {
                SocketAddrV4::new(address.ip().to_ipv4_mapped().unwrap(), address.port())
            }
        }
    }

    #[test]
    fn the_user_of_a_connection_is_found_until_it_is_closed() {
        let own = rustix::process::geteuid().as_raw();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = v4(listener.local_addr().unwrap());
        let stream = TcpStream::connect(to).unwrap();
        let from = v4(stream.local_addr().unwrap());
        let _accepted = listener.accept().unwrap();
        assert_eq!(user_of(from, to).unwrap(), Some(own));
        assert_eq!(user_of(to, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)).unwrap(), None);
        drop(stream);
        // Another test may just have made a process, which has the connection until it becomes another program.
        let begin = Instant::now();
        while user_of(from, to).unwrap().is_some() {
            assert!(begin.elapsed() < Duration::from_secs(120), "who has gone is nobody");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn tables_are_read_whatever_they_hold() {
        let (from, to) = (
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0xC001),
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80),
        );
        if cfg!(target_endian = "big") {
            return;
        }
        let row = |local: &str, uid: &str, inode: &str| {
            format!(
                "head\n   0: {local}:C001 0100007F:0050 01 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0\n"
            )
        };
        assert_eq!(find(&row("0100007F", "1000", "552"), from, to), Some(1000));
        let mapped = "0000000000000000FFFF00000100007F";
        assert_eq!(find(&row(mapped, "7", "552"), from, to), Some(7));
        assert_eq!(find(&row("0100007F", "0", "0"), from, to), None, "it is closed");
        assert_eq!(find(&row("0200007F", "1000", "552"), from, to), None);
        assert_eq!(find(&row("0100007F", "-1", "552"), from, to), None);
        assert_eq!(find("head\n1 2 3\n\n:::\n", from, to), None);
        assert_eq!(find("", from, to), None);
    }
}
