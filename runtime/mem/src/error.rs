//! Errors, as users see them.

use std::io;

use kumi_net::{AttachError, ChannelError};

/// Errors of every operation. The message says what happened and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program was not started as a rank of a job.
    #[error(
        "this program was not started by `kumi run`: start it with `kumi run -n RANKS PROGRAM`, or set KUMI_SINGLETON=1 to run it as a job of one rank"
    )]
    NotLaunched,
    /// The job's channel cannot be joined.
    #[error(transparent)]
    Attach(AttachError),
    /// This process is a fork of the rank.
    #[error("this process is a fork of a rank; only the rank itself can communicate")]
    Forked,
    /// This machine has refused for some seconds to send packets to a rank. Packets in flight arrive if
    /// the machine lets them go later.
    #[error(
        "rank {rank} cannot be reached: for seconds this machine has refused to send to it ({reason}); look at its firewall, routes and addresses"
    )]
    Unreachable {
        /// The rank.
        rank: u32,
        /// The kernel's reason.
        reason: io::Error,
    },
    /// No such rank.
    #[error("rank {rank} does not exist in a job of {ranks} ranks")]
    BadRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// No such member of a group.
    #[error("member {member} does not exist in a group of {members} members")]
    BadMember {
        /// The member asked for.
        member: u32,
        /// Members of the group.
        members: u32,
    },
    /// The members of a group to be made are not chosen right. No member has the group.
    #[error(
        "the group cannot be made as member {member} wants it: {what}; all members give the same list, and each member once"
    )]
    BadMembers {
        /// The member whose list it is.
        member: u32,
        /// The fault in it.
        what: &'static str,
    },
    /// Another member of a group has called another collective, or one with another root.
    #[error(
        "rank {rank} called {theirs} where this rank called {ours}, or with another root: all members call the same collectives in the same order; end the job"
    )]
    GroupDisagrees {
        /// The rank.
        rank: u32,
        /// Its collective.
        theirs: &'static str,
        /// The own one.
        ours: &'static str,
    },
    /// A rank has more groups than there can be.
    #[error("there are too many groups: drop some that are not needed any more")]
    TooManyGroups,
    /// A negative tag: those are the library's own.
    #[error("tag {tag} is negative: use 0 or more")]
    BadTag {
        /// The tag.
        tag: i32,
    },
    /// Outside of the target's window. Memory is untouched.
    #[error(
        "bytes {offset}..{offset}+{length} are outside of the window's {size} bytes at rank {rank}"
    )]
    OutOfBounds {
        /// The window's owner.
        rank: u32,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        length: u64,
        /// Bytes there are.
        size: u64,
    },
    /// The message is longer than the buffer; it has been consumed, its start is in the buffer.
    #[error(
        "the message has {needed} bytes, more than the buffer takes: give a larger one, or use recv_vec; the message is lost"
    )]
    Truncated {
        /// Bytes of the message.
        needed: usize,
    },
    /// The window does not grant the right to this operation. Memory is untouched.
    #[error(
        "the window at rank {rank} does not permit this operation: create it with the right to it"
    )]
    NoRight {
        /// The window's owner.
        rank: u32,
    },
    /// The target has no such window (any more).
    #[error(
        "rank {rank} does not have this window any more: synchronise before dropping a window that others use"
    )]
    BadWindow {
        /// The rank asked.
        rank: u32,
    },
    /// No such notification counter.
    #[error("notification counter {notify} does not exist: use 0 to 63")]
    BadNotify {
        /// The number.
        notify: u32,
    },
    /// An atomic operation at an offset that is not a multiple of its width.
    #[error(
        "offset {offset} is not a multiple of {width}, as atomic operations on {width} bytes need"
    )]
    BadAlignment {
        /// The offset.
        offset: u64,
        /// Bytes of the operation: 4 or 8.
        width: u64,
    },
    /// An operation that the type does not have.
    #[error("{operation} is for integers only")]
    BadOperation {
        /// The operation.
        operation: &'static str,
    },
    /// Lengths that do not fit together.
    #[error("{what} has {given} elements where {needed} are needed")]
    BadLength {
        /// The argument.
        what: &'static str,
        /// Its elements.
        given: usize,
        /// Elements needed.
        needed: usize,
    },
    /// No memory for a window or a message.
    #[error("no room for {bytes} bytes ({what})")]
    OutOfMemory {
        /// Bytes wanted.
        bytes: u64,
        /// The purpose.
        what: &'static str,
    },
    /// A rank, this one or another, could not make its part of a window, so nobody has it.
    #[error("rank {rank} could not make its part of the window: {reason}")]
    WindowRefused {
        /// The rank.
        rank: u32,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Earlier puts to this rank were refused there (found out after `put` had returned). Memory
    /// is untouched by them.
    #[error("{count} earlier put(s) to rank {rank} were refused there: {reason}")]
    Refused {
        /// The target.
        rank: u32,
        /// How many since the last report.
        count: u64,
        /// Why (the first one).
        reason: Refusal,
    },
    /// A message to the own rank that nobody receives and that is too large to keep.
    #[error(
        "a message of {bytes} bytes to the own rank is more than may be kept unread: receive first, or raise KUMI_UNEXPECTED_BYTES"
    )]
    Unread {
        /// Bytes of the message.
        bytes: usize,
    },
    /// A wait for more completions than there will be.
    #[error(
        "a wait for {at_least} puts would never end: only {begun} were begun with this completion and not refused"
    )]
    NeverDone {
        /// Puts begun and not refused.
        begun: u64,
        /// Puts waited for.
        at_least: u64,
    },
    /// A completion of another context than the window's.
    #[error("the completion belongs to another context than the window: make it by the window's")]
    ForeignCompletion,
    /// A peer sent what no peer sends, or the channel broke.
    #[error("communication has failed: {0}")]
    Fault(String),
    /// The kernel refused something.
    #[error("the kernel refused a communication call: {0}")]
    Io(#[from] io::Error),
    /// A FIFO or signal port cannot be made so.
    #[error("no FIFO or signal port can be made there: {what}")]
    BadFifo {
        /// The fault in it.
        what: &'static str,
    },
    /// No such FIFO, or it is a signal port (and the other way round).
    #[error(
        "rank {rank} has no such FIFO or signal port at offset {offset} of its window: make it and synchronise before others use it"
    )]
    NoFifo {
        /// The window's owner.
        rank: u32,
        /// The offset asked for.
        offset: u64,
    },
    /// The own FIFO is full, so that waiting for room would never end.
    #[error(
        "the FIFO at offset {offset} of rank {rank} is full and nobody would empty it: pop first"
    )]
    FifoFull {
        /// The FIFO's owner.
        rank: u32,
        /// Where it is.
        offset: u64,
    },
    /// A record that is longer than one frame carries. Nothing was appended.
    #[error("a record of {length} bytes is too long: send at most {most} at once")]
    RecordTooLong {
        /// Bytes of the record.
        length: usize,
        /// Bytes of the longest one in this job.
        most: usize,
    },
    /// The buffer is shorter than the record, which stays in the FIFO.
    #[error(
        "the next record has {needed} bytes, the buffer {given}: give a larger one; the record is still there"
    )]
    ShortBuffer {
        /// Bytes of the record.
        needed: usize,
        /// Bytes of the buffer.
        given: usize,
    },
    /// A record that this FIFO or port never has room for. Nothing was appended.
    #[error(
        "a record of {length} bytes never fits the FIFO at offset {offset} of rank {rank}: make it with a larger capacity, 8 bytes more than the longest record and a multiple of 8"
    )]
    FifoTooSmall {
        /// The FIFO's owner.
        rank: u32,
        /// Where it is.
        offset: u64,
        /// Bytes of the record.
        length: usize,
    },
    /// The memory of a FIFO is damaged: it holds an impossible record.
    #[error(
        "the FIFO at offset {offset} of rank {rank} has been written over: end the job and look for stray writes and puts there"
    )]
    FifoDamaged {
        /// The FIFO's owner.
        rank: u32,
        /// Where it is.
        offset: u64,
    },
    /// A signal handler panicked. The call that says so did nothing.
    #[error(
        "the handler of the signal port at offset {offset} panicked ({count} time(s) in all handlers since the last report): {text}"
    )]
    HandlerPanicked {
        /// Where the port is.
        offset: u64,
        /// How many panics there were since the last report.
        count: u64,
        /// The message of the first panic.
        text: String,
    },
    /// The program's own operation of a collective that is a request panicked. The other members may wait for this one.
    #[error(
        "the program's operation panicked in a collective: {text}; other ranks may wait for this one, so end the job"
    )]
    OperationPanicked {
        /// The message of the panic.
        text: String,
    },
    /// A service panicked, or a call of the program with it. It takes no more messages.
    #[error(
        "service {service} panicked: {text}; other ranks may wait for this one, so end the job"
    )]
    ServicePanicked {
        /// The service's number.
        service: u16,
        /// The message of the panic.
        text: String,
    },
    /// A reserved service that this rank serves already.
    #[error("service {service} is served already: end that one before")]
    ServiceTaken {
        /// The service's number.
        service: u16,
    },
    /// A message to a service that is too long. It was not sent.
    #[error("a message of {length} bytes to a service is too long: send at most {most} at once")]
    ServiceMessageTooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the longest one.
        most: usize,
    },
    /// A rank, this one or another, cannot serve a service, so nobody has it.
    #[error("rank {rank} could not make the service: {reason}")]
    ServiceRefused {
        /// The rank.
        rank: u32,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A program has made more services than there can be, those that are gone included.
    #[error("there have been too many services: keep them instead of making new ones")]
    TooManyServices,
    /// A handle whose request's end was told before, or that never named one.
    #[error(
        "request {handle:#x} is no longer there: its end was told before, or it was released; wait for each request once"
    )]
    StaleRequest {
        /// The handle's number.
        handle: u64,
    },
    /// A handle of another context.
    #[error("request {handle:#x} is another context's: wait for it by the context that began it")]
    ForeignRequest {
        /// The handle's number.
        handle: u64,
    },
    /// The same handle twice in one list. Nothing was waited for.
    #[error("request {handle:#x} is in the list twice: name each request once")]
    RequestListed {
        /// The handle's number.
        handle: u64,
    },
    /// An empty list, of which no request will end.
    #[error("a wait for any request of an empty list would never end")]
    NoRequests,
    /// So many requests are under way or have not been waited for.
    #[error("{most} requests are under way or not waited for: wait for some of them first")]
    TooManyRequests {
        /// Most at a time.
        most: u32,
    },
    /// A buffer that a request still uses.
    #[error("the buffer is in use by a request under way: wait for the request, or release it")]
    BufferLent,
    /// The program ended a call that waited (see [`crate::Context::interruptible`]).
    #[error("the program ended the call while it waited")]
    Interrupted,
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_string()
}

