//! Wait of a thread of a rank, as the rank describes it.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of the name of a call.
pub const CALL_BYTES: usize = 32;

/// Kind of a wait. The numbers stand in contexts of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum WaitKind {
    /// Nothing more is known.
    #[default]
    Other = 0,
    /// A notification counter of a window: slot, and number in the window.
    Notification,
    /// The answer to a request.
    Request,
    /// A message: tag.
    Message,
    /// A step of a collective operation: its number.
    Collective,
    /// A barrier: its number.
    Barrier,
    /// A record of a FIFO: its counter.
    Queue,
    /// Room for what is sent.
    SendSpace,
    /// That what was put is in place.
    Flush,
    /// A message of a service: its number.
    Service,
    /// A lock of shared memory: its number.
    Lock,
    /// A barrier of shared memory.
    SharedBarrier,
    /// A condition of shared memory: its number.
    Condition,
    /// A message of MPI: tag, communicator.
    MpiReceive,
    /// That a message of MPI is received: tag, communicator.
    MpiSend,
    /// Anything else of MPI.
    Mpi,
    /// That all ranks end MPI: only all of them together can end it.
    MpiFinalize,
}

impl WaitKind {
    const ALL: [Self; 17] = [
        Self::Other,
        Self::Notification,
        Self::Request,
        Self::Message,
        Self::Collective,
        Self::Barrier,
        Self::Queue,
        Self::SendSpace,
        Self::Flush,
        Self::Service,
        Self::Lock,
        Self::SharedBarrier,
        Self::Condition,
        Self::MpiReceive,
        Self::MpiSend,
        Self::Mpi,
        Self::MpiFinalize,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// Name of a call, cut off if it is long.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "[u8; CALL_BYTES]")]
pub struct CallName([u8; CALL_BYTES]);

impl CallName {
    /// The name in these bytes, up to the first that is no printable character of ASCII.
    #[must_use]
    pub fn from_bytes(bytes: [u8; CALL_BYTES]) -> Self {
        let end = bytes.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(CALL_BYTES);
        let mut name = [0; CALL_BYTES];
        name[..end].copy_from_slice(&bytes[..end]);
        Self(name)
    }

    /// The beginning of this name.
    #[must_use]
    pub const fn new(name: &str) -> Self {
        let (name, mut bytes, mut at) = (name.as_bytes(), [0; CALL_BYTES], 0);
        while at < name.len() && at < CALL_BYTES {
            bytes[at] = name[at];
            at += 1;
        }
        Self(bytes)
    }

    /// Its bytes, with zeroes behind them.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; CALL_BYTES] {
        &self.0
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(CALL_BYTES);
        core::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl From<[u8; CALL_BYTES]> for CallName {
    fn from(bytes: [u8; CALL_BYTES]) -> Self {
        Self::from_bytes(bytes)
    }
}

impl fmt::Debug for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// What a thread of a rank waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wait {
    /// Number of the wait, which the thread uses once.
    pub number: u64,
    /// The thread, as the system calls it.
    pub thread: u32,
    /// Kind.
    pub kind: WaitKind,
    /// The rank that can end it; none: several, or it is not known.
    pub peer: Option<u32>,
    /// What of it, see [`WaitKind`]: tag, lock, slot of a window.
    pub what: Option<u64>,
    /// What further: communicator, number in a window.
    pub further: Option<u64>,
    /// It ends by itself at some time.
    pub timed: bool,
    /// No other thread of the process can end it.
    pub alone: bool,
    /// The call of the program.
    pub call: CallName,
    /// Where the program goes on after the call, in its memory; 0 if that is not known.
    pub address: u64,
}

/// ` part NUMBER`, if there is a number.
struct Part(&'static str, Option<u64>);

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.map_or(Ok(()), |number| write!(f, " {} {number}", self.0))
    }
}

/// ` NUMBER`, if there is one.
struct Bare(Option<u64>);

impl fmt::Display for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}

