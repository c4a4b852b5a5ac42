//! Events and actions of the broker, and the types in them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A point in time, in nanoseconds since an origin that the caller chooses. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Nanoseconds in a second.
    pub const SECOND: u64 = 1_000_000_000;

    /// The time this many seconds later.
    #[must_use]
    pub fn after_seconds(self, seconds: f64) -> Self {
        // A cast of a float saturates, and turns NaN into 0.
        #[allow(clippy::cast_precision_loss)]
        let nanos = (seconds.max(0.0) * Self::SECOND as f64) as u64;
        Self(self.0.saturating_add(nanos))
    }

    /// Seconds from `earlier` to this time; 0 if `earlier` is later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let seconds = self.0.saturating_sub(earlier.0) as f64 / Self::SECOND as f64;
        seconds
    }
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// A location in the network. All members of a site share its paths to other sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

/// A user. The queue is fair between users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// The client of a call, whose connection may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A call. The caller chooses unique numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A server with its routines and capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The server's site.
    pub site: SiteId,
    /// Names of its routines.
    pub routines: Vec<String>,
    /// Most calls at a time; 0 counts as 1.
    pub limit: u32,
    /// Number of processors; 0 counts as 1.
    pub processors: u32,
    /// Operations per second of one processor; 0 or less: not known.
    pub speed: f64,
}

/// A path between two sites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second from the client's site to the server's.
    pub out: f64,
    /// Bytes per second back.
    pub back: f64,
    /// Latency of one way, in seconds.
    pub latency: f64,
}

/// Input bytes of a call that a server holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldInput {
    /// The server.
    pub server: ServerId,
    /// Number of bytes of the call's `bytes_out`.
    pub bytes: u64,
}

/// A call as it is submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The routine.
    pub routine: String,
    /// The client.
    pub client: ClientId,
    /// The user.
    pub user: UserId,
    /// The client's site.
    pub site: SiteId,
    /// Bytes of the arguments.
    pub bytes_out: u64,
    /// Bytes of the results.
    pub bytes_back: u64,
    /// Number of operations from the routine's `CalcOrder`; `None`: not known.
    pub operations: Option<f64>,
    /// Priority among the user's own calls, 0 to [`Request::MOST_PRIORITY`]; more counts as that. A call overtakes at most
    /// [`Request::LEAP`] earlier calls of its user for each step of priority above them.
    pub priority: u8,
    /// Two runs have the effect of one, so a lost call may be started again.
    pub idempotent: bool,
    /// The broker gives up the call at this time.
    pub deadline: Option<Time>,
    /// Inputs that servers hold already.
    pub held: Vec<HeldInput>,
    /// The only server at which the call may run, because it has inputs that are nowhere else. An attempt that may have begun
    /// there is its last one.
    pub bound: Option<ServerId>,
}

impl Request {
    /// The highest priority.
    pub const MOST_PRIORITY: u8 = 9;
    /// Most earlier calls of its user that a call may overtake for each step of priority.
    pub const LEAP: u64 = 16;
}

