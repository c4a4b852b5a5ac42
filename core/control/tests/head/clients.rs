//! What clients may ask, and what they are told.

use super::*;
use kumi_control::compat::{OLDEST_VERSION, Versions};
use kumi_control::message::CONTROL_VERSION;

#[test]
fn what_never_fits_is_refused() {
    let mut test = Test::new(4);
    let kind = |test: &mut Test, change: &dyn Fn(&mut JobRequest)| {
        let mut wrong = request(1, 4, None);
        change(&mut wrong);
        refusal(&test.ask(&ALICE, ClientRequest::Submit(Box::new(wrong))))
    };
    assert_eq!(kind(&mut test, &|r| r.nodes = Some(5)), Some(RefusalKind::TooLarge));
    assert_eq!(kind(&mut test, &|r| r.ranks = 33), Some(RefusalKind::TooLarge));
    assert_eq!(
        kind(&mut test, &|r| (r.ranks, r.nodes) = (17, Some(2))),
        Some(RefusalKind::TooLarge)
    );
    assert_eq!(kind(&mut test, &|r| r.ranks = u32::MAX), Some(RefusalKind::TooLarge));
    let bad = Some(RefusalKind::BadRequest);
    assert_eq!(kind(&mut test, &|r| r.ranks = 0), bad);
    assert_eq!(kind(&mut test, &|r| r.nodes = Some(0)), bad);
    assert_eq!(kind(&mut test, &|r| (r.ranks, r.nodes) = (1, Some(2))), bad);
    assert_eq!(kind(&mut test, &|r| r.cwd = "here".into()), bad);
    assert_eq!(kind(&mut test, &|r| r.program.path = "true".into()), bad);
    assert_eq!(kind(&mut test, &|r| r.args.clear()), bad);
    assert_eq!(kind(&mut test, &|r| r.args.push("a\0b".into())), bad);
    assert_eq!(kind(&mut test, &|r| r.args.push("x".repeat(600 << 10))), bad);
    assert_eq!(test.head.records().count(), 0, "nothing is left of a refused job");
    assert_eq!(kind(&mut test, &|r| r.ranks = 32), None, "as many as fit");
    let token = request(1, 1, None);
    let actions = test.ask(&BOB, ClientRequest::Submit(Box::new(token)));
    assert_eq!(refusal(&actions), Some(RefusalKind::NotPermitted), "another user's token");
}

#[test]
fn a_job_that_leaves_it_open_takes_the_nodes_that_are_up() {
    let mut test = Test::without_nodes(4);
    let placed = |test: &Test, job| match test.state(job) {
        JobState::Queued => 0,
        _ => {
            let mut records = test.head.records();
            records.find(|r| r.spec.job == job).expect("known").spec.layout.len()
        }
    };
    let (first, _) = test.submit(request(1, 8, None));
    test.report(Report::Attached((0..3).map(description).collect()));
    assert_eq!(placed(&test, first), 0, "the fourth may be on its way");
    test.advance(4_100 * MS);
    assert_eq!(placed(&test, first), 3);
    let (second, _) = test.submit(request(2, 8, None));
    assert_eq!(placed(&test, second), 3);
    // Both rows are full; one of the nodes is lost before there is room again.
    let (third, _) = test.submit(request(3, 8, None));
    let (fourth, _) = test.submit(request(4, 3, Some(3)));
    test.report(Report::Detached(set([2])));
    test.advance(1_100 * MS);
    for job in [first, second] {
        assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(2))));
        test.report(Report::Freed { job, nodes: set(0..2) });
    }
    assert_eq!(placed(&test, third), 2);
    assert_eq!(placed(&test, fourth), 0, "it asked for three");
    test.report(Report::Attached(vec![description(2)]));
    assert_eq!(placed(&test, fourth), 3);
}

#[test]
fn the_same_token_is_the_same_job() {
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(9, 1, None));
    let (again, actions) = test.submit(request(9, 1, None));
    assert_eq!(job, again);
    assert!(commands(&actions).is_empty());
    let head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
    let mut test = Test { head, now: test.now + MS, records: test.records };
    let (again, _) = test.submit(request(9, 1, None));
    assert_eq!(job, again, "also to a head that was started again");
    let (other, _) = test.submit(request(10, 1, None));
    assert!(other > job);
}

