//! Messages between the server and a slot's process, on a packet socket.

use crate::confine::RunAs;
use crate::layout::Slot;
use kumi_rpc::{TRACE_PARENT, TraceContext};
use serde::{Deserialize, Serialize};
use std::net::TcpListener;
use std::path::PathBuf;

/// Longest message, in bytes.
pub const MOST: usize = 16 << 10;
/// What the reply to a setup says of a process that takes [`Order::RunWithin`]. Those of earlier versions say 0.
pub const TAKES_CONTEXT: u64 = 1;
/// Bytes of a reply before its text.
const REPLY: usize = 9;

/// Settings for starting jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    /// The command `kumi`.
    pub kumi: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// The folder of all clusters (`KUMI_DIR`), given here because the slot's user may have another default.
    pub folder: PathBuf,
    /// Most ranks of a job. Also the number of ranks if the job does not say.
    pub ranks: u64,
}

/// The first message to a slot. It is JSON in an arena, since descriptions may be longer than a message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The routine's description, or those of all methods of a class whose object this is to be.
    pub interfaces: Vec<String>,
    /// Libraries to open, in order.
    pub libraries: Vec<PathBuf>,
    /// The folder from which its interpreter imports.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// The folder of its calls' files.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    /// Most bytes of address space; 0: no limit.
    pub memory: u64,
    /// Most bytes of a callback's arguments and results.
    pub callback: u64,
    /// The user of the process. `None`: the server's.
    pub run_as: Option<RunAs>,
    /// Whether it runs in a sandbox.
    pub sandbox: bool,
    /// Bytes that the temporary folders of a sandbox hold together.
    #[serde(default)]
    pub room: u64,
    /// Most open files; the server's own limit is higher.
    pub files: u64,
    /// The arena that is the mailbox for short calls.
    #[serde(default)]
    pub mailbox: Option<u32>,
    /// The place in a trace of the making of an object, as `traceparent` has it.
    #[serde(default)]
    pub trace: Option<String>,
    /// Settings for starting jobs. `None`: it starts none.
    #[serde(default)]
    pub jobs: Option<Jobs>,
    /// The listener for rank 0, opened before this process became another user.
    #[serde(skip)]
    pub job_listener: Option<TcpListener>,
}

/// What a routine may know of the call that it runs for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallContext {
    /// The call's deadline in nanoseconds of the machine's monotonic clock. For ranks of a job, which may run on other
    /// machines, the nanoseconds that are left. `None`: there is no deadline.
    pub deadline_ns: Option<u64>,
    /// Its place in a trace. `None`: it is in none.
    pub trace: Option<TraceContext>,
}

impl CallContext {
    /// Whether there is nothing to know.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deadline_ns.is_none() && self.trace.is_none()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // No deadline is so late.
        out.extend_from_slice(&self.deadline_ns.unwrap_or(u64::MAX).to_le_bytes());
        match self.trace {
            Some(trace) => out.extend_from_slice(trace.to_string().as_bytes()),
            None => out.extend_from_slice(&[0; TRACE_PARENT]),
        }
    }

    /// Decodes a context. Returns the bytes behind it, too.
    fn decode(bytes: &[u8]) -> Option<(CallContext, &[u8])> {
        let (deadline, rest) = bytes.split_first_chunk()?;
        let deadline_ns = Some(u64::from_le_bytes(*deadline)).filter(|ns| *ns != u64::MAX);
        let (trace, rest) = rest.split_at_checked(TRACE_PARENT)?;
        let trace = match trace.iter().all(|byte| *byte == 0) {
            true => None,
            false => Some(TraceContext::parse(trace).ok()?),
        };
        Some((CallContext { deadline_ns, trace }, rest))
    }
}

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Map the arena that comes with this message: its number and length.
    Map(u32, u64),
    /// Unmap the arena with this number.
    Unmap(u32),
    /// Read a [`Setup`] from an arena: its number and the length in bytes.
    SetUp(u32, u64),
    /// Run the routine of this index on an arena with this layout.
    Run(u32, u32, Vec<Slot>),
    /// The same for a call with a context. Only for a process that has said [`TAKES_CONTEXT`].
    RunWithin(u32, u32, Vec<Slot>, CallContext),
    /// The callback has returned, with this many bytes of values in the exchange.
    Return(u64),
}

