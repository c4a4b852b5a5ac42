//! What the broker is told, and what it says.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A moment, in nanoseconds since one that the caller has chosen. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Nanoseconds of a second.
    pub const SECOND: u64 = 1_000_000_000;

    /// This much later.
    #[must_use]
    pub fn after_seconds(self, seconds: f64) -> Self {
        // A cast of a float saturates, and makes 0 of what is no number.
        #[allow(clippy::cast_precision_loss)]
        let nanos = (seconds.max(0.0) * Self::SECOND as f64) as u64;
        Self(self.0.saturating_add(nanos))
    }

    /// Seconds from `earlier` until now; 0 if it is later.
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

/// A place of the network: whoever is there shares its path to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

/// Whom shares are fair between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// Who called, and may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A call. The caller numbers calls, and never two alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a server is and offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Where it is.
    pub site: SiteId,
    /// Names of its routines.
    pub routines: Vec<String>,
    /// Most calls it is given at a time; 0 counts as 1.
    pub limit: u32,
    /// Its processors; 0 counts as 1.
    pub processors: u32,
    /// Operations that one of them does in a second; 0 or less: not known.
    pub speed: f64,
}

/// A path between two sites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second from the client's site to the server's.
    pub out: f64,
    /// Bytes per second back.
    pub back: f64,
    /// Seconds that a byte takes one way.
    pub latency: f64,
}

/// Inputs of a call that a server has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldInput {
    /// Which.
    pub server: ServerId,
    /// How many bytes of the call's `bytes_out`.
    pub bytes: u64,
}

/// A call as it is submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is called.
    pub routine: String,
    /// Who calls.
    pub client: ClientId,
    /// On whose account.
    pub user: UserId,
    /// Where the client is.
    pub site: SiteId,
    /// Bytes of the arguments.
    pub bytes_out: u64,
    /// Bytes of the results.
    pub bytes_back: u64,
    /// Operations by the routine's `CalcOrder`; `None`: not said.
    pub operations: Option<f64>,
    /// 0 to [`Request::MOST_PRIORITY`]; more counts as that. It orders a user's own calls: a call overtakes
    /// earlier ones of its user, at most [`Request::LEAP`] for each step it is above them.
    pub priority: u8,
    /// Two runs have the effect of one, so a lost one may be started again.
    pub idempotent: bool,
    /// Whoever has not ended by then is given up.
    pub deadline: Option<Time>,
    /// Inputs that lie at servers.
    pub held: Vec<HeldInput>,
}

impl Request {
    /// The highest priority.
    pub const MOST_PRIORITY: u8 = 9;
    /// How many earlier calls of its user a call may overtake for each step of priority.
    pub const LEAP: u64 = 16;
}

/// What happened. An event about an attempt that is over already is counted and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A server is there. If it was before, it has begun anew, and what ran there is lost.
    Joined(ServerId, Offer),
    /// A server takes no new calls; what runs there ends as usual.
    Left(ServerId),
    /// A server is gone, with what ran there.
    ServerLost(ServerId),
    /// A server told its load: processors that others than our calls keep busy, and the speed as in [`Offer`].
    Load(ServerId, f64, f64),
    /// The path from a client's site to a server's was measured.
    Network(SiteId, SiteId, Link),
    /// What was measured of this path is not known any more.
    Forgotten(SiteId, SiteId),
    /// A user's share of what there is; 0 counts as 1, which is everybody's unless it is told.
    Weight(UserId, u32),
    /// A call. One with the number of a call that is not over is counted and ignored.
    Submit(CallId, Request),
    /// The arguments have arrived, and the routine runs.
    Started(CallId, u32),
    /// The call has ended and its slot is free; seconds of processor time that the routine took, NaN: not known.
    Ended(CallId, u32, f64),
    /// The attempt came to nothing and its slot is free.
    Failed(CallId, u32, Failure),
    /// Whoever called does not want it any more.
    Cancel(CallId),
    /// The server has stopped the attempt and its slot is free.
    Cancelled(CallId, u32),
    /// A client is gone; its calls are cancelled.
    ClientLost(ClientId),
    /// Time has passed ([`crate::Broker::next_time`]).
    Tick,
    /// A server that was there before is there again, after its connection was lost; what ran there still does.
    Rejoined(ServerId, Offer),
    /// A call that runs on a server as this attempt, from before the broker was there. It is ignored if the server
    /// or the routine is not known.
    Restored(CallId, Request, ServerId, u32),
    /// A call of a routine took so many seconds of a server's processor for this size (operations, or bytes where the
    /// routine does not say), before the broker was there.
    Learned(ServerId, String, f64, f64),
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server was not reached or refused before any argument came: the routine surely did not run.
    NotBegun,
    /// As [`Failure::NotBegun`], and the place was kept for a client that did not come for it: the next attempt is another turn
    /// of its user. Otherwise a user could hold more places than others by asking for them alone.
    Unclaimed,
    /// The connection broke, or the routine's process: it may have run, wholly or in part.
    Broken,
    /// The routine itself says so, which is an answer.
    Routine,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The client shall call this server; the number tells attempts apart, the first is 1.
    Start(CallId, ServerId, u32),
    /// Nobody has room for the call, perhaps again, after an attempt that came to nothing; this many wait, with it.
    Queued(CallId, usize),
    /// The server shall stop the attempt.
    Stop(CallId, ServerId, u32),
    /// The call is over. Every call that was submitted is told this exactly once.
    Done(CallId, Outcome),
    /// A server's offer is not taken, because it names too much.
    Declined(ServerId),
}

/// How a call came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has run.
    Completed,
    /// It failed, and is not tried (again).
    Failed(ServerId, Failure),
    /// Its server is gone. It may have run, and was not marked idempotent or tried too often already.
    Lost(ServerId),
    /// It was cancelled, by itself or with its client.
    Cancelled,
    /// Its deadline passed after it was started.
    Expired,
    /// It was never started, or not again.
    Rejected(RejectReason),
}

/// Why a call is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// Nobody offers a routine of that name; names that look like it.
    UnknownRoutine(Vec<String>),
    /// Those who offered the routine are gone, and nobody has come for long enough.
    NoServer,
    /// Too many calls wait.
    QueueFull,
    /// Too many calls of this user wait.
    UserQueueFull,
    /// The deadline passed.
    Deadline,
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
        }
    }
}
