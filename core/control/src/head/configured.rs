//! Nodes that are added to the cluster and removed from it while jobs run.
//!
//! The driver owns the configuration: the head decides whether it may change, and hears of the change when it is on the disk.
//! The number of a node is never given again. A removed one stays a gap among the numbers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::{ClientId, Head, HeadAction, refusal};
use crate::join::check_validity;
use crate::message::{Outcome, Refusal, RefusalKind, User};

/// The longest definition of a node, in bytes.
const LONGEST_DEFINITION: usize = 64 << 10;

impl Head {
    /// Has the driver add a node. It reads the definition, and answers the client.
    ///
    /// # Errors
    /// The user may not, the cluster goes down, or the definition is too long.
    pub(super) fn add_node(
        &mut self,
        client: ClientId,
        user: &User,
        definition: String,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "add nodes")?;
        self.check_stays_up()?;
        if definition.len() > LONGEST_DEFINITION {
            let message = "the definition of the node is too long; name fewer devices and users";
            return Err(refusal(RefusalKind::BadRequest, message.into()));
        }
        self.actions.push(HeadAction::AddNode { client, definition });
        Ok(())
    }

    /// Has the driver remove a node, and answer the client. With `force` the jobs that are there end once it has.
    ///
    /// # Errors
    /// The user may not, there is no such node, jobs are there, or the cluster goes down.
    pub(super) fn drop_node(
        &mut self,
        client: ClientId,
        user: &User,
        node: NodeId,
        force: bool,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "remove nodes")?;
        self.check_stays_up()?;
        self.known_nodes(&[node])?;
        let name = self.name_of_node(node);
        if self.membership.count() == 1 {
            let message = format!(
                "{name} is the last node of the cluster; add another before, or remove the cluster with `kumi cluster destroy`"
            );
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        let jobs = self.jobs.on_node(node);
        if !jobs.is_empty() && !force {
            let message = format!(
                "jobs are on {name} ({}); drain it and wait (`kumi node drain {name} --reason TEXT --wait`), or end them with --force",
                jobs.len()
            );
            return Err(refusal(RefusalKind::NotNow, message));
        }
        self.actions.push(HeadAction::RemoveNode { client, node });
        Ok(())
    }

    /// Has the driver make a token with which a machine becomes a node, and answer the client.
    ///
    /// # Errors
    /// The user may not, there is no such node, it is up, the time cannot be, the cluster goes down, or the node was revoked by a
    /// clock that is ahead of this one.
    pub(super) fn join_token(
        &mut self,
        client: ClientId,
        user: &User,
        node: NodeId,
        valid_ms: u64,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "let machines join")?;
        self.check_stays_up()?;
        self.known_nodes(&[node])?;
        check_validity(valid_ms).map_err(|why| refusal(RefusalKind::BadRequest, why))?;
        if self.membership.is_attached(node) {
            let name = self.name_of_node(node);
            let message = format!(
                "{name} is up, so its machine has joined; before another machine becomes {name}, stop the daemon there"
            );
            return Err(refusal(RefusalKind::NotNow, message));
        }
        let now_ms = self.time.wall_ms();
        // Neither the token nor a certificate would count.
        if let Some(left_ms) = self.revoked_for(node, now_ms) {
            let (name, seconds) = (self.name_of_node(node), left_ms.div_ceil(1_000));
            let message = format!(
                "{name} was revoked at a time that this head's clock reaches in {seconds} s: repeat the command then, and set the clocks of the heads' machines right"
            );
            return Err(refusal(RefusalKind::NotNow, message));
        }
        self.actions.push(HeadAction::IssueToken { client, node, valid_ms });
        Ok(())
    }

    fn check_stays_up(&self) -> Result<(), Refusal> {
        if self.shutdown.is_none() {
            return Ok(());
        }
        let message = "the cluster is shutting down; start it again before its nodes change";
        Err(refusal(RefusalKind::NotNow, message.into()))
    }

    /// The configuration has other nodes now: these names, by number, of which some are removed. No number goes.
    pub(super) fn nodes_configured(&mut self, names: Vec<String>, removed: &[NodeId]) {
        let gone: Vec<NodeId> =
            removed.iter().copied().filter(|&node| self.membership.is_configured(node)).collect();
        self.config.nodes = names;
        self.jobs.set_node_count(self.config.nodes.len());
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        for &node in &gone {
            // While the node can still be told.
            for job in self.jobs.on_node(node) {
                self.end(job, Outcome::NodeLost(node));
            }
            let until = self.membership.last_lease_end(self.time.now());
            self.scheduler.remove_node(node);
            self.transfers.forget_node(node);
            for job in self.jobs.on_node(node) {
                self.part_lost(job, node, Some(until));
            }
        }
        self.samples.forget_nodes(&gone);
        self.forget_idle(&gone);
        self.membership.configure(self.config.nodes.len(), removed);
        for &node in &gone {
            self.revoke_node(node);
        }
        self.renew_policy();
        self.scheduler.set_nodes_changed();
    }
}
