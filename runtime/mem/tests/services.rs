//! Services between real processes: on one node, on several, and over a bad wire.

mod common;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::scope;

use common::{Job, Numbers, closed_gate, run, start};
use kumi_mem::{
    Context, Error, Outbox, SERVICE_MESSAGE_BYTES, Service, ServiceHandle, Source, Tag,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[3], &[2, 2]];

/// Keeps what comes.
#[derive(Default)]
struct Inbox(VecDeque<(u32, Vec<u8>)>);

impl Service for Inbox {
    fn message(&mut self, from: u32, message: &[u8], _: &mut Outbox) {
        self.0.push_back((from, message.to_vec()));
    }
}

fn send<S: Service>(service: &ServiceHandle<'_, S>, to: u32, message: &[u8]) {
    service.call(|_, outbox| outbox.send(to, message.to_vec())).expect("service").expect("sent");
}

fn receive(service: &ServiceHandle<'_, Inbox>) -> (u32, Vec<u8>) {
    service.wait(&[], |inbox, _| inbox.0.pop_front()).expect("a message")
}

/// A token that goes round, whose bytes grow.
#[test]
fn a_message_goes_round() {
    run("a_message_goes_round", LAYOUTS, |context| {
        let rounds = if cfg!(miri) { 3 } else { 40 };
        let (me, ranks) = (context.rank(), context.ranks());
        let service = context.serve_with(Inbox::default()).expect("service");
        if me == 0 {
            send(&service, 1 % ranks, &[1]);
        }
        for _ in 0..rounds {
            let (from, mut message) = receive(&service);
            assert_eq!((from, message.len() as u32 % ranks), ((me + ranks - 1) % ranks, me));
            message.push(1);
            send(&service, (me + 1) % ranks, &message);
        }
        // The last rank 0 has sent is one more than all take.
        if me == 1 % ranks {
            assert_eq!(receive(&service).1.len() as u32, rounds * ranks + 1);
        }
        context.barrier().expect("barrier");
    });
}

/// What the message with this number from a rank to another has.
fn made(from: u32, to: u32, number: u32, most: u64) -> Vec<u8> {
    let mut numbers = Numbers(u64::from(from * 1_000_003 + to * 1_009 + number));
    let length = numbers.below(if number.is_multiple_of(8) { most } else { 100 });
    let mut message = number.to_le_bytes().to_vec();
    message.extend((0..length).map(|at| (at as u32 * 7 + from + number) as u8));
    message
}

/// Every rank sends long and short messages by two services to every rank, itself included, and nobody takes anything before
/// all is sent. Each service gets those of a rank in order.
fn all_to_all(context: &Context) {
    let (messages, most) = if cfg!(miri) { (4, 9_000) } else { (32, 300_000) };
    let (me, ranks) = (context.rank(), context.ranks());
    let services = [0, 1].map(|_| context.serve_with(Inbox::default()).expect("service"));
    for number in 0..messages {
        for to in 0..ranks {
            let message = made(me, to, number, most);
            send(&services[number as usize % 2], to, &message);
        }
    }
    for (parity, service) in (0..).zip(&services) {
        let mut next = vec![parity; ranks as usize];
        for _ in 0..ranks * messages / 2 {
            let (from, message) = receive(service);
            let number = &mut next[from as usize];
            assert!(message == made(from, me, *number, most), "{number} of rank {from}");
            *number += 2;
        }
    }
    context.barrier().expect("barrier");
    let left = services[0].call(|inbox, _| inbox.0.len()).expect("service");
    assert_eq!(left, 0, "each comes once");
}

