//! Configuration of a cluster: `cluster.toml` in the cluster directory.
//!
//! Written by `kumi cluster init` or by hand, read by the head, every node and the command. A file
//! that is read is checked as a whole, so that nothing later has to doubt it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kumi_control::message::MOST_PRIORITY;
use kumi_sched::{NodeId, SliceLength};
use serde::{Deserialize, Serialize};

use crate::exit::ExitCode;
use crate::{durable, idle, paths};

mod absence;
pub mod defaults;
mod devices;
mod health;
mod hooks;
mod job;
mod kinds;
mod limits;
mod members;
mod memory;
mod metrics;
mod node;
mod place;
mod policy;
mod privacy;
mod quotas;
mod retention;
mod shares;
mod state;
mod users;
mod web;
pub use devices::{DeviceList, check_devices};
pub use health::Health;
pub use hooks::Hooks;
pub use job::{Bind, HANDLER, JobDefaults, MOST_PROCESSORS, check_handler};
pub use kinds::{ClusterKind, WireSetting};
pub use limits::{LimitCaps, handler_of};
pub use node::{NodeConfig, on_link};
pub use place::Place;
pub(crate) use place::further;
pub use policy::OS;
pub use privacy::{Privacy, ShowOthers};
pub use quotas::Quotas;
pub use retention::Retention;
pub use shares::Shares;
pub use state::EtcdAccess;
pub(crate) use state::IN_SYNC;
pub use users::check_users;
pub use web::Web;

use metrics::{LOCALHOST, listening_address};

