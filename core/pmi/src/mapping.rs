//! `PMI_process_mapping`: which ranks are on which node, as MPICH reads it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::message::ServedNode;

/// The mapping of nodes with their ranks: `(vector,(first node, nodes, ranks on each), …)`.
#[must_use]
pub fn process_mapping(nodes: &[ServedNode]) -> String {
    let mut blocks: Vec<(usize, u32, u32)> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, count, ranks)) if *ranks == node.count => *count += 1,
            _ => blocks.push((place, 1, node.count)),
        }
    }
    let mut text = String::from("(vector");
    for (first, count, ranks) in blocks {
        text += &format!(",({first},{count},{ranks})");
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(counts: &[u32]) -> String {
        let node = |&count: &u32| ServedNode { name: String::new(), first: 0, count };
        process_mapping(&counts.iter().map(node).collect::<Vec<_>>())
    }

    #[test]
    fn nodes_with_as_many_ranks_are_one_block() {
        assert_eq!(mapping(&[4]), "(vector,(0,1,4))");
        assert_eq!(mapping(&[2, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(mapping(&[3, 2, 2, 1]), "(vector,(0,1,3),(1,2,2),(3,1,1))");
    }
}
