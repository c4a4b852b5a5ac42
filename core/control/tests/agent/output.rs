//! Output of the node's own ranks: kept until it is acknowledged, and sent again when the head asks.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn ranks_wait_when_much_output_is_not_acknowledged() {
    let mut test = Test::running();
    let megabyte = vec![b'x'; 1 << 20];
    for number in 0..4u64 {
        assert_eq!(test.agent.blocked_jobs().count(), 0);
        if number == 2 {
            test.event(AgentEvent::ParentDown);
        }
        let sent = test.event(output(&megabyte)).len();
        assert_eq!(sent, usize::from(number < 2));
    }
    assert_eq!(test.agent.blocked_jobs().collect::<Vec<_>>(), [JOB]);
    assert!(!test.agent.output_blocked(), "others go on");
    // What is not kept here comes again from below.
    let below = Report::Output {
        job: JOB,
        rank: 3,
        node: NodeId(1),
        stream: Stream::Out,
        base: 0,
        at: 0,
        data: megabyte.clone(),
    };
    assert_eq!(test.child(LEFT, below.clone()), []);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(actions.iter().all(|a| !matches!(a, AgentAction::ToParent(Report::Output { .. }))));
    assert_eq!(test.child(LEFT, below.clone()), [up(below)]);
    // The head had the first, and got the second.
    let again = test.kept(1 << 20, true);
    let places: Vec<(u64, u64)> = again
        .iter()
        .filter_map(|action| match action {
            AgentAction::ToParent(Report::Output { base, at, .. }) => Some((base >> 20, at >> 20)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(1, 1), (1, 2), (1, 3)]);
    assert_eq!(test.agent.blocked_jobs().count(), 0);
    assert_eq!(test.kept(4 << 20, false), []);
    let whole = up(wrote(4 << 20, 0, b""));
    assert_eq!(test.kept(0, true), [whole], "nothing is left to be sent");
}

#[test]
fn a_job_is_freed_behind_its_output() {
    let mut test = Test::running();
    assert_eq!(test.event(output(b"one")), [up(wrote(0, 0, b"one"))]);
    test.child(LEFT, freed([1, 3]));
    test.child(RIGHT, freed([2]));
    let status = RankStatus::Exited(0);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    let last = up(wrote(0, 3, b""));
    assert_eq!(test.event(AgentEvent::Freed { job: JOB }), std::slice::from_ref(&last));
    assert_eq!(test.kept(0, true), [up(wrote(0, 0, b"one")), last]);
    assert!(test.agent.awaits_acknowledgement());
    assert_eq!(test.kept(2, false), [], "a part of a piece");
    assert_eq!(test.kept(3, false), [up(freed(0..4))]);
    assert!(!test.agent.awaits_acknowledgement());
    // A daemon that is to stop does not wait for a head that is away.
    let mut test = Test::running();
    test.event(output(b"one"));
    test.command(set([0]), Command::Shutdown);
    test.event(AgentEvent::Freed { job: JOB });
    test.event(AgentEvent::ParentDown);
    let actions = test.advance(4_000 * MS);
    assert!(actions.contains(&AgentAction::Shutdown), "{actions:?}");
}

#[test]
fn output_that_nobody_wants_is_dropped_and_holds_nothing_up() {
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    for _ in 0..4 {
        test.event(output(&vec![b'x'; 1 << 20]));
    }
    assert_eq!(test.agent.blocked_jobs().count(), 1);
    test.event(AgentEvent::ParentUp);
    let unwanted = || Command::DropOutput { job: JOB };
    assert_eq!(test.command(set([0]), unwanted()), [], "nothing is sent again");
    assert_eq!(test.agent.blocked_jobs().count(), 0);
    // Its ranks may not have ended yet.
    let late = test.event(output(b"late"));
    assert_eq!(late, [up(wrote(4 << 20, 4 << 20, b"late"))]);
    for (link, nodes) in [(LEFT, &[1, 3][..]), (RIGHT, &[2])] {
        test.child(link, freed(nodes.iter().copied()));
    }
    test.command(set([0]), Command::Kill { job: JOB });
    test.event(AgentEvent::Freed { job: JOB });
    assert!(test.agent.awaits_acknowledgement());
    let last = test.command(set([0]), unwanted());
    assert_eq!(last, [up(freed(0..4))]);
    assert!(!test.agent.awaits_acknowledgement());
}

/// All of its ranks have ended well, so it lacks nothing when the lease is over but its output.
#[test]
fn a_job_whose_output_waits_for_the_head_is_not_given_up() {
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    test.event(output(b"one"));
    let status = RankStatus::Exited(0);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    test.event(AgentEvent::Freed { job: JOB });
    let actions = test.advance(6_000 * MS);
    assert_eq!(actions, [], "nothing of it runs");
    let mut sent = test.event(AgentEvent::ParentUp);
    sent.extend(test.kept(0, true));
    sent.extend(test.command(set([0]), Command::Kill { job: JOB }));
    let abandoned = |action: &&AgentAction| {
        matches!(action, AgentAction::ToParent(Report::Abandoned { .. }) | AgentAction::Kill { .. })
    };
    assert_eq!(sent.iter().find(abandoned), None);
    for (link, nodes) in [(LEFT, &[1, 3][..]), (RIGHT, &[2])] {
        test.child(link, freed(nodes.iter().copied()));
    }
    assert_eq!(test.kept(3, false), [up(freed(0..4))]);
}

/// A head that takes over knows by that what only the one before it had, before it hears that nothing comes any more.
#[test]
fn how_far_output_had_come_is_repeated_before_the_end_until_that_is_recorded() {
    let mut test = Test::running();
    test.event(output(b"one"));
    test.kept(3, false);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status: RankStatus::Exited(0) });
    test.event(AgentEvent::Freed { job: JOB });
    for (link, nodes) in [(LEFT, &[1, 3][..]), (RIGHT, &[2])] {
        test.child(link, freed(nodes.iter().copied()));
    }
    let repeated = |test: &mut Test| {
        test.event(AgentEvent::ParentDown);
        let mut actions = test.event(AgentEvent::ParentUp);
        actions.retain(|action| {
            let kinds = [wrote(3, 0, b""), freed(0..4)];
            kinds.into_iter().any(|report| *action == up(report))
        });
        actions
    };
    assert_eq!(repeated(&mut test), [up(wrote(3, 0, b"")), up(freed(0..4))]);
    assert_eq!(test.kept(0, true), [up(wrote(3, 0, b""))]);
    test.command(set(0..4), Command::Forget { job: JOB });
    assert_eq!(repeated(&mut test), []);
    assert_eq!(test.kept(0, true), []);
}
