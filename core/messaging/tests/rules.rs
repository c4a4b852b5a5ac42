//! Single rules, and what others may not do.

use kumi_messaging::header::{AtomicHeader, BadMessage, ExposedPiece, Header, Kind};
use kumi_messaging::matching::Pattern;
use kumi_messaging::{
    Address, AtomicAccess, Direction, Failure, Limits, MESSAGE_OVERHEAD, MemoryAccess, Peek,
    Receive, Refused, RemoteRange, Send, SendEnd, Unfinished,
};

use crate::network::{EAGER, Network, Part};

const ANY: Pattern = Pattern { source: None, tag: 0, ignore: u64::MAX };

fn address(rank: u32) -> Address {
    Address { rank, endpoint: 0 }
}

fn send(operation: u64, to: u32, data: Vec<u8>) -> Send<Part, u64> {
    let data = Part::new(data);
    Send {
        operation,
        to: address(to),
        data,
        inject: false,
        tag: Some(operation),
        immediate: None,
        end: SendEnd::Sent,
    }
}

fn receive(operation: u64, room: usize) -> Receive<Part, u64> {
    Receive {
        operation,
        buffer: Part::new(vec![0; room]),
        pattern: ANY,
        tagged: true,
        several: None,
    }
}

impl Network {
    fn send(&mut self, from: u32, send: Send<Part, u64>) -> Result<(), Refused> {
        let (messenger, port) = &mut self.ranks[from as usize];
        messenger.send(port, 0, send)
    }

    fn receive(&mut self, at: u32, receive: Receive<Part, u64>) {
        let (messenger, port) = &mut self.ranks[at as usize];
        messenger.receive(port, 0, receive).unwrap();
    }

    fn search(&mut self, at: u32, pattern: Pattern) {
        let (messenger, port) = &mut self.ranks[at as usize];
        messenger.peek(port, 0, (pattern, true), 99, Peek::Look).unwrap();
    }

    fn access(&mut self, at: u32, access: MemoryAccess<'_, Part, u64>) -> Result<(), Refused> {
        let (messenger, port) = &mut self.ranks[at as usize];
        messenger.access(port, 0, access)
    }

    fn ends(&mut self, at: u32) -> Vec<(u64, Result<(), Failure>)> {
        let ended = std::mem::take(&mut self.ranks[at as usize].1.ended);
        ended
            .into_iter()
            .map(|(operation, end)| (operation, end.map(drop).map_err(|failed| failed.0)))
            .collect()
    }
}

fn job() -> Network {
    Network::new(2, Limits::of_job(2), 7)
}

#[test]
fn without_credit_a_message_is_announced_and_credit_comes_back() {
    let credit = 2 * (8 + MESSAGE_OVERHEAD);
    let mut job = Network::new(2, Limits { credit, announcements: 2 }, 1);
    for number in 1..=4 {
        job.send(0, send(number, 1, vec![number as u8; 8])).unwrap();
    }
    assert_eq!(
        job.send(0, send(5, 1, vec![])),
        Err(Refused::Again),
        "two with credit, two announced"
    );
    job.run();
    assert_eq!(job.ends(0), [(1, Ok(())), (2, Ok(()))], "the others' data is still there");
    for number in 11..=14 {
        job.receive(1, receive(number, 8));
    }
    job.run();
    assert_eq!(job.ends(0), [(3, Ok(())), (4, Ok(()))]);
    assert_eq!(job.ends(1).len(), 4);
    for number in 6..=7 {
        job.send(0, send(number, 1, vec![0; 8])).unwrap();
    }
    assert_eq!(job.ends(0), [(6, Ok(())), (7, Ok(()))], "the credit is there again");
}

#[test]
fn a_matched_send_ends_when_its_message_is_received() {
    for length in [0, 8, 1000] {
        let mut job = job();
        job.send(0, Send { end: SendEnd::Matched, ..send(1, 1, vec![3; length]) }).unwrap();
        job.run();
        assert_eq!(job.ends(0), []);
        job.receive(1, receive(2, length));
        job.run();
        assert_eq!((job.ends(0), job.ends(1)), (vec![(1, Ok(()))], vec![(2, Ok(()))]));
    }
}

