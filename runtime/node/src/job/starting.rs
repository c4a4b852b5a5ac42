//! The start of a job's processes, with an end to waiting.
//!
//! It is a task of its own, because what it has begun it must end: a thread that starts a process uses the job's descriptors
//! until the kernel answers. The job does not wait for that for ever. If nothing has got further for a while, or the job is
//! killed, the start is given up. The task then orders nothing further, and removes what the kernel makes later. Only after that
//! the job is gone from here. While the kernel does not answer, the node starts nothing and says that it is not in order.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::message::{JobSpec, NodeRanks, Refusal};
use kumi_sched::JobId;
use tokio::sync::{Notify, oneshot};

use super::NodeServices;
use super::admission::{LaunchAborted, unless_killed};
use super::cleanup::{LeftOfStart, end_start};
use super::launch::{JobResources, LaunchFailure, ShimProcesses, launch};
use super::run::JobCommands;
use super::starts::StalledStarts;

/// How many steps of a start are done, and whether anybody wants more of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartProgress(Rc<StartState>);

#[derive(Debug, Default)]
struct StartState {
    steps: Cell<u64>,
    given_up: Cell<bool>,
    told: Notify,
}

impl StartProgress {
    /// One more step is done.
    pub(crate) fn step(&self) {
        self.0.steps.set(self.0.steps.get().wrapping_add(1));
    }

    /// Nobody wants the job's processes any more.
    fn give_up(&self) {
        self.0.given_up.set(true);
        self.0.told.notify_waiters();
    }

    /// Whether the next step may be begun.
    ///
    /// # Errors
    /// Nobody wants it.
    pub(crate) fn goes_on(&self) -> std::io::Result<()> {
        if self.0.given_up.get() {
            let kind = std::io::ErrorKind::Interrupted;
            return Err(std::io::Error::new(kind, "the job's start was given up"));
        }
        Ok(())
    }

    /// Waits until nobody wants more. Returns the error of [`Self::goes_on`].
    pub(crate) async fn given_up(&self) -> std::io::Error {
        loop {
            match self.goes_on() {
                Ok(()) => self.0.told.notified().await,
                Err(error) => return error,
            }
        }
    }
}

/// What became of a value that a task makes.
#[derive(Debug, PartialEq, Eq)]
enum Awaited<T> {
    Made(T),
    /// No step was done for too long.
    StandsStill,
    /// The task has panicked.
    Lost,
}

/// Waits until there is a value, no step was done for so long, or nobody makes it any more.
async fn while_it_goes_on<T>(
    value: &mut oneshot::Receiver<T>,
    progress: &StartProgress,
    step: Duration,
) -> Awaited<T> {
    loop {
        let before = progress.0.steps.get();
        match tokio::time::timeout(step, &mut *value).await {
            Ok(Ok(value)) => return Awaited::Made(value),
            Ok(Err(_)) => return Awaited::Lost,
            Err(_) if progress.0.steps.get() != before => {}
            Err(_) => return Awaited::StandsStill,
        }
    }
}

/// The start of a job: whether some of it is still under way.
pub(super) struct JobStart {
    job: JobId,
    ended: Option<oneshot::Receiver<()>>,
}

impl JobStart {
    /// One that has not begun.
    pub(super) fn new(job: JobId) -> Self {
        Self { job, ended: None }
    }

    /// Has a task make something, and waits for it as long as that goes on and the job is not killed. What comes later is
    /// discarded by the task.
    async fn attend<T: 'static, Task: Future<Output = ()> + 'static>(
        &mut self,
        starts: &StalledStarts,
        orders: &mut JobCommands,
        task: impl FnOnce(StartProgress, oneshot::Sender<Result<T, Refusal>>) -> Task,
    ) -> Result<T, LaunchAborted> {
        let (sender, mut made) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let progress = StartProgress::default();
        let task = task(progress.clone(), sender);
        tokio::task::spawn_local(async move {
            task.await;
            // The job waits for it only if it was given up.
            let _ = end.send(());
        });
        self.ended = Some(ended);
        let step = starts.step();
        let waited = unless_killed(while_it_goes_on(&mut made, &progress, step), orders).await;
        match waited {
            Ok(Awaited::Made(made)) => made.map_err(LaunchAborted::from),
            Ok(Awaited::Lost) => Err(starts.fault().into()),
            Ok(Awaited::StandsStill) => {
                progress.give_up();
                // What comes while others are told is the task's to remove.
                drop(made);
                starts.stands_still(self.job).await;
                Err(starts.refusal().into())
            }
            Err(killed) => {
                progress.give_up();
                Err(killed)
            }
        }
    }

    /// Waits until nothing of it is under way any more.
    pub(super) async fn ended(self, starts: &StalledStarts) {
        let Some(mut ended) = self.ended else { return };
        // An error: the task is gone, as when the daemon ends.
        if tokio::time::timeout(starts.step(), &mut ended).await.is_err() {
            starts.stands_still(self.job).await;
            let _ = ended.await;
        }
        starts.goes_on(self.job).await;
    }

