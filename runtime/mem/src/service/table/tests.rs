//! Tests of one rank's services, with frames of ranks that there are not.

use kumi_net::SharedBytes;

use super::*;
use crate::engine::Engine;
use crate::error::panic_text;
use crate::service::outbox::{Outbox, Way};
use crate::window::key::RandomSource;

/// This rank, and how many there are.
const ME: Rank = 2;
const RANKS: u32 = 4;

/// Keeps what comes; sends each message on to the ranks that its bytes name, without the first byte.
#[derive(Default)]
struct Relay(Vec<(Rank, Vec<u8>)>);

impl Service for Relay {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        self.0.push((from, message.to_vec()));
        match message.split_first() {
            Some((b'!', _)) => {
                outbox.send(0, b"lost".to_vec()).expect("a rank");
                panic!("told to");
            }
            Some((to @ 0..4, rest)) => outbox.send((*to).into(), rest.to_vec()).expect("a rank"),
            _ => {}
        }
    }
}

/// The engine of a rank with services.
struct TestRank(Engine);

impl TestRank {
    fn first(&mut self, from: Rank, first: FirstPart<&[u8]>) -> Result<Delivery, String> {
        self.0.service_first(from, first)
    }

    fn part(&mut self, from: Rank, data: &[u8]) -> Result<Delivery, String> {
        self.0.service_part(from, data)
    }

    fn call<T>(
        &mut self,
        number: u16,
        call: impl FnOnce(&mut Relay, &mut Outbox<'_>) -> T,
    ) -> Result<Result<T, Panic>, Error> {
        let mut outbox = Outbox::new(Way::Engine(&mut self.0), number);
        let result = outbox.call(call);
        outbox.finish_later();
        result
    }

    fn outbox(&mut self) -> Outbox<'_> {
        Outbox::new(Way::Engine(&mut self.0), 0)
    }
}

impl std::ops::Deref for TestRank {
    type Target = ServiceTable;

    fn deref(&self) -> &ServiceTable {
        &self.0.services
    }
}

impl std::ops::DerefMut for TestRank {
    fn deref_mut(&mut self) -> &mut ServiceTable {
        &mut self.0.services
    }
}

fn table(services: u16) -> TestRank {
    let mut engine = Engine::new(1 << 20, 1 << 20, RandomSource::Seeded(1));
    (engine.me, engine.longest) = (ME, 100);
    let table = &mut engine.services;
    table.join(ME, RANKS, Arc::default());
    for number in 0..services {
        assert_eq!(table.add(Box::new(Relay::default())).expect("a number"), number);
    }
    TestRank(engine)
}

fn come(table: &mut TestRank, number: u16) -> Vec<(Rank, Vec<u8>)> {
    let taken = table.call(number, |relay: &mut Relay, _| std::mem::take(&mut relay.0));
    taken.expect("a service").expect("no panic")
}

fn first(service: u16, total: u32, data: &[u8]) -> FirstPart<&[u8]> {
    FirstPart { service, total, data }
}

/// Hands out frames of at most `most` bytes, as many as there is `room` for by rank: (rank, kind, data) of each.
fn sent(table: &mut TestRank, most: usize, room: [usize; 4]) -> Vec<(Rank, u8, Vec<u8>)> {
    let (mut frames, mut room) = (Vec::new(), room);
    let mut send = |to: Rank, parts: &[&[u8]], _: SharedBytes<'_>| {
        if room[to as usize] == 0 {
            return Ok(false);
        }
        room[to as usize] -= 1;
        let frame = parts.concat();
        assert!(frame.len() <= most);
        frames.push((to, frame[0], parts[1].to_vec()));
        Ok(true)
    };
    table.unsent.hand_out(most, &mut Vec::new(), &mut send).expect("sent");
    frames
}