/// Shortest slice that may be configured, in microseconds: below it switching eats the processors.
pub const MIN_SLICE_US: u64 = 250;
/// Longest slice, in microseconds (10 s): beyond it nobody would call the cluster interactive.
pub const MAX_SLICE_US: u64 = 10_000_000;
/// Most nodes of one cluster.
pub const MAX_NODES: usize = 4096;
/// The same as a bound of numbers of nodes, which daemons go by that may not know the newest nodes.
pub const MOST_NUMBERS: u32 = 4096;
const _: () = assert!(MOST_NUMBERS as usize == MAX_NODES);
/// Longest cluster name, so that names of namespaces and control groups stay within their limits.
pub const MAX_NAME: usize = 24;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Name: 1 to 24 of `a-z`, `0-9` and `-`.
    pub name: String,
    /// Local or real hosts.
    pub kind: ClusterKind,
    /// Where the head listens (TLS).
    pub head: SocketAddr,
    /// Where heads listen, if there are several, the first of them at `head`. One leads, the others wait for it to be gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<SocketAddr>,
    /// Where the head's state is: `etcd://HOST:PORT,HOST:PORT`. Without it a file in the cluster's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Further places where the head is reached, or the first of several, in the form of `addresses` of a node. Nodes try `head` first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub head_addresses: Vec<String>,
    /// Slice in microseconds; 0: the head chooses one of 1 to 100 ms, by the jobs that take turns.
    #[serde(default = "defaults::slice_us")]
    pub slice_us: u64,
    /// Switch even where one job is alone, to measure.
    #[serde(default)]
    pub force_switch: bool,
    /// Jobs that do not say otherwise have what others leave idle in their turns.
    #[serde(default = "defaults::fill")]
    pub fill: bool,
    /// Children of each inner node of the control tree.
    #[serde(default = "defaults::fan_out")]
    pub fan_out: u32,
    /// Name of the scheduling policy, or `os`: processors are shared as the operating systems like. See
    /// `docs/guide/scheduling.md`.
    #[serde(default = "defaults::policy")]
    pub policy: String,
    /// The highest priority that jobs of others than the owner and root may ask for.
    #[serde(default = "defaults::max_priority")]
    pub max_priority: u16,
    /// Jobs that may share a processor, where they share time. Older name: `max_jobs_per_node`.
    #[serde(default = "defaults::max_jobs_per_processor", alias = "max_jobs_per_node")]
    pub max_jobs_per_processor: u32,
    /// Ranks of one job per processor of a node.
    #[serde(default = "defaults::max_ranks_per_processor")]
    pub max_ranks_per_processor: u32,
    /// A link between daemons on which nothing came for so many milliseconds is given up. Without it 10 s on real hosts, 3 s
    /// where all nodes are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// How long a node may be away before its jobs fail, in milliseconds. Without it a minute on real hosts, 1 s where all
    /// nodes are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// How long ranks run on without their node's daemon, in milliseconds; 0: they end with it. Without the key a minute on real
    /// hosts, 0 where all nodes are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_ms: Option<u64>,
    /// How long nodes go on without the head, in milliseconds. Without it 5 minutes on real hosts, 15 s where all nodes are
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// A job whose ranks have only waited for so many milliseconds has no slots until one stirs; 0: it keeps them.
    #[serde(default = "crate::idle::default_ms")]
    pub idle_after_ms: u64,
    /// The user who, besides root, may reconfigure the cluster and take it down.
    #[serde(default)]
    pub owner_uid: u32,
    /// Whether jobs of root run. The head and each node read it.
    #[serde(default)]
    pub root_jobs: bool,
    /// Where each node serves its figures to Prometheus, `PORT` or `ADDRESS:PORT`; nowhere if it is
    /// not given. See [`ClusterConfig::metrics_of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Where the head serves its figures, in the same form. See [`ClusterConfig::metrics_of_head`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_metrics: Option<String>,
    /// Whether the packets of jobs that do not say are encrypted between nodes.
    #[serde(default)]
    pub encrypt: bool,
    /// How ranks send to other nodes, unless their node says otherwise.
    #[serde(default)]
    pub wire: WireSetting,
    /// Memory of each machine that ranks leave to everything else, as `2GiB`. Without it a twentieth, at least 256 MiB and at
    /// most 4 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_reserve: Option<String>,
    /// The most memory that the daemon of a node takes for itself, as `2GiB`; that is the default. It holds where a service
    /// manager has given the daemon a control group of version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_memory: Option<String>,
    /// Defaults of jobs.
    #[serde(default, skip_serializing_if = "JobDefaults::says_nothing")]
    pub job: JobDefaults,
    /// The most that ranks get of their users' limits.
    #[serde(default, skip_serializing_if = "LimitCaps::says_nothing")]
    pub limits: LimitCaps,
    /// The most that one user may have.
    #[serde(default, skip_serializing_if = "Quotas::says_nothing")]
    pub quota: Quotas,
    /// What is kept of jobs that are over.
    #[serde(default, skip_serializing_if = "Retention::says_nothing")]
    pub retention: Retention,
    /// In which order jobs of different users wait.
    #[serde(default, skip_serializing_if = "Shares::says_nothing")]
    pub shares: Shares,
    /// Programs that each node runs before and after jobs.
    #[serde(default, skip_serializing_if = "Hooks::says_nothing")]
    pub hooks: Hooks,
    /// A program that looks whether a node is in order.
    #[serde(default, skip_serializing_if = "Health::says_nothing")]
    pub health: Health,
    /// What users see of others' jobs.
    #[serde(default, skip_serializing_if = "Privacy::says_nothing")]
    pub privacy: Privacy,
    /// Where browsers see the cluster.
    #[serde(default, skip_serializing_if = "Web::says_nothing")]
    pub web: Web,
    /// How heads use etcd.
    #[serde(default, skip_serializing_if = "EtcdAccess::says_nothing")]
    pub etcd: EtcdAccess,
    /// The nodes; a node's number is its place here.
    pub nodes: Vec<NodeConfig>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such cluster.
    #[error(
        "there is no cluster in {0}; make one with `kumi cluster up` or name another with --cluster"
    )]
    Missing(PathBuf),
    /// The file exists and cannot be read or written.
    #[error(
        "{path} cannot be used: {source}; check its owner and permissions, and whether there is room on its disk"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: std::io::Error,
    },
    /// Not TOML, or keys that are wrong, missing or unknown.
    #[error(
        "{path} is not a valid cluster configuration: {message}; correct it or run `kumi cluster init` again"
    )]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// Well formed, but it cannot work.
    #[error("{0}; correct it in cluster.toml or on the command line")]
    Invalid(String),
    /// It could not be turned into text.
    #[error("the configuration cannot be written down: {0}")]
    Encode(#[from] toml::ser::Error),
}

impl ConfigError {
    /// The exit code for it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Missing(_) => ExitCode::Unavailable,
            Self::Io { .. } => ExitCode::Io,
            Self::Syntax { .. } | Self::Invalid(_) => ExitCode::BadConfig,
            Self::Encode(_) => ExitCode::Internal,
        }
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Invalid(message.into()))
}

