//! Prolog and epilog of jobs on this node: programs of the administrator.

use kumi_control::agent::AgentEvent;
use kumi_control::message::{JobSpec, NodeCondition, RefusalKind, User};
use kumi_sched::JobId;

use super::NodeServices;
use super::admission::{LaunchAborted, unless_killed};
use super::run::JobCommands;
use crate::admin_program::AdminProgram;
use crate::client::refusal;
use crate::config::Hooks;

/// The programs, as configured.
#[derive(Clone, Debug, Default)]
pub struct JobHookPrograms {
    prolog: Option<AdminProgram>,
    epilog: Option<AdminProgram>,
    /// Names of the cluster and of this node.
    cluster: String,
    node: String,
}

impl JobHookPrograms {
    /// Those of a node of this name.
    #[must_use]
    pub fn new(hooks: &Hooks, cluster: &str, node: &str) -> Self {
        let program = |path: &Option<_>| {
            path.clone().map(|path| AdminProgram { path, timeout: hooks.timeout() })
        };
        Self {
            prolog: program(&hooks.prolog),
            epilog: program(&hooks.epilog),
            cluster: cluster.to_owned(),
            node: node.to_owned(),
        }
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }
}

/// The hooks of one job. The epilog runs if the prolog has begun, whatever became of it.
pub(super) struct JobHooks {
    job: JobId,
    user: User,
    begun: bool,
}

impl JobHooks {
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self { job: spec.job, user: spec.user.clone(), begun: false }
    }

    /// Those of a job that a former daemon started: its prolog is through.
    pub(super) fn of_adopted(spec: &JobSpec) -> Self {
        Self { begun: true, ..Self::new(spec) }
    }

    /// Runs the prolog, if there is one, unless the job is killed meanwhile. The node is drained if it fails.
    pub(super) async fn prolog(
        &mut self,
        services: &NodeServices,
        spec: &JobSpec,
        orders: &mut JobCommands,
    ) -> Result<(), LaunchAborted> {
        self.begun = true;
        // Who the user is on this machine has been found out meanwhile.
        self.user = spec.user.clone();
        let Some(prolog) = &services.hooks.prolog else { return Ok(()) };
        let environment = self.environment("prolog", &services.hooks);
        let Err(why) = unless_killed(prolog.run(&environment), orders).await? else {
            return Ok(());
        };
        let path = prolog.path.display();
        let reason = format!("prolog {path} of job {} {why}", self.job.number());
        self.drain(services, &reason).await;
        let message = format!(
            "node {}: {reason}; the node is drained, so submit the job again",
            services.hooks.node
        );
        Err(refusal(RefusalKind::NodeLost, message).into())
    }

    /// Runs the epilog, if there is one and the prolog has begun. The node is drained if it fails.
    pub(super) async fn epilog(&self, services: &NodeServices) {
        let Some(epilog) = services.hooks.epilog.as_ref().filter(|_| self.begun) else { return };
        if let Err(why) = epilog.run(&self.environment("epilog", &services.hooks)).await {
            let path = epilog.path.display();
            self.drain(services, &format!("epilog {path} of job {} {why}", self.job.number()))
                .await;
        }
    }

    async fn drain(&self, services: &NodeServices, reason: &str) {
        tracing::warn!(job = %self.job, reason, "the node is drained");
        let condition = NodeCondition::HookFailed { reason: reason.to_owned() };
        services.tell(AgentEvent::Condition(condition)).await;
    }

    fn environment(&self, hook: &str, hooks: &JobHookPrograms) -> [(&'static str, String); 8] {
        let (job, user) = (self.job, &self.user);
        [
            ("KUMI_HOOK", hook.to_owned()),
            ("KUMI_JOB", job.number().to_string()),
            ("KUMI_RESTARTS", job.restarts().to_string()),
            ("KUMI_USER", user.name.clone()),
            ("KUMI_UID", user.uid.to_string()),
            ("KUMI_GID", user.gid.to_string()),
            ("KUMI_NODE", hooks.node.clone()),
            ("KUMI_CLUSTER", hooks.cluster.clone()),
        ]
    }
}