#[test]
fn only_those_may_who_may() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let not_permitted = Some(RefusalKind::NotPermitted);
    let requests = || {
        [
            ClientRequest::Signal { job, signal: 10 },
            ClientRequest::Input { job, data: vec![1] },
            ClientRequest::Follow { job, offset: 0, wait: false },
            ClientRequest::Kill { job, grace_ns: 0 },
        ]
    };
    let verbs = ["signal it", "write to its input", "read its output", "stop it"];
    for (request, verb) in requests().into_iter().zip(verbs) {
        let actions = test.ask(&BOB, request);
        assert_eq!(actions.len(), 1);
        let refusal = refused(actions);
        assert_eq!(refusal.kind, RefusalKind::NotPermitted);
        let says = format!("only that user, the cluster's owner and root may {verb}");
        assert!(refusal.message.ends_with(&says), "{}", refusal.message);
    }
    for request in requests() {
        assert_eq!(refusal(&test.ask(&OWNER, request)), None);
    }
    assert_eq!(test.state(job), JobState::Ending(Outcome::Killed));
    let configure =
        ClientRequest::Configure { mode: None, slice: Some(SliceLength::Fixed(MS)), policy: None };
    for request in [configure.clone(), ClientRequest::Shutdown] {
        assert_eq!(refusal(&test.ask(&ALICE, request)), not_permitted);
    }
    assert!(replied(&test.ask(&OWNER, configure), &ClientReply::Done));
    let unknown = ClientRequest::Kill { job: JobId(77), grace_ns: 0 };
    assert_eq!(refusal(&test.ask(&ALICE, unknown)), Some(RefusalKind::NoSuchJob));
}

#[test]
fn the_program_is_asked_for_once_and_sent_to_those_who_lack_it() {
    let mut test = Test::new(4);
    let (job, _) = test.submit(request(1, 4, Some(4)));
    let wanted = |nodes| Report::ProgramWanted { job, hash: HASH, nodes };
    assert!(test.report(wanted(set([1]))).is_empty());
    assert!(test.prepare(job, [(0, 1), (3, 1)]).is_empty());
    let actions = test.report(wanted(set([2])));
    assert_eq!(actions, [HeadAction::ToClient(CLIENT, ClientReply::ProgramWanted(HASH))]);
    let chunk = |offset, data: &[u8]| ClientRequest::ProgramChunk {
        hash: HASH,
        offset,
        total: 10,
        data: data.to_vec(),
    };
    let stranger = HeadEvent::Client(ClientId(2), BOB, chunk(0, b"evil"));
    assert!(test.event(stranger).is_empty(), "nobody asked for it");
    let late = test.ask(&ALICE, chunk(5, b"56789"));
    assert!(late.is_empty(), "the rest of a transfer that was given up: {late:?}");
    for (offset, data) in [(0, b"01234"), (5, b"56789")] {
        let actions = test.ask(&ALICE, chunk(offset, data));
        let command = Command::ProgramChunk { hash: HASH, offset, total: 10, data: data.to_vec() };
        assert_eq!(actions, [HeadAction::ToChild(LINK, set([1, 2]), command)]);
    }
    assert!(test.ask(&ALICE, chunk(0, b"again")).is_empty(), "it is all there");
    test.prepare(job, [(1, 1), (2, 1)]);
    assert_eq!(test.state(job), JobState::Running);
}

/// The order to prepare waited for the job's record, and came when the job was over.
#[test]
fn a_node_that_begins_a_job_which_is_over_is_told_to_kill_it() {
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(1, 2, Some(2)));
    let kill = |nodes| HeadAction::ToChild(LINK, nodes, Command::Kill { job });
    let wanted = || Report::ProgramWanted { job, hash: HASH, nodes: set([1]) };
    assert!(!test.report(wanted()).contains(&kill(set([1]))), "it may still run");
    test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 0 });
    test.report(Report::Freed { job, nodes: set(0..2) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::Killed));
    assert_eq!(test.report(wanted()), [kill(set([1]))]);
    assert_eq!(test.prepare(job, [(0, 1)]), [kill(set([0]))]);
}

