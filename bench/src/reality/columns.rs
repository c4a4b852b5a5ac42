//! Times of each job: on the cluster, and as simulated under five assumptions.

use super::drive::JobRun;
use super::recording_policy::RecordingPolicy;
use kumi_sched::JobId;
use kumi_sim::{Job, Monitor, Options, SimError, Workload, engine, policies};
use serde::Serialize;
use std::collections::BTreeMap;

/// Costs of a job on the cluster. Nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// From submission until all nodes have prepared; the job has no turns yet. Mean.
    pub prepare_ns: u64,
    /// From its first turn to the first instruction of its last rank. Mean over the jobs of
    /// [`Costs::begin_of`].
    pub begin_ns: u64,
    /// From the end of its work until the head reports its end; its turns go on. Mean.
    pub end_ns: u64,
    /// Freezing one job and thawing another on a node.
    pub switch_ns: u64,
    /// Time to begin, by size: the least of all jobs of that size that had their first turn at once.
    pub begin_of_size_ns: BTreeMap<u32, u64>,
}

impl Costs {
    /// Computes the costs from jobs that have run; `switch` is the cost of a switch.
    pub fn of(jobs: &[Job], ran: &[JobRun], switch_ns: u64) -> Self {
        let mean = |sum: u64| sum / ran.len().max(1) as u64;
        let mut begin_of_size_ns = BTreeMap::new();
        for (job, ran) in jobs.iter().zip(ran) {
            let least = begin_of_size_ns.entry(job.size).or_insert(u64::MAX);
            *least = ran.begin_delay().min(*least);
        }
        let begins = jobs.iter().filter_map(|job| begin_of_size_ns.get(&job.size));
        Self {
            prepare_ns: mean(ran.iter().map(JobRun::prepare_delay).sum()),
            begin_ns: mean(begins.sum()),
            end_ns: mean(ran.iter().map(JobRun::end_delay).sum()),
            switch_ns,
            begin_of_size_ns,
        }
    }

    /// Part of its turns that a job's ranks need to begin.
    pub fn begin_of(&self, job: &Job) -> u64 {
        self.begin_of_size_ns.get(&job.size).copied().unwrap_or(0)
    }

    /// All costs that a job pays once, as the simulator's option takes them.
    pub fn once_ns(&self) -> u64 {
        self.prepare_ns + self.begin_ns + self.end_ns
    }
}

impl JobRun {
    /// From submission until it takes turns.
    pub fn prepare_delay(&self) -> u64 {
        self.running.saturating_sub(self.submitted)
    }

    /// From then until all ranks have begun.
    pub fn begin_delay(&self) -> u64 {
        self.begin.saturating_sub(self.running)
    }

    /// From the end of rank 0's work to that of the last rank.
    pub fn spread(&self) -> u64 {
        self.done.saturating_sub(self.turns.last().map_or(self.done, |turn| turn.1))
    }

    /// From the end of its work until the head reports its end.
    pub fn end_delay(&self) -> u64 {
        self.ended.saturating_sub(self.done)
    }

    /// From submission to the end.
    pub fn response(&self) -> u64 {
        self.ended.saturating_sub(self.submitted)
    }
}

/// Response of each job in nanoseconds, and other results.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// In the order of the list.
    pub response: Vec<u64>,
    /// End of each job.
    pub ended: Vec<u64>,
    /// The nodes of each.
    pub nodes: Vec<Vec<u32>>,
    /// Most jobs on a node at once; `None` where time is not shared.
    pub max_tqlb: Option<u32>,
}

/// Settings of the simulations.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Name of the policy.
    pub policy: &'a str,
    /// Processors, slice and costs.
    pub options: Options,
}

