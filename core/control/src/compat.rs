//! Peers of another version: which version two of them speak, and what an earlier one can read.
//!
//! A version adds variants behind those that there are, and changes no form. So a later peer reads all that an earlier one
//! sends, and needs care only with what it sends itself. That is decided here, and nowhere else:
//!
//! - [`agree`] finds the version that two ranges have in common.
//! - [`Versioned::since`] says for each message with which version its kind came, and what it carries. A new variant is a
//!   hole in these matches, so nobody adds one without saying so.
//! - [`for_version`] gives what a peer gets: the message, one that says the same in its version, or nothing.
//!
//! Each link has a version of its own. A daemon between two others reads all that both send, and sends each what that one
//! can read. So a daemon of an earlier version between two later ones sees nothing that it does not know.
//!
//! These inner enums have no such match. So whoever adds a variant to one of them adds that match, too:
//!
//! - `Stream`, of which output is.
//! - What nodes say of ranks and channels, and what the verdict on a job says: `ChannelReading`, `TraceKind`, `Standing`,
//!   `WaitKind`, `Verdict` and `Cause`.
//! - What the status says of the timetable: `Mode` and `SliceLength` there, and `DqtState`.
//! - What joins: `JoinRefusal` goes with `JOIN_VERSION`.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use kumi_sched::{Mode, SliceLength};

use crate::message::{
    AbandonCause, Binding, CONTROL_VERSION, ClientReply, ClientRequest, Command, Down, JobRecord,
    JobRequest, JobState, NodeCondition, Outcome, RankStatus, Refusal, RefusalKind, Report,
    StateKind, Up, UsageBy, WaitLimit, WaitReason,
};

/// The earliest version of the control protocol that is understood.
pub const OLDEST_VERSION: u32 = 15;

/// The versions that somebody speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The earliest.
    pub oldest: u32,
    /// The latest.
    pub newest: u32,
}

impl Versions {
    /// Those of this build.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: CONTROL_VERSION };

    /// Of somebody who speaks one version only.
    #[must_use]
    pub fn only(version: u32) -> Self {
        Self { oldest: version, newest: version }
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn include(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl core::fmt::Display for Versions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.oldest == self.newest {
            write!(f, "version {}", self.newest)
        } else {
            write!(f, "versions {} to {}", self.oldest, self.newest)
        }
    }
}

/// The latest version that both speak.
///
/// # Errors
/// There is none. The refusal is for `theirs`, and says which machine to upgrade.
pub fn agree(ours: Versions, theirs: Versions) -> Result<u32, Refusal> {
    let version = ours.newest.min(theirs.newest);
    if version >= ours.oldest.max(theirs.oldest) {
        return Ok(version);
    }
    let advice = if theirs.newest < ours.oldest {
        "upgrade Kumi on your machine, and start its daemon again"
    } else {
        "upgrade Kumi on this daemon's machine before yours: the head's comes first, then those of the nodes"
    };
    let message =
        format!("this daemon speaks {ours} of the control protocol and you {theirs}; {advice}");
    Err(Refusal { kind: RefusalKind::Version, message })
}

/// Something that is sent to peers of several versions.
pub trait Versioned: Clone {
    /// The version with which it came, with all that is in it.
    fn since(&self) -> u32;

    /// What says the same in an earlier version, if there is something. Without it a peer of that version does not get it.
    #[must_use]
    fn earlier(self, _version: u32) -> Option<Self> {
        None
    }
}

/// What a peer gets that speaks this version. None if there is nothing that it could read.
pub fn for_version<T: Versioned>(message: &T, version: u32) -> Option<Cow<'_, T>> {
    if version >= CONTROL_VERSION || message.since() <= version {
        return Some(Cow::Borrowed(message));
    }
    message.clone().earlier(version).map(Cow::Owned)
}

/// Notes in what a child says of itself that it speaks an earlier version, so that people see which nodes are to be upgraded.
pub fn note_version(up: &mut Up, version: u32) {
    if version >= CONTROL_VERSION {
        return;
    }
    let Up::Report(Report::Attached(nodes)) = up else { return };
    // Who has one hop behind it is the child itself.
    for node in nodes.iter_mut().filter(|node| node.path.len() == 1) {
        node.limits.push(format!(
            "its daemon speaks version {version} of the control protocol, and the one above it {CONTROL_VERSION}; \
             upgrade Kumi there, too"
        ));
    }
}

