//! From a request to ranks on nodes.

use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, NodeId};

use super::Head;
use super::jobs::{Job, refusal};
use super::quota::request_bytes;
use crate::message::{
    JobRecord, JobRequest, JobSpec, JobState, NodeRanks, Outcome, Refusal, RefusalKind, SealKey,
    User,
};

/// Arguments, environment, name and paths together; with the rest of a `Prepare` they fit a frame.
const MOST_TEXT: usize = 512 << 10;

/// Ranks in blocks over the nodes, ascending; the first nodes have one more if it does not divide.
pub(super) fn layout(ranks: u32, nodes: &[NodeId]) -> Vec<NodeRanks> {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let (each, more) = (ranks / count, ranks % count);
    let mut first = 0;
    let mut layout = Vec::with_capacity(nodes.len());
    for (index, &node) in (0..).zip(nodes) {
        let count = each + u32::from(index < more);
        layout.push(NodeRanks { node, first, count });
        first += count;
    }
    layout
}

impl Head {
    fn cluster_size(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// What nodes have said of themselves has changed.
    pub(super) fn measure_nodes(&mut self) {
        let known = self.nodes.iter().filter_map(|node| node.description.as_ref());
        let sizes = known.map(|node| (node.processors.max(1), node.max_ranks.max(1)));
        let smallest = |one: (u32, u32), two: (u32, u32)| (one.0.min(two.0), one.1.min(two.1));
        self.smallest_node = sizes.reduce(smallest);
        self.considered += self.nodes.len() as u64;
    }

    /// On how many nodes the job goes: as asked, or as many as have a processor for each rank, or
    /// all that are up. Just after the head's start its nodes are still attaching, and a job that
    /// leaves the number open waits for them.
    ///
    /// # Errors
    /// `Ok(None)` while it cannot be said. An error when the job can never fit.
    fn wanted_nodes(&self, request: &JobRequest) -> Result<Option<u32>, Refusal> {
        let Some((processors, max_ranks)) = self.smallest_node else { return Ok(None) };
        let fewest = request.ranks.div_ceil(max_ranks);
        let most = request.nodes.unwrap_or(self.cluster_size());
        if most < fewest {
            let message = format!(
                "{} ranks on {most} nodes are {} ranks on a node, and a node takes at most \
                 {max_ranks}; ask for fewer ranks{}",
                request.ranks,
                request.ranks.div_ceil(most.max(1)),
                if fewest <= self.cluster_size() { " or more nodes" } else { "" }
            );
            return Err(refusal(RefusalKind::TooLarge, message));
        }
        if request.nodes.is_some() {
            return Ok(request.nodes);
        }
        let up = u32::try_from(self.routes.reached()).unwrap_or(u32::MAX);
        if up == 0 || (self.starting.is_some() && up < self.cluster_size()) {
            return Ok(None);
        }
        Ok(Some(request.ranks.div_ceil(processors).min(up).max(fewest)))
    }

    /// Whether a request makes sense on this cluster at all.
    fn check_request(&self, user: &User, request: &JobRequest) -> Result<(), Refusal> {
        let bad = |message: &str| Err(refusal(RefusalKind::BadRequest, message.into()));
        if request.ranks == 0 {
            return bad("a job has at least one rank; ask for one or more");
        }
        if request.nodes == Some(0) {
            return bad("a job runs on at least one node; ask for one or more, or leave it open");
        }
        if request.nodes.is_some_and(|nodes| nodes > self.cluster_size()) {
            let message = format!(
                "the cluster has {} nodes and the job asks for {}; ask for fewer",
                self.cluster_size(),
                request.nodes.unwrap_or(0)
            );
            return Err(refusal(RefusalKind::TooLarge, message));
        }
        if request.nodes.is_some_and(|nodes| nodes > request.ranks) {
            return bad("the job asks for more nodes than ranks; ask for at most one node a rank");
        }
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
            return bad(
                "arguments, environment, name and paths together exceed 512 KiB; pass less",
            );
        }
        let texts = request.args.iter().chain([&request.cwd, &request.program.path]);
        let pairs = request.env.iter().flat_map(|(name, value)| [name, value]);
        if texts.chain(pairs).any(|text| text.contains('\0')) {
            return bad("paths, arguments and environment must not contain a zero byte");
        }
        self.check_demands(user, request)?;
        self.wanted_nodes(request).map(|_| ())
    }