impl Column {
    /// Simulates the list; response counts from `came` on.
    ///
    /// # Errors
    /// The simulator refuses.
    pub fn simulated(
        machine: Machine<'_>,
        jobs: &[Job],
        came: impl Fn(usize) -> u64,
    ) -> Result<Self, SimError> {
        // The simulator takes jobs in order of submission, but long preparations change the order.
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&index| jobs[index].submit);
        let workload = Workload::given(order.iter().map(|&index| jobs[index]).collect());
        let mut policy = RecordingPolicy::new(policies::by_name(machine.policy)?);
        let monitor = Monitor::default();
        let outcome =
            engine::run(machine.policy, &mut policy, &workload, &machine.options, &monitor)?;
        let mut ended = vec![0; jobs.len()];
        let mut nodes = vec![Vec::new(); jobs.len()];
        for (place, &index) in order.iter().enumerate() {
            ended[index] = outcome.end(place).unwrap_or(outcome.from_ns + outcome.time_ns);
            nodes[index] = policy.nodes.remove(&JobId(place as u64)).unwrap_or_default();
        }
        let response = (0..jobs.len()).map(|index| ended[index].saturating_sub(came(index)));
        Ok(Self { response: response.collect(), ended, nodes, max_tqlb: outcome.max_tqlb })
    }

    /// The cluster's results; `shared` says whether its jobs share time.
    pub fn measured(ran: &[JobRun], shared: bool) -> Self {
        Self {
            response: ran.iter().map(JobRun::response).collect(),
            ended: ran.iter().map(|ran| ran.ended).collect(),
            nodes: ran.iter().map(|ran| ran.nodes.clone()).collect(),
            max_tqlb: shared.then(|| most_on_a_node(ran)),
        }
    }

    /// The share of the nodes' time, from the first submission to the last end, that was service.
    pub fn utilisation(&self, jobs: &[Job], nodes: u32) -> f64 {
        let work: f64 = jobs.iter().map(|job| job.service as f64 * f64::from(job.size)).sum();
        let first = jobs.iter().map(|job| job.submit).min().unwrap_or(0);
        let last = self.ended.iter().copied().max().unwrap_or(0);
        work / (f64::from(nodes) * last.saturating_sub(first).max(1) as f64)
    }

    /// Share of the jobs that had the same nodes in both.
    pub fn same_nodes(&self, other: &Self) -> f64 {
        let same = self.nodes.iter().zip(&other.nodes).filter(|(a, b)| a == b).count();
        same as f64 / self.nodes.len().max(1) as f64
    }
}

/// Most jobs on a node at once, from the submission of each to its end.
fn most_on_a_node(ran: &[JobRun]) -> u32 {
    let mut changes: Vec<(u32, u64, i32)> = Vec::new();
    for ran in ran {
        for &node in &ran.nodes {
            changes.push((node, ran.submitted, 1));
            changes.push((node, ran.ended, -1));
        }
    }
    // At one instant, ends come first.
    changes.sort_unstable();
    let (mut now, mut most) = (0i32, 0i32);
    for (_, _, by) in changes {
        now += by;
        most = most.max(now);
    }
    most.unsigned_abs()
}

/// Share of the time in which a node had jobs with turns but none computed, by the turns of each job's rank
/// 0.
pub fn lost(ran: &[JobRun]) -> f64 {
    let (mut held, mut used) = (Vec::new(), Vec::new());
    for ran in ran {
        for &node in &ran.nodes {
            held.push((node, ran.running, ran.ended));
            used.extend(ran.turns.iter().map(|&(from, to)| (node, from, to)));
        }
    }
    1.0 - covered(used) as f64 / covered(held).max(1) as f64
}

/// The part of a slot that a rank has for itself, by the turns of each job's rank 0. The first and the last
/// turn do not count, because the rank begins and ends in them. Consecutive slots are one turn. 1 if there is
/// no such turn.
pub fn turn_of_slot(ran: &[JobRun], slice_ns: u64) -> f64 {
    let (mut had, mut slots) = (0u64, 0u64);
    for ran in ran {
        let whole = ran.turns.get(1..ran.turns.len().saturating_sub(1)).unwrap_or_default();
        for &(from, to) in whole {
            let turn = to.saturating_sub(from);
            had += turn;
            slots += ((turn + slice_ns / 2) / slice_ns).max(1);
        }
    }
    if slots == 0 { 1.0 } else { (had as f64 / (slots * slice_ns) as f64).min(1.0) }
}

