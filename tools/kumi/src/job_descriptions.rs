//! Descriptions of jobs in words: their outcome and state.

use crate::table;
use kumi_control::message::{
    JobRecord, JobState, Outcome, RankStatus, RefusalKind, Verdict, WaitReason,
};
use kumi_sched::NodeId;
use nix::sys::signal::Signal;

/// Names of the nodes, by number.
#[derive(Clone, Debug, Default)]
pub struct NodeNames(pub Vec<String>);

impl NodeNames {
    /// The node's name, or a name made from its number when the configuration has none.
    pub fn get(&self, node: NodeId) -> String {
        let known = usize::try_from(node.0).ok().and_then(|index| self.0.get(index));
        known.map_or_else(|| format!("node {node}"), |name| table::printable(name))
    }
}

/// `11 (SIGSEGV)`, or the bare number of a signal without a name.
pub fn signal(number: u8) -> String {
    match Signal::try_from(i32::from(number)) {
        Ok(known) => format!("{number} ({known})"),
        Err(_) => number.to_string(),
    }
}

/// The exit code of the loader and of shells for what they do not find.
const NOT_FOUND: u8 = 127;

/// Outcome of a job as a sentence without the job's name; `None` for success.
pub fn outcome(outcome: &Outcome, names: &NodeNames) -> Option<String> {
    Some(match outcome {
        Outcome::Success => return None,
        Outcome::RankFailed { rank, node, status } => {
            let place = format!("rank {rank} on {}", names.get(*node));
            match status {
                RankStatus::Exited(NOT_FOUND) => format!(
                    "{place} exited with code {NOT_FOUND}: it did not find a program or a library there; libraries, such as \
                     libkumi.so, must be on every node"
                ),
                RankStatus::Exited(code) => format!("{place} exited with code {code}"),
                RankStatus::Signalled(number) => {
                    format!("{place} was killed by signal {}", signal(*number))
                }
                RankStatus::OutOfMemory(bytes) => format!(
                    "{place} was killed because its job had used up its {} of memory there; \
                     give it more with --mem-per-rank, or run it on more nodes",
                    table::bytes(*bytes)
                ),
                RankStatus::NotFinalized => format!(
                    "{place} ended between MPI_Init and MPI_Finalize; others may have waited for it"
                ),
            }
        }
        Outcome::Refused(refusal) => table::printable(&refusal.message),
        Outcome::NodeLost(node) => {
            format!("{} was lost while the job ran; run it again", names.get(*node))
        }
        Outcome::HeadAway(node) => format!(
            "it was ended because the head was away for longer than the lease of the nodes ({} ended it first); run it \
             again, and let leases be longer (lease_ms) if the head may be away for so long",
            names.get(*node)
        ),
        Outcome::Killed => "it was killed".to_owned(),
        Outcome::Deadlocked => {
            "it was ended because its ranks waited for each other for ever".to_owned()
        }
        Outcome::TimeLimit(limit) => {
            let limit = table::elapsed(limit / 1_000_000);
            format!(
                "it was ended because its time limit of {limit} was over; give it more with --time"
            )
        }
    })
}

/// `job 12 (cg)`; `job 12` without a known name.
pub fn job(number: u64, name: &str) -> String {
    if name.is_empty() {
        format!("job {number}")
    } else {
        format!("job {number} ({})", table::shortened(name, 40))
    }
}

/// The state in a few words for a column of `kumi ps`; of one that runs, the verdict.
pub fn state(state: &JobState, verdict: Verdict) -> String {
    match state {
        JobState::Queued => "queued".to_owned(),
        JobState::Preparing => "starting".to_owned(),
        JobState::Running => verdict.name().to_owned(),
        JobState::Ending(_) => "ending".to_owned(),
        JobState::Ended(outcome) => ended(outcome),
    }
}

fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Success => "done".to_owned(),
        Outcome::RankFailed { rank, status: RankStatus::Exited(code), .. } => {
            format!("exit {code} (rank {rank})")
        }
        Outcome::RankFailed { rank, status: RankStatus::Signalled(number), .. } => {
            match Signal::try_from(i32::from(*number)) {
                Ok(known) => format!("{known} (rank {rank})"),
                Err(_) => format!("signal {number} (rank {rank})"),
            }
        }
        Outcome::RankFailed { rank, status: RankStatus::OutOfMemory(_), .. } => {
            format!("out of memory (rank {rank})")
        }
        Outcome::RankFailed { rank, status: RankStatus::NotFinalized, .. } => {
            format!("not finalized (rank {rank})")
        }
        Outcome::Refused(refusal) if is_withdrawn(refusal.kind) => "withdrawn".to_owned(),
        Outcome::Refused(_) => "refused".to_owned(),
        Outcome::NodeLost(node) => format!("node {node} lost"),
        Outcome::HeadAway(_) => "head away".to_owned(),
        Outcome::Killed => "killed".to_owned(),
        Outcome::Deadlocked => "deadlock".to_owned(),
        Outcome::TimeLimit(_) => "time limit".to_owned(),
    }
}

