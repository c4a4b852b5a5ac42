//! Model of sites, links, servers and clients, as JSON describes it.

use serde::{Deserialize, Serialize};

/// A whole model. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Places of clients.
    pub sites: Vec<Site>,
    /// Computers.
    pub servers: Vec<Server>,
    /// Routines.
    pub routines: Vec<Routine>,
    /// Groups of clients.
    pub clients: Vec<Clients>,
    /// The broker's policy, by name.
    pub policy: String,
    /// Time of the metaserver for each call; it handles one at a time.
    #[serde(default)]
    pub metaserver_s: f64,
    /// Most calls that wait at the metaserver; further ones are refused. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_waiting: Option<usize>,
}

/// A place of clients, which share its links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Its links to servers. A server without a link is reached in no time.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A link to servers: a queue in each direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The servers that it leads to; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Bytes per second in each direction.
    pub bandwidth: f64,
    /// Latency from one end to the other, in addition.
    #[serde(default)]
    pub latency_s: f64,
    /// How transfers share the link.
    #[serde(default)]
    pub discipline: Discipline,
    /// Distribution of a transfer's time; its mean is size over bandwidth.
    #[serde(default)]
    pub law: Law,
    /// Share of the bandwidth that background traffic uses (Poisson arrivals).
    #[serde(default)]
    pub background: f64,
    /// Mean size of the background transfers.
    #[serde(default = "background_bytes")]
    pub background_bytes: f64,
}

fn background_bytes() -> f64 {
    100_000.0
}

/// Discipline of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// All jobs get equal parts.
    #[default]
    Ps,
    /// First come, first served.
    Fcfs,
}

/// Distribution of a quantity around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Constant.
    #[default]
    Constant,
    /// Exponential.
    Exponential,
    /// Two exponential phases with the given coefficient of variation, which is above 1.
    Hyper(f64),
}

/// A computer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Number of processors; a call uses one.
    pub processors: u32,
    /// Operations per second of a processor.
    pub speed: f64,
    /// Discipline when there are more calls than processors.
    #[serde(default)]
    pub discipline: Discipline,
    /// Most calls that the broker gives it at a time; default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Processor time that each call costs in addition.
    #[serde(default)]
    pub overhead_s: f64,
    /// Routines that it offers; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routines: Vec<String>,
}

/// A routine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routine {
    /// Its name.
    pub name: String,
    /// Size of the arguments.
    #[serde(default)]
    pub bytes_out: u64,
    /// Size of the results.
    #[serde(default)]
    pub bytes_back: u64,
    /// Its mean number of operations.
    pub operations: f64,
    /// Distribution of the work. The broker knows only the mean.
    #[serde(default)]
    pub law: Law,
}

impl Routine {
    /// Linpack of order `n`: 8n² + 20n bytes and 2/3n³ + 2n² operations (Ninf paper, section 3.2). Matrix and
    /// right side are sent; solution and pivots come back.
    #[must_use]
    pub fn linpack(n: u64) -> Self {
        #[allow(clippy::cast_precision_loss)]
        let order = n as f64;
        Self {
            name: format!("linpack-{n}"),
            bytes_out: 8 * n * n + 8 * n,
            bytes_back: 12 * n,
            operations: 2.0 / 3.0 * order.powi(3) + 2.0 * order * order,
            law: Law::Constant,
        }
    }

    /// Kernel EP with 2^m pairs, which are 2^(m+1) operations by the paper's count (section 3.3).
    #[must_use]
    pub fn ep(m: i32) -> Self {
        Self {
            name: format!("ep-{m}"),
            bytes_out: 64,
            bytes_back: 128,
            operations: 2f64.powi(m + 1),
            law: Law::Constant,
        }
    }
}

/// Clients with the same behaviour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Name of their site.
    pub site: String,
    /// Number of clients.
    #[serde(default = "one")]
    pub count: u32,
    /// User that the calls belong to; clients of one user share the user's turns.
    #[serde(default)]
    pub user: u32,
    /// Routines to call, each equally likely.
    pub routines: Vec<String>,
    /// Times of calls.
    pub source: Source,
}

fn one() -> u32 {
    1
}

/// Rule for the times of a client's calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// At regular intervals with this probability, unless the last call is still in progress (section 3.1).
    Step {
        /// The interval.
        every_s: f64,
        /// The probability.
        probability: f64,
    },
    /// After the last call and an exponential time to think with this mean.
    Think(f64),
    /// A Poisson stream of this many calls a second, whether or not earlier calls have ended.
    Poisson(f64),
    /// A list of calls.
    List(Vec<Task>),
}

/// A call of a list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The time.
    pub at_s: f64,
    /// Its work, as a multiple of the routine's mean.
    pub work: f64,
    /// Number of the server that must run it, from 0; default: the policy chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<usize>,
}
