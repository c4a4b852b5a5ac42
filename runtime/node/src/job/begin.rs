//! How the task of a job begins: what must be there, what runs before it, and its processes.

use std::rc::Rc;

use kumi_control::agent::AgentEvent;
use kumi_control::message::JobSpec;

use super::admission::{LaunchAborted, find_program};
use super::hooks::JobHooks;
use super::run::{JobCommands, JobTask};
use super::{JobEvent, NodeServices};

/// The task of a job, from `Prepare` to `Freed`.
pub(super) async fn run(
    services: Rc<NodeServices>,
    mut spec: Box<JobSpec>,
    mut orders: JobCommands,
) {
    let job = spec.job;
    let mut hooks = JobHooks::new(&spec);
    let launched = launch(&services, &mut spec, (&mut orders, &mut hooks)).await;
    if launched.is_err() {
        hooks.epilog(&services).await;
    }
    match launched {
        Ok(task) => task.run(orders, hooks).await,
        Err(LaunchAborted::Killed) => services.tell(AgentEvent::Freed { job }).await,
        Err(LaunchAborted::Refused(refused)) => {
            tracing::info!(%job, reason = refused.message, "refused");
            services.tell(AgentEvent::Prepared { job, result: Err(refused) }).await;
            // Fails only when the daemon is about to end.
            let _ = services.events.send(JobEvent::Gone(job)).await;
        }
    }
}

/// Makes the job's processes, once its program and the prolog are through.
async fn launch(
    services: &Rc<NodeServices>,
    spec: &mut JobSpec,
    (orders, hooks): (&mut JobCommands, &mut JobHooks),
) -> Result<JobTask, LaunchAborted> {
    let (part, program) = find_program(services, spec, orders).await?;
    hooks.prolog(services, spec, orders).await?;
    JobTask::launch(services, spec, &part, program).await.map_err(LaunchAborted::from)
}
