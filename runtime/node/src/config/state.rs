//! Where the head's state is, and where heads are: keys `state` and `heads` of cluster.toml, and its table `[etcd]`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use kumi_etcd::Etcd;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use super::node::can_be_reached;
use super::{ClusterConfig, ConfigError, invalid, on_link};
use crate::paths;

/// How a state in etcd is named.
const SCHEME: &str = "etcd://";
/// The port of etcd's members, unless one is named.
const ETCD_PORT: u16 = 2379;
/// Most heads, and most members of etcd.
const MOST: usize = 16;
/// Seconds of a leader's lease: etcd itself makes shorter ones longer.
const LEASES: std::ops::RangeInclusive<u64> = 2..=60;
/// The lease unless one is named: with other heads, which are to take over soon, and of a head that waits for etcd.
const LEASE: u64 = 3;
const LEASE_ALONE: u64 = 30;
/// How long a head that waits may take no output, unless the file says it; milliseconds that it may say.
const STANDBY_PATIENCE: Duration = Duration::from_secs(3);
const STANDBY_PATIENCES: std::ops::RangeInclusive<u64> = 500..=60_000;
/// The longest that a member may take to answer.
const LONGEST_PATIENCE: Duration = Duration::from_secs(3);
/// A member that does not answer for this part of a lease is left for the next one.
const PATIENCE: u32 = 5;
/// Name of the key with the addresses of the heads that have all output that was acknowledged.
pub(crate) const IN_SYNC: &str = "in-sync";
/// Bytes of the hash of the authority that tell clusters of one name apart.
const ID: usize = 8;

/// How heads use etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdAccess {
    /// PEM file with the authorities that signed the certificates of etcd's members. With it connections are encrypted. Paths
    /// count from the cluster's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate that heads show to etcd. It goes with `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of `certificate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name of a user at etcd. It goes with `password_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with the password of `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// What all keys begin with. Without it `/kumi/cluster`. Name and identity of the cluster follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Seconds after which another head leads when the leading one is gone. Without it 3, and 30 if there is only one head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_s: Option<u64>,
    /// A head that waits and has taken no output for so many milliseconds is not waited for any more: output is acknowledged without
    /// it. Without the key 3000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_patience_ms: Option<u64>,
}

impl EtcdAccess {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.certificate.is_some() != self.key.is_some() {
            return invalid("under [etcd] certificate and key go together");
        }
        if self.certificate.is_some() && self.ca.is_none() {
            return invalid(
                "under [etcd] a certificate needs `ca`, with which connections are encrypted",
            );
        }
        if self.user.is_some() != self.password_file.is_some() {
            return invalid("under [etcd] user and password_file go together");
        }
        if self.user.is_some() && self.ca.is_none() {
            return invalid(
                "under [etcd] a user needs `ca`, with which connections are encrypted: the password would be sent in the clear",
            );
        }
        if let Some(lease) = self.lease_s.filter(|lease| !LEASES.contains(lease)) {
            let (low, high) = (LEASES.start(), LEASES.end());
            return invalid(format!(
                "lease_s under [etcd] is {lease}, which is not between {low} and {high}"
            ));
        }
        let patience = self.standby_patience_ms;
        if let Some(patience) = patience.filter(|it| !STANDBY_PATIENCES.contains(it)) {
            let (low, high) = (STANDBY_PATIENCES.start(), STANDBY_PATIENCES.end());
            return invalid(format!(
                "standby_patience_ms under [etcd] is {patience}, which is not between {low} and {high}"
            ));
        }
        match &self.prefix {
            Some(prefix) if !prefix.starts_with('/') || prefix.contains(char::is_control) => {
                invalid(format!("prefix under [etcd] is {prefix:?}, which does not begin with /"))
            }
            _ => Ok(()),
        }
    }
}

/// The members of `etcd://HOST[:PORT],…`, each with its port.
fn members(state: &str) -> Result<Vec<String>, ConfigError> {
    let wrong = || {
        ConfigError::Invalid(format!(
            "state is {state:?}, which is not of the form etcd://HOST:PORT,HOST:PORT with 1 to {MOST} members"
        ))
    };
    let list = state.strip_prefix(SCHEME).ok_or_else(wrong)?;
    let members: Vec<String> =
        list.split(',').map(member).collect::<Option<_>>().ok_or_else(wrong)?;
    if members.len() > MOST { Err(wrong()) } else { Ok(members) }
}

fn member(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of a bare IPv6 address are no port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok().filter(|&port| port != 0)?)
        }
        _ => (text, ETCD_PORT),
    };
    let is_six = host.starts_with('[') && host.ends_with(']');
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let named = !host.is_empty() && host.chars().all(good);
    (named || is_six && host[1..host.len() - 1].parse::<IpAddr>().is_ok())
        .then(|| format!("{host}:{port}"))
}

