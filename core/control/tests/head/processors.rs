//! Jobs on processors: beside each other, with memory and devices, on nodes of different sizes.

use super::*;
use kumi_control::message::{DeviceCount, NodeRanks, WaitReason};

/// A job of so many ranks, each with so many processors.
fn wish(token: u128, ranks: u32, each: u32) -> JobRequest {
    let resources = Resources { processors_per_rank: Some(each), ..Resources::default() };
    JobRequest { resources, ..request(token, ranks, None) }
}

/// By node: ranks, and the processors' places; none means all.
type Layout = Vec<(u32, u32, Vec<u32>)>;

impl Test {
    fn layout(&self, job: JobId) -> Layout {
        let record = self.head.records().find(|record| record.spec.job == job).expect("known");
        let part = |part: &NodeRanks| (part.node.0, part.count, part.processors.clone());
        record.spec.layout.iter().map(part).collect()
    }

    fn places(&mut self, wish: JobRequest) -> Layout {
        let (job, actions) = self.submit(wish);
        assert_eq!(self.state(job), JobState::Preparing, "{actions:?}");
        self.layout(job)
    }

    /// Places the job and lets it run.
    fn runs(&mut self, wish: JobRequest) -> JobId {
        let (job, _) = self.submit(wish);
        let parts: Vec<(u32, usize)> =
            self.layout(job).iter().map(|&(node, ranks, _)| (node, ranks as usize)).collect();
        self.prepare(job, parts);
        assert_eq!(self.state(job), JobState::Running);
        job
    }

    fn waits_for(&mut self, job: JobId) -> Option<WaitReason> {
        let actions = self.ask(&OWNER, ClientRequest::Jobs(JobsQuery::first_page(false)));
        let Some(HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. }))) =
            actions.into_iter().next()
        else {
            panic!("a list")
        };
        list.waiting.iter().find(|(waiting, _)| *waiting == job).map(|(_, reason)| *reason)
    }

    fn refused(&mut self, wish: JobRequest) -> Refusal {
        refused(self.ask(&OWNER, ClientRequest::Submit(Box::new(wish))))
    }
}

/// Nodes of these sizes, each with so much memory and so many devices called `gpu`.
fn nodes(sizes: &[(u32, u64, u32)]) -> Test {
    let mut test =
        Test::from_config(HeadConfig { max_jobs_per_processor: 4, ..config(sizes.len() as u32) });
    let node = |(node, &(processors, memory, gpus)): (u32, &(u32, u64, u32))| NodeDescription {
        processors,
        memory,
        devices: match gpus {
            0 => Vec::new(),
            count => vec![DeviceCount { name: "gpu".into(), count }],
        },
        max_ranks: 4 * processors,
        ..description(node)
    };
    test.report(Report::Attached((0..).zip(sizes).map(node).collect()));
    test
}

#[test]
fn small_jobs_run_beside_each_other() {
    let mut test = nodes(&[(2, 0, 0)]);
    let (one, two) = (test.runs(wish(1, 1, 1)), test.runs(wish(2, 1, 1)));
    assert_eq!(test.layout(one), [(0, 1, vec![0])]);
    assert_eq!(test.layout(two), [(0, 1, vec![1])]);
    let column = test.head.timetable().column(NodeId(0)).cloned().expect("jobs");
    assert_eq!(column.constant_jobs(), Some(&[one, two][..]), "nobody is ever stopped");
    // A third shares a processor with one of them, and the other goes on.
    let three = test.runs(wish(3, 1, 1));
    let column = test.head.timetable().column(NodeId(0)).cloned().expect("jobs");
    let with = |job| column.slots.iter().filter(|slot| slot.contains(&job)).count();
    let all = column.slots.len();
    assert_eq!(test.layout(three), [(0, 1, vec![0])]);
    assert_eq!((with(one), with(two), with(three)), (all / 2, all, all / 2), "{column:?}");
}