impl Versioned for Down {
    fn since(&self) -> u32 {
        match self {
            Self::Command(_, command) => command.since(),
            Self::Clock { .. } | Self::Disclosed(_) => 15,
        }
    }

    fn earlier(self, version: u32) -> Option<Self> {
        let Self::Command(nodes, command) = self else { return None };
        command.earlier(version).map(|command| Self::Command(nodes, command))
    }
}

impl Versioned for Up {
    fn since(&self) -> u32 {
        match self {
            Self::Report(report) => report.since(),
            Self::ClockProbe { .. } | Self::Disclosed(_) => 15,
        }
    }

    fn earlier(self, version: u32) -> Option<Self> {
        let Self::Report(report) = self else { return None };
        report.earlier(version).map(Self::Report)
    }
}

impl Versioned for Command {
    fn since(&self) -> u32 {
        match self {
            Self::Prepare(spec) => spec.request.since(),
            Self::ProgramChunk { .. }
            | Self::ProgramMissing(_)
            | Self::Start { .. }
            | Self::Signal { .. }
            | Self::Kill { .. }
            | Self::Input { .. }
            | Self::Resize { .. }
            | Self::Timetable(_)
            | Self::Lease { .. }
            | Self::Sample { .. }
            | Self::Shutdown
            | Self::Forget { .. }
            | Self::SamplePeers { .. }
            | Self::SampleChannels { .. }
            | Self::Revoked(_)
            | Self::SampleTrace { .. }
            | Self::SampleLoad { .. }
            | Self::Exchanged { .. }
            | Self::Relayed { .. }
            | Self::Confirm { .. }
            | Self::OutputKept { .. }
            | Self::DropOutput { .. } => 15,
        }
    }
}

impl Versioned for Report {
    fn since(&self) -> u32 {
        match self {
            Self::Prepared { nodes, .. } => {
                latest(nodes.iter().filter_map(|node| node.result.as_ref().err()), Refusal::since)
            }
            Self::RankFailed { status, .. } => status.since(),
            Self::Abandoned { cause, .. } => cause.since(),
            Self::Condition(report) => report.condition.since(),
            Self::Attached(_)
            | Self::Detached(_)
            | Self::ProgramWanted { .. }
            | Self::Freed { .. }
            | Self::Output { .. }
            | Self::Samples { .. }
            | Self::Idle(_)
            | Self::Exchange(_)
            | Self::Relay(_)
            | Self::Standing(_)
            | Self::Used(_) => 15,
        }
    }

    fn earlier(mut self, version: u32) -> Option<Self> {
        let Self::Prepared { nodes, .. } = &mut self else { return None };
        let refused = nodes.iter_mut().filter_map(|node| node.result.as_mut().err());
        refused.for_each(|refusal| refusal.generalise(version));
        Some(self)
    }
}

impl Versioned for ClientRequest {
    fn since(&self) -> u32 {
        match self {
            Self::Submit(request) | Self::SubmitBatch { request, .. } => request.since(),
            Self::Jobs(query) => latest(&query.states, StateKind::since),
            Self::Configure { mode, slice, .. } => {
                latest(mode, since_of_mode).max(latest(slice, since_of_slice))
            }
            Self::Usage(query) => query.by.since(),
            Self::Hello { .. }
            | Self::Follow { .. }
            | Self::ProgramChunk { .. }
            | Self::Input { .. }
            | Self::Resize { .. }
            | Self::Signal { .. }
            | Self::Kill { .. }
            | Self::Cluster
            | Self::Sample
            | Self::Shutdown
            | Self::Revoke { .. }
            | Self::SamplePeers { .. }
            | Self::SampleChannels { .. }
            | Self::WebTicket { .. }
            | Self::SampleLoad { .. }
            | Self::SampleTrace { .. }
            | Self::Explain { .. }
            | Self::Wait { .. }
            | Self::Drain { .. }
            | Self::Resume { .. }
            | Self::AddNode { .. }
            | Self::RemoveNode { .. }
            | Self::JoinToken { .. }
            | Self::Shares => 15,
            Self::SubmitArray { request, .. } => request.since().max(16),
            Self::Overview { .. } | Self::Heads | Self::Troubles => 16,
        }
    }

