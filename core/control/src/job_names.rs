//! Where the messages of the control tree name jobs.

use kumi_sched::JobId;

use crate::message::{Command, Report};

/// Calls `name` with each job that a command names.
pub(crate) fn name_jobs_in_command(command: &mut Command, name: &mut dyn FnMut(&mut JobId)) {
    match command {
        Command::Prepare(spec) => name(&mut spec.job),
        Command::Start { job, .. }
        | Command::Signal { job, .. }
        | Command::Kill { job }
        | Command::Input { job, .. }
        | Command::Resize { job, .. }
        | Command::Forget { job }
        | Command::SamplePeers { job, .. }
        | Command::SampleChannels { job, .. }
        | Command::SampleTrace { job, .. }
        | Command::Relayed { job, .. }
        | Command::Confirm { job, .. }
        | Command::OutputKept { job, .. }
        | Command::DropOutput { job } => name(job),
        Command::Exchanged { id, .. } => name(&mut id.job),
        Command::Timetable(timetable) => {
            let slots = timetable.columns.iter_mut().flat_map(|column| &mut column.slots);
            slots.flatten().chain(&mut timetable.idle).for_each(&mut *name);
            // Both are in order.
            let slots = timetable.columns.iter_mut().flat_map(|column| &mut column.slots);
            slots.for_each(|slot| slot.sort_unstable());
            timetable.idle.sort_unstable();
        }
        Command::ProgramChunk { .. }
        | Command::ProgramMissing(_)
        | Command::Lease { .. }
        | Command::Sample { .. }
        | Command::Shutdown
        | Command::Revoked(_)
        | Command::SampleLoad { .. } => {}
    }
}

/// Calls `name` with each job that a report names, but those of samples.
pub(crate) fn name_jobs_in_report(report: &mut Report, name: &mut dyn FnMut(&mut JobId)) {
    match report {
        Report::Attached(nodes) => {
            nodes.iter_mut().flat_map(|node| &mut node.jobs).for_each(|(job, _)| name(job));
        }
        Report::Prepared { job, .. }
        | Report::ProgramWanted { job, .. }
        | Report::RankFailed { job, .. }
        | Report::Freed { job, .. }
        | Report::Output { job, .. }
        | Report::Abandoned { job, .. } => name(job),
        Report::Idle(report) => name(&mut report.job),
        Report::Exchange(report) => name(&mut report.id.job),
        Report::Relay(report) => name(&mut report.job),
        Report::Standing(report) => name(&mut report.job),
        Report::Used(report) => name(&mut report.job),
        Report::Detached(_) | Report::Samples { .. } | Report::Condition(_) => {}
    }
}
