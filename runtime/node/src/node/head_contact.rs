//! When this node heard of the head last, for those who ask while the head is away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kumi_control::message::Down;
use kumi_control::tree::Parent;

/// The last sign of the head, shared by the link and those who tell users of it.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadContact(Arc<Mutex<Option<Instant>>>);

impl HeadContact {
    /// Something came from the parent. A parent that is a node lives without the head, but only the head commands.
    pub(super) fn hear(&self, parent: Parent, down: &Down) {
        if parent == Parent::Head || matches!(down, Down::Command(..)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the end of a sentence.
    pub(super) fn words(&self) -> String {
        self.words_at(Instant::now())
    }

    fn words_at(&self, now: Instant) -> String {
        match self.last() {
            Some(last) => {
                let ago = now.saturating_duration_since(last).as_secs();
                format!("this node last heard of it {ago} s ago")
            }
            None => "this node has not heard of it since its own daemon started".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{Command, NodeSet};
    use kumi_sched::{ClusterTime, NodeId};
    use std::time::Duration;

    #[test]
    fn a_parents_own_words_are_none_of_the_head() {
        let contact = HeadContact::default();
        let clock = Down::Clock { stamp: 0, time: ClusterTime(0) };
        contact.hear(Parent::Node(NodeId(0)), &clock);
        assert!(contact.words().contains("has not heard"));
        contact.hear(Parent::Head, &clock);
        let heard = contact.last().unwrap();
        let words = contact.words_at(heard + Duration::from_secs(40));
        assert!(words.ends_with(" 40 s ago"), "{words}");
        let contact = HeadContact::default();
        let nodes = NodeSet::from_nodes([NodeId(1)]);
        contact.hear(Parent::Node(NodeId(0)), &Down::Command(nodes, Command::Shutdown));
        assert!(contact.words().contains("last heard of it"), "a parent passed its command on");
    }
}