    fn earlier(self, version: u32) -> Option<Self> {
        // Its answer has all columns.
        (version >= 15 && matches!(self, Self::Overview { .. })).then_some(Self::Cluster)
    }
}

impl Versioned for ClientReply {
    fn since(&self) -> u32 {
        match self {
            Self::State { state, .. } => state.since(),
            Self::Ended { outcome, .. } => outcome.since(),
            Self::Waits { reason, .. } => reason.since(),
            Self::Refused(refusal) => refusal.since(),
            Self::Jobs(page) => {
                let states = latest(&page.list.records, |record| record.state.since());
                states.max(latest(&page.list.waiting, |(_, reason)| reason.since()))
            }
            Self::Welcome { .. }
            | Self::Submitted { .. }
            | Self::ProgramWanted(_)
            | Self::Output { .. }
            | Self::Cluster(_)
            | Self::Samples(_)
            | Self::Done
            | Self::Note(_)
            | Self::Current { .. }
            | Self::WebTicket { .. }
            | Self::Deadlock { .. }
            | Self::Explanation { .. }
            | Self::OutputLost { .. }
            | Self::NotKept { .. }
            | Self::Accepted { .. }
            | Self::StartedAgain { .. }
            | Self::Usage(_)
            | Self::NodeAdded { .. }
            | Self::JoinToken { .. }
            | Self::Shares(_) => 15,
            Self::Heads(_) | Self::Troubles(_) => 16,
        }
    }

    fn earlier(mut self, version: u32) -> Option<Self> {
        match &mut self {
            Self::Refused(refusal) => refusal.generalise(version),
            Self::State { state, .. } => state.generalise(version),
            Self::Ended { outcome, .. } => outcome.generalise(version),
            Self::Jobs(page) => {
                page.list.records.iter_mut().for_each(|record| record.state.generalise(version));
                page.list.waiting.retain(|(_, reason)| reason.since() <= version);
            }
            _ => return None,
        }
        Some(self)
    }
}

/// The latest version of some parts.
fn latest<T>(parts: impl IntoIterator<Item = T>, since: impl Fn(T) -> u32) -> u32 {
    parts.into_iter().map(since).fold(OLDEST_VERSION, u32::max)
}

impl JobRequest {
    fn since(&self) -> u32 {
        let wait = self.wait.map_or(OLDEST_VERSION, |wait| match wait {
            WaitLimit::No | WaitLimit::AtMost(_) | WaitLimit::Forever => 15,
        });
        let binding = self.resources.binding.map_or(OLDEST_VERSION, |binding| match binding {
            Binding::None | Binding::Core | Binding::Numa | Binding::Cpuset => 15,
        });
        wait.max(binding)
    }
}

impl StateKind {
    fn since(&self) -> u32 {
        match self {
            Self::Queued | Self::Starting | Self::Running | Self::Ending | Self::Ended => 15,
        }
    }
}

impl UsageBy {
    fn since(self) -> u32 {
        match self {
            Self::User | Self::Job | Self::Day => 15,
        }
    }
}

fn since_of_mode(mode: &Mode) -> u32 {
    match mode {
        Mode::Gang { .. } | Mode::OperatingSystem => 15,
    }
}

fn since_of_slice(slice: &SliceLength) -> u32 {
    match slice {
        SliceLength::Auto | SliceLength::Fixed(_) => 15,
    }
}

impl JobRecord {
    /// The version from which on heads can read it.
    #[must_use]
    pub fn since(&self) -> u32 {
        let asked = latest(&self.end_request, |end| end.outcome.since());
        self.spec.request.since().max(self.state.since()).max(asked)
    }
}

