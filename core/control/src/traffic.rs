//! Counts of control messages by what they are for.

use serde::{Deserialize, Serialize};

use crate::message::{Command, Down, Report, Up};

/// What a control message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A probe of the parent's clock, which is also the heartbeat of the link, or the answer.
    Clock,
    /// What nodes say of themselves.
    Disclosure,
    /// A lease of the head.
    Lease,
    /// Figures for `kumi top` and `kumi stats`, or the request for them.
    Sample,
    /// Everything else: timetables, jobs, nodes.
    Other,
}

/// Control messages of one daemon since its start, sent and received, as its links count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Of [`MessageKind::Clock`].
    pub clock: u64,
    /// Of [`MessageKind::Disclosure`].
    pub disclosure: u64,
    /// Of [`MessageKind::Lease`].
    pub lease: u64,
    /// Of [`MessageKind::Sample`].
    pub sample: u64,
    /// Of [`MessageKind::Other`].
    pub other: u64,
}

impl MessageCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.clock + self.disclosure + self.lease + self.sample + self.other
    }
}

/// A frame of the control tree.
pub trait ControlMessage: Serialize {
    /// What it is for.
    fn kind(&self) -> MessageKind;
}

impl ControlMessage for Up {
    fn kind(&self) -> MessageKind {
        match self {
            Self::ClockProbe { .. } => MessageKind::Clock,
            Self::Disclosed(_) => MessageKind::Disclosure,
            Self::Report(Report::Samples { .. }) => MessageKind::Sample,
            Self::Report(_) => MessageKind::Other,
        }
    }
}

impl ControlMessage for Down {
    fn kind(&self) -> MessageKind {
        match self {
            Self::Clock { .. } => MessageKind::Clock,
            Self::Disclosed(_) => MessageKind::Disclosure,
            Self::Command(_, Command::Lease { .. }) => MessageKind::Lease,
            Self::Command(_, Command::Sample { .. } | Command::SamplePeers { .. }) => {
                MessageKind::Sample
            }
            Self::Command(..) => MessageKind::Other,
        }
    }
}
