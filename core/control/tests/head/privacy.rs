//! What users see of others' jobs where the cluster shows less than usual.

use super::*;
use kumi_control::head::ShowOthers;
use kumi_control::message::{ClusterStatus, JobList, RankSample};

/// A job of Alice's that runs.
fn with_job(show_others: ShowOthers) -> (Test, JobId) {
    let mut test = Test::attached(HeadConfig { show_others, ..config(1) });
    let job = test.running(1, 1);
    (test, job)
}

fn jobs(test: &mut Test, user: &User) -> JobList {
    match test.ask(user, ClientRequest::Jobs(JobsQuery::first_page(true))).into_iter().next() {
        Some(HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. }))) => list,
        other => panic!("{other:?}"),
    }
}

fn status(test: &mut Test, user: &User) -> ClusterStatus {
    match test.ask(user, ClientRequest::Cluster).into_iter().next() {
        Some(HeadAction::ToClient(_, ClientReply::Cluster(status))) => status,
        other => panic!("{other:?}"),
    }
}

/// How many ranks a user gets samples of.
fn sampled(test: &mut Test, user: &User, job: JobId) -> usize {
    let actions = test.ask(user, ClientRequest::Sample);
    let request = commands(&actions).into_iter().find_map(|(_, command)| match command {
        Command::Sample { request } => Some(*request),
        _ => None,
    });
    let rank = RankSample {
        job,
        rank: 0,
        idle: false,
        load_permille: 0,
        counters: Vec::new(),
        peers: Vec::new(),
        peers_left_out: 0,
    };
    let sample = NodeSample { ranks: vec![rank], ..sample(0) };
    let nodes = vec![sample];
    let actions = test.report(Report::Samples { request: request.expect("asked"), nodes });
    let samples = actions.iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Samples(samples)) => Some(samples[0].ranks.len()),
        _ => None,
    });
    samples.expect("answered")
}

#[test]
fn others_see_neither_names_nor_users() {
    let (mut test, job) = with_job(ShowOthers::Jobs);
    let list = jobs(&mut test, &BOB);
    let text = format!("{:?}", list.records);
    assert_eq!(list.records[0].spec.job, job);
    assert!(
        !text.contains("1000") && !text.contains("true\"") && !text.contains("\"job\""),
        "{text}"
    );
    assert_eq!(
        (list.records[0].state.clone(), sampled(&mut test, &BOB, job)),
        (JobState::Running, 1)
    );
    let peers = ClientRequest::SamplePeers { job };
    assert_eq!(refusal(&test.ask(&BOB, peers.clone())), Some(RefusalKind::NotPermitted));
    assert_eq!(refusal(&test.ask(&ALICE, peers)), None);
    for user in [&ALICE, &OWNER] {
        assert_eq!(jobs(&mut test, user).records[0].spec.request.name, "job");
    }
}

#[test]
fn others_see_no_jobs() {
    let (mut test, job) = with_job(ShowOthers::Nothing);
    for (user, seen) in [(&BOB, 0), (&ALICE, 1), (&OWNER, 1)] {
        assert_eq!(jobs(&mut test, user).records.len(), seen);
        assert_eq!(sampled(&mut test, user, job), seen);
        let status = status(&mut test, user);
        assert_eq!(status.nodes[0].jobs.len(), seen);
        let slots = status.timetable.columns.iter().flat_map(|column| &column.slots).flatten();
        assert_eq!(slots.count(), seen);
        assert!(seen == 1 || status.tree.is_none());
    }
}

#[test]
fn usually_all_see_all_jobs() {
    let (mut test, job) = with_job(ShowOthers::default());
    assert_eq!(jobs(&mut test, &BOB).records[0].spec.request.name, "job");
    assert_eq!(
        (sampled(&mut test, &BOB, job), status(&mut test, &BOB).nodes[0].jobs.len()),
        (1, 1)
    );
    assert_eq!(refusal(&test.ask(&BOB, ClientRequest::SamplePeers { job })), None);
}