impl Order {
    /// Encodes the order.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, arena, number, slots): (u32, _, _, &[Slot]) = match self {
            Order::Map(arena, bytes) => (0, *arena, *bytes, &[]),
            Order::Unmap(arena) => (1, *arena, 0, &[]),
            Order::SetUp(arena, bytes) => (2, *arena, *bytes, &[]),
            Order::Run(routine, arena, slots) => (3, *arena, u64::from(*routine), slots),
            Order::Return(bytes) => (4, 0, *bytes, &[]),
            Order::RunWithin(routine, arena, slots, _) => (5, *arena, u64::from(*routine), slots),
        };
        let mut out = Vec::with_capacity(16 + 24 * slots.len());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&arena.to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        if let Order::RunWithin(.., context) = self {
            context.encode(&mut out);
        }
        for slot in slots {
            for word in [slot.offset, slot.bytes, slot.text] {
                out.extend_from_slice(&(word as u64).to_le_bytes());
            }
        }
        out
    }

    /// Decodes an order. `None`: it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Order> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let kind = u32::from_le_bytes(*head.first_chunk()?);
        let arena = u32::from_le_bytes(*head[4..].first_chunk()?);
        let number = u64::from_le_bytes(*head[8..].first_chunk()?);
        let slot = |bytes: &[u8]| {
            let mut words = bytes.chunks_exact(8).map(|word| {
                let word: [u8; 8] = word.try_into().ok()?;
                usize::try_from(u64::from_le_bytes(word)).ok()
            });
            Some(Slot { offset: words.next()??, bytes: words.next()??, text: words.next()?? })
        };
        let slots = |bytes: &[u8]| bytes.chunks_exact(24).map(slot).collect::<Option<Vec<_>>>();
        let routine = || u32::try_from(number).ok();
        Some(match kind {
            0 => Order::Map(arena, number),
            1 => Order::Unmap(arena),
            2 => Order::SetUp(arena, number),
            3 => Order::Run(routine()?, arena, slots(rest)?),
            4 => Order::Return(number),
            5 => {
                let (context, rest) = CallContext::decode(rest)?;
                Order::RunWithin(routine()?, arena, slots(rest)?, context)
            }
            _ => return None,
        })
    }
}

/// A slot's reply to `SetUp` and `Run`.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The order is done, in this many nanoseconds.
    Done(u64),
    /// The order cannot be done, for this reason.
    Failed(String),
    /// The routine calls a function of the client.
    Callback {
        /// The routine's parameter.
        parameter: u16,
        /// Bytes of values at the beginning of the exchange.
        head: u64,
        /// Bytes of the exchange. Its descriptor comes with this message, unless it is the same as the last
        /// time.
        bytes: u64,
    },
    /// The routine calls a function of the client in an impossible way, for this reason. It waits to be
    /// ended.
    Refused(String),
    /// The routine ended with this exception. The process can run further calls.
    Raised(String),
    /// The job of the call has crashed: the detail ([`kumi_rpc::Code::Crashed`]), and a message.
    Crashed(i64, String),
    /// Nothing has run, and the setup of this process is outdated. The call needs a process that is set up
    /// anew.
    Outdated,
}

impl Reply {
    /// Encodes the reply.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Reply::Done(ns) => (0, *ns, ""),
            Reply::Failed(text) => (1, 0, text.as_str()),
            Reply::Raised(text) => (4, 0, text.as_str()),
            Reply::Crashed(detail, text) => (5, detail.cast_unsigned(), text.as_str()),
            Reply::Refused(text) => (3, 0, text.as_str()),
            Reply::Outdated => (6, 0, ""),
            Reply::Callback { parameter, head, bytes } => {
                let mut out = vec![2];
                for word in [u64::from(*parameter), *head, *bytes] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                return out;
            }
        };
        let mut out = vec![kind];
        out.extend_from_slice(&u64::to_le_bytes(number));
        out.extend_from_slice(&text.as_bytes()[..text.len().min(MOST - REPLY)]);
        out
    }

    /// Decodes a reply. `None`: it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let (head, text) = bytes.split_first_chunk::<REPLY>()?;
        let number = u64::from_le_bytes(*head[1..].first_chunk()?);
        let said = || String::from_utf8_lossy(text).into_owned();
        Some(match head[0] {
            0 => Reply::Done(number),
            1 => Reply::Failed(said()),
            2 => Reply::Callback {
                parameter: u16::try_from(number).ok()?,
                head: u64::from_le_bytes(*text.first_chunk()?),
                bytes: u64::from_le_bytes(*text.get(8..)?.first_chunk()?),
            },
            3 => Reply::Refused(said()),
            4 => Reply::Raised(said()),
            5 => Reply::Crashed(number.cast_signed(), said()),
            6 => Reply::Outdated,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let slot = Slot { offset: 1, bytes: 2, text: 3 };
        let text = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Some(TraceContext::parse(text).expect("a traceparent"));
        let orders = [
            Order::Map(1, 2),
            Order::Unmap(3),
            Order::SetUp(4, 5),
            Order::Run(5, 6, vec![slot; 256]),
            Order::Return(7),
            Order::RunWithin(5, 6, vec![slot; 256], CallContext { deadline_ns: Some(7), trace }),
            Order::RunWithin(5, 6, vec![slot], CallContext { deadline_ns: None, trace }),
            Order::RunWithin(5, 6, vec![slot], CallContext::default()),
        ];
        for order in orders {
            let bytes = order.encode();
            assert!(bytes.len() <= MOST);
            assert_eq!(Order::decode(&bytes), Some(order));
        }
        let callback = Reply::Callback { parameter: 1, head: 2, bytes: 3 };
        let no = || "no".to_owned();
        let raised = Reply::Raised(String::new());
        let crashed = Reply::Crashed(-2, no());
        let plain = [Reply::Done(7), Reply::Failed(no()), callback, Reply::Refused(no())];
        for reply in plain.into_iter().chain([raised, crashed, Reply::Outdated]) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Order::decode(&[9; 16]), None);
        let run = Order::RunWithin(0, 0, vec![], CallContext::default()).encode();
        assert_eq!(Order::decode(&run[..run.len() - 1]), None);
        let odd = [&run[..run.len() - 1], b"?"].concat();
        assert_eq!(Order::decode(&odd), None);
        assert_eq!(Reply::decode(&[1; 3]), None);
    }
}