impl Wait {
    fn of_whom(&self) -> Whom {
        Whom(self.peer)
    }
}

struct Whom(Option<u32>);

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(f, "rank {rank}"),
            None => f.write_str("any rank"),
        }
    }
}

/// What is waited for, and in which call: `a message of rank 1 with tag 5, in MPI_Recv`.
impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = self.of_whom();
        let part = |name| Part(name, self.what);
        match self.kind {
            WaitKind::Other => write!(f, "something of {whom}")?,
            WaitKind::Notification => {
                write!(f, "notification{}{}", Part("number", self.further), part("of window"))?;
            }
            WaitKind::Request => write!(f, "the answer of {whom} to a request")?,
            WaitKind::Message => write!(f, "a message of {whom}{}", part("with tag"))?,
            WaitKind::Collective => write!(f, "its part of a collective, of {whom}")?,
            WaitKind::Barrier => write!(f, "a barrier, of {whom}")?,
            WaitKind::Queue => write!(f, "a record of a FIFO{}", part("at counter"))?,
            WaitKind::SendSpace => write!(f, "room for what it sends to {whom}")?,
            WaitKind::Flush => write!(f, "what it put at {whom}")?,
            WaitKind::Service => write!(f, "a message of {whom}{}", part("to service"))?,
            WaitKind::Lock => write!(f, "shared lock{}", Bare(self.what))?,
            WaitKind::SharedBarrier => f.write_str("a barrier of shared memory")?,
            WaitKind::Condition => write!(f, "condition{} of shared memory", Bare(self.what))?,
            WaitKind::MpiReceive => {
                let communicator = Part("in communicator", self.further);
                write!(f, "a message of {whom}{}{communicator}", part("with tag"))?;
            }
            WaitKind::MpiSend => {
                write!(f, "{whom} to receive its message{}", part("with tag"))?;
            }
            WaitKind::Mpi => write!(f, "MPI, of {whom}")?,
            WaitKind::MpiFinalize => f.write_str("all ranks to end MPI")?,
        }
        match self.call.as_str() {
            "" => Ok(()),
            call => write!(f, ", in {call}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn kinds_have_their_numbers() {
        for number in 0..WaitKind::ALL.len() as u32 {
            assert_eq!(WaitKind::from_number(number).map(WaitKind::number), Some(number));
        }
        assert_eq!(WaitKind::from_number(WaitKind::ALL.len() as u32), None);
        assert_eq!(WaitKind::from_number(u32::MAX), None);
    }

    #[test]
    fn names_are_cut_off_and_cleaned() {
        assert_eq!(CallName::new("MPI_Recv").as_str(), "MPI_Recv");
        let long = "a_call_with_a_name_that_is_longer_than_it_may_be";
        assert_eq!(CallName::new(long).as_str(), &long[..CALL_BYTES]);
        let mut bytes = [b'x'; CALL_BYTES];
        bytes[3] = 0x1b;
        assert_eq!(CallName::from_bytes(bytes).as_str(), "xxx");
    }

    #[test]
    fn waits_read_as_sentences() {
        let call = CallName::new("MPI_Recv");
        let wait = Wait {
            kind: WaitKind::MpiReceive,
            peer: Some(1),
            what: Some(5),
            further: Some(0),
            call,
            ..Wait::default()
        };
        let text = "a message of rank 1 with tag 5 in communicator 0, in MPI_Recv";
        assert_eq!(wait.to_string(), text);
        let any = Wait { peer: None, what: None, further: None, ..wait };
        assert_eq!(any.to_string(), "a message of any rank, in MPI_Recv");
        let lock = Wait { kind: WaitKind::Lock, what: Some(3), ..Wait::default() };
        assert_eq!(lock.to_string(), "shared lock 3");
        let end = Wait { kind: WaitKind::MpiFinalize, ..Wait::default() };
        assert_eq!(end.to_string(), "all ranks to end MPI");
    }
}
