//! Random programs: each receive gets the message that a plain list of receives and one of messages says, whole and once.

use std::collections::HashMap;

use kumi_messaging::header::{Header, Kind, LONGEST_HEADER};
use kumi_messaging::matching::Pattern;
use kumi_messaging::{Address, Failure, Limits, MESSAGE_OVERHEAD, Receive, Refused, Send, SendEnd};
use proptest::prelude::*;

use crate::network::{EAGER, Network, Part, Step as Happened};

const RANKS: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Send { from: u32, to: u32, tag: u64, length: usize, inject: bool, matched: bool },
    Receive { at: u32, source: Option<u32>, tag: u64, ignore: u64, room: usize },
    Deliver(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![
        Just(0_usize),
        1..10_usize,
        Just(EAGER as usize),
        Just(EAGER as usize + 1),
        100..400_usize
    ];
    let send = (0..RANKS, 0..RANKS, 0..4_u64, length.clone(), any::<bool>(), any::<bool>());
    let receive = (
        0..RANKS,
        prop::option::of(0..RANKS),
        0..4_u64,
        prop_oneof![Just(0_u64), Just(1), Just(u64::MAX)],
        length,
    );
    prop_oneof![
        3 => send.prop_map(|(from, to, tag, length, inject, matched)| Step::Send { from, to, tag, length, inject, matched }),
        3 => receive.prop_map(|(at, source, tag, ignore, room)| Step::Receive { at, source, tag, ignore, room }),
        2 => (1..20_usize).prop_map(Step::Deliver),
    ]
}

/// What is known of a message.
#[derive(Debug, Clone)]
struct Sent {
    from: u32,
    tag: u64,
    data: Vec<u8>,
}

#[derive(Default)]
struct Job {
    sent: HashMap<u64, Sent>,
    /// By rank: receives and messages in their order.
    posted: [Vec<(Pattern, u64)>; RANKS as usize],
    waiting: [Vec<u64>; RANKS as usize],
    /// Receives, by operation: their memory and their message.
    buffers: HashMap<u64, Part>,
    expected: HashMap<u64, u64>,
    next: u64,
}

impl Job {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A message has reached its rank.
    fn arrives(&mut self, to: u32, message: u64) {
        let sent = &self.sent[&message];
        let source = Address { rank: sent.from, endpoint: 0 };
        let posted = &mut self.posted[to as usize];
        match posted.iter().position(|(pattern, _)| pattern.takes(source, sent.tag)) {
            Some(place) => drop(self.expected.insert(posted.remove(place).1, message)),
            None => self.waiting[to as usize].push(message),
        }
    }

    fn posts(&mut self, at: u32, pattern: Pattern, operation: u64) {
        let sent = &self.sent;
        let fits = |message: &u64| {
            pattern.takes(Address { rank: sent[message].from, endpoint: 0 }, sent[message].tag)
        };
        let waiting = &mut self.waiting[at as usize];
        match waiting.iter().position(fits) {
            Some(place) => drop(self.expected.insert(operation, waiting.remove(place))),
            None => self.posted[at as usize].push((pattern, operation)),
        }
    }

    /// Lets one thing happen; false if nothing is under way.
    fn step(&mut self, network: &mut Network) -> bool {
        // The number of a message is its immediate word.
        match network.step() {
            None => return false,
            Some(Happened::Transfer(_)) => {}
            Some(Happened::Message((_, to), bytes)) => {
                let (header, _) =
                    Header::decode(&bytes[..bytes.len().min(LONGEST_HEADER)]).expect("a header");
                if matches!(header.kind, Kind::Eager | Kind::Announce) {
                    self.arrives(to, header.immediate.expect("a number"));
                }
            }
        }
        true
    }

