//! Nodes that hear only of columns that have changed do what all columns say.

use std::collections::BTreeMap;

use kumi_sched::registry::{self, Limits};
use kumi_sched::{
    ClusterTime, Column, JobId, NodeId, NodeResources, Numbering, Policy, ProcessorId, Request,
};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);
const NODES: u32 = 6;
const PROCESSORS: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Arrive { processors: u32, priority: u16 },
    Leave(usize),
    Pause(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..=NODES * PROCESSORS, 1..4_u16)
            .prop_map(|(processors, priority)| Step::Arrive { processors, priority }),
        4 => (1..=4_u32, 1..3_u16)
            .prop_map(|(processors, priority)| Step::Arrive { processors, priority }),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Pause),
        6 => (0..7_u64).prop_map(Step::Pass),
    ]
}

fn policy(name: &str, numbering: &Numbering) -> Box<dyn Policy + Send> {
    let limits = Limits { jobs_per_processor: 5, slots: 40, ..Limits::default() };
    let mut policy = registry::by_name(name, limits).expect("a policy");
    for (_, processors) in numbering.nodes() {
        let amounts = NodeResources::single(ProcessorId(0)).amounts;
        policy.add_node(&NodeResources { processors, amounts });
    }
    policy
}

/// What a node heard last, and how many slots have passed since.
type Heard = BTreeMap<NodeId, (Option<Column>, u64)>;

fn check(heard: &Heard, columns: &[Column]) -> Result<(), TestCaseError> {
    for (node, (column, passed)) in heard {
        let now = columns.iter().find(|column| column.node == *node);
        let length = |column: Option<&Column>| column.map_or(1, |column| column.slots.len()) as u64;
        let jobs = |column: Option<&Column>, slot: u64| -> Vec<JobId> {
            let place = (slot % length(column)) as usize;
            column.map_or_else(Vec::new, |column| column.slots[place].clone())
        };
        for slot in 0..length(now) * length(column.as_ref()) {
            let does = jobs(column.as_ref(), passed + slot);
            prop_assert_eq!(does, jobs(now, slot), "node {} after {} slots", node, slot);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn nodes_that_hear_of_changes_do_what_all_columns_say(
        steps in prop::collection::vec(step(), 1..60),
        name in prop::sample::select(vec!["dqt", "fair-dqt", "dqt+shares", "matrix", "dhc", "fcfs", "scan"]),
    ) {
        let arity = registry::by_name(name, Limits::default()).expect("a policy").arity();
        let numbering = Numbering::new(arity, (0..NODES).map(|node| (NodeId(node), PROCESSORS)));
        let mut policy = policy(name, &numbering);
        let (mut columns, mut placed) = (Vec::new(), Vec::new());
        let mut heard: Heard = (0..NODES).map(|node| (NodeId(node), (None, 0))).collect();
        let (mut number, mut since) = (0, 0);
        for step in steps {
            match step {
                Step::Arrive { processors, priority } => {
                    number += 1;
                    let request = Request { priority, ..Request::new(JobId(number), processors) };
                    policy.arrive(&request, NOW).expect("it is new");
                    while let Some(placement) = policy.next_placement(NOW) {
                        policy.set_active(placement.job, true);
                        placed.push(placement.job);
                    }
                }
                Step::Leave(index) if !placed.is_empty() => {
                    policy.leave(placed.swap_remove(index % placed.len()), NOW);
                }
                Step::Pause(index) if !placed.is_empty() => {
                    policy.set_active(placed[index % placed.len()], false);
                }
                Step::Pass(slots) => {
                    policy.advance(slots);
                    since += slots;
                    heard.values_mut().for_each(|(_, passed)| *passed += slots);
                    continue;
                }
                Step::Leave(_) | Step::Pause(_) => continue,
            }
            let renewed = numbering.renew_columns(&policy.columns(), columns, since);
            columns = renewed.columns;
            since = 0;
            for node in renewed.changed {
                let column = columns.iter().find(|column| column.node == node).cloned();
                heard.insert(node, (column, 0));
            }
            check(&heard, &columns)?;
        }
    }
}