#[test]
fn ranks_have_processors_of_one_node() {
    let mut test = nodes(&[(4, 0, 0), (4, 0, 0), (6, 0, 0)]);
    assert_eq!(test.places(wish(1, 2, 3)), [(0, 1, vec![0, 1, 2]), (1, 1, vec![0, 1, 2])]);
    assert_eq!(test.places(wish(2, 1, 6)), [(2, 1, vec![])], "a larger node has room for more");
    let spread = JobRequest { nodes: Some(3), ..wish(3, 5, 1) };
    assert_eq!(test.places(spread), [(0, 2, vec![0, 1]), (1, 2, vec![0, 1]), (2, 1, vec![0, 1])]);
    let too_large = test.refused(wish(4, 3, 6));
    assert_eq!(too_large.kind, RefusalKind::TooLarge);
    assert!(too_large.message.contains("room for 1 of them"), "{}", too_large.message);
    // Where not even one fits, fewer would not help.
    let none = test.refused(wish(6, 1, 100)).message;
    assert!(none.contains("no node has") && none.contains("ask for less for each rank"), "{none}");
    let wide = test.refused(JobRequest { nodes: Some(2), ..wish(5, 2, 5) });
    assert_eq!(wide.kind, RefusalKind::TooLarge);
}

#[test]
fn nodes_of_different_sizes_get_ranks_in_proportion_when_they_share_processors() {
    let mut test = nodes(&[(1, 0, 0), (4, 0, 0), (2, 0, 0)]);
    assert_eq!(test.places(request(1, 7, None)), [(0, 1, vec![]), (1, 4, vec![]), (2, 2, vec![])]);
    assert_eq!(test.places(request(2, 14, None)), [(0, 2, vec![]), (1, 8, vec![]), (2, 4, vec![])]);
    assert_eq!(test.places(request(3, 8, None)), [(0, 2, vec![]), (1, 4, vec![]), (2, 2, vec![])]);
}

#[test]
fn so_many_ranks_on_each_node() {
    let mut test = nodes(&[(4, 0, 0); 3]);
    let per_node = |token, ranks, per_node, nodes| {
        let resources = Resources { ranks_per_node: Some(per_node), ..Resources::default() };
        JobRequest { resources, nodes, ..request(token, ranks, None) }
    };
    let placed = test.places(per_node(1, 5, 2, None));
    assert_eq!(placed, [(0, 2, vec![0, 1]), (1, 2, vec![0, 1]), (2, 1, vec![0, 1])]);
    let refused = test.refused(per_node(2, 5, 2, Some(2)));
    assert_eq!(refused.kind, RefusalKind::BadRequest);
    assert!(refused.message.contains("take 3 nodes"), "{}", refused.message);
    assert_eq!(test.refused(per_node(3, 8, 2, None)).kind, RefusalKind::TooLarge);
}

#[test]
fn an_exclusive_job_has_its_nodes_to_itself_in_its_turns() {
    let mut test = nodes(&[(4, 0, 0), (4, 0, 0)]);
    let resources = Resources { exclusive: true, ..Resources::default() };
    let alone = test.runs(JobRequest { resources, ..request(1, 2, None) });
    assert_eq!(test.layout(alone), [(0, 2, vec![])]);
    let beside: Vec<JobId> = (2..5).map(|token| test.runs(wish(token, 4, 1))).collect();
    assert!(beside.iter().any(|&job| test.layout(job)[0].0 == 0));
    let column = test.head.timetable().column(NodeId(0)).cloned().expect("jobs");
    let with = column.slots.iter().filter(|slot| slot.contains(&alone));
    assert!(with.clone().count() > 0 && with.clone().all(|slot| slot.len() == 1), "{column:?}");
}

/// Memory is shared in space: jobs that take turns on a processor have theirs all the time.
#[test]
fn memory_is_not_shared_in_time() {
    let mut test = nodes(&[(2, 100, 0), (2, 100, 0)]);
    let with_memory = |token, ranks, memory| {
        let resources = Resources { memory_per_rank: Some(memory), ..Resources::default() };
        JobRequest { resources, ..request(token, ranks, None) }
    };
    assert_eq!(test.places(with_memory(1, 2, 60)), [(0, 1, vec![0]), (1, 1, vec![0])]);
    let third = test.places(with_memory(2, 1, 40));
    assert_eq!(third.len(), 1);
    let (waits, _) = test.submit(with_memory(3, 1, 50));
    assert_eq!(test.waits_for(waits), Some(WaitReason::ResourcesTaken));
    // One without memory is behind it, as ever.
    let (behind, _) = test.submit(wish(4, 1, 1));
    assert_eq!(test.waits_for(behind), Some(WaitReason::Behind { job: waits }));
    test.ask(&OWNER, ClientRequest::Kill { job: JobId(1), grace_ns: 0 });
    test.report(Report::Freed { job: JobId(1), nodes: set(0..2) });
    assert_eq!(test.state(waits), JobState::Preparing);
    let never = test.refused(with_memory(5, 1, 101));
    assert_eq!(never.kind, RefusalKind::TooLarge);
}

