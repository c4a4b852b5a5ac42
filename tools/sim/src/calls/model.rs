//! Model of sites, links, servers and clients, as JSON describes it.

use serde::{Deserialize, Serialize};

/// Everything. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Where clients are.
    pub sites: Vec<Site>,
    /// What computes.
    pub servers: Vec<Server>,
    /// What is called.
    pub routines: Vec<Routine>,
    /// Who calls.
    pub clients: Vec<Clients>,
    /// The broker's policy, by name.
    pub policy: String,
    /// What the metaserver takes for each call; it does one at a time.
    #[serde(default)]
    pub metaserver_s: f64,
    /// Most calls that wait at the metaserver; one more is turned away. Not given: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_waiting: Option<usize>,
}

/// A place of clients, who share its links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Its ways to servers. A server that none of them leads to is reached in no time.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A way to servers: a queue there and a queue back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Where it leads; none: to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Bytes per second each way.
    pub bandwidth: f64,
    /// From one end to the other, besides.
    #[serde(default)]
    pub latency_s: f64,
    /// How those who use it get their parts.
    #[serde(default)]
    pub discipline: Discipline,
    /// By what law the time of a transfer scatters around size over bandwidth.
    #[serde(default)]
    pub law: Law,
    /// Share of the bandwidth that others use (Poisson arrivals).
    #[serde(default)]
    pub background: f64,
    /// Mean size of what the others send.
    #[serde(default = "background_bytes")]
    pub background_bytes: f64,
}

fn background_bytes() -> f64 {
    100_000.0
}

/// How a queue serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// All who are there get equal parts.
    #[default]
    Ps,
    /// First come, first served.
    Fcfs,
}

/// How a quantity scatters around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Not at all.
    #[default]
    Constant,
    /// Exponentially.
    Exponential,
    /// Two exponential laws with the coefficient of variation given, which is above 1.
    Hyper(f64),
}

/// A computer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// A call uses one of them.
    pub processors: u32,
    /// Operations per second of a processor.
    pub speed: f64,
    /// What happens if there are more calls than processors.
    #[serde(default)]
    pub discipline: Discipline,
    /// Most calls that the broker gives it at a time; not given: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Processor time that each call costs besides its operations.
    #[serde(default)]
    pub overhead_s: f64,
    /// What it offers; none: everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routines: Vec<String>,
}

/// What can be called.
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
    /// Its mean work.
    pub operations: f64,
    /// How the work scatters. What the broker is told is the mean.
    #[serde(default)]
    pub law: Law,
}

impl Routine {
    /// Linpack of order `n`: 8n² + 20n bytes and 2/3n³ + 2n² operations (Ninf paper, section 3.2). The matrix and
    /// the right side go there, solution and pivots come back.
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

    /// 2^m pairs of the kernel EP, which are 2^(m+1) operations by the paper's count (section 3.3).
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

/// Clients that behave alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Name of their site.
    pub site: String,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Whose account their calls are on; clients of one user share the user's turns.
    #[serde(default)]
    pub user: u32,
    /// What they call: one of these, each as likely.
    pub routines: Vec<String>,
    /// When they call.
    pub source: Source,
}

fn one() -> u32 {
    1
}

/// When a client calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Every so many seconds with this probability, unless its last call is still under way (section 3.1).
    Step {
        /// The interval.
        every_s: f64,
        /// The probability.
        probability: f64,
    },
    /// After the last call and a time to think, exponential with this mean.
    Think(f64),
    /// So many calls a second, whatever becomes of them.
    Poisson(f64),
    /// These calls.
    List(Vec<Task>),
}

/// A call of a list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// When.
    pub at_s: f64,
    /// Its work, as a multiple of the routine's mean.
    pub work: f64,
    /// The number of the server, counted from 0, that it must go to; not given: whatever the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<usize>,
}