#[test]
fn a_message_in_parts_comes_whole_whatever_others_send_meanwhile() {
    let mut table = table(2);
    table.first(0, first(1, 6, b"abc")).expect("first");
    table.first(1, first(0, 4, b"")).expect("first");
    table.part(0, &b"de"[..]).expect("part");
    assert_eq!(come(&mut table, 1), []);
    table.first(3, first(1, 2, b"xy")).expect("whole");
    table.part(1, &b"four"[..]).expect("part");
    table.part(0, &b"f"[..]).expect("part");
    table.first(0, first(1, 0, b"")).expect("empty");
    let whole = |from, data: &[u8]| (from, data.to_vec());
    assert_eq!(come(&mut table, 1), [whole(3, b"xy"), whole(0, b"abcdef"), whole(0, b"")]);
    assert_eq!(come(&mut table, 0), [whole(1, b"four")]);
    assert!(table.partial.is_empty());
}

#[test]
fn what_no_rank_sends_is_a_fault() {
    let mut table = table(1);
    let fault = |result: Result<Delivery, String>, text: &str| {
        assert!(result.as_ref().is_err_and(|error| error.contains(text)), "{result:?}");
    };
    fault(table.part(0, &b"x"[..]), "part of no message");
    fault(table.first(0, first(1, 0, b"")), "service 1, which there is not");
    let most = SERVICE_MESSAGE_BYTES as u32;
    fault(table.first(0, first(0, most + 1, b"x")), "16777217 bytes");
    table.first(0, first(0, most, b"x")).expect("as long as may be");
    fault(table.first(0, first(0, 1, b"x")), "inside of another");
    table.first(1, first(0, 3, b"x")).expect("first");
    fault(table.part(1, &b"xyz"[..]), "longer than it says");
    assert_eq!(come(&mut table, 0), []);
}

#[test]
fn memory_grows_with_what_has_come_and_not_with_what_is_announced() {
    let mut table = table(1);
    table.first(0, first(0, SERVICE_MESSAGE_BYTES as u32, b"x")).expect("first");
    assert!(table.partial[&0].data.capacity() <= TRUSTED);
}

#[test]
fn what_is_for_a_service_that_is_gone_is_dropped_and_its_number_stays_its_own() {
    let mut table = table(2);
    table.first(0, first(0, 2, b"a")).expect("first");
    assert!(table.remove(0).is_some());
    assert!(table.any());
    table.part(0, &b"b"[..]).expect("dropped");
    table.first(0, first(0, 1, b"c")).expect("dropped");
    assert_eq!(table.add(Box::new(Relay::default())).expect("a number"), 2);
    assert_eq!(come(&mut table, 2), []);
    assert!(table.remove(1).is_some() && table.remove(2).is_some());
    assert!(!table.any() && table.remove(0).is_none());
}

#[test]
fn numbers_come_to_an_end() {
    let mut table = ServiceTable::default();
    table.entries.resize_with(1 << 16, || None);
    let result = table.add(Box::new(Relay::default()));
    assert!(matches!(result, Err(Error::TooManyServices)));
}

#[test]
fn messages_leave_in_order_as_there_is_room_and_a_full_way_holds_up_no_other() {
    let mut table = table(1);
    let send = |_: &mut Relay, outbox: &mut Outbox| {
        for (to, data) in [(0, "abcdefghij"), (1, "other"), (0, ""), (0, "last")] {
            outbox.send(to, data.into()).expect("a rank");
        }
    };
    table.call(0, send).expect("a service").expect("no panic");
    let frame = |to, kind, data: &[u8]| (to, kind, data.to_vec());
    let frames = sent(&mut table, 12, [1, 9, 9, 9]);
    assert_eq!(frames, [frame(0, 24, b"abcd"), frame(1, 24, b"othe"), frame(1, 25, b"r")]);
    assert!(table.owes());
    assert_eq!(sent(&mut table, 12, [0; 4]), []);
    // The length of frames may change in between.
    assert_eq!(sent(&mut table, 8, [1; 4]), [frame(0, 25, b"efgh")]);
    let rest = sent(&mut table, 100, [9; 4]);
    assert_eq!(rest, [frame(0, 25, b"ij"), frame(0, 24, b""), frame(0, 24, b"last")]);
    assert!(!table.owes());
}