/// Checks the name of a cluster.
///
/// # Errors
/// When it is not 1 to 24 of `a-z`, `0-9` and `-`, or begins or ends with `-`.
pub fn check_name(name: &str) -> Result<(), ConfigError> {
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        Ok(())
    } else {
        invalid(format!(
            "the cluster name {name:?} is not 1 to {MAX_NAME} of a-z, 0-9 and - (not first or last)"
        ))
    }
}

impl ClusterConfig {
    /// Reads and checks the configuration in cluster directory `dir`.
    ///
    /// # Errors
    /// When there is none, it cannot be read, or it cannot work.
    pub fn load(dir: &Path) -> Result<Self, ConfigError> {
        let path = paths::config(dir);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ConfigError::Missing(dir.to_owned()));
            }
            Err(source) => return Err(ConfigError::Io { path, source }),
        };
        Self::parse(&text, &path)
    }

    /// Reads and checks the text of a configuration; `path` is for messages.
    ///
    /// # Errors
    /// When it is malformed or cannot work.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| match policy::in_place_of_mode(text) {
                Some(write) => ConfigError::Invalid(write),
                None => ConfigError::Syntax {
                    path: path.to_owned(),
                    message: error.to_string().trim_end().to_owned(),
                },
            })?;
        config.validate()?;
        Ok(config)
    }

    /// Checks and writes the configuration into `dir`, replacing it in one step.
    ///
    /// # Errors
    /// When it cannot work or cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ConfigError> {
        self.validate()?;
        let path = paths::config(dir);
        let text = toml::to_string_pretty(self)?;
        let draft = path.with_extension("toml.new");
        let written = durable::replace(&path, &draft, std::fs::write(&draft, text));
        written.map_err(|source| ConfigError::Io { path, source })
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// The first thing that does not, as a sentence.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_name(&self.name)?;
        let ranges = [
            ("fan_out", u64::from(self.fan_out), 1, 1024),
            ("max_jobs_per_processor", self.max_jobs_per_processor.into(), 1, 1024),
            ("max_ranks_per_processor", self.max_ranks_per_processor.into(), 1, 4096),
            ("max_priority", self.max_priority.into(), 1, MOST_PRIORITY.into()),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return invalid(format!("{key} is {value}, which is not between {low} and {high}"));
            }
        }
        if self.slice_us != 0 && !(MIN_SLICE_US..=MAX_SLICE_US).contains(&self.slice_us) {
            return invalid(format!(
                "slice_us is {}, which is neither 0 nor between {MIN_SLICE_US} and {MAX_SLICE_US}",
                self.slice_us
            ));
        }
        self.check_absence()?;
        idle::check_ms(self.idle_after_ms).or_else(invalid)?;
        policy::check(&self.policy)?;
        if self.head.port() == 0 || !node::can_be_reached(self.head.ip()) {
            return invalid(format!("head {} is not an address others can reach", self.head));
        }
        for text in [&self.metrics, &self.head_metrics].into_iter().flatten() {
            listening_address(text, LOCALHOST)?;
        }
        self.check_memory()?;
        self.job.validate(self.max_priority)?;
        self.limits.validate()?;
        self.quota.validate()?;
        self.retention.validate(&self.quota)?;
        self.shares.validate()?;
        self.hooks.validate()?;
        self.health.validate()?;
        self.web.validate()?;
        self.check_state()?;
        self.validate_nodes()
    }

    fn validate_nodes(&self) -> Result<(), ConfigError> {
        if self.members().next().is_none() || self.nodes.len() > MAX_NODES {
            return invalid(format!(
                "the cluster has {} nodes and had {} more, which is not between 1 and {MAX_NODES}: numbers of removed nodes are \
                 not given again",
                self.members().count(),
                self.removed().len()
            ));
        }
        node::check_links(self)?;
        self.check_places()?;
        devices::check_names(self.members().map(|(_, node)| &node.devices))?;
        let mut names = BTreeSet::new();
        let mut endpoints: BTreeSet<_> = self.heads().into_iter().collect();
        for (_, node) in self.members() {
            if node.name.is_empty() || node.name.len() > 64 || node.name.contains(char::is_control)
            {
                return invalid(format!(
                    "the node name {:?} is empty, too long or has control characters",
                    node.name
                ));
            }
            if !names.insert(&node.name) {
                return invalid(format!("the node name {:?} is used twice", node.name));
            }
            if node.port == 0 || !node::can_be_reached(node.address) {
                return invalid(format!(
                    "node {:?} has {}, which is not an address others can reach",
                    node.name,
                    node.endpoint()
                ));
            }
            if !endpoints.insert(node.endpoint()) {
                return invalid(format!(
                    "{} of node {:?} is used twice",
                    node.endpoint(),
                    node.name
                ));
            }
            users::validate(node)?;
            node.check_resources()?;
            let cpus: BTreeSet<_> = node.cpus.iter().collect();
            if cpus.len() != node.cpus.len() || node.cpus.iter().any(|&cpu| cpu >= 8192) {
                return invalid(format!(
                    "the cpus of node {:?} are repeated or too large",
                    node.name
                ));
            }
        }
        Ok(())
    }

    /// How long slices are.
    pub fn slice(&self) -> SliceLength {
        match self.slice_us {
            0 => SliceLength::Auto,
            slice_us => SliceLength::Fixed(slice_us * 1_000),
        }
    }

    /// How ranks of a node send to other nodes.
    pub fn wire_of(&self, node: &NodeConfig) -> WireSetting {
        node.wire.unwrap_or(self.wire)
    }

    /// Number of nodes, with those that were removed.
    pub fn node_count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// The configuration of `node`.
    ///
    /// # Errors
    /// When the cluster has no such node.
    pub fn node(&self, node: NodeId) -> Result<&NodeConfig, ConfigError> {
        let found = usize::try_from(node.0).ok().and_then(|index| self.nodes.get(index));
        let name = &self.name;
        match found {
            Some(found) if !found.removed => Ok(found),
            Some(_) => invalid(format!("node {node} was removed from cluster {name}")),
            None => invalid(format!(
                "there is no node {node}: cluster {name} has nodes 0 to {}",
                self.nodes.len() - 1
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const GOOD: &str = r#"
name = "default"
kind = "local"
head = "10.77.3.1:7700"
slice_us = 1000
policy = "os"
owner_uid = 1000
[[nodes]]
name = "node0"
address = "10.77.3.1"
port = 7701
cpus = [0]
netns = "kumi-default-0"
[[nodes]]
name = "node1"
address = "10.77.3.2"
port = 7701
"#;

    pub(super) fn parse(text: &str) -> Result<ClusterConfig, ConfigError> {
        ClusterConfig::parse(text, Path::new("cluster.toml"))
    }

    #[test]
    fn reads_what_it_writes() {
        let config = parse(GOOD).unwrap();
        assert_eq!(config.slice(), SliceLength::Fixed(1_000_000));
        let unset = parse(&GOOD.replace("slice_us = 1000\n", "")).unwrap();
        assert_eq!(unset.slice(), SliceLength::Auto);
        assert_eq!(parse(&GOOD.replace("slice_us = 1000", "slice_us = 0")).unwrap(), unset);
        assert_eq!((config.fan_out, config.encrypt), (16, false));
        assert_eq!((&*config.policy, config.max_priority), ("os", 4));
        let easy = parse(&GOOD.replace("\"os\"", "\"easy\"")).unwrap();
        assert_eq!(easy.policy, "easy");
        let older = parse(&format!("max_jobs_per_node = 5{GOOD}")).unwrap();
        assert_eq!(older.max_jobs_per_processor, 5);
        assert!(parse(&format!("encrypt = true{GOOD}")).unwrap().encrypt);
        let own = |config: &ClusterConfig, node| config.wire_of(&config.nodes[node]);
        assert_eq!(own(&config, 0), WireSetting::Udp, "off unless asked for");
        let mixed = GOOD.replace("port = 7701\ncpus", "port = 7701\nwire = \"xdp\"\ncpus");
        let mixed = parse(&format!("wire = \"auto\"{mixed}")).unwrap();
        assert_eq!([own(&mixed, 0), own(&mixed, 1)], [WireSetting::Xdp, WireSetting::Auto]);
        assert_eq!(config.job.to_env(), []);
        assert_eq!(config.memory_reserve_of(20 << 30), 1 << 30);
        assert_eq!([1 << 20, 1 << 40].map(|all| config.memory_reserve_of(all)), [1 << 20, 4 << 30]);
        let spare = parse(&format!("memory_reserve = \"3MiB\"{GOOD}")).unwrap();
        assert_eq!(spare.memory_reserve_of(20 << 30), 3 << 20);
        assert_eq!((config.daemon_memory(), spare.daemon_memory()), (2 << 30, 2 << 30));
        let small = parse(&format!("daemon_memory = \"256MiB\"{GOOD}")).unwrap();
        assert_eq!(small.daemon_memory(), 256 << 20);
        assert_eq!(config.nodes[1].cpus, Vec::<usize>::new());
        let dir = tempfile::tempdir().unwrap();
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        assert!(config.node(NodeId(2)).unwrap_err().to_string().contains("nodes 0 to 1"));
    }

    #[test]
    fn figures_are_served_where_it_says() {
        let mut config = parse(GOOD).unwrap();
        let of = |config: &ClusterConfig, node, told| {
            config.metrics_of(NodeId(node), told).unwrap().map(|address| address.to_string())
        };
        assert_eq!(of(&config, 0, None), None, "off unless asked for");
        assert_eq!(of(&config, 1, Some("9464")).as_deref(), Some("10.77.3.2:9464"));
        config.metrics = Some("0.0.0.0:9000".to_owned());
        assert_eq!(of(&config, 1, None).as_deref(), Some("0.0.0.0:9000"));
        config.kind = ClusterKind::Hosts;
        assert_eq!(of(&config, 1, Some("9464")).as_deref(), Some("127.0.0.1:9464"));
        assert!(config.metrics_of(NodeId(0), Some("localhost:1")).is_err());
        let head = |config: &ClusterConfig, told| {
            config.metrics_of_head(told).unwrap().map(|address| address.to_string())
        };
        assert_eq!(head(&config, None), None, "off unless asked for");
        assert_eq!(head(&config, Some("9465")).as_deref(), Some("127.0.0.1:9465"));
        config.kind = ClusterKind::Local;
        config.head_metrics = Some("9466".to_owned());
        assert_eq!(head(&config, None), Some(format!("{}:9466", config.head.ip())));
        assert!(config.metrics_of_head(Some("nowhere")).is_err());
    }

    #[test]
    fn a_missing_cluster_is_not_a_broken_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = ClusterConfig::load(dir.path()).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Unavailable);
        std::fs::write(paths::config(dir.path()), "name = 3").unwrap();
        let error = ClusterConfig::load(dir.path()).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::BadConfig);
    }

    #[test]
    fn says_what_cannot_work() {
        for (from, to, says) in [
            ("slice_us = 1000", "slice_us = 249", "slice_us is 249"),
            ("name = \"default\"", "name = \"De fault\"", "cluster name"),
            ("name = \"node1\"", "name = \"node0\"", "used twice"),
            ("address = \"10.77.3.2\"", "address = \"10.77.3.1\"", "used twice"),
            ("port = 7701\ncpus = [0]", "port = 7700\ncpus = [0]", "used twice"),
            ("cpus = [0]", "cpus = [0, 0]", "cpus of node"),
            ("owner_uid = 1000", "owner = 1000", "unknown field"),
            ("address = \"10.77.3.2\"", "address = \"0.0.0.0\"", "not an address"),
            ("policy = \"os\"", "policy = \"esy\"", "did you mean easy?"),
            ("policy = \"os\"", "policy = \"dqt+migrate\"", "needs checkpoints"),
            ("owner_uid = 1000", "max_priority = 101", "max_priority is 101"),
            ("owner_uid = 1000", "wire = \"fast\"", "unknown variant `fast`"),
            ("owner_uid = 1000", "metrics = \"everywhere\"", "neither a port"),
            ("owner_uid = 1000", "memory_reserve = \"much\"", "is not a size"),
            ("owner_uid = 1000", "daemon_memory = \"much\"", "daemon_memory is wrong"),
            ("owner_uid = 1000", "daemon_memory = \"255MiB\"", "less than 256MiB"),
            ("cpus = [0]", "memory = \"0\"", "memory of node \"node0\""),
            ("owner_uid = 1000", "metrics = \"127.0.0.1:0\"", "neither a port"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(&GOOD.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{to}: {error}");
            assert_eq!(error.exit_code(), ExitCode::BadConfig);
        }
    }
}
