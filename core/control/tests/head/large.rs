//! Large clusters: an event costs what it concerns.

use super::*;

/// The timetables among these actions, with the nodes that they are for.
fn timetables(actions: &[HeadAction]) -> Vec<(&NodeSet, &Timetable)> {
    let mut found = Vec::new();
    for (nodes, command) in commands(actions) {
        if let Command::Timetable(timetable) = command {
            found.push((nodes, timetable));
        }
    }
    found
}

/// The nodes that have a column in it.
fn shown(timetable: &Timetable) -> Vec<u32> {
    timetable.columns.iter().map(|column| column.node.0).collect()
}

#[test]
fn only_nodes_whose_column_changes_hear_of_a_timetable() {
    let mut test = Test::new(4);
    let (first, _) = test.submit(request(1, 2, Some(2)));
    let actions = test.prepare(first, [(0, 1), (1, 1)]);
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((nodes, shown(timetable)), (&set([0, 1]), vec![0, 1]));
    let (second, _) = test.submit(request(2, 2, Some(2)));
    let actions = test.prepare(second, [(2, 1), (3, 1)]);
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((nodes, shown(timetable)), (&set([2, 3]), vec![2, 3]));
    assert_eq!(shown(test.head.timetable()), [0, 1, 2, 3], "the head has all");
    test.advance(35 * MS);
    let actions = test.report(Report::Freed { job: first, nodes: set([0, 1]) });
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((nodes, shown(timetable)), (&set([0, 1]), vec![]), "they have no column now");
}

#[test]
fn a_node_that_attaches_again_hears_of_its_whole_column() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.report(Report::Detached(set([1])));
    let jobs = vec![(job, vec![1])];
    let again = NodeDescription { jobs, incarnation: 1, ..description(1) };
    let actions = test.report(Report::Attached(vec![again]));
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((nodes, shown(timetable)), (&set([1]), vec![1]));
}

#[test]
fn all_hear_of_another_slice() {
    let mut test = Test::new(3);
    test.running(1, 1);
    let slice = Some(SliceLength::Fixed(20 * MS));
    let configure = ClientRequest::Configure { mode: None, slice, policy: None };
    let actions = test.ask(&OWNER, configure);
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((nodes, timetable.slice_ns), (&set([0, 1, 2]), 20 * MS));
}

#[test]
fn nodes_hear_of_idle_jobs_that_they_have() {
    let mut test = Test::new(4);
    let (first, _) = test.submit(request(1, 2, Some(2)));
    test.prepare(first, [(0, 1), (1, 1)]);
    let (second, _) = test.submit(request(2, 2, Some(2)));
    test.prepare(second, [(2, 1), (3, 1)]);
    let mut idle = |job, nodes, idle| {
        let actions = test.report(Report::Idle(IdleReport { job, nodes: set(nodes), idle }));
        let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
        (nodes.clone(), timetable.idle.clone())
    };
    assert_eq!(idle(first, [0, 1], true), (set([0, 1]), vec![first]));
    assert_eq!(idle(second, [2, 3], true), (set([2, 3]), vec![second]), "not of the first one");
    assert_eq!(idle(first, [0, 1], false), (set([0, 1]), vec![]));
}

