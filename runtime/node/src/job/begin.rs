//! How the task of a job begins: what must be there, what runs before it, and its processes.

use std::rc::Rc;

use kumi_control::agent::AgentEvent;
use kumi_control::message::JobSpec;

use super::admission::{LaunchAborted, find_program};
use super::hooks::JobHooks;
use super::run::{JobCommands, JobTask};
use super::starting::JobStart;
use super::{JobEvent, NodeServices};

/// The task of a job, from `Prepare` to `Freed`.
pub(super) async fn run(
    services: Rc<NodeServices>,
    mut spec: Box<JobSpec>,
    mut orders: JobCommands,
) {
    let job = spec.job;
    let mut hooks = JobHooks::new(&spec);
    let mut start = JobStart::new(job);
    let launched = launch(&services, &mut spec, (&mut orders, &mut hooks, &mut start)).await;
    match launched {
        Ok(task) => task.run(orders, hooks).await,
        Err(LaunchAborted::Killed) => {
            end(&services, start, &hooks).await;
            services.tell(AgentEvent::Freed { job }).await;
        }
        Err(LaunchAborted::Refused(refused)) => {
            tracing::info!(%job, reason = refused.message, "refused");
            services.tell(AgentEvent::Prepared { job, result: Err(refused) }).await;
            end(&services, start, &hooks).await;
            // Fails only when the daemon is about to end.
            let _ = services.events.send(JobEvent::Gone(job)).await;
        }
    }
}

/// The end of a job that does not run: first its start, so that the epilog finds nothing of it.
async fn end(services: &NodeServices, start: JobStart, hooks: &JobHooks) {
    start.ended(&services.starts).await;
    hooks.epilog(services).await;
}

/// Makes the job's processes, once its program and the prolog are through.
async fn launch(
    services: &Rc<NodeServices>,
    spec: &mut JobSpec,
    (orders, hooks, start): (&mut JobCommands, &mut JobHooks, &mut JobStart),
) -> Result<JobTask, LaunchAborted> {
    let (part, program) = find_program(services, spec, orders).await?;
    hooks.prolog(services, spec, orders).await?;
    JobTask::launch(services, spec, &part, program, (orders, start)).await
}
