//! What each user sees of the jobs of others.

use kumi_control::message::Refusal;

use super::*;

const ROOT: User = User { uid: 0, gid: 0, name: String::new() };
const WHY: &str = "the working directory /home/alice/merger cannot be entered";

fn listed(test: &mut Test, user: &User) -> Vec<JobRecord> {
    match test.ask(user, ClientRequest::Jobs(JobsQuery::first_page(true))).into_iter().next() {
        Some(HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. }))) => list.records,
        other => panic!("{other:?}"),
    }
}

/// A job of Alice's that runs, and one that its node refused.
fn with_jobs() -> (Test, [JobId; 2]) {
    let telling = |token| JobRequest {
        name: "solver".into(),
        program: Program { path: "/home/alice/merger/solve".into(), hash: HASH, size: 10 },
        args: vec!["./solve".into(), "--password=secret".into()],
        cwd: "/home/alice/merger".into(),
        ..request(token, 1, Some(1))
    };
    let mut test = Test::new(1);
    let (running, _) = test.submit(telling(11));
    test.prepare(running, [(0, 1)]);
    assert_eq!(test.state(running), JobState::Running);
    let (refused, _) = test.submit(telling(12));
    let result = Err(Refusal { kind: RefusalKind::NotFound, message: WHY.into() });
    let nodes = vec![PreparedNode { node: NodeId(0), result }];
    test.report(Report::Prepared { job: refused, nodes });
    (test, [running, refused])
}

#[test]
fn others_see_the_program_but_neither_arguments_nor_folders() {
    let (mut test, jobs) = with_jobs();
    let full = listed(&mut test, &ALICE);
    let records = listed(&mut test, &BOB);
    assert_eq!(records.iter().map(|record| record.spec.job).collect::<Vec<_>>(), jobs);
    let text = format!("{records:?}");
    for secret in ["secret", "merger", "alice"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for (record, full) in records.iter().zip(&full) {
        let request = &record.spec.request;
        assert_eq!((&*request.name, &*request.program.path), ("solver", "solve"));
        assert_eq!(request.args, ["solve"]);
        assert_eq!((request.token, request.program.hash), (0, ContentHash([0; 32])));
        // What else there is to know is everybody's.
        assert_eq!((&record.spec.user, &record.spec.layout), (&ALICE, &full.spec.layout));
        assert_eq!((request.ranks, record.submitted_ms), (1, full.submitted_ms));
    }
    let JobState::Ending(Outcome::Refused(refusal)) = &records[1].state else {
        panic!("{:?}", records[1].state)
    };
    assert_eq!(refusal.kind, RefusalKind::NotFound);
}

#[test]
fn a_user_the_owner_and_root_see_all_of_it() {
    let (mut test, _) = with_jobs();
    for user in [&ALICE, &OWNER, &ROOT] {
        let records = listed(&mut test, user);
        assert_eq!(records.len(), 2);
        for record in &records {
            let request = &record.spec.request;
            assert_eq!(request.args, ["./solve", "--password=secret"], "{user:?}");
            assert_eq!(request.program.path, "/home/alice/merger/solve");
            assert_eq!(request.cwd, "/home/alice/merger");
        }
        assert!(format!("{:?}", records[1].state).contains(WHY), "{user:?}");
    }
}

#[test]
fn a_user_sees_its_own_among_others() {
    let (mut test, _) = with_jobs();
    let mine = JobRequest { args: vec!["true".into(), "mine".into()], ..request(13, 1, Some(1)) };
    test.ask(&BOB, ClientRequest::Submit(Box::new(mine)));
    let args = |records: Vec<JobRecord>| -> Vec<String> {
        records.into_iter().map(|record| record.spec.request.args.join(" ")).collect()
    };
    assert_eq!(args(listed(&mut test, &BOB)), ["solve", "solve", "true mine"]);
    let solve = "./solve --password=secret";
    assert_eq!(args(listed(&mut test, &ALICE)), [solve, solve, "true"]);
}