#[test]
fn a_program_that_cannot_be_had_refuses_the_job() {
    let refused = |test: &Test, job, wanted: RefusalKind| match test.state(job) {
        JobState::Ending(Outcome::Refused(refusal)) => assert_eq!(refusal.kind, wanted),
        other => panic!("{other:?}"),
    };
    let begin = |token| {
        let mut test = Test::new(1);
        let (job, _) = test.submit(request(token, 1, None));
        let nodes = set([0]);
        let actions = test.report(Report::ProgramWanted { job, hash: HASH, nodes });
        assert!(replied(&actions, &ClientReply::ProgramWanted(HASH)));
        (test, job)
    };
    let (mut test, job) = begin(1);
    let actions = test.event(HeadEvent::ClientGone(CLIENT));
    refused(&test, job, RefusalKind::NotFound);
    let sent = commands(&actions);
    assert!(sent.contains(&(&set([0]), &Command::ProgramMissing(HASH))));
    assert!(sent.contains(&(&set([0]), &Command::Kill { job })));

    let (mut test, job) = begin(2);
    let data = vec![0; 11];
    test.ask(&ALICE, ClientRequest::ProgramChunk { hash: HASH, offset: 0, total: 11, data });
    refused(&test, job, RefusalKind::BadRequest);

    let (mut test, job) = begin(3);
    test.advance(29_000 * MS);
    assert_eq!(test.state(job), JobState::Preparing);
    test.advance(2_000 * MS);
    refused(&test, job, RefusalKind::NotFound);
}

#[test]
fn input_waits_for_the_job() {
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(1, 2, Some(2)));
    let input = |data: &[u8]| ClientRequest::Input { job, data: data.to_vec() };
    assert!(test.ask(&ALICE, input(b"one")).is_empty());
    assert!(test.ask(&ALICE, input(b"two")).is_empty());
    assert_eq!(
        refusal(&test.ask(&ALICE, input(&vec![0; 1 << 20]))),
        Some(RefusalKind::NoResources)
    );
    let actions = test.prepare(job, [(0, 1), (1, 1)]);
    let inputs: Vec<_> = commands(&actions)
        .into_iter()
        .filter_map(|(nodes, command)| match command {
            Command::Input { data, .. } => Some((nodes.clone(), data.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(inputs, [(set([0]), b"one".to_vec()), (set([0]), b"two".to_vec())]);
    let actions = test.ask(&ALICE, input(b""));
    let closed = Command::Input { job, data: Vec::new() };
    assert_eq!(actions, [HeadAction::ToChild(LINK, set([0]), closed)]);
}

#[test]
fn sizes_of_terminals_go_to_the_node_of_rank_0() {
    let mut test = Test::new(2);
    let size = WindowSize { rows: 30, columns: 100 };
    let terminal = Some(WindowSize::default());
    let (job, _) = test.submit(JobRequest { terminal, ..request(1, 2, Some(2)) });
    let resize = |job| ClientRequest::Resize { job, size, redraw: true };
    assert!(test.ask(&ALICE, resize(job)).is_empty(), "it does not run yet");
    test.prepare(job, [(0, 1), (1, 1)]);
    assert_eq!(refusal(&test.ask(&BOB, resize(job))), Some(RefusalKind::NotPermitted));
    let actions = test.ask(&ALICE, resize(job));
    let command = Command::Resize { job, size, redraw: true };
    assert_eq!(actions, [HeadAction::ToChild(LINK, set([0]), command)]);
    let without = test.running(2, 1);
    assert_eq!(refusal(&test.ask(&ALICE, resize(without))), Some(RefusalKind::BadRequest));
}

#[test]
fn signals_end_what_does_not_run_yet() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job, signal: 2 });
    assert_eq!(commands(&actions), [(&set([0]), &Command::Signal { job, signal: 2 })]);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job, signal: 0 });
    assert_eq!(refusal(&actions), Some(RefusalKind::BadRequest));
    test.running(2, 1);
    let (queued, _) = test.submit(request(3, 1, Some(1)));
    test.ask(&ALICE, ClientRequest::Signal { job: queued, signal: 10 });
    assert_eq!(test.state(queued), JobState::Queued);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job: queued, signal: 2 });
    assert_eq!(test.state(queued), JobState::Ended(Outcome::Killed));
    let outcome = Outcome::Killed;
    assert!(actions.contains(&HeadAction::EndSpool { job: queued, outcome, not_kept: 0 }));
}

