//! Host file of `kumi cluster init --hosts` and `kumi cluster up --hosts`.
//!
//! One node per line, `name address[:port] [cpus=LIST] [users=LIST] [memory=SIZE] [devices=NAME:LIST]`; `#` begins a comment.
//! IPv6 addresses with a port are in brackets.

use crate::parse;
use kumi_node::config::{DeviceList, MAX_NODES, check_devices, check_users};
use kumi_node::sizes;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Port on which a node listens when its line names none.
pub const NODE_PORT: u16 = 7701;
/// Port on which the head listens, on the first host.
pub const HEAD_PORT: u16 = 7700;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name for display; unique in the file.
    pub name: String,
    /// Address on which its daemon listens, and to which its ranks' sockets bind.
    pub address: IpAddr,
    /// TCP port of its daemon.
    pub port: u16,
    /// Its interface, for a link-local address.
    pub interface: Option<String>,
    /// Processors its ranks may use; empty means all.
    pub cpus: Vec<usize>,
    /// Whose clients the head accepts through it.
    pub users: Option<Vec<String>>,
    /// Memory that its ranks may use.
    pub memory: Option<String>,
    /// Devices that its ranks may use.
    pub devices: BTreeMap<String, DeviceList>,
}

impl Host {
    /// Takes over what a word behind the address says.
    fn take(&mut self, word: &str) -> Result<(), String> {
        let Some((key, value)) = word.split_once('=') else {
            return Err(unknown(word));
        };
        match key {
            "cpus" => {
                self.cpus = parse::cpu_list(value).ok_or_else(|| {
                    format!("'{value}' is not a list of processors; write for example cpus=0-3,8")
                })?;
            }
            "users" => {
                let list: Vec<String> = value.split(',').map(str::to_owned).collect();
                check_users(&list)?;
                self.users = Some(list);
            }
            "memory" => {
                let size = sizes::bytes(value).filter(|&bytes| bytes > 0);
                size.ok_or_else(|| sizes::wrong(value))?;
                self.memory = Some(value.to_owned());
            }
            "devices" => {
                let (name, list) = devices(value)?;
                if self.devices.insert(name.to_owned(), list).is_some() {
                    return Err(format!("the devices {name} are there twice"));
                }
                check_devices(&self.devices)?;
            }
            _ => return Err(unknown(word)),
        }
        Ok(())
    }
}

fn unknown(word: &str) -> String {
    format!(
        "'{word}' is not known here; only cpus=LIST, users=LIST, memory=SIZE and devices=NAME:LIST may follow"
    )
}

/// `gpu:2`, or `gpu:/dev/nvidia0,/dev/nvidia1`.
fn devices(text: &str) -> Result<(&str, DeviceList), String> {
    let wrong = || {
        format!(
            "'{text}' does not name devices; write for example devices=gpu:2 or devices=gpu:/dev/nvidia0,/dev/nvidia1"
        )
    };
    let (name, list) = text.split_once(':').ok_or_else(wrong)?;
    if list.starts_with('/') {
        return Ok((name, DeviceList::Files(list.split(',').map(Into::into).collect())));
    }
    Ok((name, DeviceList::Count(list.parse().map_err(|_| wrong())?)))
}

/// Error of a host file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// A line that is invalid or contradicts another.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The error, and advice.
        reason: String,
    },
    /// No line names a host.
    #[error("it names no host; write one line 'name address' for each")]
    Empty,
    /// More hosts than a cluster may have.
    #[error("it names {0} hosts and a cluster has at most {MAX_NODES}; make several clusters")]
    TooMany(usize),
}

/// Parses a host file. `resolve` looks up names that are not addresses.
pub fn parse(
    text: &str,
    resolve: &dyn Fn(&str) -> Option<IpAddr>,
) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    let mut names = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let content = whole.split_once('#').map_or(whole, |(before, _)| before).trim();
        if content.is_empty() {
            continue;
        }
        let host =
            parse_line(content, resolve).map_err(|reason| HostsError::Line { line, reason })?;
        if let Some(other) = names.insert(host.name.clone(), line) {
            let reason = format!("the name '{}' is already used in line {other}", host.name);
            return Err(HostsError::Line { line, reason });
        }
        if let Some(other) = places.insert((host.address, host.port), line) {
            let reason = format!(
                "{} is already used in line {other}; give one of them another port",
                SocketAddr::new(host.address, host.port)
            );
            return Err(HostsError::Line { line, reason });
        }
        hosts.push(host);
    }
    match hosts.len() {
        0 => Err(HostsError::Empty),
        n if n > MAX_NODES => Err(HostsError::TooMany(n)),
        _ => Ok(hosts),
    }
}