    /// Makes what a job needs here and starts its ranks as shims, or refuses it if that does not go on.
    pub(super) async fn run(
        &mut self,
        services: &Rc<NodeServices>,
        spec: &JobSpec,
        part: &NodeRanks,
        program: std::path::PathBuf,
        orders: &mut JobCommands,
    ) -> Result<(JobResources, ShimProcesses), LaunchAborted> {
        let turn = unless_killed(services.group_changes.turn(), orders).await?;
        if services.starts.stand_still() {
            return Err(services.starts.refusal().into());
        }
        let own = (Rc::clone(services), spec.clone(), part.clone());
        let task = |progress, wanted| run_task(own, program, progress, wanted);
        let made = self.attend(&services.starts, orders, task).await;
        drop(turn);
        made
    }
}

type Launched = Result<(JobResources, ShimProcesses), Refusal>;

/// Starts the processes. What nobody wants, or what there is of a start that failed, it removes.
async fn run_task(
    (services, spec, part): (Rc<NodeServices>, JobSpec, NodeRanks),
    program: std::path::PathBuf,
    progress: StartProgress,
    wanted: oneshot::Sender<Launched>,
) {
    let job = spec.job;
    match launch(&services, &spec, &part, program, progress).await {
        Ok(made) => {
            if let Err(Ok((resources, shims))) = wanted.send(Ok(made)) {
                tracing::warn!(%job, "its processes are there at last, and nobody wants them");
                discard(&services, job, resources, shims).await;
            }
        }
        Err(LaunchFailure { refused, left }) => {
            // The job hears of it at once; it waits for the rest before it is gone.
            let _ = wanted.send(Err(refused));
            if let Some(left) = left {
                end_start(&services, job, left).await;
            }
        }
    }
}