#[test]
fn messages_of_any_length_come_once_whole_and_in_order() {
    run("messages_of_any_length_come_once_whole_and_in_order", LAYOUTS, all_to_all);
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn messages_come_over_a_bad_wire() {
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=30,late=20,seed=4")];
    let job = Job { layout: &[2, 1], env, ..Job::default() };
    start("messages_come_over_a_bad_wire", &job, all_to_all).finish_on_a_bad_wire();
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn messages_come_to_ranks_that_block_at_once() {
    let job = Job { layout: &[2, 1], env: &[("KUMI_SPIN", "0")], ..Job::default() };
    start("messages_come_to_ranks_that_block_at_once", &job, all_to_all).finish();
}

#[test]
#[cfg_attr(miri, ignore = "16 MiB byte by byte")]
fn the_longest_message_comes_and_a_longer_one_is_refused() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("the_longest_message_comes_and_a_longer_one_is_refused", layouts, |context| {
        let service = context.serve_with(Inbox::default()).expect("service");
        let longest = vec![9; SERVICE_MESSAGE_BYTES];
        if context.rank() == 0 {
            let longer = vec![9; SERVICE_MESSAGE_BYTES + 1];
            let result = service.call(|_, outbox| outbox.send(1, longer)).expect("service");
            assert!(matches!(result, Err(Error::ServiceMessageTooLong { .. })), "{result:?}");
            send(&service, 1, &longest);
            send(&service, 1, b"behind");
        } else {
            assert!(receive(&service) == (0, longest));
            assert_eq!(receive(&service), (0, b"behind".to_vec()));
        }
        context.barrier().expect("barrier");
    });
}

/// Counts for others: answers each question with its number, and ends its rank's computation when told to.
struct Counting {
    count: u64,
    answers: Vec<u64>,
    over: Arc<AtomicBool>,
}

impl Service for Counting {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        match message {
            b"count" => {
                self.count += 1;
                outbox.send(from, self.count.to_le_bytes().to_vec()).expect("a rank");
            }
            b"over" => self.over.store(true, SeqCst),
            answer => {
                self.answers.push(u64::from_le_bytes(answer.try_into().expect("8 bytes")));
            }
        }
    }
}

/// Rank 0 computes until another rank's message ends that, and makes no call meanwhile. Its service answers all the same, also
/// more than a ring holds.
#[test]
#[cfg_attr(miri, ignore = "a thread that computes keeps the others from running")]
fn a_rank_that_computes_answers() {
    const QUESTIONS: u64 = 3_000;
    let layouts: &[&[u32]] = &[&[2], &[1, 1], &[2, 1]];
    run("a_rank_that_computes_answers", layouts, |context| {
        let over = Arc::new(AtomicBool::new(false));
        let counting = Counting { count: 0, answers: Vec::new(), over: Arc::clone(&over) };
        let service = context.serve_with(counting).expect("service");
        if context.rank() == 0 {
            while !over.load(SeqCst) {
                std::hint::spin_loop();
            }
        }
        if context.rank() == 1 {
            // One after the other, then all at once.
            for number in 1..=20 {
                send(&service, 0, b"count");
                let answer = service.wait(&[0], |service, _| service.answers.pop());
                assert_eq!(answer.expect("an answer"), number);
            }
            for _ in 0..QUESTIONS {
                send(&service, 0, b"count");
            }
            let enough = |service: &mut Counting, _: &mut Outbox| {
                let all = service.answers.len() as u64 == QUESTIONS;
                all.then(|| std::mem::take(&mut service.answers))
            };
            let answers = service.wait(&[0], enough).expect("answers");
            assert_eq!(answers, (21..21 + QUESTIONS).collect::<Vec<_>>());
            send(&service, 0, b"over");
        }
        context.barrier().expect("barrier");
    });
}

/// Threads of a rank wait for their own messages, and one for what another thread does.
#[test]
fn threads_wait_at_once() {
    const THREADS: u8 = 4;
    run("threads_wait_at_once", LAYOUTS, |context| {
        let rounds = if cfg!(miri) { 2 } else { 50 };
        let (me, ranks) = (context.rank(), context.ranks());
        let service = &context.serve_with(Inbox::default()).expect("service");
        let mine = |inbox: &mut Inbox, thread: u8| {
            let at = inbox.0.iter().position(|(_, message)| message[0] == thread)?;
            inbox.0.remove(at)
        };
        scope(|threads| {
            for thread in 0..THREADS {
                threads.spawn(move || {
                    for round in 0..rounds {
                        send(service, (me + 1) % ranks, &[thread, round]);
                        let came = service.wait(&[], |inbox, _| mine(inbox, thread));
                        let came = came.expect("a message");
                        assert_eq!(came, ((me + ranks - 1) % ranks, vec![thread, round]));
                    }
                    // For the thread that waits below.
                    let put = |inbox: &mut Inbox, _: &mut Outbox| {
                        inbox.0.push_back((me, vec![THREADS + thread]));
                    };
                    service.call(put).expect("service");
                });
            }
            for thread in 0..THREADS {
                let came = service.wait(&[me], |inbox, _| mine(inbox, THREADS + thread));
                assert_eq!(came.expect("a message").0, me);
            }
        });
        context.barrier().expect("barrier");
    });
}

