//! Actions of the head's state machine that wait until the records before them are on the disk, in order.
//!
//! While a disk takes its time, the head goes on with what needs no record: it grants leases, relays messages of nodes and answers who looks. Everything
//! else waits here. If too much does, the head takes no events until it is less: those wait in links and with clients.

use std::collections::VecDeque;

use kumi_control::head::HeadAction;
use kumi_control::message::{ClientReply, Command};
use kumi_sched::{JobId, Timetable};
use postcard::ser_flavors::Size;
use serde::Serialize;

use super::records::WriteNumber;

/// Most actions that wait before the head takes no more events, and most bytes of what can be long in them.
const MOST: usize = 100_000;
const MOST_BYTES: usize = 16 << 20;

/// The actions, with the write for which each waits.
#[derive(Debug, Default)]
pub(super) struct HeldActions {
    /// With the bytes of each.
    queue: VecDeque<(WriteNumber, usize, HeadAction)>,
    bytes: usize,
}

/// Bytes of what can be long in an action. What has a list counts, however short the list is as a rule.
fn bytes_of(action: &HeadAction) -> usize {
    match action {
        HeadAction::Spool { data, .. } => data.len(),
        HeadAction::ToChild(_, _, command) => bytes_of_command(command),
        HeadAction::Persist(record) => length_of(&record.spec),
        HeadAction::ToClient(_, reply) | HeadAction::ToClients(_, reply) => length_of(reply),
        HeadAction::MarkRestart { reason, .. } => reason.len(),
        HeadAction::EndSpool { outcome, .. } => length_of(outcome),
        HeadAction::KeepDrains { drains, .. } => length_of(drains),
        HeadAction::AddNode { definition, .. } => definition.len(),
        HeadAction::Revoke { list, .. } => size_of_val(list.as_slice()),
        HeadAction::Follow { .. }
        | HeadAction::RemoveNode { .. }
        | HeadAction::Discard(_)
        | HeadAction::IssueToken { .. }
        | HeadAction::Shutdown => 0,
    }
}

fn bytes_of_command(command: &Command) -> usize {
    match command {
        Command::ProgramChunk { data, .. }
        | Command::Input { data, .. }
        | Command::Relayed { data, .. } => data.len(),
        Command::Exchanged { parts, .. } => {
            parts.iter().map(|part| size_of_val(part) + part.data.len()).sum()
        }
        Command::OutputKept { kept, .. } => size_of_val(kept.as_slice()),
        Command::Start { addresses, .. } => size_of_val(addresses.as_slice()),
        Command::Timetable(timetable) => bytes_of_timetable(timetable),
        Command::Revoked(list) => size_of_val(list.as_slice()),
        // What else there is, and what comes to be: only jobs to prepare are long.
        other => length_of(other),
    }
}

/// A timetable is mostly lists of lists, which are longer in memory than when they are sent.
fn bytes_of_timetable(timetable: &Timetable) -> usize {
    let jobs = |slot: &Vec<JobId>| size_of_val(slot) + size_of_val(slot.as_slice());
    let columns = timetable.columns.iter();
    let slots = columns.flat_map(|column| column.slots.iter().map(jobs)).sum::<usize>();
    slots + size_of_val(timetable.columns.as_slice()) + size_of_val(timetable.idle.as_slice())
}

/// Bytes of something as it is sent, about as many as it has in memory.
fn length_of(content: &impl Serialize) -> usize {
    // What cannot be sent at all is taken for something long.
    postcard::serialize_with_flavor(content, Size::default()).unwrap_or(MOST_BYTES)
}

/// Whether an action says nothing that a record must vouch for.
pub(super) fn needs_no_record(action: &HeadAction) -> bool {
    match action {
        // Who sent what is relayed asks again, and may send any number meanwhile.
        HeadAction::ToChild(_, _, Command::Lease { .. } | Command::Relayed { .. }) => true,
        HeadAction::ToClient(_, reply) | HeadAction::ToClients(_, reply) => matches!(
            reply,
            ClientReply::Welcome { .. }
                | ClientReply::Jobs(_)
                | ClientReply::Cluster(_)
                | ClientReply::Samples(_)
                | ClientReply::Explanation { .. }
        ),
        _ => false,
    }
}

impl HeldActions {
    /// The action waits for this write, and for all actions before it.
    pub(super) fn push(&mut self, write: WriteNumber, action: HeadAction) {
        let bytes = bytes_of(&action);
        self.bytes += bytes;
        self.queue.push_back((write, bytes, action));
    }

    /// The next action, if it need not wait any more.
    pub(super) fn pop(&mut self, is_settled: impl Fn(WriteNumber) -> bool) -> Option<HeadAction> {
        self.queue.front().filter(|(write, ..)| is_settled(*write))?;
        let (_, bytes, action) = self.queue.pop_front()?;
        self.bytes -= bytes;
        Some(action)
    }

    /// Whether so much waits that no more events are to be taken.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MOST || self.bytes >= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::exchange::{Contribution, ExchangeId};
    use kumi_control::head::{ClientId, LinkId};
    use kumi_control::message::{
        JobState, KeptOutput, NodeSet, Outcome, RankAddress, RefusalKind, Stream,
    };
    use kumi_sched::{ClusterTime, Column, Mode, NodeId};