/// Ends what was started too late.
async fn discard(
    services: &Rc<NodeServices>,
    job: JobId,
    resources: JobResources,
    shims: ShimProcesses,
) {
    let ShimProcesses { ranks, server, kept, .. } = shims;
    if let Some(kept) = kept {
        kept.link.release();
    }
    let server = server.map(|server| server.process);
    let processes = ranks.into_iter().map(|rank| rank.process).chain(server).collect();
    end_start(services, job, LeftOfStart { processes, resources: Box::new(resources) }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::refusal;
    use crate::job::{JobCommand, JobEvent};
    use kumi_control::agent::AgentEvent;
    use kumi_control::message::{NodeCondition, RefusalKind};
    use kumi_sched::NodeId;
    use tokio::sync::mpsc;

    #[tokio::test(flavor = "current_thread")]
    async fn a_start_may_take_long_and_not_stand_still() {
        let (progress, step) = (StartProgress::default(), Duration::from_millis(1));
        let (sender, mut value) = oneshot::channel();
        let steps = progress.clone();
        let local = tokio::task::LocalSet::new();
        // It gets further whenever it has its turn, for much longer than one step may take.
        local.spawn_local(async move {
            let end = tokio::time::Instant::now() + 20 * step;
            while tokio::time::Instant::now() < end {
                steps.step();
                tokio::task::yield_now().await;
            }
            sender.send(7).unwrap();
        });
        let seen = local.run_until(while_it_goes_on(&mut value, &progress, step)).await;
        assert_eq!(seen, Awaited::Made(7));
        let (_sender, mut never) = oneshot::channel::<u8>();
        assert_eq!(while_it_goes_on(&mut never, &progress, step).await, Awaited::StandsStill);
    }

    const JOB: JobId = JobId(7);

    fn starts(step: Duration) -> (Rc<StalledStarts>, mpsc::Receiver<JobEvent>) {
        let (events, told) = mpsc::channel(8);
        (Rc::new(StalledStarts::new(NodeId(3), step, events)), told)
    }

    async fn condition(told: &mut mpsc::Receiver<JobEvent>) -> NodeCondition {
        match told.recv().await {
            Some(JobEvent::Agent(event)) => match *event {
                AgentEvent::Condition(condition) => condition,
                event => panic!("{event:?}"),
            },
            event => panic!("{event:?}"),
        }
    }

    /// A start that waits for the kernel, which answers when the sender is used. Counts orders that follow.
    async fn hangs(
        answer: oneshot::Receiver<()>,
        (progress, wanted): (StartProgress, oneshot::Sender<Result<u8, Refusal>>),
        orders: Rc<Cell<u8>>,
    ) {
        answer.await.unwrap();
        progress.step();
        if progress.goes_on().is_ok() {
            orders.set(orders.get() + 1);
        }
        drop(wanted.send(Ok(1)));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_start_that_stands_still_is_refused_and_its_node_is_not_in_order_until_it_ends() {
        let test = async {
            let (starts, mut told) = starts(Duration::from_millis(1));
            let (_orders, mut inbox) = mpsc::unbounded_channel();
            let (kernel, answer) = oneshot::channel();
            let further = Rc::new(Cell::new(0));
            let mut start = JobStart::new(JOB);
            let counted = Rc::clone(&further);
            let task = |progress, wanted| hangs(answer, (progress, wanted), counted);
            let refused = start.attend(&starts, &mut inbox, task).await;
            let Err(LaunchAborted::Refused(refused)) = refused else { panic!("not refused") };
            assert!(refused.message.contains("did not answer"), "{}", refused.message);
            let NodeCondition::Unhealthy { reason } = condition(&mut told).await else {
                panic!("in order")
            };
            assert!(reason.contains("job 7"), "{reason}");
            assert!(starts.stand_still(), "further jobs would be started");
            let same = Rc::clone(&starts);
            let gone = tokio::task::spawn_local(async move { start.ended(&same).await });
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(!gone.is_finished(), "the job is gone while its start is under way");
            }
            kernel.send(()).unwrap();
            gone.await.unwrap();
            assert_eq!(condition(&mut told).await, NodeCondition::Healthy);
            assert!(told.try_recv().is_err() && !starts.stand_still());
            assert_eq!(further.get(), 0, "a start that was given up went on");
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_comes_while_the_node_tells_that_a_start_stands_still_stays_with_its_task() {
        let test = async {
            let (events, mut told) = mpsc::channel(1);
            let full = AgentEvent::Condition(NodeCondition::Healthy);
            events.try_send(JobEvent::Agent(Box::new(full))).unwrap();
            let starts = Rc::new(StalledStarts::new(NodeId(3), Duration::from_millis(1), events));
            let (kernel, answer) = oneshot::channel();
            let (given_back, unwanted) = oneshot::channel();
            let same = Rc::clone(&starts);
            let started = tokio::task::spawn_local(async move {
                let (_orders, mut inbox) = mpsc::unbounded_channel();
                let task = |_, wanted: oneshot::Sender<_>| async move {
                    answer.await.unwrap();
                    given_back.send(wanted.send(Ok(1))).unwrap();
                };
                JobStart::new(JOB).attend(&same, &mut inbox, task).await
            });
            while !starts.stand_still() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Nobody has heard of it yet when the kernel answers.
            kernel.send(()).unwrap();
            assert_eq!(unwanted.await.unwrap(), Err(Ok(1)), "its processes would be lost");
            assert!(!started.is_finished());
            assert_eq!(condition(&mut told).await, NodeCondition::Healthy);
            assert!(matches!(condition(&mut told).await, NodeCondition::Unhealthy { .. }));
            assert!(matches!(started.await.unwrap(), Err(LaunchAborted::Refused(_))));
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_start_that_panics_is_an_internal_fault_and_says_nothing_of_the_kernel() {
        let test = async {
            let (starts, mut told) = starts(Duration::from_secs(600));
            let (_orders, mut inbox) = mpsc::unbounded_channel();
            let mut start = JobStart::new(JOB);
            let task =
                |_, _wanted: oneshot::Sender<Result<u8, Refusal>>| async { panic!("a test") };
            let refused = start.attend(&starts, &mut inbox, task).await;
            let Err(LaunchAborted::Refused(refused)) = refused else { panic!("not refused") };
            assert_eq!(refused.kind, RefusalKind::Internal, "{}", refused.message);
            start.ended(&starts).await;
            assert!(told.try_recv().is_err() && !starts.stand_still(), "the node is in order");
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_kill_is_heard_while_a_job_starts() {
        let test = async {
            let (starts, mut told) = starts(Duration::from_secs(600));
            let (orders, mut inbox) = mpsc::unbounded_channel();
            let (kernel, answer) = oneshot::channel();
            let further = Rc::new(Cell::new(0));
            let mut start = JobStart::new(JOB);
            let counted = Rc::clone(&further);
            orders.send(JobCommand::Kill).unwrap();
            let task = |progress, wanted| hangs(answer, (progress, wanted), counted);
            let aborted = start.attend(&starts, &mut inbox, task).await;
            assert!(matches!(aborted, Err(LaunchAborted::Killed)));
            kernel.send(()).unwrap();
            start.ended(&starts).await;
            assert_eq!(further.get(), 0, "a start that was given up went on");
            assert!(told.try_recv().is_err(), "a kill says nothing of the node");
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_comes_in_time_is_had_and_refusals_are_told_as_they_are() {
        let test = async {
            let (starts, _told) = starts(Duration::from_secs(600));
            let (_orders, mut inbox) = mpsc::unbounded_channel();
            for made in [Ok(5), Err(refusal(RefusalKind::NoResources, "no room"))] {
                let mut start = JobStart::new(JOB);
                let say = made.clone();
                let task = |_, wanted: oneshot::Sender<_>| async move { drop(wanted.send(say)) };
                let seen = start.attend(&starts, &mut inbox, task).await;
                match (seen, made) {
                    (Ok(seen), Ok(made)) => assert_eq!(seen, made),
                    (Err(LaunchAborted::Refused(seen)), Err(made)) => assert_eq!(seen, made),
                    _ => panic!("another answer"),
                }
                start.ended(&starts).await;
            }
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }
}