#[test]
fn ranks_that_are_full_already_get_nothing() {
    let mut table = table(1);
    let send = |_: &mut Relay, outbox: &mut Outbox| outbox.send(3, vec![1]).expect("a rank");
    table.call(0, send).expect("a service").expect("no panic");
    let mut never = |_: Rank, _: &[&[u8]], _: SharedBytes<'_>| panic!("nothing may be sent");
    table.unsent.hand_out(100, &mut vec![3], &mut never).expect("nothing sent");
    assert!(table.owes());
}

#[test]
fn messages_to_the_own_rank_are_there_at_once_and_in_order() {
    let mut table = table(1);
    let send = |_: &mut Relay, outbox: &mut Outbox| {
        for data in [&b"\x02\x02\x01x"[..], b"second"] {
            outbox.send(ME, data.to_vec()).expect("a rank");
        }
    };
    table.call(0, send).expect("a service").expect("no panic");
    let own = |data: &[u8]| (ME, data.to_vec());
    assert_eq!(
        come(&mut table, 0),
        [own(b"\x02\x02\x01x"), own(b"second"), own(b"\x02\x01x"), own(b"\x01x")]
    );
    assert_eq!(sent(&mut table, 100, [1; 4]), [(1, 24, b"x".to_vec())]);
}

#[test]
fn a_service_answers_whoever_drives() {
    let mut table = table(1);
    table.first(0, first(0, 3, b"\x00ok")).expect("whole");
    assert_eq!(sent(&mut table, 100, [1; 4]), [(0, 24, b"ok".to_vec())]);
}

#[test]
fn an_outbox_refuses_what_cannot_be_sent() {
    let mut table = table(1);
    let mut outbox = table.outbox();
    let result = outbox.send(4, vec![]);
    assert!(matches!(result, Err(Error::BadRank { rank: 4, ranks: 4 })));
    let result = outbox.send(0, vec![0; SERVICE_MESSAGE_BYTES + 1]);
    assert!(matches!(result, Err(Error::ServiceMessageTooLong { length: 16_777_217, .. })));
    let payload = vec![0; SERVICE_MESSAGE_BYTES];
    let result = outbox.send_parts(0, &[b"x"], shared(&payload));
    assert!(matches!(result, Err(Error::ServiceMessageTooLong { length: 16_777_217, .. })));
    assert!(outbox.is_free(0));
    outbox.send(0, payload).expect("as long as may be");
    assert!(!outbox.is_free(0) && outbox.is_free(1));
    outbox.finish_later();
    drop(outbox);
    assert!(!table.unsent.is_free(0) && table.unsent.is_free(1));
}

/// Private bytes, which nobody writes.
fn shared(bytes: &[u8]) -> SharedBytes<'_> {
    // SAFETY: borrowed for the result's life, by a shared reference.
    unsafe { SharedBytes::new(std::ptr::NonNull::from(bytes).cast(), bytes.len()) }
}

fn panicked<T>(result: &Result<T, Error>, said: &str) -> bool {
    matches!(result, Err(Error::ServicePanicked { service: 0, text }) if text == said)
}

#[test]
fn a_panic_ends_a_service_and_no_other() {
    let mut table = table(2);
    table.first(0, first(0, 1, b"!")).expect("whole");
    table.first(0, first(0, 4, b"\x01out")).expect("dropped");
    assert_eq!(sent(&mut table, 100, [9; 4]), [], "half of what it would have said");
    let result = table.call(0, |_: &mut Relay, _| ());
    assert!(panicked(&result.map(drop), "told to"));
    table.first(0, first(1, 4, b"good")).expect("whole");
    assert_eq!(come(&mut table, 1), [(0, b"good".to_vec())]);
}

#[test]
fn a_panic_of_a_call_goes_on_and_ends_the_service() {
    let mut table = table(1);
    let call = |_: &mut Relay, outbox: &mut Outbox| {
        outbox.send(0, b"lost".to_vec()).expect("a rank");
        panic!("in a call");
    };
    let panic = table.call(0, call).expect("a service").expect_err("a panic");
    assert_eq!(panic_text(&*panic), "in a call");
    assert!(!table.owes());
    let result = table.call(0, |_: &mut Relay, _| ());
    assert!(panicked(&result.map(drop), "in a call"));
}

