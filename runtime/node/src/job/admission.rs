//! What happens before a job has processes on a node: its request is checked, its user looked up, its program found.

use std::path::PathBuf;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{JobSpec, NodeRanks, Refusal, RefusalKind};

use super::run::JobCommands;
use super::{JobCommand, NodeServices};
use crate::client::refusal;

/// Reason for which a job did not start.
pub(super) enum LaunchAborted {
    Refused(Refusal),
    Killed,
}

impl From<Refusal> for LaunchAborted {
    fn from(refused: Refusal) -> Self {
        Self::Refused(refused)
    }
}

/// Checks the request, finds out who the user is here, and finds the file to run, asking for it if this node lacks it.
pub(super) async fn find_program(
    services: &NodeServices,
    spec: &mut JobSpec,
    orders: &mut JobCommands,
) -> Result<(NodeRanks, PathBuf), LaunchAborted> {
    let bad = |what: &str| refusal(RefusalKind::BadRequest, format!("the job cannot run: {what}"));
    let part = spec.layout.iter().find(|part| part.node == services.node && part.count > 0);
    let part = part.ok_or_else(|| bad("it has no rank on this node"))?;
    let end = part.first.checked_add(part.count).filter(|&end| end <= spec.request.ranks);
    if end.is_none() {
        return Err(bad("its layout is beyond its number of ranks").into());
    }
    let part = part.clone();
    spec.user = unless_killed(services.identify(&spec.user), orders).await??;
    let mut asked = false;
    loop {
        let finding = services.programs.borrow().find(&spec.request.program, &spec.user);
        if let Some(path) = unless_killed(finding, orders).await? {
            return Ok((part, path));
        }
        if asked {
            let message = "the program was sent and is gone from the node's cache; run it again";
            return Err(refusal(RefusalKind::Internal, message).into());
        }
        asked = true;
        let hash = spec.request.program.hash;
        services.tell(AgentEvent::ProgramNeeded { job: spec.job, hash }).await;
        loop {
            match orders.recv().await {
                Some(JobCommand::Program(which, result)) if which == hash => break result?,
                Some(JobCommand::Kill) | None => return Err(LaunchAborted::Killed),
                Some(_) => {}
            }
        }
    }
}

/// Looks for a program, which may take long, unless the job is killed meanwhile.
pub(super) async fn unless_killed<T>(
    finding: impl Future<Output = T>,
    orders: &mut JobCommands,
) -> Result<T, LaunchAborted> {
    let mut finding = std::pin::pin!(finding);
    loop {
        tokio::select! {
            biased;
            found = &mut finding => return Ok(found),
            order = orders.recv() => match order {
                Some(JobCommand::Kill) | None => return Err(LaunchAborted::Killed),
                Some(_) => {}
            },
        }
    }
}
