//! Catalogue of the routines that servers have registered, by name and description.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kumi_broker::ServerId;
use kumi_idl::{Interface, nearest};

/// Most remembered routines of servers that are gone, counted once per server. The limit bounds what a server
/// costs that comes and goes.
const MOST_GONE: usize = 65_536;

/// A description and the servers that offer it.
#[derive(Debug)]
pub struct Entry {
    /// The description's canonical JSON.
    pub json: Rc<str>,
    /// Its hash.
    pub hash: u64,
    /// Whether the routine is idempotent.
    pub idempotent: bool,
    /// The first line of its documentation.
    pub about: String,
    /// The servers that offer it.
    pub servers: BTreeSet<ServerId>,
}

/// All routines. Servers may have different descriptions of a name while they are updated one by one. A
/// client gets the description that most servers have, and its calls go to servers with that description.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: BTreeMap<String, BTreeMap<u64, Entry>>,
    gone: Gone,
}

/// Routines that known servers offered and do not offer now.
///
/// Invariant: `count` is the number of servers over all names, and every name has a server.
#[derive(Debug, Default)]
struct Gone {
    names: BTreeMap<String, BTreeSet<ServerId>>,
    count: usize,
}

impl Gone {
    fn remember(&mut self, name: &str, server: ServerId) {
        if self.count >= MOST_GONE {
            return;
        }
        let new = match self.names.get_mut(name) {
            Some(servers) => servers.insert(server),
            None => self.names.insert(name.to_owned(), BTreeSet::from([server])).is_none(),
        };
        self.count += usize::from(new);
    }

    fn forget(&mut self, server: ServerId) {
        let Gone { names, count } = self;
        names.retain(|_, servers| {
            *count -= usize::from(servers.remove(&server));
            !servers.is_empty()
        });
    }
}

/// A routine in a server's registration.
#[derive(Debug)]
pub struct RoutineOffer {
    /// Its name.
    pub name: String,
    hash: u64,
    json: Rc<str>,
    idempotent: bool,
    about: String,
}

/// The broker's name for a routine with this description.
pub fn key(name: &str, hash: u64) -> String {
    format!("{name} {hash:016x}")
}

impl RoutineOffer {
    /// Reads an offer of a server. `None`: it is malformed.
    pub fn read(hash: u64, json: String) -> Option<RoutineOffer> {
        let interface = Interface::from_json(json.as_bytes()).ok()?;
        if kumi_call_wire::description::hash(&json) != hash {
            return None;
        }
        let about = interface.doc.lines().next().unwrap_or_default().to_owned();
        let (name, idempotent) = (interface.name, interface.idempotent);
        Some(RoutineOffer { name, hash, json: json.into(), idempotent, about })
    }

    /// The broker's name for it.
    pub fn key(&self) -> String {
        key(&self.name, self.hash)
    }
}

impl Catalogue {
    /// A server offers a routine.
    pub fn add(&mut self, server: ServerId, offered: RoutineOffer) {
        let RoutineOffer { name, hash, json, idempotent, about } = offered;
        let entry = self.names.entry(name).or_default().entry(hash).or_insert_with(|| Entry {
            json,
            hash,
            idempotent,
            about,
            servers: BTreeSet::new(),
        });
        entry.servers.insert(server);
    }

    /// A server offers nothing now but may come back, so its routines are remembered.
    pub fn remove(&mut self, server: ServerId) {
        let gone = &mut self.gone;
        self.names.retain(|name, entries| {
            entries.retain(|_, entry| {
                if entry.servers.remove(&server) {
                    gone.remember(name, server);
                }
                !entry.servers.is_empty()
            });
            !entries.is_empty()
        });
    }

    /// Forgets the routines of a server that is no longer known, or that registers anew.
    pub fn forget(&mut self, server: ServerId) {
        self.remove(server);
        self.gone.forget(server);
    }

    /// Whether a known server offered a routine of this name and does not now.
    pub fn had(&self, name: &str) -> bool {
        self.gone.names.contains_key(name)
    }

    /// The description that most servers have.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.names.get(name)?.values().max_by_key(|entry| entry.servers.len())
    }

    /// This description of a name.
    pub fn exactly(&self, name: &str, hash: u64) -> Option<&Entry> {
        self.names.get(name)?.get(&hash)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// All names with their descriptions.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.names.iter().flat_map(|(name, all)| all.values().map(|entry| (name.as_str(), entry)))
    }

    /// The end of an error message: permitted names similar to this one.
    pub fn near(&self, name: &str, may: impl Fn(&str) -> bool) -> String {
        let near = nearest(name, self.names().filter(|name| may(name)));
        if near.is_empty() {
            return String::new();
        }
        format!("; did you mean {}?", near.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(text: &str) -> RoutineOffer {
        let module = kumi_idl::parse(text.as_bytes()).module.expect("a module");
        let json = module.interfaces[0].to_json().expect("JSON");
        RoutineOffer::read(kumi_call_wire::description::hash(&json), json).expect("as it says")
    }

    #[test]
    fn descriptions_of_most_servers_win() {
        let (old, new) = ("Define f(int n) Calls g(n);", "Define f(int n, int m) Calls g(n, m);");
        let mut all = Catalogue::default();
        all.add(ServerId(1), offered(old));
        all.add(ServerId(2), offered(new));
        all.add(ServerId(3), offered(new));
        let hash = offered(new).hash;
        assert_eq!(all.find("f").map(|entry| entry.hash), Some(hash));
        assert!(all.exactly("f", offered(old).hash).is_some());
        assert_eq!(all.near("ff", |_| true), "; did you mean f?");
        assert_eq!(all.near("ff", |_| false), "");
        all.remove(ServerId(2));
        all.remove(ServerId(3));
        assert!(all.exactly("f", hash).is_none() && all.find("f").is_some());
        assert!(!all.had("g"), "nobody ever offered it");
        all.remove(ServerId(1));
        assert!(all.names().count() == 0 && all.find("f").is_none() && all.had("f"));
        // As long as a server that offered it is known and may come back.
        all.forget(ServerId(1));
        all.forget(ServerId(2));
        assert!(all.had("f"));
        all.add(ServerId(3), offered(old));
        all.forget(ServerId(3));
        assert!(!all.had("f"));
        assert!(RoutineOffer::read(1, "{}".to_owned()).is_none());
        let json = offered(old).json.to_string();
        assert!(RoutineOffer::read(1, json).is_none(), "another hash");
    }

    #[test]
    fn what_is_gone_has_bounds() {
        let mut all = Catalogue::default();
        for number in 0..=u32::try_from(MOST_GONE).expect("few") {
            all.gone.remember(&number.to_string(), ServerId(number % 3));
        }
        assert!(all.had("65535") && !all.had("65536"));
        all.gone.remember("7", ServerId(1));
        assert_eq!((all.gone.names.len(), all.gone.count), (MOST_GONE, MOST_GONE));
        all.forget(ServerId(0));
        all.gone.remember("65536", ServerId(1));
        all.gone.remember("65536", ServerId(1));
        assert!(all.had("65536") && !all.had("0") && all.had("1"));
        all.forget(ServerId(1));
        all.forget(ServerId(2));
        assert!(all.gone.names.is_empty() && all.gone.count == 0);
    }
}
