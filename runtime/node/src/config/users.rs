//! Which users' clients the head accepts through a node: key `users` of the nodes.
//!
//! The head knows a client of another machine from that machine's daemon only. Whoever has that node's key can name any
//! user, and is believed for these users alone.

use kumi_control::user::FIRST_ORDINARY;
use kumi_sched::NodeId;

use super::{ClusterConfig, ClusterKind, ConfigError, NodeConfig, invalid};

/// Every user but root and the owner.
const ANY: &str = "any";
/// Longest name of a user.
const MOST_LETTERS: usize = 256;

/// Checks names and numbers of users.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_users(users: &[String]) -> Result<(), String> {
    let good = |c: char| !c.is_whitespace() && !c.is_control() && c != ',' && c != ':';
    match users.iter().find(|user| {
        let number = user.starts_with(|c: char| c.is_ascii_digit()) && user.parse::<u32>().is_err();
        user.is_empty() || user.len() > MOST_LETTERS || !user.chars().all(good) || number
    }) {
        None => Ok(()),
        Some(user) => {
            Err(format!("{user:?} is not a user; give names or numbers of users, or \"any\""))
        }
    }
}

pub(super) fn validate(node: &NodeConfig) -> Result<(), ConfigError> {
    let users = node.users.as_deref().unwrap_or_default();
    check_users(users).or_else(|why| invalid(format!("users of node {:?}: {why}", node.name)))
}

impl ClusterConfig {
    /// Whether a node is on the machine of a head.
    #[must_use]
    pub fn is_with_head(&self, node: NodeId) -> bool {
        let at_head = |node: &NodeConfig| self.has_head_at(node.address);
        self.kind == ClusterKind::Local || self.node(node).is_ok_and(at_head)
    }

    /// Whether the head believes a node that a client is user `uid`, whom the head's machine calls `name`.
    #[must_use]
    pub fn believes(&self, node: NodeId, uid: u32, name: Option<&str>) -> bool {
        if self.is_with_head(node) {
            return true;
        }
        let Ok(node) = self.node(node) else { return false };
        let is_named = |user: &String| user.parse() == Ok(uid) || name == Some(user.as_str());
        if node.users.iter().flatten().any(is_named) {
            return true;
        }
        if uid == 0 || uid == self.owner_uid {
            return false;
        }
        match &node.users {
            None => uid >= FIRST_ORDINARY,
            Some(users) => users.iter().any(|user| user == ANY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    const NODE1: NodeId = NodeId(1);

    /// A cluster of the owner 1000, whose second node is another machine.
    fn hosts(users: &str) -> ClusterConfig {
        let text =
            GOOD.replace("\"local\"", "\"hosts\"").replace("netns = \"kumi-default-0\"\n", "");
        parse(&format!("{text}{users}\n")).unwrap()
    }

    #[test]
    fn a_node_speaks_for_its_users_only() {
        let usual = hosts("");
        for (uid, believed) in [(0, false), (1000, false), (33, false), (1001, true)] {
            assert_eq!(usual.believes(NODE1, uid, None), believed, "{uid}");
            assert!(usual.believes(NodeId(0), uid, None), "the head's own machine");
            assert!(!usual.believes(NodeId(9), uid, None));
        }
        let any = hosts("users = [\"any\"]");
        assert!(any.believes(NODE1, 33, None) && !any.believes(NODE1, 0, Some("root")));
        assert!(!any.believes(NODE1, 1000, Some("owner")));
        let some = hosts("users = [\"alice\", \"1002\", \"root\"]");
        assert!(some.believes(NODE1, 1001, Some("alice")) && some.believes(NODE1, 1002, None));
        assert!(some.believes(NODE1, 0, Some("root")));
        assert!(!some.believes(NODE1, 1003, Some("bob")) && !some.believes(NODE1, 1003, None));
        assert!(!hosts("users = []").believes(NODE1, 1001, None));
    }

    #[test]
    fn users_are_checked() {
        for wrong in ["", "a b", "a,b", "12x", "99999999999"] {
            let text = format!("{GOOD}users = [\"{wrong}\"]\n");
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("is not a user"), "{wrong}: {error}");
        }
        assert_eq!(parse(GOOD).unwrap().nodes[1].users, None);
    }
}
