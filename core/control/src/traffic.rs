//! Counts of control messages by what they are for.

use serde::{Deserialize, Serialize};

use crate::compat::Versioned;
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
pub trait ControlMessage: Serialize + Versioned {
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
            Self::Command(
                _,
                Command::Sample { .. }
                | Command::SamplePeers { .. }
                | Command::SampleChannels { .. }
                | Command::SampleLoad { .. }
                | Command::SampleTrace { .. },
            ) => MessageKind::Sample,
            Self::Command(..) => MessageKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{IdleReport, NodeSet};
    use alloc::vec::Vec;
    use kumi_sched::{ClusterTime, JobId};

    #[test]
    fn every_message_is_for_something() {
        let job = JobId(1);
        let down = |command| Down::Command(NodeSet::default(), command).kind();
        assert_eq!(
            down(Command::Lease { until: kumi_sched::ClusterTime(1), nanos: 1 }),
            MessageKind::Lease
        );
        assert_eq!(down(Command::Sample { request: 1 }), MessageKind::Sample);
        assert_eq!(down(Command::SamplePeers { request: 1, job }), MessageKind::Sample);
        let channels = Command::SampleChannels { request: 1, job, rank: None };
        assert_eq!(down(channels), MessageKind::Sample);
        let trace = Command::SampleTrace { request: 1, job, rank: 0, from: 0 };
        assert_eq!(down(Command::SampleLoad { request: 1, slices: true }), MessageKind::Sample);
        assert_eq!(down(trace), MessageKind::Sample);
        assert_eq!(down(Command::Kill { job }), MessageKind::Other);
        assert_eq!(Down::Clock { stamp: 1, time: ClusterTime(1) }.kind(), MessageKind::Clock);
        assert_eq!(Down::Disclosed(Vec::new()).kind(), MessageKind::Disclosure);
        assert_eq!(Up::ClockProbe { stamp: 1 }.kind(), MessageKind::Clock);
        assert_eq!(Up::Disclosed(Vec::new()).kind(), MessageKind::Disclosure);
        let samples = Report::Samples { request: 1, nodes: Vec::new() };
        assert_eq!(Up::Report(samples).kind(), MessageKind::Sample);
        let idle = IdleReport { job, nodes: NodeSet::default(), idle: true };
        assert_eq!(Up::Report(Report::Idle(idle)).kind(), MessageKind::Other);
    }

    #[test]
    fn all_kinds_together() {
        let counts =
            MessageCounts { clock: 1, disclosure: 20, lease: 300, sample: 4_000, other: 50_000 };
        assert_eq!((counts.total(), MessageCounts::default().total()), (54_321, 0));
    }
}