/// Reads one line of a host file.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn one(line: &str, resolve: &dyn Fn(&str) -> Option<IpAddr>) -> Result<Host, String> {
    parse_line(line, resolve)
}

fn parse_line(content: &str, resolve: &dyn Fn(&str) -> Option<IpAddr>) -> Result<Host, String> {
    let mut words = content.split_whitespace();
    let name = words.next().unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.len() > 64 || !name.chars().all(good) {
        return Err(format!(
            "'{name}' is not a host name; use at most 64 letters, digits, '-', '.' and '_'"
        ));
    }
    let place = words
        .next()
        .ok_or_else(|| format!("the address of '{name}' is missing; write '{name} ADDRESS'"))?;
    let (address, port) = parts(place)?;
    let (address, interface) = match address.split_once('%') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (address, None),
    };
    let address = match address.parse() {
        Ok(address) => address,
        Err(_) => resolve(address).ok_or_else(|| {
            format!("'{address}' is neither an IP address nor a name that can be looked up")
        })?,
    };
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(format!("{address} is not the address of a host"));
    }
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if link_local != interface.is_some() {
        return Err(format!(
            "a link-local address has the host's interface behind it, as fe80::1%eth0, and no other has; write {address} so"
        ));
    }
    let (name, cpus) = (name.to_owned(), Vec::new());
    let (users, memory, devices) = (None, None, BTreeMap::new());
    let mut host = Host { name, address, port, interface, cpus, users, memory, devices };
    words.try_for_each(|word| host.take(word))?;
    Ok(host)
}