/// Whether the head withdrew the job, which could have run.
pub fn is_withdrawn(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::NotNow | RefusalKind::PredecessorFailed)
}

/// What a job waits for, in a few words for a column of `kumi ps`.
pub fn waits_for(reason: &WaitReason) -> String {
    match *reason {
        WaitReason::NodesAttaching { up, nodes } => format!("nodes: {up} of {nodes} attached"),
        WaitReason::NodesDown { wanted, up, nodes, .. } => {
            format!("{wanted} processors, {up} of {nodes} nodes up")
        }
        WaitReason::ProcessorsTaken { wanted, free } => {
            format!("processors: {wanted} wanted, {free} free")
        }
        WaitReason::ProcessorsFull { limit } => format!("processors: {limit} jobs on each"),
        WaitReason::ResourcesTaken => "memory or devices".to_owned(),
        WaitReason::Behind { job } => format!("job {job}"),
        WaitReason::BehindShare { job } => format!("job {job}: its user has spent less"),
        WaitReason::After { job } => format!("end of job {job}"),
        WaitReason::ArrayFull { most } => format!("array: at most {most} at a time"),
        WaitReason::Preparing { ready, nodes } => format!("nodes: {ready} of {nodes} ready"),
        WaitReason::NodesDrained { wanted, drained, .. } => {
            format!(
                "{wanted} processors, {drained} node{} drained",
                if drained == 1 { "" } else { "s" }
            )
        }
    }
}

/// The command line of a job, with spaces between the arguments.
pub fn command(record: &JobRecord) -> String {
    record.spec.request.args.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::Refusal;

    fn names() -> NodeNames {
        NodeNames(vec!["node0".into(), "node1".into()])
    }

    fn failed(rank: u32, node: u32, status: RankStatus) -> Outcome {
        Outcome::RankFailed { rank, node: NodeId(node), status }
    }

    #[test]
    fn a_failing_rank_is_named_with_its_node() {
        let text = |o: &Outcome| outcome(o, &names()).unwrap();
        assert_eq!(
            text(&failed(3, 1, RankStatus::Signalled(11))),
            "rank 3 on node1 was killed by signal 11 (SIGSEGV)"
        );
        assert_eq!(
            text(&failed(0, 0, RankStatus::Exited(3))),
            "rank 0 on node0 exited with code 3"
        );
        let missing = text(&failed(0, 1, RankStatus::Exited(127)));
        assert!(missing.starts_with("rank 0 on node1 exited with code 127: it did not find "));
        assert!(missing.ends_with("must be on every node"), "{missing}");
        assert_eq!(
            text(&failed(0, 7, RankStatus::Signalled(63))),
            "rank 0 on node 7 was killed by signal 63"
        );
        assert_eq!(
            text(&Outcome::NodeLost(NodeId(1))),
            "node1 was lost while the job ran; run it again"
        );
    }

    #[test]
    fn success_says_nothing_and_a_refusal_says_its_own_sentence() {
        assert_eq!(outcome(&Outcome::Success, &names()), None);
        let refusal = Refusal { kind: RefusalKind::TooLarge, message: "too\nmany".into() };
        assert_eq!(outcome(&Outcome::Refused(refusal), &names()).unwrap(), "too\u{fffd}many");
    }

    #[test]
    fn jobs_and_states() {
        assert_eq!(job(12, "cg"), "job 12 (cg)");
        assert_eq!(job(12, ""), "job 12");
        let status = RankStatus::Signalled(9);
        assert_eq!(
            state(&JobState::Ended(failed(2, 0, status)), Verdict::Running),
            "SIGKILL (rank 2)"
        );
        assert_eq!(state(&JobState::Running, Verdict::Stopped), "stopped");
        let status = RankStatus::Exited(1);
        assert_eq!(
            state(&JobState::Ended(failed(2, 0, status)), Verdict::Running),
            "exit 1 (rank 2)"
        );
        assert_eq!(state(&JobState::Ending(Outcome::Killed), Verdict::Idle), "ending");
        let refused =
            |kind| JobState::Ended(Outcome::Refused(Refusal { kind, message: String::new() }));
        assert_eq!(state(&refused(RefusalKind::NotNow), Verdict::Running), "withdrawn");
        assert_eq!(state(&refused(RefusalKind::NotFound), Verdict::Running), "refused");
    }
}