#[test]
fn a_buffer_takes_several_messages() {
    let mut job = job();
    let buffer = Part::new(vec![0; 200]);
    for (number, length) in [(1, 10), (2, 100)] {
        job.send(0, Send { tag: None, ..send(number, 1, vec![number as u8; length]) }).unwrap();
    }
    job.run();
    let several =
        Receive { buffer: buffer.clone(), tagged: false, several: Some(50), ..receive(9, 0) };
    job.receive(1, several);
    job.run();
    let parts: Vec<_> = job.ranks[1]
        .1
        .parts
        .iter()
        .map(|(operation, end)| (*operation, end.unwrap().offset, end.unwrap().length))
        .collect();
    let mut sorted = parts.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(9, 0, 10), (9, 10, 100)]);
    job.send(0, Send { tag: None, ..send(3, 1, vec![3; 60]) }).unwrap();
    job.run();
    let (operation, end) = job.ranks[1].1.ended.pop().unwrap();
    let info = end.unwrap();
    assert_eq!(
        (operation, info.offset, info.length, info.last_of_buffer),
        (9, 110, 60, true),
        "30 bytes are left"
    );
    assert_eq!(buffer.read(), [vec![1; 10], vec![2; 100], vec![3; 60], vec![0; 30]].concat());
    job.send(0, Send { tag: None, ..send(4, 1, vec![4; 1]) }).unwrap();
    job.run();
    assert_eq!(job.ends(1), [], "it is not posted any more");
}

#[test]
fn messages_are_seen_claimed_and_dropped() {
    for length in [5, 500] {
        let mut job = job();
        for number in 1..=3 {
            job.send(
                0,
                Send { end: SendEnd::Matched, ..send(number, 1, vec![number as u8; length]) },
            )
            .unwrap();
        }
        job.run();
        let (messenger, port) = &mut job.ranks[1];
        let exactly = |tag| (Pattern { tag, ignore: 0, ..ANY }, true);
        messenger.peek(port, 0, exactly(4), 20, Peek::Look).unwrap();
        messenger.peek(port, 0, exactly(2), 21, Peek::Look).unwrap();
        messenger.peek(port, 0, exactly(2), 22, Peek::Claim(77)).unwrap();
        messenger.peek(port, 0, exactly(2), 23, Peek::Look).unwrap();
        messenger.peek(port, 0, exactly(1), 24, Peek::Discard).unwrap();
        let buffer = Part::new(vec![0; length]);
        messenger.receive_claimed(port, 0, 76, 25, Some(&buffer)).unwrap();
        messenger.receive_claimed(port, 0, 77, 26, Some(&buffer)).unwrap();
        job.run();
        let no = Err(Failure::NoMessage);
        assert_eq!(
            job.ends(1),
            [(20, no), (21, Ok(())), (22, Ok(())), (23, no), (24, Ok(())), (25, no), (26, Ok(()))]
        );
        assert_eq!(buffer.read(), vec![2; length]);
        let mut sends = job.ends(0);
        sends.sort_unstable_by_key(|send| send.0);
        assert_eq!(sends, [(1, Ok(())), (2, Ok(()))], "the third one waits");
    }
}

#[test]
fn what_a_rank_waits_for_is_told() {
    let mut job = job();
    assert_eq!(job.ranks[0].0.unfinished(), Unfinished::default());
    let of = |tag| Pattern { source: Some(address(1)), tag, ignore: 0 };
    for (operation, tag) in [(1, 7), (2, 5), (3, 7)] {
        job.receive(0, Receive { pattern: of(tag), ..receive(operation, 8) });
    }
    job.send(0, send(4, 1, vec![0; 1000])).unwrap();
    job.search(0, of(9));
    let told = job.ranks[0].0.unfinished();
    assert_eq!((told.first_receive, told.last_receive), (Some(of(7)), Some(of(7))));
    assert_eq!((told.searched, told.send), (Some(of(9)), Some(1)));
    assert_eq!((told.count, told.posted), (4, 3));
    job.receive(0, Receive { pattern: of(6), ..receive(5, 8) });
    assert_eq!(job.ranks[0].0.unfinished().last_receive, Some(of(6)));
    job.run();
    assert_eq!(job.ranks[1].1.unexpected, 1, "it may look for the message now");
    job.receive(1, receive(6, 1000));
    for tag in [6, 7, 9] {
        job.send(1, send(tag, 0, vec![])).unwrap();
    }
    job.run();
    job.search(0, of(9));
    let told = job.ranks[0].0.unfinished();
    assert_eq!((told.searched, told.send, told.count), (None, None, 2));
    assert_eq!((told.first_receive, told.last_receive), (Some(of(5)), Some(of(7))));
    assert_eq!(job.ranks[0].1.unexpected, 1, "two were received at once");
}