impl ClusterConfig {
    /// Where heads listen, in the order of their numbers.
    #[must_use]
    pub fn heads(&self) -> Vec<SocketAddr> {
        if self.heads.is_empty() { vec![self.head] } else { self.heads.clone() }
    }

    /// How long the head that leads waits for one that takes no output.
    #[must_use]
    pub fn standby_patience(&self) -> Duration {
        self.etcd.standby_patience_ms.map_or(STANDBY_PATIENCE, Duration::from_millis)
    }

    /// Whether heads are at this address.
    #[must_use]
    pub fn has_head_at(&self, address: IpAddr) -> bool {
        self.head.ip() == address || self.heads.iter().any(|head| head.ip() == address)
    }

    pub(super) fn check_state(&self) -> Result<(), ConfigError> {
        self.etcd.validate()?;
        match &self.state {
            Some(state) => drop(members(state)?),
            None if self.heads.len() > 1 => {
                return invalid(
                    "several heads need `state` in etcd, where each finds what another has left",
                );
            }
            None => {}
        }
        if self.heads.is_empty() {
            return Ok(());
        }
        if self.heads[0] != self.head || self.heads.len() > MOST {
            return invalid(format!(
                "heads has {} addresses; give 1 to {MOST}, of which the first is that of `head`",
                self.heads.len()
            ));
        }
        let different: BTreeSet<_> = self.heads.iter().collect();
        if different.len() != self.heads.len() {
            return invalid("an address in heads is used twice");
        }
        for head in &self.heads {
            if head.port() == 0 || !can_be_reached(head.ip()) || on_link(*head, 1) != *head {
                return invalid(format!("head {head} is not an address all others can reach"));
            }
        }
        Ok(())
    }

