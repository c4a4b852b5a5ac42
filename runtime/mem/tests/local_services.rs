//! Services with reserved numbers between real processes: messages that leave at once, and waits with an end in time.

mod common;
#[path = "common/endpoint.rs"]
mod endpoint;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

use common::{Job, fewer, run, start};
use endpoint::{Endpoint, Handle, Memory, NUMBER, poll, private, receive, send, serve};
use kumi_mem::{
    ArrivedMessage, Context, Error, Outbox, RegisteredMemory, Service, ServiceHandle, SharedBytes,
    Source, Tag,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[3], &[2, 2]];

/// Tokens go round, by all ways of sending; each rank takes them by polls and by waits.
fn round(context: &Context) {
    let rounds = fewer(60, 4);
    let (me, ranks) = (context.rank(), context.ranks());
    let service = serve(context);
    let mut memory = Memory::new(512);
    let place = memory.shared();
    service.call(|endpoint, _| endpoint.place = Some(place)).expect("service");
    context.barrier().expect("barrier");
    let next = (me + 1) % ranks;
    let payload = |number: usize| vec![number as u8 + 1; number * 3 % 400];
    for number in 0..rounds {
        let header = (number as u64).to_be_bytes();
        let send_now = || match number % 2 {
            0 => send(&service, next, &header, &[&[0; 8][..], &payload(number)].concat()),
            _ => {
                let parts = [&header[..4], &header[4..], &[0; 8]];
                let sent = service
                    .call(|_, outbox| outbox.send_parts(next, &parts, private(&payload(number))));
                sent.expect("service").expect("sent");
            }
        };
        if me == 0 {
            send_now();
        }
        let (from, head) = if number % 3 == 0 { receive(&service) } else { poll(&service) };
        assert_eq!((from, &head[..8]), ((me + ranks - 1) % ranks, &header[..]));
        let rest = payload(number);
        let came = place.shared().slice(0, rest.len()).to_vec();
        assert_eq!(came, rest, "the payload of {number}");
        if me != 0 {
            send_now();
        }
    }
    let counts = service.call(|endpoint, _| endpoint.counts).expect("service");
    assert_eq!(counts, [rounds as u64, 0], "each came in one frame");
    context.barrier().expect("barrier");
}

#[test]
fn messages_are_taken_from_where_they_lie() {
    run("messages_are_taken_from_where_they_lie", LAYOUTS, round);
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn messages_are_taken_over_a_bad_wire() {
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=30,late=20,seed=7")];
    let job = Job { layout: &[2, 1], env, ..Job::default() };
    start("messages_are_taken_over_a_bad_wire", &job, round).finish_on_a_bad_wire();
}

/// Long messages, those that the service does not take at once, and short ones behind them come in their order.
#[test]
fn long_messages_and_those_left_come_as_copies_in_order() {
    run("long_messages_and_those_left_come_as_copies_in_order", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let service = serve(context);
        let long = vec![b'l'; fewer(100_000, 9_000)];
        context.barrier().expect("barrier");
        for to in 0..ranks {
            let sent = service.call(|_, outbox| {
                outbox.send_parts(to, &[b"!left"], private(b"over"))?;
                outbox.send_parts(to, &[b"a", b"b"], private(&long))?;
                outbox.send(to, b"!old".to_vec())?;
                outbox.send_parts(to, &[&b"a"[..]; 9], SharedBytes::default())?;
                outbox.send_parts(to, &[b"last"], private(b""))
            });
            sent.expect("service").expect("sent");
        }
        let wanted: [Vec<u8>; 5] = [
            b"!leftover".to_vec(),
            [b"ab", &long[..]].concat(),
            b"!old".to_vec(),
            vec![b'a'; 9],
            b"last".to_vec(),
        ];
        let mut next = vec![0; ranks as usize];
        for _ in 0..5 * ranks {
            let (from, message) = receive(&service);
            let number = &mut next[from as usize];
            // To itself a long message is taken where it lies, too.
            let wanted = &wanted[*number];
            let length = if from == me { message.len() } else { wanted.len() };
            assert_eq!(message, wanted[..length], "{number} of rank {from}");
            *number += 1;
        }
        context.barrier().expect("barrier");
    });
}