#[test]
fn a_cancelled_receive_takes_nothing() {
    let mut job = job();
    job.receive(1, receive(5, 10));
    let (messenger, port) = &mut job.ranks[1];
    assert!(messenger.cancel(port, 0, |operation| *operation == 5));
    assert!(!messenger.cancel(port, 0, |operation| *operation == 5));
    job.send(0, send(1, 1, vec![1])).unwrap();
    job.run();
    assert_eq!(job.ends(1), [(5, Err(Failure::Cancelled))]);
}

#[test]
fn a_closed_endpoint_ends_what_waits() {
    let mut job = job();
    job.send(0, Send { end: SendEnd::Matched, ..send(1, 1, vec![1]) }).unwrap();
    job.send(0, send(2, 1, vec![1; 100])).unwrap();
    job.run();
    let (messenger, port) = &mut job.ranks[1];
    messenger.receive(port, 0, Receive { tagged: false, ..receive(5, 10) }).unwrap();
    messenger.close(port, 0);
    job.send(0, send(3, 1, vec![1; 100])).unwrap();
    job.run();
    assert_eq!(job.ends(1), [(5, Err(Failure::Cancelled))]);
    let gone = Err(Failure::NoEndpoint);
    assert_eq!(job.ends(0), [(1, gone), (2, gone), (3, gone)]);
    let (messenger, port) = &mut job.ranks[1];
    assert_eq!(messenger.receive(port, 0, receive(6, 1)), Err(Refused::NoEndpoint));
    assert_eq!(job.exposed(), 0);
}

fn access<'r>(
    operation: u64,
    direction: Direction,
    local: &Part,
    remote: &'r [RemoteRange],
) -> MemoryAccess<'r, Part, u64> {
    MemoryAccess {
        operation,
        direction,
        peer: address(1),
        local: local.clone(),
        remote,
        inject: false,
        immediate: Some(operation),
    }
}

#[test]
fn registered_memory_is_written_and_read() {
    for length in [0, 1, EAGER, EAGER + 1, 1000] {
        let mut job = job();
        let memory = Part::new(vec![9; 2000]);
        job.register(1, 42, memory.clone());
        let local = Part::new((0..length).map(|byte| byte as u8).collect());
        let range = |address, length| RemoteRange { address, length, key: 42 };
        let remote = [range(100, length / 3), range(1000, length - length / 3)];
        job.access(0, access(1, Direction::Write, &local, &remote)).unwrap();
        job.run();
        let first = length as usize / 3;
        let mut expected = vec![9; 2000];
        expected[100..100 + first].copy_from_slice(&local.read()[..first]);
        expected[1000..1000 + length as usize - first].copy_from_slice(&local.read()[first..]);
        assert_eq!(memory.read(), expected);
        let back = Part::new(vec![0; length as usize]);
        job.access(0, access(2, Direction::Read, &back, &remote)).unwrap();
        job.run();
        assert_eq!((back.read(), job.ends(0)), (local.read(), vec![(1, Ok(())), (2, Ok(()))]));
        let events: Vec<_> =
            job.ranks[1].1.events.iter().map(|event| (event.direction, event.immediate)).collect();
        let both = |direction, number| [(direction, None), (direction, Some(number))];
        assert_eq!(events[..2], both(Direction::Write, 1), "the word comes with the last part");
        assert_eq!(events[2..].len(), 2);
        assert_eq!(job.exposed(), 0);
    }
}

