//! Control messages of a hostile or broken daemon or client. A decoded message must not make the head or an agent panic, and
//! must be the same after it is encoded and decoded again. `core/control/tests/fuzzed.rs` runs the same with inputs from a
//! seed, so it needs no fuzzer.

use kumi_control::head::{ClientId, Head, HeadConfig, HeadEvent, LinkId, Retention};
use kumi_control::message::{
    ClientReply, ClientRequest, ContentHash, Down, JobRequest, NodeDescription, Program, Report,
    Up, User, WaitLimit,
};
use kumi_sched::{JobId, Mode, NodeId, SliceLength};
use serde::Serialize;
use serde::de::DeserializeOwned;

const MS: u64 = 1_000_000;
const NODES: u32 = 3;

fn config() -> HeadConfig {
    HeadConfig {
        cluster_name: "fuzz_targets".into(),
        nodes: (0..NODES).map(|node| format!("n{node}")).collect(),
        mode: Mode::Gang { force_switch: false, fill: true },
        slice: SliceLength::Fixed(MS),
        retention: Retention { jobs: 4096, age_ms: u64::MAX },
        max_jobs_per_user: 5_000,
        max_jobs_per_processor: 2,
        owner_uid: 500,
        root_jobs: false,
        show_others: Default::default(),
        lease_ns: 3_000 * MS,
        detach_grace_ns: 1_000 * MS,
        encrypt: false,
        policy: "dqt".into(),
        max_priority: 4,
        priority: 1,
        estimate_ns: None,
        time_limit_ns: None,
        wait: WaitLimit::Forever,
        resources: kumi_control::message::Resources::default(),
        env: Vec::new(),
        revoked: Vec::new(),
        drains: Vec::new(),
        removed: Vec::new(),
        shares: None,
    }
}

fn description(node: u32) -> NodeDescription {
    NodeDescription {
        node: NodeId(node),
        incarnation: 1,
        name: format!("n{node}"),
        processors: 2,
        memory: 0,
        devices: Vec::new(),
        max_ranks: 8,
        limits: Vec::new(),
        jobs: Vec::new(),
        path: Vec::new(),
    }
}

fn submission(token: u128) -> ClientRequest {
    let hash = ContentHash([7; 32]);
    let program = Program { path: "/bin/true".into(), hash, size: 10 };
    let job = JobRequest { nodes: Some(2), ..JobRequest::new(token, "job", program, 2) };
    ClientRequest::Submit(Box::new(job))
}

/// Checks that a decoded message is the same after it is encoded and decoded again.
fn decode<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, _) = postcard::take_from_bytes::<T>(bytes).ok()?;
    let again = postcard::to_allocvec(&value).expect("it can be encoded");
    let same = postcard::from_bytes::<T>(&again).expect("what was encoded decodes");
    // Not every message can be compared; its bytes can.
    assert_eq!(postcard::to_allocvec(&same).expect("it can be encoded"), again);
    Some(value)
}

/// Messages to a head with two jobs and three nodes: pieces of the input, each after its length. Returns how many were
/// messages.
pub fn head(input: &[u8]) -> usize {
    let mut head = Head::new(config(), Vec::new(), [1; 32]).expect("a policy");
    let mut now = MS;
    let mut tell = |now: &mut u64, event| {
        *now += 1_000;
        head.handle(*now, 1_700_000_000_000 + *now / MS, event);
        // It must come to an end after any messages.
        let actions = std::iter::from_fn(|| head.poll_action()).take(100_000).count();
        assert!(actions < 100_000, "the head does not come to rest");
        // Jobs have the numbers that they were given, and nodes belong to the cluster.
        assert!(head.records().count() < 1_000);
        assert!((NODES..300).all(|node| !head.is_up(NodeId(node))));
    };
    let user = User { uid: 1000, gid: 1000, name: String::new() };
    tell(&mut now, HeadEvent::Timeout);
    tell(&mut now, HeadEvent::ChildUp(LinkId(1)));
    let all = Report::Attached((0..NODES).map(description).collect());
    tell(&mut now, HeadEvent::Child(LinkId(1), Up::Report(all)));
    for token in 1..3 {
        tell(&mut now, HeadEvent::Client(ClientId(1), user.clone(), submission(token)));
    }
    let mut rest = input;
    let mut messages = 0;
    while let [kind, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        let event = match kind % 8 {
            0..=4 => decode::<Up>(bytes).map(|up| HeadEvent::Child(LinkId(1), up)),
            5 | 6 => decode::<ClientRequest>(bytes)
                // Taking the cluster down ends all activity that could still fail.
                .filter(|request| *request != ClientRequest::Shutdown)
                .map(|request| HeadEvent::Client(ClientId(2), user.clone(), request)),
            _ => {
                now += u64::from(*kind) * 100 * MS;
                drop((decode::<Down>(bytes), decode::<ClientReply>(bytes)));
                Some(HeadEvent::Timeout)
            }
        };
        messages += usize::from(event.is_some());
        if let Some(event) = event {
            tell(&mut now, event);
        }
    }
    tell(&mut now, HeadEvent::NotKept { job: JobId(1), bytes: 1, reason: String::new() });
    messages
}