/// Two ranks answer each other while both compute, and a flood finds an end.
#[test]
fn what_finds_no_room_is_refused_and_nothing_of_it_is_sent() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("what_finds_no_room_is_refused_and_nothing_of_it_is_sent", layouts, |context| {
        let service = serve(context);
        let most = service.max_frame_payload().expect("bytes");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            let long = vec![1; most + 1];
            let result = service.try_send(1, &[], private(&long));
            let length = most + 1;
            assert!(
                matches!(&result, Err(Error::ServiceMessageTooLong { length: found, most: limit })
                    if (*found, *limit) == (length, most)),
                "{result:?}"
            );
            let result = service.try_send(2, &[], SharedBytes::default());
            assert!(matches!(result, Err(Error::BadRank { rank: 2, ranks: 2 })), "{result:?}");
            let mut sent = 0u64;
            let frame = &long[..most.min(1000) - 8];
            while service.try_send(1, &sent.to_le_bytes(), private(frame)).expect("service") {
                sent += 1;
                assert!(sent < 1 << 20, "no way is so long");
            }
            // Behind what is on its way. The number of frames tells the other what to expect.
            let end = [&b"end"[..], &[0; 5]].concat();
            let told = service.call(|_, outbox| {
                outbox.send_parts(1, &[&end, &sent.to_le_bytes()], SharedBytes::default())
            });
            told.expect("service").expect("queued");
            assert_eq!(receive(&service).1, b"all");
        } else {
            // Nobody takes anything before the other has found the way full: it is told when.
            for number in 0.. {
                let (from, head) = receive(&service);
                assert_eq!(from, 0);
                if head.starts_with(b"end") {
                    assert_eq!(head[8..], u64::to_le_bytes(number));
                    break;
                }
                assert_eq!(head[..8], u64::to_le_bytes(number), "in order, each once");
            }
            send(&service, 0, b"all", &[]);
        }
        context.barrier().expect("barrier");
    });
}

/// Rank 1 makes its service late: what came before waits, in a ring and with the sender. After its end messages are dropped.
#[test]
fn messages_wait_for_a_service_that_is_made_later_and_are_dropped_after_its_end() {
    let name = "messages_wait_for_a_service_that_is_made_later_and_are_dropped_after_its_end";
    run(name, &[&[2], &[1, 1]], |context| {
        if context.rank() == 0 {
            let service = serve(context);
            for number in 0..3u8 {
                send(&service, 1, &[number], b"early");
            }
            assert_eq!(receive(&service).1, b"taken");
            send(&service, 1, b"late", &[]);
            context.send(1, 5, b"behind").expect("send");
            assert_eq!(receive(&service).1, b"again");
            send(&service, 1, b"new", &[]);
        } else {
            // The first frames are refused now.
            for _ in 0..fewer(50, 5) {
                context.progress().expect("progress");
                std::thread::sleep(Duration::from_millis(1));
            }
            let service = serve(context);
            let second = context.serve_locally(NUMBER, Endpoint::default());
            assert!(matches!(second, Err(Error::ServiceTaken { service: 0xfff0 })), "{second:?}");
            for number in 0..3u8 {
                assert_eq!(receive(&service), (0, [&[number], &b"early"[..]].concat()));
            }
            send(&service, 0, b"taken", &[]);
            drop(service);
            let mut rest = [0; 6];
            context.recv(Source::Rank(0), Tag::Is(5), &mut rest).expect("behind what is dropped");
            let service = serve(context);
            send(&service, 0, b"again", &[]);
            assert_eq!(receive(&service).1, b"new", "the late one was dropped");
        }
    });
}

/// Says that a word has come, and answers each message while its program computes.
struct Answering(Arc<AtomicU64>);

impl Service for Answering {
    fn message(&mut self, _: u32, _: &[u8], _: &mut Outbox<'_>) {
        panic!("it takes all where they lie");
    }

    fn arrived(
        &mut self,
        from: u32,
        message: &ArrivedMessage<'_>,
        outbox: &mut Outbox<'_>,
    ) -> bool {
        let mut word = [0; 8];
        message.copy_prefix(&mut word);
        self.0.store(u64::from_le_bytes(word), Release);
        if from == answered(message) {
            outbox.send_parts(from, &[&word], private(b"answer")).expect("a rank");
        }
        true
    }
}

