//! Verdicts of the head, and what becomes of stopped jobs.

use super::*;
use kumi_control::deadlock::{DEADLOCK_GRACE_MS, ON_DEADLOCK};
use kumi_control::message::{StandingReport, Verdict};
use kumi_verdict::{FINAL_ROUND, Standing, Summary};

fn settled(round: u64, sent: u64, delivered: u64) -> Standing {
    let waiting = u32::from(round < FINAL_ROUND);
    Standing::Settled(Summary { round, ranks: 1, waiting, sent, delivered, ..Summary::EMPTY })
}

impl Test {
    fn stands(
        &mut self,
        job: JobId,
        nodes: impl IntoIterator<Item = u32>,
        standing: Standing,
    ) -> Vec<HeadAction> {
        self.report(Report::Standing(StandingReport { job, nodes: set(nodes), standing }))
    }

    /// Both nodes of a job say that its ranks wait, and say it again when they are asked.
    fn stop(&mut self, job: JobId) -> Vec<HeadAction> {
        self.stands(job, [0], settled(0, 3, 1));
        let asked = self.stands(job, [1], settled(0, 0, 2));
        let confirm = Command::Confirm { job, round: 1 };
        assert_eq!(commands(&asked), [(&set([0, 1]), &confirm)]);
        assert!(self.stands(job, [1], settled(1, 0, 2)).is_empty());
        self.stands(job, [0], settled(1, 3, 1))
    }

    fn verdict(&mut self, job: JobId) -> Option<Verdict> {
        match &self.ask(&ALICE, ClientRequest::Explain { job })[..] {
            [HeadAction::ToClient(_, ClientReply::Explanation { verdict, report })] => {
                assert_eq!(report.is_some(), *verdict == Some(Verdict::Stopped));
                *verdict
            }
            other => panic!("{other:?}"),
        }
    }

    /// A job with these variables on two nodes.
    fn running_with(&mut self, env: &[(&str, &str)]) -> JobId {
        let mut request = request(9, 2, Some(2));
        request.env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let (job, _) = self.submit(request);
        self.prepare(job, [(0, 1), (1, 1)]);
        job
    }
}

fn told(actions: &[HeadAction]) -> usize {
    let told = |action: &&HeadAction| {
        matches!(action, HeadAction::ToClient(_, ClientReply::Deadlock { .. }))
    };
    actions.iter().filter(told).count()
}

#[test]
fn a_job_is_stopped_once_all_nodes_have_said_it_twice() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    assert_eq!(test.verdict(job), Some(Verdict::Running));
    assert_eq!(told(&test.stop(job)), 1, "its client follows it");
    assert_eq!(test.verdict(job), Some(Verdict::Stopped));
    // Whoever follows it later is told, too.
    let follow = ClientRequest::Follow { job, offset: 0, wait: true };
    assert_eq!(told(&test.ask(&ALICE, follow)), 1);
    // It stays until something changes.
    test.advance(3_600_000 * MS);
    assert_eq!(test.verdict(job), Some(Verdict::Stopped));
    test.stands(job, [0], Standing::Changed);
    assert_eq!(test.verdict(job), Some(Verdict::Running));
}

#[test]
fn what_is_on_its_way_and_nodes_that_leave_keep_it_running() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.stands(job, [0], settled(0, 3, 1));
    assert!(test.stands(job, [1], settled(0, 0, 1)).is_empty(), "a frame is on its way");
    test.stands(job, [1], Standing::Changed);
    test.stop(job);
    test.event(HeadEvent::ChildDown(LINK));
    assert_ne!(test.verdict(job), Some(Verdict::Stopped), "nobody knows what is there");
}

#[test]
fn a_stopped_job_is_ended_after_its_grace_time() {
    let mut test = Test::new(2);
    let job = test.running_with(&[(ON_DEADLOCK, "kill"), (DEADLOCK_GRACE_MS, "500")]);
    test.stop(job);
    test.advance(499 * MS);
    assert_eq!(test.state(job), JobState::Running);
    test.advance(MS);
    assert_eq!(test.state(job), JobState::Ending(Outcome::Deadlocked));
}

#[test]
fn ranks_that_are_told_to_end_get_no_verdict() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 10_000 * MS });
    assert_eq!(test.state(job), JobState::Running, "they have time to end");
    test.stands(job, [0], settled(0, 3, 1));
    assert!(test.stands(job, [1], settled(0, 0, 2)).is_empty(), "nobody asks them again");
    assert_eq!(test.verdict(job), Some(Verdict::Running));
}

#[test]
fn a_stopped_job_that_acts_in_time_goes_on() {
    let mut test = Test::new(2);
    let job = test.running_with(&[(ON_DEADLOCK, "kill"), (DEADLOCK_GRACE_MS, "500")]);
    test.stop(job);
    test.stands(job, [1], Standing::Changed);
    test.advance(10_000 * MS);
    assert_eq!(test.state(job), JobState::Running);
}

#[test]
fn whoever_does_not_want_to_know_is_not_told() {
    let mut test = Test::new(2);
    let job = test.running_with(&[(ON_DEADLOCK, "ignore")]);
    test.stands(job, [0], settled(0, 0, 0));
    assert!(test.stands(job, [1], settled(0, 0, 0)).is_empty());
    let mut wrong = request(10, 1, None);
    wrong.env = vec![(ON_DEADLOCK.into(), "sing".into())];
    let refused = test.ask(&ALICE, ClientRequest::Submit(Box::new(wrong)));
    assert!(matches!(
        &refused[..],
        [HeadAction::ToClient(_, ClientReply::Refused(refusal))] if refusal.message.contains("sing")
    ));
}

#[test]
fn others_may_not_ask() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let reply = test.ask(&BOB, ClientRequest::Explain { job });
    assert!(matches!(
        &reply[..],
        [HeadAction::ToClient(_, ClientReply::Refused(refusal))]
            if refusal.kind == RefusalKind::NotPermitted
    ));
}