/// Address and port: `10.0.0.1:7701`, `[fd00::1]:7701`, or one without the port and the brackets.
fn parts(place: &str) -> Result<(&str, u16), String> {
    let bracketed = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (address, port) = match bracketed {
        Some((address, "")) => (address, None),
        Some((address, rest)) => match rest.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None => return Err(format!("'{place}' is not an address: write [{address}]:PORT")),
        },
        // Several colons: an address of IPv6.
        None if place.matches(':').count() > 1 => (place, None),
        None => match place.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (place, None),
        },
    };
    match port.map(str::parse) {
        None => Ok((address, NODE_PORT)),
        Some(Ok(number)) if number != 0 => Ok((address, number)),
        Some(_) => Err(format!(
            "'{}' is not a port; write a number from 1 to 65535",
            port.unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Host>, HostsError> {
        parse(text, &|name| (name == "alpha.lab").then(|| IpAddr::from([10, 0, 0, 9])))
    }

    fn reason(text: &str) -> (usize, String) {
        match read(text) {
            Err(HostsError::Line { line, reason }) => (line, reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_with_everything() {
        let text = "# lab\n\nalpha 10.0.0.1\n beta 10.0.0.2:9000 cpus=0-1,4 users=bob,1001 # the big one\n\
                    gamma alpha.lab\n";
        let hosts = read(text).unwrap();
        assert_eq!(hosts.len(), 3);
        assert_eq!((hosts[0].port, hosts[0].cpus.len()), (NODE_PORT, 0));
        assert_eq!((hosts[1].port, hosts[1].cpus.clone()), (9000, vec![0, 1, 4]));
        let users = ["bob", "1001"].map(str::to_owned).to_vec();
        assert_eq!((hosts[0].users.clone(), hosts[1].users.clone()), (None, Some(users)));
        assert_eq!(hosts[2].address, IpAddr::from([10, 0, 0, 9]));
    }

    #[test]
    fn a_host_with_memory_and_devices() {
        let text = "a 10.0.0.1 memory=1.5GiB devices=gpu:/dev/x0,/dev/x1 cpus=1 devices=fpga:2\n";
        let hosts = read(text).unwrap();
        assert_eq!((hosts[0].memory.as_deref(), &*hosts[0].cpus), (Some("1.5GiB"), &[1][..]));
        assert_eq!(hosts[0].devices["fpga"], DeviceList::Count(2));
        let files = ["/dev/x0", "/dev/x1"].map(Into::into).to_vec();
        assert_eq!(hosts[0].devices["gpu"], DeviceList::Files(files));
    }

    #[test]
    fn addresses_of_both_families() {
        let text = "a fd00::1\nb [fd00::2]:9000 cpus=1\nc [fd00::3]\nd fe80::4%eth0\ne [fe80::5%ib0]:7\nf 10.0.0.1";
        let hosts = read(text).unwrap();
        let seen: Vec<_> = hosts
            .iter()
            .map(|host| {
                (host.address.to_string(), host.port, host.interface.clone().unwrap_or_default())
            })
            .collect();
        let expected = [
            ("fd00::1", NODE_PORT, ""),
            ("fd00::2", 9000, ""),
            ("fd00::3", NODE_PORT, ""),
            ("fe80::4", NODE_PORT, "eth0"),
            ("fe80::5", 7, "ib0"),
            ("10.0.0.1", NODE_PORT, ""),
        ];
        let expected = expected.map(|(ip, port, name)| (ip.to_owned(), port, name.to_owned()));
        assert_eq!(seen, expected);
    }

    #[test]
    fn errors_name_the_line_and_what_is_wrong() {
        let cases = [
            ("alpha\n", 1, "the address of 'alpha' is missing"),
            ("\nalpha 10.0.0.1:0\n", 2, "'0' is not a port"),
            ("a 10.0.0.1:99999\n", 1, "'99999' is not a port"),
            ("a 10.0.0.300\n", 1, "'10.0.0.300' is neither"),
            ("a 10.0.0.1\nb nowhere.lab\n", 2, "'nowhere.lab' is neither"),
            ("a 10.0.0.1 cpus=3-1\n", 1, "'3-1' is not a list"),
            ("a 10.0.0.1 cores=3\n", 1, "'cores=3' is not known"),
            ("a 10.0.0.1 users=bob,\n", 1, "is not a user"),
            ("a 10.0.0.1 memory=2GB\n", 1, "\"2GB\" is not a size"),
            ("a 10.0.0.1 memory=0\n", 1, "\"0\" is not a size"),
            ("a 10.0.0.1 devices=2\n", 1, "'2' does not name devices"),
            ("a 10.0.0.1 devices=gpu:two\n", 1, "'gpu:two' does not name devices"),
            ("a 10.0.0.1 devices=gpu:0\n", 1, "not between 1 and 1024"),
            ("a 10.0.0.1 devices=gpu:1 devices=gpu:2\n", 1, "the devices gpu are there twice"),
            ("a/b 10.0.0.1\n", 1, "'a/b' is not a host name"),
            ("a 10.0.0.1\na 10.0.0.2\n", 2, "already used in line 1"),
            ("a 10.0.0.1\nb 10.0.0.1\n", 2, "10.0.0.1:7701 is already used in line 1"),
            ("a 0.0.0.0\n", 1, "0.0.0.0 is not the address"),
            ("a ff02::1\n", 1, "ff02::1 is not the address"),
            ("a fe80::1\n", 1, "a link-local address has"),
            ("a fd00::1%eth0\n", 1, "a link-local address has"),
            ("a [fd00::1]7701\n", 1, "write [fd00::1]:PORT"),
            ("a [fd00::1\n", 1, "'[fd00::1' is neither"),
            ("a fd00::1\nb [fd00::1]:7701\n", 2, "[fd00::1]:7701 is already used in line 1"),
        ];
        for (text, line, part) in cases {
            let (at, why) = reason(text);
            assert_eq!(at, line, "{text:?}");
            assert!(why.contains(part), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_file_without_hosts_is_refused() {
        assert_eq!(read("# nobody\n\n"), Err(HostsError::Empty));
        assert_eq!(read(""), Err(HostsError::Empty));
    }

    #[test]
    fn two_nodes_on_one_address_need_two_ports() {
        assert_eq!(read("a 10.0.0.1:7701\nb 10.0.0.1:7702\n").unwrap().len(), 2);
    }
}