#[test]
fn the_status_says_what_is_taken() {
    let mut test = nodes(&[(3, 100, 2), (4, 100, 0)]);
    let resources = Resources {
        processors_per_rank: Some(2),
        memory_per_rank: Some(30),
        devices: vec![DeviceCount { name: "gpu".into(), count: 1 }],
        ..Resources::default()
    };
    let first = test.runs(JobRequest { resources, ..request(1, 1, None) });
    assert_eq!(test.layout(first), [(0, 1, vec![0, 1])]);
    // Two ranks on each of two nodes: a node with fewer is charged like the others.
    let resources = Resources { memory_per_rank: Some(20), ..Resources::default() };
    test.runs(JobRequest { resources, ..request(2, 3, Some(2)) });
    let actions = test.ask(&OWNER, ClientRequest::Cluster);
    let status = actions.into_iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Cluster(status)) => Some(status),
        _ => None,
    });
    let nodes = status.expect("a status").nodes;
    // The second begins at a multiple of four.
    assert_eq!((nodes[0].numbers.clone(), nodes[1].numbers.clone()), (0..3, 4..8));
    let [one, two] = [&nodes[0].taken, &nodes[1].taken];
    // In a tree their partition has turns of its own, so they share processors.
    assert_eq!((one.processors, one.memory), (2, 30 + 40));
    assert_eq!(one.devices, [DeviceCount { name: "gpu".into(), count: 1 }]);
    assert_eq!((two.processors, two.memory, two.devices.len()), (2, 40, 0));
    let all = test.head.cluster_use();
    assert_eq!((all.processors, all.processors_taken), (7, 4));
    assert_eq!((all.memory, all.memory_taken), (200, 110));
    assert_eq!(test.waits_for(first), None);
}

#[test]
fn devices_are_counted_by_name() {
    let mut test = nodes(&[(4, 0, 0), (4, 0, 2)]);
    let with_gpus = |token, ranks, name: &str, count| {
        let devices = vec![DeviceCount { name: name.into(), count }];
        let resources = Resources { devices, ..Resources::default() };
        JobRequest { resources, ..request(token, ranks, None) }
    };
    assert_eq!(test.places(with_gpus(1, 1, "gpu", 1)), [(1, 1, vec![0])]);
    let (second, _) = test.submit(with_gpus(2, 2, "gpu", 1));
    assert_eq!(test.waits_for(second), Some(WaitReason::ResourcesTaken));
    let unknown = test.refused(with_gpus(3, 1, "tpu", 1));
    assert!(unknown.message.contains("tpu, they have gpu"), "{}", unknown.message);
    assert_eq!(test.refused(with_gpus(4, 1, "gpu", 3)).kind, RefusalKind::TooLarge);
    assert_eq!(test.refused(with_gpus(5, 1, "gpu", 0)).kind, RefusalKind::BadRequest);
}

/// Resources of a rank with one device of each of these names.
fn with_devices(token: u128, names: &[&str]) -> JobRequest {
    let device = |name: &&str| DeviceCount { name: (*name).into(), count: 1 };
    let resources =
        Resources { devices: names.iter().map(device).collect(), ..Resources::default() };
    JobRequest { resources, ..request(token, 1, None) }
}

/// A node with one device of each of these names.
fn node_with(node: u32, names: &[&str]) -> NodeDescription {
    let devices = with_devices(0, names).resources.devices;
    NodeDescription { devices, ..description(node) }
}

/// A name that no attached node has may be that of a node to come.
#[test]
fn devices_of_nodes_that_have_not_attached_are_waited_for() {
    let mut test = Test::from_config(config(2));
    test.report(Report::Attached(vec![node_with(0, &["fpga"])]));
    let (waits, _) = test.submit(with_devices(1, &["fpga", "gpu"]));
    assert_eq!(test.state(waits), JobState::Queued);
    assert_eq!(test.waits_for(waits), Some(WaitReason::NodesAttaching { up: 1, nodes: 2 }));
    let (runs, _) = test.submit(JobRequest { nodes: Some(1), ..with_devices(2, &["fpga"]) });
    assert_eq!(test.state(runs), JobState::Preparing, "one that can be sized does not wait for it");
    test.report(Report::Attached(vec![node_with(1, &["fpga", "gpu"])]));
    assert_eq!(test.layout(waits), [(1, 1, vec![])]);
}