/// Share of the nodes' time in at least one of these pieces.
fn covered(mut pieces: Vec<(u32, u64, u64)>) -> u64 {
    pieces.sort_unstable();
    let (mut sum, mut last) = (0, (u32::MAX, 0));
    for (node, from, to) in pieces {
        let begin = if last.0 == node { from.max(last.1) } else { from };
        sum += to.saturating_sub(begin);
        last = (node, if last.0 == node { last.1.max(to) } else { to });
    }
    sum
}

/// Share of computing time on a node in which a second job computed too, by the turns of each job's rank 0.
pub fn overlap(ran: &[JobRun]) -> f64 {
    let mut turns: Vec<(u32, u64, u64)> = Vec::new();
    for ran in ran {
        let of = |&node: &u32| ran.turns.iter().map(move |&(from, to)| (node, from, to));
        turns.extend(ran.nodes.iter().flat_map(of));
    }
    turns.sort_unstable();
    let (mut all, mut twice) = (0u64, 0u64);
    let mut last = (u32::MAX, 0u64);
    for (node, from, to) in turns {
        all += to.saturating_sub(from);
        if last.0 == node {
            twice += last.1.min(to).saturating_sub(from);
            last.1 = last.1.max(to);
        } else {
            last = (node, to);
        }
    }
    twice as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(nodes: &[u32], times: [u64; 5], turns: &[(u64, u64)]) -> JobRun {
        let [submitted, running, begin, done, ended] = times;
        let (turns, nodes) = (turns.to_vec(), nodes.to_vec());
        JobRun { submitted, running, begin, done, ended, longest_ns: 0, turns, nodes }
    }

    #[test]
    fn jobs_on_a_node_are_counted_and_their_turns_compared() {
        let all = [
            ran(&[0, 1], [0, 5, 6, 90, 100], &[(6, 20), (40, 90)]),
            ran(&[1], [50, 60, 85, 120, 130], &[(85, 120)]),
            ran(&[1], [100, 110, 111, 140, 150], &[]),
            ran(&[0], [100, 110, 111, 140, 150], &[(111, 140)]),
        ];
        let column = Column::measured(&all, true);
        assert_eq!(column.max_tqlb, Some(2));
        assert_eq!(column.response, [100, 80, 50, 50]);
        // 2 * 64 of the first, 35 and 29 of the others; 5 of them twice.
        assert!((overlap(&all) - 5.0 / 192.0).abs() < 1e-12, "{}", overlap(&all));
        // Held are 145 of node 1 and 135 of node 0.
        assert!((lost(&all) - (1.0 - 187.0 / 280.0)).abs() < 1e-12, "{}", lost(&all));
        let long = ran(&[0], [0, 0, 1, 700, 710], &[(1, 90), (100, 195), (300, 490), (600, 690)]);
        // Of 95 in a slot and 190 in two.
        assert!((turn_of_slot(std::slice::from_ref(&long), 100) - 0.95).abs() < 1e-12);
        assert!((turn_of_slot(&all, 100) - 1.0).abs() < 1e-12, "only first and last turns");
        assert_eq!((long.spread(), all[2].spread()), (10, 0));
        let jobs = [job(0, 0, 1, 2), job(1, 0, 1, 1), job(2, 0, 1, 1), job(3, 0, 1, 1)];
        let costs = Costs::of(&jobs, &all, 3);
        assert_eq!((costs.prepare_ns, costs.begin_ns, costs.end_ns), (8, 1, 10));
        assert_eq!((costs.once_ns(), costs.begin_of(&jobs[1])), (19, 1));
    }

    fn job(number: u64, submit: u64, service: u64, size: u32) -> Job {
        Job { number, submit, service, estimate: service, size, memory: 0, user: 0, priority: 1 }
    }

    #[test]
    fn a_simulated_column_is_in_the_order_of_the_list() {
        // The first takes turns only after the second.
        let jobs = [job(0, 300, 100, 2), job(1, 0, 200, 1)];
        let options = Options { slice_ns: 100, ..Options::new(2) };
        let machine = Machine { policy: "dqt", options };
        let column = Column::simulated(machine, &jobs, |_| 0).unwrap();
        assert_eq!((column.ended, column.response), (vec![400, 200], vec![400, 200]));
        assert_eq!(column.nodes, [vec![0, 1], vec![0]]);
        assert_eq!(column.max_tqlb, Some(1));
    }
}