/// Who is to be answered.
fn answered(message: &ArrivedMessage<'_>) -> u32 {
    let mut bytes = [0xff; 12];
    message.copy_prefix(&mut bytes);
    u32::from_le_bytes(bytes[8..].try_into().expect("four bytes"))
}

#[test]
fn a_service_answers_while_its_program_computes() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("a_service_answers_while_its_program_computes", layouts, |context| {
        let last = fewer(100, 3) as u64;
        let seen = Arc::new(AtomicU64::new(0));
        let service = context.serve_locally(NUMBER, Answering(Arc::clone(&seen)));
        let service = service.expect("service");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            // Computes until the other has had its answers.
            while seen.load(Acquire) != last {
                std::thread::yield_now();
            }
        }
        for number in (1..=last).filter(|_| context.rank() == 1) {
            let header = [&number.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
            assert!(service.try_send(0, &header, SharedBytes::default()).expect("sent"));
            let answered = |_: &mut Answering, _: &mut Outbox<'_>| {
                (seen.load(Acquire) == number).then_some(())
            };
            service.wait(&[0], answered).expect("an answer");
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_wait_ends_in_time_and_a_message_ends_it_earlier() {
    run("a_wait_ends_in_time_and_a_message_ends_it_earlier", LAYOUTS, |context| {
        let service = serve(context);
        let soon = Duration::from_millis(fewer(20, 2) as u64);
        let begun = context.time();
        let none = service.wait_for(soon, |endpoint, _| endpoint.heads.pop_front());
        assert!(none.expect("no error").is_none());
        assert!(context.time() - begun >= soon.as_secs_f64());
        context.barrier().expect("barrier");
        let next = (context.rank() + 1) % context.ranks();
        send(&service, next, b"one", &[]);
        let long = Duration::from_secs(1 << 40);
        let some = service.wait_for(long, |endpoint, _| endpoint.heads.pop_front());
        assert_eq!(some.expect("no error").expect("in time").1, b"one");
        let zero = service.wait_for(Duration::ZERO, |endpoint, _| endpoint.heads.pop_front());
        assert!(zero.expect("no error").is_none());
        context.barrier().expect("barrier");
    });
}

/// Threads that wait beside one that drives wait no longer than they say either.
#[test]
fn waits_of_several_threads_end_in_time() {
    run("waits_of_several_threads_end_in_time", &[&[1], &[2], &[1, 1]], |context| {
        let service = serve(context);
        std::thread::scope(|scope| {
            for time in [1, 5, 9] {
                let service = &service;
                scope.spawn(move || {
                    let none = service.wait_for(Duration::from_millis(time), |_, _| None::<()>);
                    assert!(none.expect("no error").is_none());
                });
            }
        });
        context.barrier().expect("barrier");
    });
}

/// A context and its service may be everywhere in a process, for ever.
#[test]
fn a_service_lives_as_long_as_its_process() {
    const fn anywhere<T: Send + Sync + 'static>() {}
    const {
        anywhere::<Context>();
        anywhere::<ServiceHandle<'static, Endpoint>>();
        anywhere::<RegisteredMemory<'static>>();
    }
    let context: &'static Context =
        Box::leak(Box::new(Context::init_singleton().expect("singleton")));
    let service: &'static Handle<'static> = Box::leak(Box::new(serve(context)));
    let sent = std::thread::spawn(|| service.try_send(0, b"to", private(b"self")));
    assert!(sent.join().expect("no panic").expect("sent"));
    assert_eq!(receive(service), (0, b"toself".to_vec()));
    let count = AtomicU64::new(0);
    service.call(|_, _| count.fetch_add(1, SeqCst)).expect("service");
    assert_eq!(count.into_inner(), 1);
}

/// The daemon's descriptors are taken over once.
#[test]
#[cfg_attr(miri, ignore = "ranks are threads here and join otherwise")]
fn a_process_joins_its_job_once() {
    run("a_process_joins_its_job_once", &[&[1]], |context| {
        let second = Context::init().expect_err("it has joined");
        let text = second.to_string();
        assert!(text.contains("already"), "{text}");
        assert_eq!(context.rank(), 0);
    });
}