    /// A new job, or the one that was submitted with this token before.
    ///
    /// # Errors
    /// Nothing of a refused job is kept.
    pub(super) fn submit(
        &mut self,
        user: &User,
        mut request: JobRequest,
    ) -> Result<JobId, Refusal> {
        if let Some(&known) = self.tokens.get(&request.token) {
            let owner = self.jobs.get(&known).map(|job| job.record.spec.user.uid);
            if owner == Some(user.uid) {
                return Ok(known);
            }
            let message = "this token belongs to another user's job; draw a new one".into();
            return Err(refusal(RefusalKind::NotPermitted, message));
        }
        if self.shutdown.is_some() {
            let message = "the cluster is shutting down; start it again and then the job".into();
            return Err(refusal(RefusalKind::NodeLost, message));
        }
        if request.priority == 0 {
            request.priority = self.config.priority;
        }
        request.estimate_ns = request.estimate_ns.or(self.config.estimate_ns);
        self.check_request(user, &request)?;
        self.check_room(user, &request)?;
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.tokens.insert(request.token, id);
        let (channel_key, seal_key) = self.keys(id, request.token);
        let encrypt = request.encrypt.unwrap_or(self.config.encrypt);
        request.encrypt = Some(encrypt);
        let seal_key = encrypt.then_some(seal_key);
        for (name, value) in &self.config.env {
            if !request.env.iter().any(|(set, _)| set == name) {
                request.env.push((name.clone(), value.clone()));
            }
        }
        self.hold(user.uid, 1, request_bytes(&request));
        let (user, layout) = (user.clone(), Vec::new());
        let spec = JobSpec { job: id, user, request, layout, channel_key, seal_key };
        let record = JobRecord {
            spec,
            state: JobState::Queued,
            submitted_ms: self.wall_ms,
            started_ms: None,
            ended_ms: None,
        };
        self.jobs.insert(id, Job::new(record));
        self.undecided.insert(id);
        if !self.nodes_changed {
            self.hand_over(id);
        }
        self.schedule();
        // One that got its nodes at once is recorded as preparing already.
        if self.jobs.get(&id).is_some_and(|job| job.record.state == JobState::Queued) {
            self.persist(id);
        }
        Ok(id)
    }

    /// A job's channel key, and the key with which its packets are encrypted if they are: different
    /// for every job, not to be guessed from those of others, nor one from the other.
    fn keys(&self, id: JobId, token: u128) -> (u64, SealKey) {
        let mut hasher = blake3::Hasher::new_keyed(&self.seed);
        hasher.update(&id.0.to_le_bytes());
        hasher.update(&token.to_le_bytes());
        hasher.update(&self.wall_ms.to_le_bytes());
        let hash = hasher.finalize();
        let (mut channel, mut seal) = ([0; 8], [0; 16]);
        channel.copy_from_slice(&hash.as_bytes()[..8]);
        seal.copy_from_slice(&hash.as_bytes()[16..]);
        (u64::from_le_bytes(channel), SealKey(seal))
    }

    /// Hands jobs to the policy if nodes came or went, and places those that fit now.
    pub(super) fn schedule(&mut self) {
        if core::mem::take(&mut self.nodes_changed) {
            self.reconsider();
            let undecided: Vec<JobId> = self.undecided.iter().copied().collect();
            undecided.into_iter().for_each(|id| self.hand_over(id));
        }
        while let Some(placement) = self.policy.next_placement(ClusterTime(self.now)) {
            self.place(&placement);
        }
    }

    /// Nodes came or went: queued jobs that left their number open may want another. All queue
    /// again then, in the order in which they were submitted.
    fn reconsider(&mut self) {
        let queued = |job: &&Job| job.scheduled && job.record.state == JobState::Queued;
        let queued: Vec<&Job> = self.jobs.values().filter(queued).collect();
        self.considered += queued.len() as u64;
        let other = |job: &&Job| {
            let request = &job.record.spec.request;
            request.nodes.is_none()
                && self.wanted_nodes(request).is_ok_and(|wanted| wanted != Some(job.wanted))
        };
        if !queued.iter().any(other) {
            return;
        }
        let queued: Vec<JobId> = queued.into_iter().map(Job::id).collect();
        for id in queued {
            // Those that wait have no slot.
            self.policy.leave(id, ClusterTime(self.now));
            if let Some(job) = self.jobs.get_mut(&id) {
                job.scheduled = false;
            }
            self.undecided.insert(id);
        }
    }

    /// Hands a job to the policy, once it can be said how many nodes it wants: what that depends on
    /// changes only when nodes come or go.
    fn hand_over(&mut self, id: JobId) {
        self.considered += 1;
        let queued = |job: &&mut Job| !job.scheduled && job.record.state == JobState::Queued;
        let Some(request) = self.jobs.get(&id).map(|job| &job.record.spec.request) else {
            self.undecided.remove(&id);
            return;
        };
        let wanted = self.wanted_nodes(request);
        if wanted == Ok(None) {
            return;
        }
        self.undecided.remove(&id);
        let time = (self.now, self.wall_ms);
        let Some(job) = self.jobs.get_mut(&id).filter(queued) else { return };
        let refused = match wanted {
            Ok(nodes) => {
                (job.scheduled, job.wanted) = (true, nodes.unwrap_or_default());
                let arrived = self.policy.arrive(&job.asked(), job.came(time));
                arrived.err().map(|error| super::policy::arrive_refusal(&error))
            }
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = refused {
            self.end(id, Outcome::Refused(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let nodes = [NodeId(2), NodeId(5), NodeId(7)];
        let parts: Vec<_> =
            layout(8, &nodes).iter().map(|part| (part.node.0, part.first, part.count)).collect();
        assert_eq!(parts, [(2, 0, 3), (5, 3, 3), (7, 6, 2)]);
        assert_eq!(layout(3, &nodes).iter().map(|part| part.count).sum::<u32>(), 3);
    }
}
