//! Looks now and then whether this node is in order, by a program of the administrator.

use std::rc::Rc;

use kumi_control::message::NodeCondition;

use crate::admin_program::AdminProgram;
use crate::config::Health;
use crate::job::NodeServices;

/// Counts failures in a row, and says when the node's condition changes.
#[derive(Debug)]
struct HealthRecord {
    /// Failures after which the node is unfit.
    most: u32,
    failed: u32,
    /// What was said last; nothing before the first answer.
    told: Option<bool>,
}

impl HealthRecord {
    fn new(most: u32) -> Self {
        Self { most, failed: 0, told: None }
    }

    /// A check has ended so. Returns what is to be told, if that is new.
    fn checked(&mut self, result: Result<(), String>) -> Option<NodeCondition> {
        let condition = match result {
            Ok(()) => {
                self.failed = 0;
                NodeCondition::Healthy
            }
            Err(why) => {
                self.failed = self.failed.saturating_add(1);
                if self.failed < self.most {
                    return None;
                }
                NodeCondition::Unhealthy { reason: format!("health check {why}") }
            }
        };
        let healthy = condition == NodeCondition::Healthy;
        (self.told.replace(healthy) != Some(healthy)).then_some(condition)
    }
}

/// Runs the check for as long as the daemon does.
pub(super) async fn watch(
    health: Health,
    (cluster, node): (String, String),
    services: Rc<NodeServices>,
) {
    let Some(path) = health.program.clone() else { return };
    let program = AdminProgram { path, timeout: health.timeout() };
    let environment =
        [("KUMI_HOOK", "health".to_owned()), ("KUMI_NODE", node), ("KUMI_CLUSTER", cluster)];
    let mut record = HealthRecord::new(health.failures);
    loop {
        let result = program.run(&environment).await;
        if let Err(why) = &result {
            tracing::warn!(program = %program.path.display(), why, "the health check failed");
        }
        if let Some(condition) = record.checked(result)
            && !services.starts.checked(condition).await
        {
            return;
        }
        tokio::time::sleep(health.interval()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_told_when_it_changes() {
        let mut record = HealthRecord::new(2);
        let fail =
            |record: &mut HealthRecord| record.checked(Err("ended with status 1".to_owned()));
        assert_eq!(record.checked(Ok(())), Some(NodeCondition::Healthy));
        assert_eq!(record.checked(Ok(())), None);
        assert_eq!(fail(&mut record), None, "once is not enough");
        assert_eq!(record.checked(Ok(())), None);
        assert_eq!(fail(&mut record), None, "not in a row");
        let reason = "health check ended with status 1".to_owned();
        assert_eq!(fail(&mut record), Some(NodeCondition::Unhealthy { reason }));
        assert_eq!(fail(&mut record), None);
        assert_eq!(record.checked(Ok(())), Some(NodeCondition::Healthy));
    }
}
