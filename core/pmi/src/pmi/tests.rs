//! Ranks of two nodes that speak PMI, without sockets.

use super::*;
use crate::message::ServedNode;
use proptest::prelude::*;

fn job(counts: &[u32], place: u32) -> ServedJob {
    let mut nodes = Vec::new();
    let mut first = 0;
    for &count in counts {
        nodes.push(ServedNode { name: format!("n{first}"), first, count });
        first += count;
    }
    let own = nodes[place as usize].count;
    let pmi = (0..own).map(|_| 0).collect();
    let folder = String::new();
    ServedJob { job: 7, ranks: first, nodes, place, uid: 0, gid: 0, folder, pmix: false, pmi }
}

fn actions(ranks: &mut Ranks) -> Vec<Action> {
    core::iter::from_fn(|| ranks.poll_action()).collect()
}

/// What a rank is answered.
fn say(ranks: &mut Ranks, local: usize, text: &str) -> Vec<Action> {
    ranks.received(local, text.as_bytes());
    actions(ranks)
}

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";

fn sent(local: usize, text: &str) -> Action {
    Action::Send(local, text.into())
}

#[test]
fn two_nodes_exchange_by_version_1() {
    let mut nodes = [Ranks::new(&job(&[1, 1], 0)), Ranks::new(&job(&[1, 1], 1))];
    let mut parts = Vec::new();
    for (number, node) in nodes.iter_mut().enumerate() {
        let all = say(node, 0, INIT);
        let answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
        assert_eq!(all, [Action::Joined(0), sent(0, answer)]);
        say(node, 0, &format!("cmd=put kvsname=k key=r{number} value=v{number}\n"));
        let all = say(node, 0, "cmd=barrier_in\n");
        let [Action::Exchange(0, data)] = &all[..] else { panic!("{all:?}") };
        parts.push(data.clone());
    }
    for node in &mut nodes {
        node.exchanged(&parts);
        assert_eq!(actions(node), [sent(0, "cmd=barrier_out rc=0\n")]);
        for number in 0..2 {
            let all = say(node, 0, &format!("cmd=get kvsname=k key=r{number}\n"));
            let answer = format!("cmd=get_result rc=0 msg=success value=v{number}\n");
            assert_eq!(all, [sent(0, &answer)]);
        }
        let all = say(node, 0, "cmd=get kvsname=k key=PMI_process_mapping\n");
        assert_eq!(all, [sent(0, "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n")]);
        let all = say(node, 0, "cmd=finalize\n");
        assert_eq!(all, [Action::Finalized(0), sent(0, "cmd=finalize_ack rc=0\n")]);
    }
}

#[test]
fn an_exchange_begins_when_all_ranks_of_the_node_are_there() {
    let mut node = Ranks::new(&job(&[2], 0));
    for local in 0..2 {
        say(&mut node, local, INIT);
    }
    for number in 0..3 {
        assert_eq!(say(&mut node, 1, "cmd=barrier_in\n"), []);
        let all = say(&mut node, 0, "cmd=barrier_in\n");
        assert!(matches!(&all[..], [Action::Exchange(at, _)] if *at == number), "{all:?}");
        node.exchanged(&[]);
        assert_eq!(actions(&mut node).len(), 2);
    }
    assert_eq!(say(&mut node, 1, "cmd=barrier_in\n"), []);
    let again = say(&mut node, 1, "cmd=barrier_in\n");
    assert_eq!(again, [Action::Close(1, MalformedCommand::Order)]);
}

/// A message of PMI-2 with its length.
fn two(text: &str) -> String {
    format!("{:>6}{text}", text.len())
}

#[test]
fn version_2_is_spoken_after_the_first_line() {
    let mut node = Ranks::new(&job(&[2], 0));
    for local in 0..2 {
        let all = say(&mut node, local, "cmd=init pmi_version=2 pmi_subversion=0\n");
        assert!(matches!(&all[1], Action::Send(_, text) if text.contains("pmi_version=2")));
    }
    let all = say(&mut node, 1, &two("cmd=fullinit;pmirank=1;threaded=FALSE;"));
    let Action::Send(1, text) = &all[0] else { panic!("{all:?}") };
    assert!(text.contains("cmd=fullinit-response;") && text.contains("rank=1;size=2;"), "{text}");
    // One waits for what the other tells.
    assert_eq!(say(&mut node, 1, &two("cmd=info-getnodeattr;key=k;wait=TRUE;")), []);
    let all = say(&mut node, 0, &two("cmd=info-putnodeattr;key=k;value=v;"));
    assert_eq!(all.len(), 2);
    assert!(matches!(&all[1], Action::Send(1, text) if text.contains("found=TRUE;value=v;")));
    let all = say(&mut node, 0, &two("cmd=info-getjobattr;key=PMI_process_mapping;"));
    assert!(matches!(&all[0], Action::Send(0, text) if text.contains("(vector,(0,1,2))")));
    say(&mut node, 0, &two("cmd=kvs-put;key=a;value=1;;2;"));
    let all = say(&mut node, 1, &two("cmd=kvs-get;jobid=;srcid=0;key=a;"));
    assert!(matches!(&all[0], Action::Send(1, text) if text.contains("value=1;;2;")), "{all:?}");
}

