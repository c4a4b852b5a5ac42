//! Further places where a daemon is reached: addresses, and names that are looked up when somebody connects.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use kumi_sched::NodeId;

use super::{ClusterConfig, ConfigError, invalid, node};

/// Most places of a daemon besides its address.
const MOST_PLACES: usize = 7;
/// Longest name of a host, in bytes.
const LONGEST_NAME: usize = 253;

/// Where a daemon may be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// An address, or a name.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl Place {
    /// The address, unless it is a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        self.host.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, self.port))
    }

    /// Reads `HOST` or `HOST:PORT`. An address of IPv6 with a port is in brackets.
    fn parse(text: &str, usual_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
            }
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|&port: &u16| port != 0)?,
            None => usual_port,
        };
        let place = Self { host: host.to_owned(), port };
        let fits = match host.parse::<IpAddr>() {
            Ok(ip) => node::can_be_reached(ip) && !node::is_link_local(ip),
            Err(_) => is_name(host),
        };
        fits.then_some(place)
    }
}

fn is_name(host: &str) -> bool {
    // All digits and dots: an address that is none.
    let letters = host.bytes().any(|byte| byte.is_ascii_alphabetic());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    letters && host.len() <= LONGEST_NAME && host.bytes().all(fits)
}

/// All of a list; `whose` is for the message.
fn read(whose: &str, list: &[String], usual_port: u16) -> Result<Vec<Place>, ConfigError> {
    if list.len() > MOST_PLACES {
        return invalid(format!(
            "{whose} has {} places, and at most {MOST_PLACES} count",
            list.len()
        ));
    }
    let read = |text: &String| {
        Place::parse(text, usual_port).ok_or_else(|| {
            ConfigError::Invalid(format!(
                "{whose} has {text:?}, which is neither a name nor an address that others can reach, as host.example, host.example:7701 or [fd00::1]:7701"
            ))
        })
    };
    list.iter().map(read).collect()
}

impl ClusterConfig {
    /// Checks the lists.
    ///
    /// # Errors
    /// One of them has what is no place, or too much.
    pub(super) fn check_places(&self) -> Result<(), ConfigError> {
        read("head_addresses", &self.head_addresses, self.head.port())?;
        for (_, node) in self.members() {
            read(&format!("addresses of node {:?}", node.name), &node.addresses, node.port)?;
        }
        Ok(())
    }

    /// Where the head is reached, or the first of several, in the order of trying.
    pub fn places_of_head(&self) -> Vec<Place> {
        // What was read has been checked.
        let more = read("head_addresses", &self.head_addresses, self.head.port());
        [Place::from(self.head)].into_iter().chain(more.unwrap_or_default()).collect()
    }

    /// Where each head is reached, in the order of their numbers. Only the first has further places.
    pub(crate) fn places_of_heads(&self) -> Vec<Vec<Place>> {
        let others = self.heads().into_iter().skip(1).map(|head| vec![Place::from(head)]);
        [self.places_of_head()].into_iter().chain(others).collect()
    }

    /// Where a machine that joins looks for the head that leads: once at each head, and then at further places of the first.
    pub(crate) fn places_to_join(&self) -> Vec<Place> {
        let mut further = self.places_of_head().split_off(1);
        let others = self.heads().into_iter().skip(1).map(Place::from);
        let mut places: Vec<Place> = [Place::from(self.head)].into_iter().chain(others).collect();
        places.append(&mut further);
        places
    }

    /// Where the head that listens at `own` listens, too.
    pub(crate) fn further_of_head(&self, own: SocketAddr) -> BTreeSet<SocketAddr> {
        match self.heads().iter().position(|&head| head == own) {
            // It is another's number that has them.
            Some(number) if number > 0 => BTreeSet::new(),
            _ => further(&self.places_of_head()),
        }
    }