/// Why a target refused an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Outside of the window.
    #[error("outside of the window's bounds")]
    Bounds,
    /// The window does not grant the right.
    #[error("the window does not grant the right")]
    Right,
    /// No window of this name (any more).
    #[error("no such window")]
    Window,
    /// No such notification counter.
    #[error("no such notification counter")]
    Notify,
    /// Not aligned.
    #[error("not a multiple of the operation's width")]
    Alignment,
    /// No such FIFO or signal port.
    #[error("no such FIFO or signal port")]
    Fifo,
    /// The FIFO is full.
    #[error("the FIFO is full")]
    Full,
    /// The record is longer than the FIFO takes.
    #[error("the record is longer than the FIFO takes")]
    Record,
    /// The FIFO's memory is damaged.
    #[error("the FIFO's memory is damaged")]
    Damage,
    /// A reason this version does not know.
    #[error("for reason {0}, which this version does not know")]
    Other(u8),
}

impl Refusal {
    pub(crate) fn from_code(code: u8) -> Refusal {
        use kumi_proto::frame;
        match code {
            frame::REFUSED_BOUNDS => Refusal::Bounds,
            frame::REFUSED_RIGHT => Refusal::Right,
            frame::REFUSED_WINDOW => Refusal::Window,
            frame::REFUSED_NOTIFY => Refusal::Notify,
            frame::REFUSED_ALIGNMENT => Refusal::Alignment,
            frame::REFUSED_FIFO => Refusal::Fifo,
            frame::REFUSED_FULL => Refusal::Full,
            frame::REFUSED_RECORD => Refusal::Record,
            frame::REFUSED_DAMAGE => Refusal::Damage,
            other => Refusal::Other(other),
        }
    }