#[test]
fn samples_are_gathered_for_a_second() {
    let sample = |node| NodeSample {
        node: NodeId(node),
        ranks: Vec::new(),
        channels: Vec::new(),
        traces: Vec::new(),
        load: None,
        machine_clock: String::new(),
        switching: SwitchSample::default(),
        control_messages: MessageCounts::default(),
        refused: Vec::new(),
    };
    let mut test = Test::new(3);
    let actions = test.ask(&ALICE, ClientRequest::Sample);
    assert_eq!(commands(&actions), [(&set(0..3), &Command::Sample { request: 1 })]);
    assert!(test.event(HeadEvent::Client(ClientId(2), BOB, ClientRequest::Sample)).is_empty());
    let nodes = vec![sample(2), sample(0), sample(2)];
    assert!(test.report(Report::Samples { request: 1, nodes }).is_empty());
    let actions = test.advance(1_100 * MS);
    let answer = ClientReply::Samples(vec![sample(0), sample(2)]);
    let all = HeadAction::ToClients(vec![CLIENT, ClientId(2)], answer);
    assert!(actions.contains(&all), "whoever asked meanwhile is answered too: {actions:?}");
    assert!(test.report(Report::Samples { request: 1, nodes: vec![sample(1)] }).is_empty());
}

#[test]
fn peers_are_asked_of_the_jobs_nodes_only() {
    let sample = |node| NodeSample {
        node: NodeId(node),
        ranks: Vec::new(),
        channels: Vec::new(),
        traces: Vec::new(),
        load: None,
        machine_clock: String::new(),
        switching: SwitchSample::default(),
        control_messages: MessageCounts::default(),
        refused: Vec::new(),
    };
    let mut test = Test::new(3);
    let job = test.running(2, 2);
    let nodes: Vec<u32> =
        test.head.records().next().unwrap().spec.layout.iter().map(|part| part.node.0).collect();
    // A gathering of all nodes that is under way is another one.
    test.ask(&ALICE, ClientRequest::Sample);
    let actions = test.ask(&BOB, ClientRequest::SamplePeers { job });
    let wanted = Command::SamplePeers { request: 2, job };
    assert_eq!(commands(&actions), [(&set(nodes.clone()), &wanted)]);
    assert!(test.report(Report::Samples { request: 2, nodes: vec![sample(nodes[1])] }).is_empty());
    let actions = test.report(Report::Samples { request: 2, nodes: vec![sample(nodes[0])] });
    let answer = ClientReply::Samples(nodes.iter().map(|&node| sample(node)).collect());
    assert_eq!(actions, [HeadAction::ToClient(CLIENT, answer)]);
    let unknown = test.ask(&ALICE, ClientRequest::SamplePeers { job: JobId(99) });
    assert_eq!(refusal(&unknown), Some(RefusalKind::NoSuchJob));
}

#[test]
fn channels_are_asked_of_the_ranks_node_by_who_may() {
    let mut test = Test::new(3);
    let job = test.running(2, 2);
    let layout = test.head.records().next().unwrap().spec.layout.clone();
    let channels = |rank| ClientRequest::SampleChannels { job, rank };
    let asked = |request, rank| Command::SampleChannels { request, job, rank };
    let all = set(layout.iter().map(|part| part.node.0));
    let actions = test.ask(&ALICE, channels(None));
    assert_eq!(commands(&actions), [(&all, &asked(1, None))]);
    let last = layout.last().unwrap();
    let actions = test.ask(&ALICE, channels(Some(last.first)));
    assert_eq!(commands(&actions), [(&set([last.node.0]), &asked(2, Some(last.first)))]);
    let why = |actions: &[HeadAction]| match actions {
        [HeadAction::ToClient(_, ClientReply::Refused(refused))] => {
            (refused.kind, refused.message.clone())
        }
        other => panic!("{other:?}"),
    };
    let (kind, message) = why(&test.ask(&BOB, channels(None)));
    assert_eq!(kind, RefusalKind::NotPermitted, "{message}");
    let (kind, message) = why(&test.ask(&ALICE, channels(Some(2))));
    assert_eq!(kind, RefusalKind::BadRequest);
    assert!(message.contains("no rank 2; its ranks are 0 to 1"), "{message}");
    let unknown = ClientRequest::SampleChannels { job: JobId(99), rank: None };
    assert_eq!(why(&test.ask(&ALICE, unknown)).0, RefusalKind::NoSuchJob);
    test.report(Report::Freed { job, nodes: all });
    assert_eq!(why(&test.ask(&ALICE, channels(None))).0, RefusalKind::NoSuchJob);
    let mut alone = Test::new(1);
    let job = alone.running(1, 1);
    let request = ClientRequest::SampleChannels { job, rank: None };
    let (kind, message) = why(&alone.ask(&ALICE, request));
    assert_eq!(kind, RefusalKind::BadRequest);
    assert!(message.contains("through memory"), "{message}");
}