impl Refusal {
    fn since(&self) -> u32 {
        match self.kind {
            RefusalKind::BadRequest
            | RefusalKind::TooLarge
            | RefusalKind::NotFound
            | RefusalKind::NotExecutable
            | RefusalKind::NotPermitted
            | RefusalKind::NoSuchJob
            | RefusalKind::NoResources
            | RefusalKind::NodeLost
            | RefusalKind::NotNow
            | RefusalKind::Version
            | RefusalKind::Internal
            | RefusalKind::Quota
            | RefusalKind::PredecessorFailed => 15,
        }
    }

    /// A kind that came later becomes the one that says least; the sentence stays.
    fn generalise(&mut self, version: u32) {
        if self.since() > version {
            self.kind = RefusalKind::Internal;
        }
    }
}

impl RankStatus {
    fn since(self) -> u32 {
        match self {
            Self::Exited(_) | Self::Signalled(_) | Self::OutOfMemory(_) | Self::NotFinalized => 15,
        }
    }
}

impl AbandonCause {
    fn since(self) -> u32 {
        match self {
            Self::LeaseOver | Self::Vanished => 15,
        }
    }
}

impl NodeCondition {
    fn since(&self) -> u32 {
        match self {
            Self::Healthy | Self::Unhealthy { .. } | Self::HookFailed { .. } => 15,
        }
    }
}

impl WaitReason {
    fn since(&self) -> u32 {
        match self {
            Self::NodesAttaching { .. }
            | Self::NodesDown { .. }
            | Self::ProcessorsTaken { .. }
            | Self::ProcessorsFull { .. }
            | Self::ResourcesTaken
            | Self::Behind { .. }
            | Self::After { .. }
            | Self::ArrayFull { .. }
            | Self::Preparing { .. }
            | Self::NodesDrained { .. }
            | Self::BehindShare { .. } => 15,
        }
    }
}

impl Outcome {
    fn since(&self) -> u32 {
        match self {
            Self::RankFailed { status, .. } => status.since(),
            Self::Refused(refusal) => refusal.since(),
            Self::Success
            | Self::NodeLost(_)
            | Self::Killed
            | Self::Deadlocked
            | Self::TimeLimit(_)
            | Self::HeadAway(_) => 15,
        }
    }

    /// An end that came later becomes a refusal that says so: no success, and no end of another kind.
    fn generalise(&mut self, version: u32) {
        if self.since() <= version {
            return;
        }
        if let Self::Refused(refusal) = self {
            return refusal.generalise(version);
        }
        let message = String::from(
            "the job ended in a way that this version of Kumi does not know; use the `kumi` that belongs to the cluster",
        );
        *self = Self::Refused(Refusal { kind: RefusalKind::Version, message });
    }
}

impl JobState {
    fn since(&self) -> u32 {
        match self {
            Self::Ending(outcome) | Self::Ended(outcome) => outcome.since(),
            Self::Queued | Self::Preparing | Self::Running => 15,
        }
    }

