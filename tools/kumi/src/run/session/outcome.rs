//! Exit code of a command that followed a job.

use crate::interrupts::exit_code;
use kumi_control::message::Outcome;
use kumi_node::exit::{self, ExitCode};
use nix::sys::signal::Signal;

/// The exit code of `kumi run` for an outcome; `interrupted` is the last signal the user sent.
pub fn code_of(outcome: &Outcome, interrupted: Option<Signal>) -> u8 {
    match outcome {
        Outcome::Success => ExitCode::Ok.code(),
        Outcome::RankFailed { status, .. } => exit::of_rank(*status),
        Outcome::Refused(refusal) => ExitCode::from(refusal).code(),
        Outcome::NodeLost(_) | Outcome::HeadAway(_) => ExitCode::TryLater.code(),
        Outcome::Deadlocked => ExitCode::Deadlock.code(),
        Outcome::TimeLimit(_) => ExitCode::TimeLimit.code(),
        Outcome::Killed => exit_code(interrupted.unwrap_or(Signal::SIGKILL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{RankStatus, Refusal, RefusalKind};
    use kumi_sched::NodeId;

    #[test]
    fn exit_codes_of_jobs() {
        let failed = |status| Outcome::RankFailed { rank: 1, node: NodeId(0), status };
        let refused = |kind| Outcome::Refused(Refusal { kind, message: String::new() });
        let cases = [
            (Outcome::Success, None, 0),
            (failed(RankStatus::Exited(3)), None, 3),
            (failed(RankStatus::Signalled(11)), None, 139),
            (refused(RefusalKind::TooLarge), None, 78),
            (refused(RefusalKind::NotFound), None, 66),
            (refused(RefusalKind::NotPermitted), None, 77),
            (refused(RefusalKind::NotNow), None, 75),
            (Outcome::NodeLost(NodeId(2)), None, 75),
            (Outcome::HeadAway(NodeId(2)), None, 75),
            (Outcome::Killed, None, 137),
            (Outcome::Deadlocked, None, 72),
            (Outcome::TimeLimit(1), None, 124),
            (Outcome::Killed, Some(Signal::SIGINT), 130),
        ];
        for (outcome, interrupted, code) in cases {
            assert_eq!(code_of(&outcome, interrupted), code, "{outcome:?}");
        }
    }
}