    pub(crate) fn code(self) -> u8 {
        use kumi_proto::frame;
        match self {
            Refusal::Bounds => frame::REFUSED_BOUNDS,
            Refusal::Right => frame::REFUSED_RIGHT,
            Refusal::Window => frame::REFUSED_WINDOW,
            Refusal::Notify => frame::REFUSED_NOTIFY,
            Refusal::Alignment => frame::REFUSED_ALIGNMENT,
            Refusal::Fifo => frame::REFUSED_FIFO,
            Refusal::Full => frame::REFUSED_FULL,
            Refusal::Record => frame::REFUSED_RECORD,
            Refusal::Damage => frame::REFUSED_DAMAGE,
            Refusal::Other(code) => code,
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Error {
        match error {
            AttachError::Launch(kumi_net::launch::LaunchError::NotLaunched) => Error::NotLaunched,
            other => Error::Attach(other),
        }
    }
}

impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Error {
        match error {
            ChannelError::NoRank { to, ranks } => Error::BadRank { rank: to, ranks },
            ChannelError::Io(error) => Error::Io(error),
            ChannelError::Unreachable { to, reason } => Error::Unreachable { rank: to, reason },
            ChannelError::Forked => Error::Forked,
            other => Error::Fault(other.to_string()),
        }
    }
}