#[test]
fn memory_that_is_not_registered_is_not_touched() {
    let mut job = job();
    let memory = Part::new(vec![9; 100]);
    job.register(1, 42, memory.clone());
    let local = Part::new(vec![1; 90]);
    let range = |key, address, length| [RemoteRange { address, length, key }];
    for (number, direction) in [(1, Direction::Write), (2, Direction::Read)] {
        job.access(0, access(number, direction, &local, &range(41, 0, 90))).unwrap();
        job.access(0, access(number + 10, direction, &local, &range(42, 11, 90))).unwrap();
        job.access(0, access(number + 20, direction, &local, &range(42, u64::MAX - 3, 90)))
            .unwrap();
        assert_eq!(
            job.access(0, access(9, direction, &local, &range(42, 0, 91))),
            Err(Refused::Lengths)
        );
        assert_eq!(job.access(0, access(9, direction, &local, &[])), Err(Refused::Lengths));
    }
    job.run();
    let no = Err(Failure::NoAccess);
    let mut ends = job.ends(0);
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(ends, [(1, no), (2, no), (11, no), (12, no), (21, no), (22, no)]);
    assert_eq!((memory.read(), job.ranks[1].1.events.len(), job.exposed()), (vec![9; 100], 0, 0));
}

#[test]
fn atomic_operations_return_what_was_there() {
    let mut job = job();
    let memory = Part::new(vec![200; 4]);
    job.register(1, 1, memory.clone());
    let remote = [RemoteRange { address: 1, length: 2, key: 1 }];
    let (none, result) = (Part::new(vec![]), Part::new(vec![0; 2]));
    let (messenger, port) = &mut job.ranks[0];
    for (operation, op, kind) in [(1, 1, 0), (2, 1, 1), (3, 0, 0)] {
        let atomic = AtomicHeader { datatype: 1, op, kind };
        let result = if kind == 0 { none.clone() } else { result.clone() };
        let operand = Part::new(vec![100, 1]);
        let access = AtomicAccess {
            operation,
            atomic,
            peer: address(1),
            operand,
            compare: none.clone(),
            result,
            remote: &remote,
        };
        messenger.atomic(port, 0, access).unwrap();
    }
    job.run();
    assert_eq!((memory.read(), result.read()), (vec![200, 144, 202, 200], vec![44, 201]));
    assert_eq!(job.ends(0), [(1, Ok(())), (2, Ok(())), (3, Err(Failure::NotSupported))]);
}

/// One message of each kind under way between two ranks, then the endpoint of `closed` is closed at any moment.
#[test]
fn nothing_touches_memory_after_its_endpoint_is_closed() {
    for closed in [0, 1] {
        for steps in 0..25 {
            let mut job = Network::new(2, Limits { credit: 100, announcements: 9 }, steps);
            let memory = Part::new(vec![9; 2000]);
            job.register(1, 42, memory.clone());
            for (number, length) in [(1, 8), (2, 8), (3, 500)] {
                let end = SendEnd::Matched;
                job.send(0, Send { end, ..send(number, 1, vec![1; length]) }).unwrap();
            }
            let buffers: Vec<Part> = (0..3).map(|_| Part::new(vec![0; 500])).collect();
            for (number, buffer) in (11..).zip(&buffers) {
                job.receive(1, Receive { buffer: buffer.clone(), ..receive(number, 0) });
            }
            let local: Vec<Part> = (0..4).map(|_| Part::new(vec![3; 600])).collect();
            for (number, (direction, length)) in (21..).zip([
                (Direction::Read, 600),
                (Direction::Write, 600),
                (Direction::Read, 20),
                (Direction::Write, 20),
            ]) {
                let remote = [RemoteRange { address: 0, length, key: 42 }];
                let part = local[number - 21].part_of(length);
                job.access(0, access(number as u64, direction, &part, &remote)).unwrap();
            }
            (0..steps).for_each(|_| drop(job.step()));
            let (messenger, port) = &mut job.ranks[closed];
            messenger.close(port, 0);
            let all = || buffers.iter().chain(&local).map(Part::read).collect::<Vec<_>>();
            let before = all();
            job.run();
            let mine = if closed == 0 { 3..7 } else { 0..3 };
            assert!(all()[mine.clone()] == before[mine], "rank {closed} after {steps} steps");
            let mut ended: Vec<u64> = job.ends(closed as u32).iter().map(|end| end.0).collect();
            ended.sort_unstable();
            let expected: &[u64] =
                if closed == 0 { &[1, 2, 3, 21, 22, 23, 24] } else { &[11, 12, 13] };
            assert_eq!(ended, expected, "each of its operations ends once");
            assert_eq!(job.exposed(), 0, "rank {closed} after {steps} steps");
        }
    }
}