/// Whole nodes for three jobs that take turns, and one that has none.
fn wide() -> (Test, [JobId; 3]) {
    const NODES: u32 = 800;
    let config = HeadConfig { max_jobs_per_processor: 4, ..config(NODES) };
    let mut test = Test::with_processors(config, &[8; NODES as usize]);
    test.advance(5_000 * MS);
    let jobs = [1, 2, 3].map(|token| {
        let (job, _) = test.submit(request(token, NODES * 8, Some(NODES)));
        test.prepare(job, (0..NODES).map(|node| (node, 8)));
        assert_eq!(test.state(job), JobState::Running);
        job
    });
    test.advance(500 * MS);
    (test, jobs)
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn changes_of_a_large_timetable_go_out_together() {
    let (mut test, [first, second, third]) = wide();
    assert_eq!(test.head.timetable().cycle(), 3);
    let all = || set(0..800);
    let actions = test.report(Report::Idle(IdleReport { job: first, nodes: all(), idle: true }));
    let generation = test.head.timetable().generation;
    assert_eq!(timetables(&actions).len(), 1, "the first change goes out at once");
    // The timetable of two jobs is small: it takes no pause.
    let actions = test.report(Report::Idle(IdleReport { job: first, nodes: all(), idle: false }));
    assert_eq!(timetables(&actions).len(), 1);
    assert_eq!(test.head.timetable().generation, generation + 1);
    let changes = [(second, true), (third, true), (second, false)];
    for (job, idle) in changes {
        let actions = test.report(Report::Idle(IdleReport { job, nodes: all(), idle }));
        assert_eq!(timetables(&actions), [], "it has to wait");
    }
    let due = test.head.next_timeout().expect("it must go out some time");
    assert!(due < test.now + 10 * MS, "soon");
    let actions = test.advance(10 * MS);
    let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("not one: {actions:?}") };
    assert_eq!((nodes, &timetable.idle[..]), (&all(), &[third][..]));
    let columns = &test.head.timetable().columns;
    assert!(columns.iter().all(|column| column.slots.len() == 2), "two jobs take turns");
    assert_eq!(timetables(&test.advance(100 * MS)), [], "nothing is left to be told");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_job_starts_although_its_timetable_has_to_wait() {
    let (mut test, [first, second, _]) = wide();
    let all = || set(0..800);
    for idle in [true, false] {
        test.report(Report::Idle(IdleReport { job: first, nodes: all(), idle }));
    }
    let (job, _) = test.submit(request(9, 1, Some(1)));
    let actions = test.prepare(job, [(0, 1)]);
    position(&actions, |action| matches!(command_of(action), Some((_, Command::Start { .. }))));
    assert_eq!(timetables(&actions), []);
    test.report(Report::Freed { job: second, nodes: all() });
    let actions = test.advance(10 * MS);
    let sent = timetables(&actions);
    let node = sent[0].1.column(NodeId(0)).expect("it has a column");
    assert!(node.slots.iter().flatten().any(|shown| *shown == job), "{node:?}");
    assert!(!node.slots.iter().flatten().any(|shown| *shown == second), "{node:?}");
}

/// Three clients that watch all nodes ask each second, each at another time.
#[test]
fn clients_that_watch_share_samples() {
    let mut test = Test::new(2);
    let mut ask = |client: u64| {
        let event = HeadEvent::Client(ClientId(client), OWNER, ClientRequest::Sample);
        let actions = test.event(event);
        let asked = commands(&actions).into_iter().find_map(|(_, command)| match command {
            Command::Sample { request } => Some(*request),
            _ => None,
        });
        if let Some(request) = asked {
            let nodes = (0..2).map(sample).collect();
            test.report(Report::Samples { request, nodes });
        }
        test.advance(10 * MS);
        let answered = |action: &HeadAction| matches!(action, HeadAction::ToClient(_, ClientReply::Samples(samples)) if samples.len() == 2);
        (asked.is_some(), actions.iter().any(answered))
    };
    assert_eq!([1, 2, 3].map(&mut ask), [(true, false); 3], "each first one is new");
    assert_eq!([1, 2, 3].map(&mut ask), [(false, true), (false, true), (true, false)]);
}

/// Jobs of five nodes each on all of a thousand nodes, while ten thousand others wait.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn an_end_concerns_its_own_nodes_however_many_jobs_wait() {
    const NODES: u32 = 1_000;
    let config = HeadConfig { policy: "fcfs".into(), ..config(NODES) };
    let mut test = Test::attached(config);
    test.advance(5_000 * MS);
    let wanted = |token: u32| request(token.into(), 5, Some(5));
    let layout = |test: &Test, job: JobId| -> Vec<u32> {
        let record = test.records.iter().find(|record| record.spec.job == job).expect("known");
        record.spec.layout.iter().map(|part| part.node.0).collect()
    };
    let mut running = Vec::new();
    for token in 0..NODES / 5 {
        let (job, _) = test.submit(wanted(token));
        let nodes = layout(&test, job);
        test.prepare(job, nodes.iter().map(|&node| (node, 1)));
        running.push((job, nodes));
    }
    test.records.clear();
    for token in 0..10_000 {
        let submission = ClientRequest::Submit(Box::new(wanted(NODES + token)));
        let event = HeadEvent::Client(CLIENT, OWNER, submission);
        test.now += 1000;
        test.head.handle(test.now, 1_700_000_000_000, event);
        while test.head.poll_action().is_some() {}
    }
    for (job, nodes) in running.into_iter().step_by(20) {
        let actions = test.report(Report::Freed { job, nodes: set(nodes.iter().copied()) });
        let placed = position(&actions, |action| is_state(action, &JobState::Preparing));
        let HeadAction::Persist(next) = &actions[placed] else { panic!("{:?}", actions[placed]) };
        let next = next.spec.job;
        assert_eq!(layout(&test, next), nodes, "the nodes that are free");
        let started = test.prepare(next, nodes.iter().map(|&node| (node, 1)));
        for (concerned, _) in commands(&actions).into_iter().chain(commands(&started)) {
            assert_eq!(concerned, &set(nodes.iter().copied()));
        }
        assert_eq!(timetables(&actions).len() + timetables(&started).len(), 2);
        assert!(actions.len() + started.len() < 20, "{}", actions.len() + started.len());
        test.records.clear();
    }
}

