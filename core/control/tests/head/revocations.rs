//! Certificates of nodes that are revoked.

use super::*;
use kumi_control::message::Revocation;

fn lists(actions: &[HeadAction]) -> Vec<(&NodeSet, &Vec<Revocation>)> {
    let mut lists = Vec::new();
    for (nodes, command) in commands(actions) {
        if let Command::Revoked(list) = command {
            lists.push((nodes, list));
        }
    }
    lists
}

#[test]
fn the_owner_revokes_and_all_nodes_hear_of_it_now_and_later() {
    let mut test = Test::new(2);
    let revoke = |node| ClientRequest::Revoke { node: NodeId(node) };
    assert_eq!(refusal(&test.ask(&ALICE, revoke(1))), Some(RefusalKind::NotPermitted));
    assert_eq!(refusal(&test.ask(&OWNER, revoke(2))), Some(RefusalKind::BadRequest));
    let actions = test.ask(&OWNER, revoke(1));
    let kept = position(&actions, |action| matches!(action, HeadAction::Revoke { .. }));
    let told = position(&actions, |action| command_of(action).is_some());
    assert!(kept < told && replied(&actions, &ClientReply::Done));
    let HeadAction::Revoke { node: NodeId(1), list } = actions[kept].clone() else { panic!() };
    assert!(
        list.len() == 1 && list[0].node == NodeId(1) && list[0].until_us > 1_700_000_000_000_000
    );
    assert_eq!(lists(&actions), [(&set([0, 1]), &list)]);
    let attached = test.report(Report::Attached(vec![description(0)]));
    assert_eq!(lists(&attached), [(&set([0]), &list)]);
    // The next head has the list from its driver.
    let config = HeadConfig { revoked: list.clone(), ..config(2) };
    let mut next = Test::from_config(config);
    let attached = next.report(Report::Attached(vec![description(0)]));
    assert_eq!(lists(&attached), [(&set([0]), &list)]);
    assert!(
        lists(&Test::without_nodes(1).report(Report::Attached(vec![description(0)]))).is_empty()
    );
}