    /// Where the daemon of a node is reached, in the order of trying.
    ///
    /// # Errors
    /// There is no such node.
    pub fn places_of(&self, node: NodeId) -> Result<Vec<Place>, ConfigError> {
        let node = self.node(node)?;
        let more = read("addresses", &node.addresses, node.port)?;
        Ok([Place::from(node.endpoint())].into_iter().chain(more).collect())
    }
}

/// The addresses among the places of a daemon at which it listens besides the first. Names lead to one of them.
pub(crate) fn further(places: &[Place]) -> BTreeSet<SocketAddr> {
    let first = places.first().and_then(Place::literal);
    places.iter().filter_map(Place::literal).filter(|&address| Some(address) != first).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    fn place(text: &str) -> Option<String> {
        Place::parse(text, 7701).map(|place| place.to_string())
    }

    #[test]
    fn names_and_addresses_with_and_without_ports_are_places() {
        for (text, says) in [
            ("delta", "delta:7701"),
            ("delta.lab.example:9000", "delta.lab.example:9000"),
            ("192.0.2.7", "192.0.2.7:7701"),
            ("192.0.2.7:1", "192.0.2.7:1"),
            ("fd00::7", "[fd00::7]:7701"),
            ("[fd00::7]", "[fd00::7]:7701"),
            ("[fd00::7]:9000", "[fd00::7]:9000"),
        ] {
            assert_eq!(place(text).as_deref(), Some(says));
        }
        let literal = |text| Place::parse(text, 1).unwrap().literal();
        assert_eq!(literal("[fd00::7]:9"), Some("[fd00::7]:9".parse().unwrap()));
        assert_eq!(literal("delta:9"), None);
    }

    #[test]
    fn what_nobody_can_reach_is_no_place() {
        let long = "x".repeat(254);
        for text in [
            "",
            ":7701",
            "delta:",
            "delta:0",
            "delta:65536",
            "a b",
            "192.0.2.300",
            "0.0.0.0",
            "[delta]:1",
            "[fd00::7]9",
            "[fd00::7",
            "fe80::1",
            "ff02::1",
            "a:b:c",
            "x\n",
            &long,
        ] {
            assert_eq!(place(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_usual_address_comes_first_and_lists_have_bounds() {
        let text = GOOD.replacen("port = ", "addresses = [\"delta\", \"[fd00::7]:9\"]\nport = ", 1);
        let config = parse(&text).unwrap();
        let places = config.places_of(NodeId(0)).unwrap();
        let first = config.nodes[0].endpoint();
        assert_eq!(places.len(), 3);
        assert_eq!((&places[0], places[1].port), (&Place::from(first), first.port()));
        assert_eq!(config.places_of_head(), [Place::from(config.head)]);
        assert_eq!(further(&places), BTreeSet::from(["[fd00::7]:9".parse().unwrap()]));
        assert!(config.places_of(NodeId(99)).is_err());
        let other = SocketAddr::from(([10, 77, 3, 9], 7700));
        let heads = vec![config.head, other];
        let several = ClusterConfig { heads, head_addresses: vec!["[fd00::7]:9".into()], ..config };
        let [first, second] = &several.places_of_heads()[..] else { panic!() };
        assert_eq!((first, second), (&several.places_of_head(), &vec![Place::from(other)]));
        let join: Vec<String> = several.places_to_join().iter().map(Place::to_string).collect();
        let usual = [several.head, other].map(|head| head.to_string());
        assert_eq!((&join[..2], &*join[2]), (&usual[..], "[fd00::7]:9"));
        assert_eq!(several.further_of_head(several.head), further(first));
        assert_eq!(several.further_of_head(other), BTreeSet::new());
        let many = format!("addresses = {:?}\nport = ", vec!["delta"; MOST_PLACES + 1]);
        for wrong in [&*many, "addresses = [\"a b\"]\nport = "] {
            let error = parse(&GOOD.replacen("port = ", wrong, 1)).unwrap_err();
            assert!(error.to_string().contains("addresses of node"), "{error}");
        }
    }
}