    fn send(
        &mut self,
        network: &mut Network,
        step: (u32, u32, u64, usize, bool, bool),
    ) -> Result<(), TestCaseError> {
        let (from, to, tag, length, inject, matched) = step;
        let operation = self.number();
        let data: Vec<u8> =
            (0..length).map(|at| (operation as usize * 7 + at * 13) as u8).collect();
        let memory = Part::new(data.clone());
        let end = if matched { SendEnd::Matched } else { SendEnd::Sent };
        let inject = inject && length <= EAGER as usize;
        let to_address = Address { rank: to, endpoint: 0 };
        let send = Send {
            operation,
            to: to_address,
            data: memory.clone(),
            inject,
            tag: Some(tag),
            immediate: Some(operation),
            end,
        };
        let (messenger, port) = &mut network.ranks[from as usize];
        match messenger.send(port, 0, send) {
            Ok(()) => drop(self.sent.insert(operation, Sent { from, tag, data })),
            Err(Refused::Again) => return Ok(()),
            Err(other) => prop_assert!(false, "{other}"),
        }
        if inject {
            memory.bytes.borrow_mut().fill(0xee);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        network: &mut Network,
        (at, source, tag, ignore, room): (u32, Option<u32>, u64, u64, usize),
    ) {
        let operation = self.number();
        let buffer = Part::new(vec![0; room]);
        let pattern =
            Pattern { source: source.map(|rank| Address { rank, endpoint: 0 }), tag, ignore };
        self.buffers.insert(operation, buffer.clone());
        self.posts(at, pattern, operation);
        let (messenger, port) = &mut network.ranks[at as usize];
        let receive = Receive { operation, buffer, pattern, tagged: true, several: None };
        messenger.receive(port, 0, receive).expect("there is the endpoint");
    }

    /// What has ended is what was to end.
    fn check(&self, network: &Network) -> Result<(), TestCaseError> {
        let mut received = 0;
        for (_, port) in &network.ranks {
            prop_assert!(port.parts.is_empty() && port.events.is_empty());
            for (operation, end) in &port.ended {
                let Some(buffer) = self.buffers.get(operation) else {
                    prop_assert!(
                        end.is_ok() && self.sent.contains_key(operation),
                        "{operation}: {end:?}"
                    );
                    continue;
                };
                received += 1;
                let message = &self.sent[&self.expected[operation]];
                let (info, excess) = match end {
                    Ok(info) => (info, 0),
                    Err((Failure::TooLong(excess), info)) => (info, *excess as usize),
                    Err((other, _)) => return Err(TestCaseError::fail(format!("{other:?}"))),
                };
                let taken = message.data.len().min(buffer.length);
                prop_assert_eq!(
                    (info.length as usize, excess),
                    (taken, message.data.len() - taken)
                );
                prop_assert_eq!(&buffer.read()[..taken], &message.data[..taken]);
                prop_assert!(
                    buffer.read()[taken..].iter().all(|byte| *byte == 0),
                    "written beyond a message"
                );
                prop_assert_eq!(
                    (info.tag, info.immediate),
                    (message.tag, Some(self.expected[operation]))
                );
                prop_assert_eq!(info.source, Some(Address { rank: message.from, endpoint: 0 }));
            }
        }
        prop_assert_eq!(
            received,
            self.expected.len(),
            "receives end once, and all that have a message do"
        );
        Ok(())
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let credit = prop_oneof![
        Just(0),
        Just(MESSAGE_OVERHEAD + 5),
        Just(3 * (MESSAGE_OVERHEAD + EAGER)),
        Just(1 << 20)
    ];
    (credit, prop_oneof![1 => 1..4_u32, 3 => Just(1 << 10)])
        .prop_map(|(credit, announcements)| Limits { credit, announcements })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 2_000 }, ..ProptestConfig::default() })]
    #[test]
    fn each_receive_gets_its_message(steps in prop::collection::vec(step(), 1..120), limits in limits(), seed: u64, room in 1..40_usize) {
        let mut network = Network::new(RANKS, limits, seed);
        network.room(room);
        let mut job = Job::default();
        for step in steps {
            match step {
                Step::Send { from, to, tag, length, inject, matched } => job.send(&mut network, (from, to, tag, length, inject, matched))?,
                Step::Receive { at, source, tag, ignore, room } => job.receive(&mut network, (at, source, tag, ignore, room)),
                Step::Deliver(count) => for _ in 0..count {
                    job.step(&mut network);
                },
            }
        }
        while job.step(&mut network) {}
        job.check(&network)?;
        // The rest is received, too: then nothing is left anywhere.
        for at in 0..RANKS {
            for _ in 0..job.waiting[at as usize].len() {
                job.receive(&mut network, (at, None, 0, u64::MAX, 400));
            }
        }
        while job.step(&mut network) {}
        job.check(&network)?;
        prop_assert_eq!(network.exposed(), 0);
        let ended: usize = network.ranks.iter().map(|(_, port)| port.ended.len()).sum();
        prop_assert_eq!(ended, job.sent.len() + job.expected.len(), "each send ends once");
    }
}