#[test]
fn traces_are_asked_of_the_ranks_node_by_who_may_also_when_the_job_is_over() {
    let mut test = Test::new(3);
    let job = test.running(2, 2);
    let layout = test.head.records().next().unwrap().spec.layout.clone();
    let last = layout.last().unwrap().clone();
    let trace = |rank, from| ClientRequest::SampleTrace { job, rank, from };
    let wanted = |request, from| Command::SampleTrace { request, job, rank: last.first, from };
    let there = set([last.node.0]);
    let actions = test.ask(&ALICE, trace(last.first, 0));
    assert_eq!(commands(&actions), [(&there, &wanted(1, 0))]);
    let refused = |actions: &[HeadAction]| match actions {
        [HeadAction::ToClient(_, ClientReply::Refused(refused))] => refused.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&test.ask(&BOB, trace(0, 0))), RefusalKind::NotPermitted);
    assert_eq!(refused(&test.ask(&ALICE, trace(2, 0))), RefusalKind::BadRequest);
    let unknown = ClientRequest::SampleTrace { job: JobId(99), rank: 0, from: 0 };
    assert_eq!(refused(&test.ask(&ALICE, unknown)), RefusalKind::NoSuchJob);
    test.report(Report::Freed { job, nodes: set(layout.iter().map(|part| part.node.0)) });
    let actions = test.ask(&ALICE, trace(last.first, 7));
    assert_eq!(commands(&actions), [(&there, &wanted(2, 7))]);
    for from in 100..162 {
        assert_eq!(commands(&test.ask(&ALICE, trace(last.first, from))).len(), 1);
    }
    assert_eq!(refused(&test.ask(&ALICE, trace(last.first, 1_000))), RefusalKind::NotNow);
    let actions = test.ask(&ALICE, trace(last.first, 7));
    assert_eq!(refused(&actions), RefusalKind::NotNow, "also those that others wait for");
}

#[test]
fn lists_tell_no_secrets() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let over = test.running(2, 1);
    test.report(Report::Freed { job: over, nodes: set([0]) });
    let listed = |test: &mut Test, all| {
        let actions = test.ask(&BOB, ClientRequest::Jobs(JobsQuery::first_page(all)));
        match actions.into_iter().next() {
            Some(HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. }))) => list.records,
            other => panic!("{other:?}"),
        }
    };
    let records = listed(&mut test, true);
    assert_eq!(records.iter().map(|r| r.spec.job).collect::<Vec<_>>(), [job, over]);
    assert!(records.iter().all(|r| r.spec.request.env.is_empty() && r.spec.channel_key == 0));
    assert!(records.iter().all(|r| r.spec.seal_key.is_none()));
    assert_eq!(listed(&mut test, false).len(), 1);
}

