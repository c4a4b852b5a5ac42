//! What the cluster adds to what jobs ask for; which are encrypted, and who gets to see their keys.

use super::*;
use kumi_control::message::{JobSpec, SealKey};

/// What the nodes are told of the job.
fn prepared(actions: &[HeadAction]) -> JobSpec {
    let commands = commands(actions);
    let spec = commands.iter().find_map(|(_, command)| match command {
        Command::Prepare(spec) => Some((**spec).clone()),
        _ => None,
    });
    spec.expect("a job that is prepared")
}

#[test]
fn a_job_is_encrypted_as_it_asks_or_as_the_cluster_is() {
    for default in [false, true] {
        let mut test = Test::new(1);
        test.head = Head::new(HeadConfig { encrypt: default, ..config(1) }, Vec::new(), [1; 32])
            .expect("a policy");
        test.event(HeadEvent::ChildUp(LINK));
        test.report(Report::Attached(vec![description(0)]));
        let mut keys = Vec::new();
        for (token, asked) in [(1, None), (2, Some(true)), (3, Some(false))] {
            let request = JobRequest { encrypt: asked, ..request(token, 1, Some(1)) };
            let (job, actions) = test.submit(request);
            let spec = prepared(&actions);
            let expected = asked.unwrap_or(default);
            assert_eq!((spec.request.encrypt, spec.seal_key.is_some()), (Some(expected), expected));
            keys.extend(spec.seal_key);
            test.prepare(job, [(0, 1)]);
            test.report(Report::Freed { job, nodes: set([0]) });
        }
        assert!(keys.iter().all(|key| *key != SealKey([0; 16])));
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "one key for each job");
    }
}

#[test]
fn a_key_is_kept_until_the_job_is_over_and_shown_to_nobody() {
    let mut test = Test::new(1);
    let request = JobRequest { encrypt: Some(true), ..request(1, 1, Some(1)) };
    let (job, actions) = test.submit(request);
    let key = prepared(&actions).seal_key.expect("encrypted");
    assert!(format!("{actions:?}").contains("SealKey(..)"));
    assert!(!format!("{actions:?}").contains(&format!("{:?}", key.0)));
    test.prepare(job, [(0, 1)]);
    let of = |test: &Test| test.records.iter().find(|r| r.spec.job == job).cloned().unwrap();
    assert_eq!((of(&test).state, of(&test).spec.seal_key), (JobState::Running, Some(key)));
    let listed = test.ask(&BOB, ClientRequest::Jobs(JobsQuery::first_page(true)));
    let listed = listed.iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. })) => {
            Some(list.records.clone())
        }
        _ => None,
    });
    let listed = listed.expect("a list");
    assert_eq!((listed[0].spec.request.encrypt, &listed[0].spec.seal_key), (Some(true), &None));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert!(matches!(of(&test).state, JobState::Ended(_)));
    assert_eq!((of(&test).spec.seal_key, of(&test).spec.request.encrypt), (None, Some(true)));
}

#[test]
fn an_environment_is_recorded_until_the_job_is_over() {
    let mut test = Test::new(1);
    let env = vec![("PASSWORD".to_owned(), "secret".to_owned())];
    let (job, _) = test.submit(JobRequest { env, ..request(1, 1, Some(1)) });
    test.prepare(job, [(0, 1)]);
    let of = |test: &Test| test.records.iter().find(|r| r.spec.job == job).cloned().unwrap();
    assert_eq!(of(&test).spec.request.env.len(), 1);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert!(matches!(of(&test).state, JobState::Ended(_)));
    assert_eq!(of(&test).spec.request.env, []);
    assert!(!of(&test).spec.request.args.is_empty(), "`kumi ps --all` shows them");
}

#[test]
fn a_job_gets_the_clusters_settings_unless_it_has_its_own() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut test = Test::new(1);
    let env = vec![pair("A", "cluster"), pair("B", "cluster")];
    test.head = Head::new(HeadConfig { env, ..config(1) }, Vec::new(), [1; 32]).expect("a policy");
    test.event(HeadEvent::ChildUp(LINK));
    test.report(Report::Attached(vec![description(0)]));
    let own = vec![pair("B", ""), pair("C", "own")];
    let (_, actions) = test.submit(JobRequest { env: own, ..request(1, 1, Some(1)) });
    let env = prepared(&actions).request.env;
    assert_eq!(env, [pair("B", ""), pair("C", "own"), pair("A", "cluster")]);
}