#[test]
fn devices_that_no_node_turned_out_to_have_end_the_wait() {
    let mut test = Test::from_config(config(2));
    test.report(Report::Attached(vec![node_with(0, &["fpga"])]));
    let (waits, _) = test.submit(with_devices(1, &["gpu"]));
    test.report(Report::Attached(vec![node_with(1, &[])]));
    let JobState::Ended(Outcome::Refused(refusal)) = test.state(waits) else {
        panic!("{:?}", test.state(waits))
    };
    assert_eq!(refusal.kind, RefusalKind::TooLarge);
    assert!(refusal.message.contains("devices called gpu, they have fpga"), "{}", refusal.message);
}

#[test]
fn devices_beyond_seven_names_are_refused_and_not_given_away_uncounted() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut test = Test::from_config(config(1));
    test.report(Report::Attached(vec![node_with(0, &names)]));
    let refusal = test.refused(with_devices(1, &["a", "h"]));
    assert_eq!(refusal.kind, RefusalKind::TooLarge);
    assert!(refusal.message.contains("devices called h are not counted"), "{}", refusal.message);
    assert_eq!(test.places(with_devices(2, &names[..7])), [(0, 1, vec![])]);
}

/// Before, the smallest node that was ever attached sized every job.
#[test]
fn a_small_node_does_not_shrink_the_others() {
    let mut test = nodes(&[(1, 0, 0), (8, 0, 0)]);
    assert_eq!(test.places(request(1, 8, None)), [(1, 8, vec![])]);
}

/// A node comes back with other processors while jobs run: the policy is made anew, and they keep theirs.
#[test]
fn a_node_that_has_changed_its_size() {
    let mut test = nodes(&[(2, 0, 0), (2, 0, 0)]);
    let first = test.runs(wish(1, 1, 1));
    let second = test.runs(JobRequest { nodes: Some(2), ..wish(2, 2, 1) });
    let (on, with) = (test.layout(first), test.layout(second));
    let larger = NodeDescription {
        processors: 4,
        jobs: vec![(first, vec![0]), (second, vec![0])],
        ..description(0)
    };
    test.report(Report::Attached(vec![larger]));
    assert_eq!((test.layout(first), test.layout(second)), (on, with));
    assert_eq!([first, second].map(|job| test.state(job)), [JobState::Running, JobState::Running]);
    let column = test.head.timetable().column(NodeId(0)).cloned().expect("jobs");
    assert!(column.slots.iter().flatten().any(|&job| job == first));
    assert_eq!(test.places(wish(3, 1, 4)), [(0, 1, vec![])], "its processors count");
}

#[test]
fn a_new_head_knows_who_has_which_processors() {
    let mut test = nodes(&[(4, 100, 0)]);
    let resources = Resources {
        memory_per_rank: Some(30),
        processors_per_rank: Some(2),
        ..Resources::default()
    };
    let first = test.runs(JobRequest { resources, ..request(1, 1, None) });
    let second = test.runs(wish(2, 2, 1));
    let records = test.head.records().cloned().collect();
    test.head = Head::new(config(1), records, [2; 32]).expect("a policy");
    test.event(HeadEvent::Timeout);
    test.event(HeadEvent::ChildUp(LINK));
    let jobs = vec![(first, vec![0]), (second, vec![0, 1])];
    let node =
        NodeDescription { processors: 4, memory: 100, jobs, max_ranks: 16, ..description(0) };
    test.report(Report::Attached(vec![node]));
    assert_eq!(test.layout(first), [(0, 1, vec![0, 1])]);
    let column = test.head.timetable().column(NodeId(0)).cloned().expect("jobs");
    assert_eq!(column.constant_jobs(), Some(&[first, second][..]), "they run beside each other");
    let large = Resources { memory_per_rank: Some(71), ..Resources::default() };
    let (waits, _) = test.submit(JobRequest { resources: large, ..request(3, 1, None) });
    assert_eq!(test.waits_for(waits), Some(WaitReason::ResourcesTaken));
}

#[test]
fn defaults_are_the_clusters() {
    let resources = Resources { processors_per_rank: Some(2), ..Resources::default() };
    let mut test = Test::with_processors(HeadConfig { resources, ..config(1) }, &[4]);
    assert_eq!(test.places(request(1, 1, None)), [(0, 1, vec![0, 1])]);
    assert_eq!(test.places(wish(2, 1, 1)), [(0, 1, vec![2])]);
    let record = test.head.records().next().expect("known");
    assert_eq!(record.spec.request.resources.processors_per_rank, Some(2));
}
