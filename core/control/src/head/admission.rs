//! Admission of jobs: checks of a request before the head takes it.

use alloc::format;
use alloc::vec::Vec;

use super::capacity::Capacity;
use super::scheduler::Scheduler;
use super::{refusal, sizing};
use crate::batch::{MOST_AFTER, MOST_CONTENT, MOST_REQUEUES};
use crate::deadlock::OnDeadlock;
use crate::message::{
    JobRequest, LONGEST_ESTIMATE, MOST_PRIORITY, Refusal, RefusalKind, WaitLimit,
};

/// Arguments, environment, name and paths together; with the rest of a `Prepare` they fit a frame.
const MOST_TEXT: usize = 512 << 10;

fn bad(message: &str) -> Result<(), Refusal> {
    Err(refusal(RefusalKind::BadRequest, message.into()))
}

/// Checks whether a request makes sense on this cluster, and whether the policy can take it.
/// `max_priority` is the highest that this user may have; `None` is any.
///
/// # Errors
/// It does not.
pub(super) fn check(
    request: &JobRequest,
    capacity: &Capacity<'_>,
    scheduler: &Scheduler,
    max_priority: Option<u16>,
) -> Result<(), Refusal> {
    check_size(request, capacity)?;
    check_text(request)?;
    check_priority(request, max_priority)?;
    check_estimate(request, scheduler)?;
    check_wait(request)?;
    check_resources(request)?;
    check_batch(request)?;
    OnDeadlock::from_env(&request.env)
        .map_err(|message| refusal(RefusalKind::BadRequest, message))?;
    sizing::demand(request, capacity).map(|_| ())
}

fn check_size(request: &JobRequest, capacity: &Capacity<'_>) -> Result<(), Refusal> {
    if request.ranks == 0 {
        return bad("a job has at least one rank; ask for one or more");
    }
    if request.nodes == Some(0) {
        return bad(
            "a job runs on at least one node; ask for one or more, or leave the number open",
        );
    }
    if request.nodes.is_some_and(|nodes| nodes > capacity.nodes) {
        let message = format!(
            "the cluster has {} nodes and the job asks for {}; ask for fewer",
            capacity.nodes,
            request.nodes.unwrap_or(0)
        );
        return Err(refusal(RefusalKind::TooLarge, message));
    }
    if request.nodes.is_some_and(|nodes| nodes > request.ranks) {
        return bad(
            "the job asks for more nodes than ranks; ask for at most one node for each rank",
        );
    }
    Ok(())
}

/// Most processors, ranks or devices in one number of a request.
const MOST_COUNT: u32 = 4096;

fn check_resources(request: &JobRequest) -> Result<(), Refusal> {
    let resources = &request.resources;
    let numbers = [resources.processors_per_rank, resources.ranks_per_node];
    if numbers.into_iter().flatten().any(|number| !(1..=MOST_COUNT).contains(&number)) {
        return bad(
            "a rank has 1 to 4096 processors, and a node as many ranks; give another number",
        );
    }
    for (index, device) in resources.devices.iter().enumerate() {
        if !(1..=MOST_COUNT).contains(&device.count) {
            return bad("a rank has 1 to 4096 devices of a kind; give another number");
        }
        if resources.devices[..index].iter().any(|other| other.name == device.name) {
            let message = format!("resource {} is given twice; give it once", device.name);
            return Err(refusal(RefusalKind::BadRequest, message));
        }
    }
    Ok(())
}

fn check_batch(request: &JobRequest) -> Result<(), Refusal> {
    let batch = &request.batch;
    if batch.time_limit_ns.is_some_and(|limit| !(1..=LONGEST_ESTIMATE).contains(&limit)) {
        return bad("a time limit is more than 0 and at most 365 days; give another");
    }
    if batch.after.len() > MOST_AFTER {
        return bad("a job runs after at most 1000 others; name fewer");
    }
    if batch.requeues > MOST_REQUEUES {
        return bad("a job is started again at most 1000 times; give --requeue a smaller number");
    }
    if batch.requeues > 0 && request.terminal.is_some() {
        return bad("a job with a terminal is not started again; leave out --requeue, or -t");
    }
    let size = batch.content.as_ref().map(Vec::len);
    if size.is_some_and(|size| size > MOST_CONTENT || size as u64 != request.program.size) {
        return bad("a request has the whole program or nothing of it, and at most 256 KiB");
    }
    Ok(())
}

fn check_text(request: &JobRequest) -> Result<(), Refusal> {
    if !request.program.path.starts_with('/') || !request.cwd.starts_with('/') {
        return bad("the program and the working directory must be absolute paths");
    }
    if request.args.is_empty() {
        return bad("the arguments must begin with the name of the program");
    }
    let env = request.env.iter().map(|(name, value)| name.len() + value.len() + 2);
    let args = request.args.iter().map(|arg| arg.len() + 1);
    let others = request.name.len() + request.cwd.len() + request.program.path.len();
    if env.chain(args).sum::<usize>() + others > MOST_TEXT {
        return bad("arguments, environment, name and paths together exceed 512 KiB; pass less");
    }
    let texts = request.args.iter().chain([&request.cwd, &request.program.path]);
    let pairs = request.env.iter().flat_map(|(name, value)| [name, value]);
    if texts.chain(pairs).any(|text| text.contains('\0')) {
        return bad("paths, arguments and environment must not contain a zero byte");
    }
    Ok(())
}

fn check_priority(request: &JobRequest, max_priority: Option<u16>) -> Result<(), Refusal> {
    let priority = request.priority;
    if !(1..=MOST_PRIORITY).contains(&priority) {
        let message = format!(
            "{priority} is not a priority; give a number from 1 (ordinary) to {MOST_PRIORITY}"
        );
        return Err(refusal(RefusalKind::BadRequest, message));
    }
    if let Some(most) = max_priority.map(|most| most.max(1))
        && priority > most
    {
        let message = format!(
            "priority {priority} is above {most}, the highest for users of this cluster; \
             give a lower one, or ask the owner"
        );
        return Err(refusal(RefusalKind::NotPermitted, message));
    }
    Ok(())
}

fn check_wait(request: &JobRequest) -> Result<(), Refusal> {
    match request.wait {
        Some(WaitLimit::AtMost(limit)) if !(1..=LONGEST_ESTIMATE).contains(&limit) => {
            bad("a job waits more than 0 and at most 365 days; give another time, no or forever")
        }
        _ => Ok(()),
    }
}

fn check_estimate(request: &JobRequest, scheduler: &Scheduler) -> Result<(), Refusal> {
    match request.estimate_ns {
        Some(estimate) if !(1..=LONGEST_ESTIMATE).contains(&estimate) => {
            bad("an estimate must be more than 0 and at most 365 days; give another")
        }
        None if scheduler.plans() => {
            let message = format!(
                "policy {} needs an estimate of the job's run time; give one, for example \
                 --estimate 10m",
                scheduler.name()
            );
            Err(refusal(RefusalKind::BadRequest, message))
        }
        _ => Ok(()),
    }
}