#[test]
fn what_may_have_changed_a_service_is_counted() {
    let mut table = table(1);
    table.call(0, |_: &mut Relay, _| ()).expect("a service").expect("no panic");
    assert_eq!(table.changes(0), 0, "the caller says");
    table.changed(0);
    table.first(0, first(0, 2, b"a")).expect("first");
    assert_eq!(table.changes(0), 1, "half a message is none");
    table.part(0, &b"b"[..]).expect("part");
    assert_eq!(table.changes(0), 2);
    table.first(0, first(0, 1, b"!")).expect("whole");
    assert_eq!(table.changes(0), 3, "who waits is told of the panic");
}

#[test]
fn a_reserved_number_waits_for_its_service_and_drops_what_comes_after_it() {
    let (mut table, number) = (table(1), ReservedService::TEST);
    let ReservedService(reserved) = number;
    let deliveries = |table: &mut TestRank| {
        let whole = table.first(0, first(reserved, 1, b"w"));
        // The other rank's first part makes no message that its next frames could be parts of.
        let begun = table.first(1, first(reserved, 2, b"b"));
        (whole.expect("no fault"), begun.expect("no fault"))
    };
    assert_eq!(deliveries(&mut table), (Delivery::Full, Delivery::Full));
    assert!(table.partial.is_empty());
    let served = table.add_reserved(number, Box::new(Relay::default())).expect("free");
    assert_eq!(served, reserved);
    let again = table.add_reserved(number, Box::new(Relay::default()));
    assert!(matches!(again, Err(Error::ServiceTaken { service }) if service == reserved));
    assert_eq!(deliveries(&mut table), (Delivery::Taken, Delivery::Taken));
    table.part(1, b"c").expect("part");
    assert_eq!(come(&mut table, reserved), [(0, b"w".to_vec()), (1, b"bc".to_vec())]);
    assert!(table.any() && table.remove(0).is_some() && table.any());
    assert!(table.remove(reserved).is_some() && !table.any());
    assert!(table.remove(reserved).is_none());
    assert_eq!(deliveries(&mut table), (Delivery::Taken, Delivery::Taken), "dropped");
    table.part(1, b"c").expect("dropped");
    table.add_reserved(number, Box::new(Relay::default())).expect("free again");
    assert_eq!(come(&mut table, reserved), []);
}

#[test]
fn parts_go_out_as_one_message_and_its_memory_is_used_again() {
    let mut table = table(1);
    for round in 0..3 {
        let send = |_: &mut Relay, outbox: &mut Outbox<'_>| {
            outbox.send_parts(1, &[b"ab", b"", b"c"], shared(b"def")).expect("a rank");
            outbox.send(1, b"behind".to_vec()).expect("a rank");
        };
        table.call(0, send).expect("a service").expect("no panic");
        let message = |data: &[u8]| (1, 24, data.to_vec());
        assert_eq!(sent(&mut table, 100, [9; 4]), [message(b"abcdef"), message(b"behind")]);
        let spare = table.unsent.buffer();
        assert!(spare.capacity() > 0 && spare.is_empty(), "in round {round}");
        table.unsent.give_back(spare);
    }
}

#[test]
fn ends_of_transfers_are_told_to_their_service_only_while_it_is_there() {
    let mut table = table(1);
    let end = |token| EndedTransfer { service: 0, token, result: Ok(()) };
    table.ended.push_back(end(1));
    assert!(table.owes());
    assert!(table.remove(0).is_some());
    assert!(!table.owes() && table.ended.is_empty());
    table.ended.push_back(end(2));
    assert_eq!(sent_by_engine(&mut table), 0);
    assert!(!table.owes(), "nobody is told");
}

/// Frames that the engine hands out.
fn sent_by_engine(table: &mut TestRank) -> usize {
    let mut frames = 0;
    let mut send = |_: Rank, _: &[&[u8]], _: SharedBytes<'_>| {
        frames += 1;
        Ok(true)
    };
    table.0.hand_out_queued(100, &mut Vec::new(), &mut send).expect("sent");
    frames
}
