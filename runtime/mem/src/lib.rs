//! Memory-based communication between the ranks of a job: windows, FIFOs and signal ports in them,
//! tagged messages, collectives. Put, get and atomics on windows need no help of the target's program.
//!
//! ```
//! use kumi_mem::{Context, Op};
//!
//! # fn main() -> Result<(), kumi_mem::Error> {
//! // `Context::init()` in a program that `kumi run` starts; a job of one rank here.
//! let context = Context::init_singleton()?;
//! let window = context.window(64)?;
//! let next = (context.rank() + 1) % context.ranks();
//! window.put_notify(next, 8, b"to you!!", 0)?;
//! window.wait_notify(0, 1)?;
//! let mut sum = [u64::from(context.rank())];
//! context.allreduce(Op::Sum, &mut sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! Ranks of the same node share memory: a put there is a copy. Ranks of other nodes are reached
//! over UDP, by the protocol of `kumi-proto`; a handler thread serves what they ask while the
//! program computes.
//!
//! Environment:
//!
//! - `KUMI_HANDLER`: how the handler thread is scheduled beside the main thread; `other`, `rr` or
//!   `fifo` with `:low`, `:even` or `:high`.
//! - `KUMI_SPIN`: how long a wait spins before it blocks; `adaptive`, `blind`, `infinite` or
//!   microseconds (see docs/guide/administering.md).
//! - `KUMI_ACK`: how packets are acked; `reduced` or `per-message` (see
//!   docs/reference/channel-protocol.md).
//! - `KUMI_CHECKSUM`: which bytes the checksums of packets cover; `headers` or `all`.
//! - `KUMI_UNEXPECTED_BYTES`: bytes of messages kept before their receive is posted, default 16 MiB.
//!   Beyond that, their senders wait.

mod caller_memory;
mod collective;
mod context;
mod engine;
mod error;
mod fifo;
#[cfg(any(test, fuzzing))]
pub mod fuzz_targets;
mod group;
mod machine;
mod message;
mod multicast;
mod request;
mod sending;
mod service;
mod settling;
mod sync;
mod trace;
mod window;

pub use collective::kind::CollectiveKind;
pub use collective::reduction::{Reduction, UserOp};
pub use collective::scalar::{Op, Scalar};
pub use collective::start::CollectiveRequest;
pub use context::Context;
pub use engine::interrupt::uninterrupted;
pub use error::{Error, Refusal};
pub use fifo::signal::Signal;
pub use fifo::{FIFO_ALIGNMENT, FIFO_OVERHEAD, Fifo, FifoRecord};
pub use group::Group;
pub use kumi_net::disclosure::{JobLoad, NodeLoad, RankReport, RankState};
pub use kumi_net::{
    CallName, Description, DescriptionScope, WaitKind, is_call_set, name_call, set_call,
    set_locator,
};
pub use kumi_net::{CopySource, SharedBytes, SharedBytesMut};
pub use machine::Machine;
pub use message::claim::ClaimedMessage;
pub use message::mailbox::{MessageStatus, Source, Tag};
pub use request::queue::{CompletionEntry, CompletionQueue};
pub use request::scope::{OwnedRequest, Request, RequestScope};
pub use request::{Atomic, Outcome, PutEnd, PutOptions, Report, RequestHandle};
pub use service::{
    ArrivedMessage, Outbox, ReservedService, SERVICE_MESSAGE_BYTES, Service, ServiceHandle,
};
pub use window::Window;
pub use window::completion::{Completion, OnPlacement};
pub use window::overlap::any_overlap;
pub use window::pieces::Piece;
pub use window::registered::RegisteredMemory;
pub use window::strided::Strided;
pub use window::table::Rights;
pub use window::typed::{AtomicElement, Element, TypedWindow};