#[test]
fn output_that_is_not_kept_is_recorded_and_told_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let output = |at| Report::Output {
        job,
        rank: 0,
        node: NodeId(0),
        stream: Stream::Out,
        base: 0,
        at,
        data: vec![1],
    };
    let spools = |actions: &[HeadAction]| {
        actions.iter().any(|action| matches!(action, HeadAction::Spool { .. }))
    };
    assert!(spools(&test.report(output(0))));
    let not_kept = |bytes| HeadEvent::NotKept { job, bytes, reason: "no space left".into() };
    let recorded = |actions: &[HeadAction]| {
        actions.iter().find_map(|action| match action {
            HeadAction::Persist(record) => Some(record.output_not_kept),
            _ => None,
        })
    };
    let actions = test.event(not_kept(400));
    assert_eq!(recorded(&actions), Some(400));
    let told = ClientReply::NotKept { job, reason: "no space left".into() };
    assert!(replied(&actions, &told), "{actions:?}");
    assert_eq!(test.event(not_kept(700)), [], "not much more");
    assert_eq!(recorded(&test.event(not_kept(800))), Some(800));
    assert!(spools(&test.report(output(1))), "what comes is handed on");
    assert_eq!(test.event(not_kept(900)), []);
    let actions = test.report(Report::Freed { job, nodes: set([0]) });
    let ended = HeadAction::EndSpool { job, outcome: Outcome::Success, not_kept: 900 };
    assert!(actions.contains(&ended), "{actions:?}");
    // The disk has room again. The next head counts on.
    assert_eq!(recorded(&test.event(not_kept(100))), Some(100));
    let mut next = Head::new(config(1), test.records.clone(), [2; 32]).expect("a policy");
    next.handle(1, 1, not_kept(5));
    assert!(next.records().any(|record| record.output_not_kept == 105));
}

#[test]
fn following_a_job_that_is_over_ends_at_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.report(Report::Freed { job, nodes: set([0]) });
    let head = Head::new(config(1), test.records.clone(), [2; 32]).expect("a policy");
    let mut test = Test { head, now: test.now, records: test.records };
    let actions = test.ask(&ALICE, ClientRequest::Follow { job, offset: 3, wait: true });
    let follow = HeadAction::Follow { client: CLIENT, job, offset: 3, wait: true, paces: false };
    assert_eq!(
        actions,
        [follow, HeadAction::EndSpool { job, outcome: Outcome::Success, not_kept: 0 }]
    );
    assert!(replied(
        &test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 0 }),
        &ClientReply::Done
    ));
}

#[test]
fn versions_must_agree() {
    let mut test = Test::new(1);
    let hello = |version| ClientRequest::Hello { version };
    for version in OLDEST_VERSION..=CONTROL_VERSION {
        assert!(replied(&test.ask(&ALICE, hello(version)), &ClientReply::Welcome { version }));
    }
    for (version, advice) in [
        (OLDEST_VERSION - 1, "install the head's version"),
        (CONTROL_VERSION + 1, "upgrade the head's machine before yours"),
    ] {
        let actions = test.ask(&ALICE, hello(version));
        assert_eq!(refusal(&actions), Some(RefusalKind::Version));
        let told = format!("{actions:?}");
        assert!(told.contains(&Versions::OURS.to_string()) && told.contains(advice), "{told}");
        assert!(told.contains(&format!("version {version};")), "{told}");
    }
}

/// Two machines may give one number to two users.
#[test]
fn a_number_with_another_name_is_another_user() {
    let mut test = Test::new(1);
    let named = |name: &str| User { name: name.into(), ..ALICE };
    let submit = ClientRequest::Submit(Box::new(request(1, 1, None)));
    let actions = test.ask(&named("alice"), submit);
    assert_eq!(refusal(&actions), None);
    let kill = ClientRequest::Kill { job: JobId(1), grace_ns: 0 };
    assert_eq!(refusal(&test.ask(&named("bob"), kill.clone())), Some(RefusalKind::NotPermitted));
    assert_eq!(refusal(&test.ask(&named("alice"), kill)), None);
}

#[test]
fn jobs_of_root_are_refused_unless_they_are_permitted() {
    let root = User { uid: 0, gid: 0, name: "root".into() };
    let submit = || ClientRequest::Submit(Box::new(request(1, 1, None)));
    let refused = refused(Test::new(1).ask(&root, submit()));
    assert_eq!(refused.kind, RefusalKind::NotPermitted);
    assert!(refused.message.contains("root_jobs = true"), "{}", refused.message);
    let mut test = Test::attached(HeadConfig { root_jobs: true, ..config(1) });
    assert_eq!(refusal(&test.ask(&root, submit())), None);
}
