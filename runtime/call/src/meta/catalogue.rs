//! The routines that servers have registered, by name and description.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kumi_broker::ServerId;
use kumi_idl::{Interface, nearest};

/// A description, and who offers it.
#[derive(Debug)]
pub struct Entry {
    /// The description's canonical JSON.
    pub json: Rc<str>,
    /// Its hash.
    pub hash: u64,
    /// Two runs have the effect of one.
    pub idempotent: bool,
    /// The first line of what it says of itself.
    pub about: String,
    /// Who offers it.
    pub servers: BTreeSet<ServerId>,
}

/// All of them. Servers may have different descriptions for a name, as when they are updated one by one; clients get
/// that of most servers, and are sent to those that have the one they know.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: BTreeMap<String, BTreeMap<u64, Entry>>,
}

/// A routine of a server that is about to be known.
#[derive(Debug)]
pub struct Offered {
    /// Its name.
    pub name: String,
    hash: u64,
    json: Rc<str>,
    idempotent: bool,
    about: String,
}

/// The name under which the broker knows a routine with this description.
pub fn key(name: &str, hash: u64) -> String {
    format!("{name} {hash:016x}")
}

impl Offered {
    /// Reads an offer of a server; `None`: it is not what it says.
    pub fn read(hash: u64, json: String) -> Option<Offered> {
        let interface = Interface::from_json(json.as_bytes()).ok()?;
        if crate::server::hash(&json) != hash {
            return None;
        }
        let about = interface.doc.lines().next().unwrap_or_default().to_owned();
        let (name, idempotent) = (interface.name, interface.idempotent);
        Some(Offered { name, hash, json: json.into(), idempotent, about })
    }

    /// The broker's name for it.
    pub fn key(&self) -> String {
        key(&self.name, self.hash)
    }
}

impl Catalogue {
    /// A server offers a routine.
    pub fn add(&mut self, server: ServerId, offered: Offered) {
        let Offered { name, hash, json, idempotent, about } = offered;
        let entry = self.names.entry(name).or_default().entry(hash).or_insert_with(|| Entry {
            json,
            hash,
            idempotent,
            about,
            servers: BTreeSet::new(),
        });
        entry.servers.insert(server);
    }

    /// A server offers nothing any more.
    pub fn remove(&mut self, server: ServerId) {
        self.names.retain(|_, entries| {
            entries.retain(|_, entry| {
                entry.servers.remove(&server);
                !entry.servers.is_empty()
            });
            !entries.is_empty()
        });
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

    /// What is said of names like this one, of those that whoever asks may know.
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

    fn offered(text: &str) -> Offered {
        let module = kumi_idl::parse(text.as_bytes()).module.expect("a module");
        let json = module.interfaces[0].to_json().expect("JSON");
        Offered::read(crate::server::hash(&json), json).expect("as it says")
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
        all.remove(ServerId(1));
        assert_eq!(all.names().count(), 0);
        assert!(Offered::read(1, "{}".to_owned()).is_none());
        let json = offered(old).json.to_string();
        assert!(Offered::read(1, json).is_none(), "another hash");
    }
}