    /// How a head in cluster directory `dir` that listens at `own` uses etcd; none if its state is a file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn etcd(&self, dir: &Path, own: SocketAddr) -> Result<Option<Etcd>, ConfigError> {
        let Some(state) = &self.state else { return Ok(None) };
        let access = &self.etcd;
        let within = |path: &PathBuf| dir.join(path);
        let scheme = if access.ca.is_some() { "https" } else { "http" };
        let endpoints = members(state)?.iter().map(|it| format!("{scheme}://{it}")).collect();
        let password = match access.password_file.as_ref().map(within) {
            None => String::new(),
            Some(path) => match fs::read_to_string(&path) {
                Ok(text) => text.trim_end_matches(['\r', '\n']).to_owned(),
                Err(source) => return Err(ConfigError::Io { path, source }),
            },
        };
        let alone = self.heads().len() == 1;
        let lease = access.lease_s.unwrap_or(if alone { LEASE_ALONE } else { LEASE });
        let lease = Duration::from_secs(lease);
        Ok(Some(Etcd {
            endpoints,
            prefix: self.state_prefix(dir)?,
            user: access.user.clone().unwrap_or_default(),
            password,
            ca: access.ca.as_ref().map(within),
            identity: access.certificate.as_ref().map(within).zip(access.key.as_ref().map(within)),
            lease,
            patience: (lease / PATIENCE).min(LONGEST_PATIENCE),
            advertise: own.to_string(),
            // The address is bound: no other process of this machine has it.
            exclusive: true,
            alone,
            preferred: (!alone).then_some(IN_SYNC),
        }))
    }

    /// What all keys of this cluster begin with. Clusters of one name have authorities of their own. Only the certificate counts:
    /// text around it in the file may change.
    fn state_prefix(&self, dir: &Path) -> Result<String, ConfigError> {
        let path = paths::tls(dir).join("ca.pem");
        let authority = fs::read(&path)
            .and_then(|text| CertificateDer::from_pem_slice(&text).map_err(io::Error::other))
            .map_err(|source| ConfigError::Io { path, source })?;
        let prefix = self.etcd.prefix.as_deref().unwrap_or("/kumi/cluster").trim_end_matches('/');
        let id = paths::hex(&blake3::hash(&authority).as_bytes()[..ID]);
        Ok(format!("{prefix}/{}-{id}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    fn with(lines: &str, table: &str) -> Result<ClusterConfig, ConfigError> {
        let lines = format!("slice_us = 1000\n{lines}\n");
        parse(&format!("{}{table}", GOOD.replace("slice_us = 1000\n", &lines)))
    }

    #[test]
    fn members_have_ports() {
        let all = members("etcd://a:1,b.example,[fd00::1],[fd00::2]:7").unwrap();
        assert_eq!(all, ["a:1", "b.example:2379", "[fd00::1]:2379", "[fd00::2]:7"]);
        for bad in ["a:1", "http://a:1", "etcd://", "etcd://a:0", "etcd://a:x", "etcd://a,,b"] {
            assert!(members(bad).is_err(), "{bad}");
        }
        for bad in ["etcd://a b", "etcd://u@a", "etcd://fd00::1", "etcd://[a]", "etcd://a/b"] {
            assert!(members(bad).is_err(), "{bad}");
        }
        assert!(members(&format!("etcd://{}", ["a"; 17].join(","))).is_err());
    }

    #[test]
    fn the_file_says_how_heads_use_etcd() {
        let none = parse(GOOD).unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert!(none.etcd(dir.path(), none.head).unwrap().is_none());
        let table = "[etcd]\nca = \"e/ca\"\ncertificate = \"/c\"\nkey = \"k\"\nuser = \"u\"\n\
                     password_file = \"word\"\nprefix = \"/x/\"\nlease_s = 10\n";
        let config = with("state = \"etcd://a,b:1\"", table).unwrap();
        let error = config.etcd(dir.path(), config.head).unwrap_err().to_string();
        assert!(error.contains("word"), "{error}");
        fs::write(dir.path().join("word"), "secret\n").unwrap();
        fs::create_dir(dir.path().join("tls")).unwrap();
        let authority = |bytes: &str, around: &str| {
            let text = format!(
                "{around}-----BEGIN CERTIFICATE-----\n{bytes}\n-----END CERTIFICATE-----\n{around}"
            );
            fs::write(dir.path().join("tls/ca.pem"), text).unwrap();
        };
        authority("YW4gYXV0aG9yaXR5", "");
        let etcd = config.etcd(dir.path(), config.head).unwrap().unwrap();
        assert_eq!(etcd.endpoints, ["https://a:2379", "https://b:1"]);
        assert_eq!((&*etcd.password, &*etcd.advertise), ("secret", "10.77.3.1:7700"));
        assert_eq!(etcd.ca, Some(dir.path().join("e/ca")));
        assert_eq!(etcd.identity, Some(("/c".into(), dir.path().join("k"))));
        assert!(etcd.prefix.starts_with("/x/default-") && etcd.prefix.len() == 11 + 16);
        assert!(etcd.alone && etcd.lease == Duration::from_secs(10));
        assert_eq!(etcd.patience, Duration::from_secs(2));
        // Another cluster of that name.
        authority("YW4gYXV0aG9yaXR5", "A comment.\n");
        let same = config.etcd(dir.path(), config.head).unwrap().unwrap();
        assert_eq!(same.prefix, etcd.prefix);
        authority("YW5vdGhlcg==", "");
        let other = config.etcd(dir.path(), config.head).unwrap().unwrap();
        assert_ne!(other.prefix, etcd.prefix);
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let state = "state = \"etcd://a\"\n";
        for (lines, table, word) in [
            ("state = \"a\"", "", "etcd://HOST:PORT"),
            (state, "[etcd]\nkey = \"k\"\n", "go together"),
            (state, "[etcd]\nkey = \"k\"\ncertificate = \"c\"\n", "needs `ca`"),
            (state, "[etcd]\nuser = \"u\"\n", "go together"),
            (state, "[etcd]\nuser = \"u\"\npassword_file = \"p\"\n", "in the clear"),
            (state, "[etcd]\nlease_s = 1\n", "lease_s"),
            (state, "[etcd]\nstandby_patience_ms = 499\n", "standby_patience_ms"),
            (state, "[etcd]\nprefix = \"x\"\n", "prefix"),
            ("heads = [\"10.77.3.1:7700\", \"10.77.3.2:7700\"]", "", "need `state`"),
        ] {
            let error = with(lines, table).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let heads = |list: &str| with(&format!("{state}heads = [{list}]"), "");
        let two = heads("\"10.77.3.1:7700\", \"10.77.3.2:7700\"").unwrap();
        assert_eq!(two.heads().len(), 2);
        assert!(two.has_head_at([10, 77, 3, 2].into()) && !two.has_head_at([10, 0, 0, 1].into()));
        for (list, word) in [
            ("\"10.77.3.2:7700\"", "the first"),
            ("\"10.77.3.1:7700\", \"10.77.3.1:7700\"", "twice"),
            ("\"10.77.3.1:7700\", \"0.0.0.0:7700\"", "reach"),
            ("\"10.77.3.1:7700\", \"10.77.3.2:7701\"", "used twice"),
        ] {
            let error = heads(list).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