    fn generalise(&mut self, version: u32) {
        if let Self::Ending(outcome) | Self::Ended(outcome) = self {
            outcome.generalise(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Hop, NodeDescription};
    use alloc::vec::Vec;
    use kumi_sched::{JobId, NodeId};

    /// Before every version that is known: so whatever there is came later.
    const BEFORE: u32 = OLDEST_VERSION - 1;

    fn refused(kind: RefusalKind) -> ClientReply {
        ClientReply::Refused(Refusal { kind, message: "why".into() })
    }

    #[test]
    fn two_agree_on_the_latest_version_that_both_speak() {
        let range = |oldest, newest| Versions { oldest, newest };
        let ours = range(15, 16);
        assert_eq!(agree(ours, ours), Ok(16));
        assert_eq!(agree(ours, Versions::only(15)), Ok(15));
        assert_eq!(agree(ours, range(16, 17)), Ok(16));
        assert_eq!(agree(Versions::only(15), ours), Ok(15));
        for (theirs, words) in [
            (
                range(12, 14),
                "this daemon speaks versions 15 to 16 of the control protocol and you versions 12 to 14; upgrade Kumi \
                 on your machine, and start its daemon again",
            ),
            (
                Versions::only(17),
                "this daemon speaks versions 15 to 16 of the control protocol and you version 17; upgrade Kumi on this \
                 daemon's machine before yours: the head's comes first, then those of the nodes",
            ),
        ] {
            let refusal = agree(ours, theirs).unwrap_err();
            assert_eq!((refusal.kind, &*refusal.message), (RefusalKind::Version, words));
        }
        assert!(agree(ours, range(9, 3)).is_err(), "a range that is none");
        assert!(agree(ours, range(u32::MAX, 15)).is_err());
    }

    #[test]
    fn one_version_back_is_understood() {
        assert_eq!(Versions::OURS.newest - Versions::OURS.oldest, 1);
    }

    #[test]
    fn who_speaks_this_version_or_one_that_knows_the_message_gets_it_as_it_is() {
        let kill = Down::Command(Default::default(), Command::Kill { job: JobId(1) });
        for version in OLDEST_VERSION..=CONTROL_VERSION + 1 {
            assert!(matches!(for_version(&kill, version), Some(Cow::Borrowed(_))), "{version}");
        }
    }

    #[test]
    fn what_a_peer_does_not_know_is_not_sent_to_it() {
        let kill = Down::Command(Default::default(), Command::Kill { job: JobId(1) });
        assert_eq!(for_version(&kill, BEFORE), None);
        assert_eq!(for_version(&Up::ClockProbe { stamp: 1 }, BEFORE), None);
        assert_eq!(for_version(&ClientRequest::Shares, BEFORE), None);
        assert_eq!(for_version(&ClientReply::Done, BEFORE), None);
    }

    #[test]
    fn an_overview_of_a_head_of_version_15_is_its_whole_status() {
        let overview = ClientRequest::Overview { columns: 0 };
        let asked = |version| for_version(&overview, version).map(Cow::into_owned);
        assert_eq!(asked(16), Some(overview.clone()));
        assert_eq!(asked(15), Some(ClientRequest::Cluster));
        assert_eq!(asked(BEFORE), None);
    }

    #[test]
    fn a_kind_that_a_client_does_not_know_is_told_with_the_same_sentence() {
        let quota = refused(RefusalKind::Quota);
        let told = for_version(&quota, BEFORE).map(Cow::into_owned);
        assert_eq!(told, Some(refused(RefusalKind::Internal)));
        let job = JobId(7);
        let ended = |outcome| ClientReply::Ended { job, outcome, not_kept: 3 };
        let told = for_version(&ended(Outcome::Deadlocked), BEFORE).map(Cow::into_owned);
        let Some(ClientReply::Ended { job: JobId(7), outcome, not_kept: 3 }) = told else {
            panic!("{told:?}")
        };
        assert!(matches!(&outcome, Outcome::Refused(why) if why.kind == RefusalKind::Version));
        let state = ClientReply::State { job, state: JobState::Ending(Outcome::Killed) };
        let told = for_version(&state, BEFORE).map(Cow::into_owned);
        assert_eq!(told, Some(ClientReply::State { job, state: JobState::Ending(outcome) }));
    }

    #[test]
    fn of_a_child_of_an_earlier_version_the_status_says_so() {
        let hop = Hop { incarnation: 1, attachment: 1 };
        let node = |number, hops| NodeDescription {
            node: NodeId(number),
            incarnation: 1,
            name: "n".into(),
            processors: 1,
            memory: 0,
            devices: Vec::new(),
            max_ranks: 1,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: Vec::from_iter(core::iter::repeat_n(hop, hops)),
        };
        let attached = || Up::Report(Report::Attached(Vec::from([node(1, 1), node(2, 2)])));
        let mut same = attached();
        note_version(&mut same, CONTROL_VERSION);
        assert_eq!(same, attached());
        let mut noted = attached();
        note_version(&mut noted, OLDEST_VERSION);
        let Up::Report(Report::Attached(nodes)) = noted else { panic!() };
        let [sentence] = &nodes[0].limits[..] else { panic!("{nodes:?}") };
        assert!(sentence.contains("speaks version 15") && sentence.contains("upgrade"));
        assert!(nodes[1].limits.is_empty(), "of whom another daemon says it");
    }
}