#[test]
fn a_registration_that_ends_is_not_touched_any_more() {
    for steps in 0..12 {
        let mut job = Network::new(2, Limits::of_job(2), steps);
        let memory = Part::new(vec![9; 1000]);
        job.register(1, 42, memory.clone());
        let local = Part::new(vec![1; 1000]);
        let remote = [RemoteRange { address: 0, length: 1000, key: 42 }];
        job.access(0, access(1, Direction::Write, &local, &remote)).unwrap();
        (0..steps).for_each(|_| drop(job.step()));
        job.unregister(1, 42);
        let (messenger, port) = &mut job.ranks[1];
        messenger.end_registration(port, 42);
        let before = memory.read();
        job.run();
        assert!(memory.read() == before, "after {steps} steps");
        assert_eq!((job.ends(0).len(), job.exposed()), (1, 0), "after {steps} steps");
    }
}

#[test]
fn after_a_fault_everything_has_ended() {
    let mut job = job();
    job.receive(1, receive(5, 10));
    job.send(1, Send { end: SendEnd::Matched, ..send(6, 0, vec![1; 500]) }).unwrap();
    let (messenger, port) = &mut job.ranks[1];
    messenger.abandon(port);
    let cancelled = Err(Failure::Cancelled);
    assert_eq!(job.ends(1), [(5, cancelled), (6, cancelled)]);
    assert_eq!(job.exposed(), 0);
    let (messenger, port) = &mut job.ranks[1];
    assert_eq!(messenger.receive(port, 0, receive(7, 1)), Err(Refused::NoEndpoint));
}

#[test]
fn what_gives_back_needs_the_right_to_read() {
    let mut job = job();
    let memory = Part::new(vec![1; 4]);
    job.register(1, 1, memory.clone());
    for (may, op, kind, good) in [
        (Direction::Write, 1, 0, true),
        (Direction::Write, 1, 1, false),
        (Direction::Write, 10, 1, false),
        (Direction::Read, 1, 0, false),
        (Direction::Read, 1, 1, false),
        (Direction::Read, 10, 1, true),
    ] {
        job.allow_only(may);
        let remote = [RemoteRange { address: 0, length: 4, key: 1 }];
        let none = Part::new(vec![]);
        let result = if kind == 0 { none.clone() } else { Part::new(vec![0; 4]) };
        let operand = if op == 10 { none.clone() } else { Part::new(vec![1; 4]) };
        let atomic = AtomicHeader { datatype: 1, op, kind };
        let access = AtomicAccess {
            operation: 1,
            atomic,
            peer: address(1),
            operand,
            compare: none,
            result,
            remote: &remote,
        };
        let (messenger, port) = &mut job.ranks[0];
        messenger.atomic(port, 0, access).unwrap();
        job.run();
        let end = if good { Ok(()) } else { Err(Failure::NoAccess) };
        assert_eq!(job.ends(0), [(1, end)], "{may:?} {op} {kind}");
    }
}

#[test]
fn a_rank_that_asks_for_too_much_is_out_of_order() {
    let mut job = Network::new(2, Limits { credit: 1000, announcements: 3 }, 7);
    let mut announce = Header::new(Kind::Announce, 0, 0);
    for request in 0..3 {
        announce.request = Some(request);
        assert_eq!(job.forge(1, 0, forged(&announce, &[])), Ok(()));
    }
    assert_eq!(job.forge(1, 0, forged(&announce, &[])), Err(BadMessage::TooMany));
    job.register(0, 1, Part::new(vec![0; 10]));
    let mut read = Header::new(Kind::Read, 0, 0);
    (read.tag, read.length, read.request) = (1, 10, Some(1));
    let taken = (0..3_000).take_while(|_| job.forge(1, 0, forged(&read, &[])).is_ok()).count();
    assert!((2_000..2_010).contains(&taken), "{taken} answers wait");
}

