//! A call through a metaserver, from the first request for a place to its one end.
//!
//! The machine has no clock, no sockets and no arguments. Its driver says what has happened, with the time, and does what
//! [`Call::poll`] asks for. `P` is a place: two of them are equal if they are the same attempt at the same server. `E` is an error.
//!
//! ```text
//!            Placed              Sent
//!  waiting ─────────► connecting ────► running ──Placed, RequestEnded──► leaving ──Left──┐
//!     ▲  ▲               │               │  ▲                              │  │          │
//!     │  └──NotBegun─────┴───────────────┤  └───────────Stays──────────────┘  │          │
//!     │     Broken                       └──Done, Failed──► over ◄────────────┘          │
//!     └─────────────────────── the place that the metaserver has named meanwhile ────────┘
//! ```
//!
//! Beside it goes the request at the metaserver. A metaserver that was asked while an attempt ran *rejoins* it: if it names
//! the same place, it knows the attempt. If it names another, it does not, and the call goes on without a metaserver.
//!
//! A call that is *bound* has arguments at one server. It runs there or nowhere.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;

use alloc::boxed::Box;

pub use call::Call;

/// Nanoseconds of a clock that only goes forward.
pub type Nanos = u64;

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The routine may run twice.
    pub idempotent: bool,
    /// How long after its first failed attempt the call may begin further ones. `None`: as long as the metaserver places it.
    pub retry_time: Option<Nanos>,
}

/// How an attempt ended, for the metaserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call has run.
    Done,
    /// The routine has certainly not begun.
    NotBegun,
    /// The routine may have run in part.
    Broken,
    /// The call failed, and would also fail elsewhere.
    Failed,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<P, E> {
    /// A metaserver was asked for a place.
    Asked,
    /// The metaserver names a place.
    Placed(P),
    /// The metaserver has ended the request.
    RequestEnded(E),
    /// The metaserver that was asked is lost, or does not lead.
    MetaserverLost,
    /// No metaserver was found in the time that the driver has for it.
    NoMetaserver(E),
    /// From now on arguments of the attempt may have arrived.
    Sent,
    /// The attempt has run, and the driver has its result.
    Done,
    /// The attempt has failed, and the call would also fail elsewhere.
    Failed(E),
    /// The attempt has failed, and has certainly not begun.
    NotBegun(E),
    /// The attempt has failed, and may have run in part.
    Broken(E),
    /// The attempt is left, as [`Action::Leave`] asked.
    Left,
    /// The attempt cannot be left: its arguments are overwritten, or the routine has called a function of the program.
    Stays,
    /// The program ends the call, or its time is over.
    Stopped(E),
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<P, E> {
    /// Ask a metaserver for a place, until [`Event::Asked`]. A running attempt must not wait for that.
    Ask,
    /// Connect to the server of this place and send the call there.
    Start(P),
    /// Leave the attempt, and say [`Event::Left`] or [`Event::Stays`].
    Leave,
    /// Tell the metaserver how this attempt ended, on the request if there is one.
    Report(P, Outcome),
    /// Give up the request. A place that the metaserver has named on it goes back.
    CancelRequest,
    /// Forget the request: the metaserver ends it by itself.
    CloseRequest,
    /// The call is over. Nothing follows.
    End(CallEnd<E>),
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd<E> {
    /// The result of the last attempt is that of the call.
    Done,
    /// This error of the last attempt is that of the call.
    Failed(E),
    /// The call has no attempt any more, and gets no other. [`Call::tried`] says what happened before.
    GivenUp(GiveUpReason<E>),
}

/// Why a call gets no further attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GiveUpReason<E> {
    /// The metaserver has ended it, none was found, or the program has stopped it.
    Because(E),
    /// An attempt may have run, and no metaserver knows it.
    Unknown,
    /// [`Rules::retry_time`] is over.
    RetryTime,
    /// The metaserver has named another server than the one to which the call is [bound](Call::bound).
    Elsewhere,
}

/// Why an attempt was not the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryReason<E> {
    /// The server failed.
    Failed(Box<E>),
    /// The metaserver has moved or ended the call meanwhile.
    Superseded,
}