/// Nodes are asked once, and what they say is there once, for as many as look at it at the same time. Whoever sees less has an
/// answer of their own.
#[test]
fn any_number_of_clients_cost_one_sampling_and_one_answer() {
    let show_others = kumi_control::head::ShowOthers::Nothing;
    let mut test = Test::attached(HeadConfig { show_others, ..config(2) });
    let mut asked = 0;
    for client in 0..20 {
        let user = if client == 7 { BOB } else { OWNER };
        let request = ClientRequest::SampleLoad { slices: false };
        let actions = test.event(HeadEvent::Client(ClientId(client), user, request));
        asked += commands(&actions).len();
    }
    assert_eq!(asked, 1);
    let nodes = (0..2).map(sample).collect();
    let actions = test.report(Report::Samples { request: 1, nodes });
    let answers = actions.iter().filter_map(|action| match action {
        HeadAction::ToClients(clients, ClientReply::Samples(_)) => Some(clients.len()),
        HeadAction::ToClient(client, ClientReply::Samples(_)) => {
            assert_eq!(*client, ClientId(7));
            Some(1)
        }
        _ => None,
    });
    let mut answers: Vec<usize> = answers.collect();
    answers.sort_unstable();
    assert_eq!(answers, [1, 19]);
}

/// Only who asks for timetables gets them: of many nodes they are most of what there is to say of a cluster.
#[test]
fn an_overview_has_the_timetables_that_are_wanted() {
    let mut test = Test::new(4);
    test.running(4, 4);
    let mut columns = |request: ClientRequest| match test.ask(&ALICE, request).as_slice() {
        [HeadAction::ToClient(_, ClientReply::Cluster(status))] => {
            assert_eq!((status.nodes.len(), status.nodes[3].jobs.len()), (4, 1));
            status.timetable.columns.iter().map(|column| column.node.0).collect::<Vec<u32>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(columns(ClientRequest::Cluster), [0, 1, 2, 3]);
    assert_eq!(columns(ClientRequest::Overview { columns: 2 }), [0, 1]);
    assert_eq!(columns(ClientRequest::Overview { columns: 0 }), []);
}