#[test]
fn accesses_under_way_are_bounded() {
    let mut job = job();
    let local = Part::new(vec![1; 8]);
    let remote = [RemoteRange { address: 0, length: 8, key: 1 }];
    job.room(10_000);
    let begin = |job: &mut Network| job.access(0, access(1, Direction::Write, &local, &remote));
    let begun = (0..5_000).take_while(|_| begin(&mut job).is_ok()).count();
    assert_eq!((begun, begin(&mut job)), (1024, Err(Refused::Again)));
    job.run();
    assert_eq!(begin(&mut job), Ok(()));
}

fn forged(header: &Header, data: &[u8]) -> Vec<u8> {
    let (bytes, length) = header.encode();
    [&bytes[..length], data].concat()
}

#[test]
fn answers_of_ranks_that_were_not_asked_are_refused() {
    let mut job = Network::new(3, Limits { credit: 0, announcements: 9 }, 7);
    job.send(0, send(1, 1, vec![5; 10])).unwrap();
    job.send(0, send(2, 1, vec![5; 100])).unwrap();
    let requests: Vec<u64> = (0..2).map(|place| 1 << 32 | place).collect();
    for (from, number) in
        [(2, requests[0]), (2, requests[1]), (1, 7), (1, 2 << 32), (1, requests[1])]
    {
        let mut want = Header::new(Kind::Want, 0, 0);
        (want.request, want.tag) = (Some(number), 1);
        assert_eq!(
            job.forge(from, 0, forged(&want, &[])),
            Err(BadMessage::Request(number)),
            "{from} {number:#x}"
        );
        let mut done = Header::new(Kind::Done, 0, 0);
        done.request = Some(number);
        if from == 2 || number == 7 {
            assert_eq!(job.forge(from, 0, forged(&done, &[])), Err(BadMessage::Request(number)));
        }
    }
    let mut data = Header::new(Kind::Data, 0, 0);
    (data.request, data.length) = (Some(requests[0]), 1);
    assert_eq!(
        job.forge(1, 0, forged(&data, &[1])),
        Err(BadMessage::Request(requests[0])),
        "it waits for no data"
    );
    job.receive(1, receive(3, 100));
    job.receive(1, receive(4, 100));
    job.run();
    assert_eq!(job.ends(0).len(), 2, "all is as if nothing had been said");
}

#[test]
fn data_is_asked_for_once() {
    let mut job = Network::new(2, Limits { credit: 0, announcements: 9 }, 7);
    job.send(0, Send { end: SendEnd::Matched, ..send(1, 1, vec![5; 10]) }).unwrap();
    let mut want = Header::new(Kind::Want, 0, 0);
    (want.request, want.tag) = (Some(1 << 32), 1);
    assert_eq!(job.forge(1, 0, forged(&want, &[])), Ok(()));
    assert_eq!(job.forge(1, 0, forged(&want, &[])), Err(BadMessage::Request(1 << 32)));
}

#[test]
fn lies_about_lengths_and_credit_are_refused() {
    let mut job = Network::new(2, Limits { credit: 1000, announcements: 9 }, 7);
    let mut eager = Header::new(Kind::Eager, 0, 0);
    eager.length = 5;
    assert_eq!(
        job.forge(1, 0, forged(&eager, &[0; 4])),
        Err(BadMessage::Length { found: 4, said: 5 })
    );
    eager.length = 0;
    let kept = (0..).take_while(|_| job.forge(1, 0, forged(&eager, &[])).is_ok()).count();
    assert_eq!(kept as u64, 1000 / MESSAGE_OVERHEAD);
    let mut credit = Header::new(Kind::Credit, 0, 0);
    credit.credit = 1;
    assert_eq!(job.forge(1, 0, forged(&credit, &[])), Err(BadMessage::Returned(1)));
    let mut announce = Header::new(Kind::Announce, 0, 0);
    (announce.request, announce.length) = (Some(1), 10);
    assert!(announce.exposure.add(ExposedPiece { key: 1, address: 0, length: 11 }));
    assert_eq!(job.forge(1, 0, forged(&announce, &[])), Err(BadMessage::Exposure(1)));
    let mut atomic = Header::new(Kind::Atomic, 0, 0);
    (atomic.request, atomic.length) = (Some(1), 10);
    assert_eq!(
        job.forge(1, 0, forged(&atomic, &[0; 21])),
        Err(BadMessage::Length { found: 21, said: 10 })
    );
}