#[test]
fn a_rank_can_abort_and_cannot_spawn() {
    let mut node = Ranks::new(&job(&[1], 0));
    say(&mut node, 0, INIT);
    let all = say(&mut node, 0, "mcmd=spawn\nnprocs=2\nexecname=x\nendcmd\n");
    let refused = sent(0, "cmd=spawn_result rc=-1 msg=spawn_is_refused\n");
    assert_eq!(all, [Action::SpawnRefused(0), refused]);
    let all = say(&mut node, 0, "cmd=abort exitcode=3 message=no more\n");
    assert_eq!(all, [Action::Aborted(0, 3, "no more".into())]);
}

#[test]
fn names_are_others_to_answer() {
    let mut node = Ranks::new(&job(&[1], 0));
    say(&mut node, 0, INIT);
    let all = say(&mut node, 0, "cmd=publish_name service=s port=p q\n");
    assert_eq!(all, [Action::Publish(0, "s".into(), "p q".into())]);
    node.published(0, Ok(()));
    node.looked_up(0, Some("p q".into()));
    node.unpublished(0, Err("taken".into()));
    let all = actions(&mut node);
    assert_eq!(all[1], sent(0, "cmd=lookup_result rc=0 msg=success port=p q\n"));
    assert_eq!(all[2], sent(0, "cmd=unpublish_result rc=-1 msg=taken\n"));
}

#[test]
fn what_is_not_understood_closes_the_connection() {
    for (text, error) in [
        ("cmd=get_maxes\n", MalformedCommand::Order),
        (
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=fly\n",
            MalformedCommand::Unknown("fly".into()),
        ),
        ("\u{0}\n", MalformedCommand::Lacks("cmd")),
    ] {
        let mut node = Ranks::new(&job(&[1], 0));
        let all = say(&mut node, 0, text);
        assert_eq!(all.last(), Some(&Action::Close(0, error)), "{text:?}");
        assert_eq!(say(&mut node, 0, INIT), [], "nothing more is read");
    }
    let mut node = Ranks::new(&job(&[1], 0));
    let all = say(&mut node, 0, &"x".repeat(one::LONGEST_LINE));
    assert_eq!(all, [Action::Close(0, MalformedCommand::TooLong)]);
    let mut node = Ranks::new(&job(&[1], 0));
    say(&mut node, 0, "cmd=init pmi_version=2 pmi_subversion=0\n");
    let all = say(&mut node, 0, "999999");
    assert_eq!(all, [Action::Close(0, MalformedCommand::TooLong)]);
}

proptest! {
    /// Whatever ranks write, in whatever pieces: no panic, and what is kept is bounded.
    #[test]
    fn any_bytes_are_survived(
        pieces in proptest::collection::vec((0..2usize, proptest::collection::vec(any::<u8>(), 0..200)), 0..50),
        version in 1..3u32,
    ) {
        let mut node = Ranks::new(&job(&[2], 0));
        for local in 0..2 {
            say(&mut node, local, &format!("cmd=init pmi_version={version} pmi_subversion=0\n"));
        }
        for (local, piece) in pieces {
            node.received(local, &piece);
            actions(&mut node);
        }
        for session in &node.sessions {
            prop_assert!(session.buffer.len() <= two::LONGEST + two::LENGTH + 200);
        }
    }

    /// A command means the same in one piece and byte by byte.
    #[test]
    fn pieces_do_not_matter(key in "[a-z]{1,9}", value in "[ -~]{0,40}") {
        let text = format!("{INIT}cmd=put kvsname=k key={key} value={value}\ncmd=get kvsname=k key={key}\n");
        let mut whole = Ranks::new(&job(&[1], 0));
        let mut pieces = Ranks::new(&job(&[1], 0));
        let at_once = say(&mut whole, 0, &text);
        let mut one_by_one = Vec::new();
        for byte in text.bytes() {
            pieces.received(0, &[byte]);
            one_by_one.extend(actions(&mut pieces));
        }
        prop_assert_eq!(at_once, one_by_one);
    }
}