    use crate::client::refusal;

    use super::super::job_table::tests::record;

    fn spool(length: usize) -> HeadAction {
        let (job, stream, data) = (JobId(1), Stream::Out, vec![1; length]);
        HeadAction::Spool { job, rank: 0, stream, at: 0, data }
    }

    #[test]
    fn actions_wait_for_their_write_and_for_those_before_them() {
        let mut held = HeldActions::default();
        let done = HeadAction::ToClient(ClientId(1), ClientReply::Done);
        held.push(2, spool(1));
        held.push(2, done.clone());
        assert_eq!(held.pop(|write| write <= 1), None);
        assert_eq!(held.pop(|write| write <= 2), Some(spool(1)));
        held.push(3, spool(2));
        assert_eq!(held.pop(|write| write <= 2), Some(done));
        assert_eq!(held.pop(|write| write <= 2), None);
        assert_eq!(held.pop(|write| write <= 3), Some(spool(2)));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut held = HeldActions::default();
        held.push(1, spool(MOST_BYTES - 1));
        assert!(!held.is_full());
        held.push(1, spool(1));
        assert!(held.is_full());
        assert!(held.pop(|_| true).is_some());
        assert!(!held.is_full());
    }

    /// Whatever may be long counts.
    #[test]
    fn commands_and_records_that_wait_are_bounded() {
        let to_child = |command| HeadAction::ToChild(LinkId(1), NodeSet::default(), command);
        let mut record = record(1, JobState::Queued);
        record.spec.request.env = vec![("LONG".into(), "x".repeat(MOST_BYTES / 2))];
        let half = vec![1; MOST_BYTES / 2];
        let part = |node| Contribution { node: NodeId(node), data: half.clone() };
        let id = ExchangeId { job: JobId(1), group: 0, number: 1 };
        let actions = [
            (to_child(Command::Exchanged { id, parts: vec![part(1), part(2)] }), 1),
            (to_child(Command::Prepare(Box::new(record.spec.clone()))), 2),
            (HeadAction::Persist(Box::new(record)), 2),
        ];
        for (action, most) in actions {
            let mut held = HeldActions::default();
            for _ in 0..most {
                assert!(!held.is_full(), "{action:.40?}");
                held.push(1, action.clone());
            }
            assert!(held.is_full());
            while held.pop(|_| true).is_some() {}
            assert_eq!(held.bytes, 0);
        }
    }

    /// Acknowledgements, timetables and answers come also while a disk hangs.
    #[test]
    fn whatever_has_a_list_counts() {
        let to_child = |command| HeadAction::ToChild(LinkId(1), NodeSet::default(), command);
        let streams = 0..1_000;
        let kept = streams.map(|rank| KeptOutput { rank, stream: Stream::Out, next: 0 }).collect();
        let column = |node| Column { node: NodeId(node), slots: vec![vec![JobId(1)]; 1_000] };
        let timetable = Timetable {
            generation: 1,
            start: ClusterTime(0),
            slice_ns: 1,
            phase_ns: 0,
            mode: Mode::Gang { force_switch: false, fill: true },
            columns: vec![column(1)],
            idle: Vec::new(),
        };
        let refused = refusal(RefusalKind::NoResources, "x".repeat(4_000));
        let addresses = vec![RankAddress { ip: [0; 4].into(), port: 0 }; 1_000];
        let outcome = Outcome::Refused(refused.clone());
        let actions = [
            to_child(Command::OutputKept { job: JobId(1), kept, again: false }),
            to_child(Command::Timetable(timetable)),
            to_child(Command::Start { job: JobId(1), addresses, max_datagram: 0 }),
            HeadAction::ToClient(ClientId(1), ClientReply::Refused(refused)),
            HeadAction::EndSpool { job: JobId(1), outcome, not_kept: 0 },
        ];
        for action in actions {
            let mut held = HeldActions::default();
            held.push(1, action.clone());
            assert!(held.bytes >= 4_000, "{} for {action:.60?}", held.bytes);
            held.pop(|_| true);
            assert_eq!(held.bytes, 0);
        }
    }

    #[test]
    fn leases_and_looks_do_not_wait() {
        let to_child = |command| HeadAction::ToChild(LinkId(1), NodeSet::default(), command);
        assert!(needs_no_record(&to_child(Command::Lease { until: ClusterTime(1), nanos: 1 })));
        let relayed = Command::Relayed { job: JobId(1), from: NodeId(1), data: vec![1] };
        assert!(needs_no_record(&to_child(relayed)), "who sent it asks again");
        assert!(!needs_no_record(&to_child(Command::Kill { job: JobId(1) })));
        let to_client = |reply| HeadAction::ToClient(ClientId(1), reply);
        assert!(needs_no_record(&to_client(ClientReply::Samples(Vec::new()))));
        assert!(!needs_no_record(&to_client(ClientReply::Submitted { job: JobId(1) })));
    }
}