/// Asks what is asked of it only once, and sends when it is asked.
#[test]
fn a_wait_asks_at_once_and_when_something_has_changed() {
    run("a_wait_asks_at_once_and_when_something_has_changed", &[&[1]], |context| {
        let service = context.serve_with(Inbox::default()).expect("service");
        let mut asked = 0;
        let ready = |inbox: &mut Inbox, outbox: &mut Outbox| {
            asked += 1;
            if asked < 4 {
                outbox.send(0, vec![asked]).expect("a rank");
                return None;
            }
            Some(inbox.0.len())
        };
        assert_eq!(service.wait(&[0], ready).expect("asked again"), 3);
        assert_eq!(asked, 4);
        let result = service.wait(&[1], |_, _| Some(()));
        assert!(matches!(result, Err(Error::BadRank { rank: 1, ranks: 1 })), "{result:?}");
    });
}

/// Messages that nobody receives fill the mailbox, in front of the message that is waited for.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_wait_is_not_held_up_by_messages_that_nobody_receives() {
    const MESSAGES: usize = 60;
    for layout in [&[2][..], &[1, 1]] {
        let env: &[(&str, &str)] = &[("KUMI_UNEXPECTED_BYTES", "20000")];
        let job = Job { layout, env, ..Job::default() };
        let body = |context: &Context| {
            let service = context.serve_with(Inbox::default()).expect("service");
            for ranks in [&[1][..], &[]] {
                if context.rank() == 1 {
                    for _ in 0..MESSAGES {
                        context.send(0, 9, &[1; 1000]).expect("send");
                    }
                    send(&service, 0, b"behind");
                } else {
                    let came = service.wait(ranks, |inbox, _| inbox.0.pop_front());
                    assert_eq!(came.expect("a message"), (1, b"behind".to_vec()));
                    for _ in 0..MESSAGES {
                        context.recv_vec(Source::Rank(1), Tag::Is(9)).expect("receive");
                    }
                }
                context.barrier().expect("barrier");
            }
        };
        start("a_wait_is_not_held_up_by_messages_that_nobody_receives", &job, body).finish();
    }
}

/// What comes for a service that is gone at this rank is dropped. Others, and later ones, go on.
#[test]
fn a_service_that_is_gone_gets_nothing() {
    let layouts: &[&[u32]] = &[&[1, 1], &[2]];
    run("a_service_that_is_gone_gets_nothing", layouts, |context| {
        let long = if cfg!(miri) { 3_000 } else { 100_000 };
        let stays = context.serve_with(Inbox::default()).expect("service");
        let goes = context.serve_with(Inbox::default()).expect("service");
        if context.rank() == 0 {
            drop(goes);
            context.barrier().expect("barrier");
            assert_eq!(receive(&stays), (1, b"behind".to_vec()));
        } else {
            context.barrier().expect("barrier");
            send(&goes, 0, &vec![1; long]);
            send(&goes, 0, b"lost");
            send(&stays, 0, b"behind");
            drop(goes);
        }
        let later = context.serve_with(Inbox::default()).expect("service");
        send(&later, 1 - context.rank(), b"new");
        assert_eq!(receive(&later).1, b"new");
        context.barrier().expect("barrier");
    });
}

/// Panics when it is told to.
struct Fragile;

impl Service for Fragile {
    fn message(&mut self, _: u32, message: &[u8], _: &mut Outbox) {
        assert_ne!(message, b"panic", "told to");
    }
}

fn panicked<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::ServicePanicked { text, .. }) if text.contains("told to"))
}