/// An event. One about an attempt that is over already is counted and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A server has joined. If it was known, it has restarted, and its calls are lost.
    Joined(ServerId, Offer),
    /// A server accepts no new calls. Its running calls end as usual.
    Left(ServerId),
    /// The connection of a server is lost. It accepts no calls until [`Event::Rejoined`]; those that are bound to it wait.
    Away(ServerId),
    /// A server is lost, with its running calls.
    ServerLost(ServerId),
    /// A server reports processors that are busy with other work, and its speed as in [`Offer`].
    Load(ServerId, f64, f64),
    /// The path from a client's site to a server's was measured.
    Network(SiteId, SiteId, Link),
    /// The measurement of this path is out of date.
    Forgotten(SiteId, SiteId),
    /// The weight of a user's share; 0 counts as 1, the default.
    Weight(UserId, u32),
    /// A call is submitted. If its number belongs to an open call, it is counted and ignored.
    Submit(CallId, Request),
    /// The arguments have arrived, and the routine runs.
    Started(CallId, u32),
    /// The attempt has succeeded and its slot is free. The routine took this many seconds of processor time; NaN: not known.
    Ended(CallId, u32, f64),
    /// The attempt has failed and its slot is free.
    Failed(CallId, u32, Failure),
    /// The client cancels a call.
    Cancel(CallId),
    /// The server has stopped the attempt and its slot is free.
    Cancelled(CallId, u32),
    /// A client is lost; its calls are cancelled.
    ClientLost(ClientId),
    /// Time has passed ([`crate::Broker::next_time`]).
    Tick,
    /// A known server has connected again after its connection was lost. Its calls still run.
    Rejoined(ServerId, Offer),
    /// A call has run on a server, as this attempt, since before the broker started. It is ignored if the server or the
    /// routine is not known.
    Restored(CallId, Request, ServerId, u32),
    /// Before the broker started, a call of a routine took this many seconds of a server's processor for this size. The size
    /// is the number of operations, or of bytes if that is not known.
    Learned(ServerId, String, f64, f64),
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server was not reached, or refused before it received arguments: the routine certainly did not run.
    NotBegun,
    /// As [`Failure::NotBegun`], because the client did not use its placement. The next attempt costs another turn of its user;
    /// otherwise a user could occupy more slots than others with unused placements.
    Unclaimed,
    /// The connection broke, or the routine's process died: it may have run, wholly or in part.
    Broken,
    /// The routine itself reported a failure, which is an answer.
    Routine,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The client has to call this server, as this attempt; the first is 1.
    Start(CallId, ServerId, u32),
    /// No server has room for the call, possibly after a failed attempt. This many calls wait, including this one.
    Queued(CallId, usize),
    /// The server has to stop the attempt.
    Stop(CallId, ServerId, u32),
    /// The call is over. Every submitted call gets exactly one of these.
    Done(CallId, Outcome),
    /// The broker refuses a server because it offers too much.
    Declined(ServerId),
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The routine has run.
    Completed,
    /// The call failed and is not tried again.
    Failed(ServerId, Failure),
    /// Its server is lost and the call may have run. It was not idempotent, or had too many attempts.
    Lost(ServerId),
    /// The call was cancelled, or its client was lost.
    Cancelled,
    /// The deadline passed after a start.
    Expired,
    /// The call was not started (again).
    Rejected(RejectReason),
}

/// Why the broker rejects a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// No server offers a routine of this name; similar names.
    UnknownRoutine(Vec<String>),
    /// The servers of the routine are gone, and none has joined for too long.
    NoServer,
    /// Too many calls wait.
    QueueFull,
    /// Too many calls of this user wait.
    UserQueueFull,
    /// The deadline passed.
    Deadline,
    /// The server to which the call is bound is gone, or does not offer the routine.
    BoundServerGone,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRoutine(near) if near.is_empty() => {
                f.write_str("no server offers a routine of this name; ask for the list of routines")
            }
            Self::UnknownRoutine(near) => {
                f.write_str("no server offers a routine of this name; did you mean ")?;
                for (index, name) in near.iter().enumerate() {
                    write!(f, "{}{name}", if index == 0 { "" } else { " or " })?;
                }
                f.write_str("?")
            }
            Self::NoServer => f.write_str(
                "the servers that offer this routine are gone; call again when one is back",
            ),
            Self::QueueFull => f.write_str("too many calls wait; call again later"),
            Self::UserQueueFull => {
                f.write_str("too many of your calls wait; wait for some before you call again")
            }
            Self::Deadline => f.write_str(
                "the deadline passed before a server had room; give more time or call again later",
            ),
            Self::BoundServerGone => {
                f.write_str("the server that has its arrays is gone or does not offer the routine")
            }
        }
    }
}