#[test]
fn a_panic_is_told_and_ends_nothing_else() {
    let layouts: &[&[u32]] = &[&[1, 1], &[2]];
    run("a_panic_is_told_and_ends_nothing_else", layouts, |context| {
        let last = context.ranks() - 1;
        let fragile = context.serve_with(Fragile).expect("service");
        let inbox = context.serve_with(Inbox::default()).expect("service");
        if context.rank() == 0 {
            for message in [&b"good"[..], b"panic", b"dropped"] {
                send(&fragile, last, message);
            }
            send(&inbox, last, b"behind");
        }
        if context.rank() == last {
            assert_eq!(receive(&inbox), (0, b"behind".to_vec()));
            assert!(panicked(&context.progress()), "the program's next call");
            context.progress().expect("told once");
            assert!(panicked(&fragile.call(|_, _| ())), "by its handle always");
            assert!(panicked(&fragile.wait(&[], |_, _| Some(()))));
        }
        context.barrier().expect("barrier");
    });
}

/// A panic of the program's part comes out of its call, and the channel is free.
#[test]
fn a_panic_of_a_call_or_a_wait_goes_on_in_its_caller() {
    run("a_panic_of_a_call_or_a_wait_goes_on_in_its_caller", &[&[1, 1], &[2]], |context| {
        let services = [0, 1].map(|_| context.serve_with(Fragile).expect("service"));
        let called = || services[0].call(|_, _| panic!("told to"));
        let waited = || services[1].wait(&[], |_, _| panic!("told to"));
        let panics: [&dyn Fn() -> Result<(), Error>; 2] = [&called, &waited];
        for panics in panics {
            catch_unwind(AssertUnwindSafe(panics)).map(drop).expect_err("a panic");
            context.barrier().expect("barrier");
        }
        assert!(services.iter().all(|service| panicked(&service.call(|_, _| ()))));
    });
}

/// A rank is idle while it waits for its service, and one that computes is not, though its service answers.
#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn who_waits_for_a_service_is_idle_and_nobody_else() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        let service = context.serve_with(Inbox::default()).expect("service");
        if context.rank() == 0 {
            while closed_gate(window.base() as usize) {}
            send(&service, 1, b"go on");
        } else {
            assert_eq!(receive(&service), (0, b"go on".to_vec()));
        }
        // Nothing more comes.
        let _: Result<(), Error> = service.wait(&[], |_, _| None);
    };
    for layout in [&[2][..], &[1, 1]] {
        let job = Job { layout, ..Job::default() };
        let job = start("who_waits_for_a_service_is_idle_and_nobody_else", &job, body);
        let all_is_there = |job: &common::Running| job.total("sent") == job.total("delivered");
        job.until("idle while the other one computes", |job| {
            job.sample(1).idle && !job.sample(0).idle && all_is_there(job)
        });
        job.until("both idle", |job| {
            // Again and again, since the window may only just be made.
            job.open_gate();
            job.sample(0).idle && job.sample(1).idle && all_is_there(job)
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(job.sample(0).idle && job.sample(1).idle, "a deadlock stays one");
    }
}

/// A wait that the program interrupts leaves its service as it is.
#[test]
fn an_interrupted_wait_can_be_repeated() {
    let layouts: &[&[u32]] = &[&[1], &[2]];
    run("an_interrupted_wait_can_be_repeated", layouts, |context| {
        let service = context.serve_with(Inbox::default()).expect("service");
        let asked = AtomicBool::new(false);
        // Once only, or no later wait would end.
        let ask = move || !asked.swap(true, SeqCst);
        context.interruptible(std::time::Duration::from_millis(1), ask).expect("a thread");
        let result = service.wait(&[], |_, _| None::<()>);
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        let next = (context.rank() + 1) % context.ranks();
        send(&service, next, b"after it");
        assert_eq!(receive(&service).1, b"after it");
        context.barrier().expect("barrier");
    });
}

/// A handle is for all threads of a program, whatever its service is.
#[test]
fn a_handle_can_be_shared() {
    struct Unshared(#[expect(dead_code, reason = "its type is what matters")] std::cell::Cell<u8>);
    impl Service for Unshared {
        fn message(&mut self, _: u32, _: &[u8], _: &mut Outbox) {}
    }
    fn shareable<T: Sync + Send>() {}
    shareable::<ServiceHandle<'_, Unshared>>();
}
