//! Collectives as requests by address, as bindings begin them, between real processes.

mod common;

use std::ptr::NonNull;

use common::run;
use kumi_mem::{
    CollectiveKind, Context, Error, Group, Op, Report, RequestHandle, SharedBytes, SharedBytesMut,
    Source, Tag,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[3], &[1, 1], &[2, 1, 2]];

/// What is in an output before.
const BEFORE: u64 = 7;

/// Memory for the data that is sent and for the result, in a window or not.
#[derive(Clone, Copy)]
struct Arrays {
    base: *mut u8,
    words: usize,
}

impl Arrays {
    /// Whole words from one of the two halves.
    fn half(self, second: bool, words: usize) -> SharedBytesMut<'static> {
        let half = self.words / 2;
        assert!(words <= half, "too little memory");
        let start = self.base.wrapping_add(if second { half * 8 } else { 0 });
        // SAFETY: memory that stays as long as the test, and is used by its address only.
        unsafe { SharedBytesMut::new(NonNull::new(start).expect("memory"), words * 8) }
    }

    fn begin(
        self,
        group: &Group<'_>,
        kind: CollectiveKind<'_>,
        send: &[u64],
        received: usize,
    ) -> Result<RequestHandle, Error> {
        let (input, output) = (self.half(false, send.len()), self.half(true, received));
        input.copy_from(&bytes_of(send)[..]);
        output.copy_from(&bytes_of(&vec![BEFORE; received])[..]);
        // SAFETY: the memory stays, and none of these is a reduction in place.
        unsafe { group.start_shared::<u64>(kind, input.shared(), output, Op::Sum, Report::Handle) }
    }

    /// The result of a collective that is begun and waited for.
    fn result(
        self,
        (context, group): (&Context, &Group<'_>),
        kind: CollectiveKind<'_>,
        send: &[u64],
        received: usize,
    ) -> Vec<u64> {
        let request = self.begin(group, kind, send, received).expect("begun");
        context.wait(request).expect("over");
        numbers(self.half(true, received).shared())
    }
}

fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn numbers(bytes: SharedBytes<'_>) -> Vec<u64> {
    let mut copy = vec![0; bytes.len()];
    bytes.copy_to(&mut copy);
    copy.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect()
}

fn block(member: u32, length: usize) -> Vec<u64> {
    (0..length as u64).map(|index| u64::from(member + 1) << 32 | index).collect()
}

/// Does each with the collective that waits, and as a request.
fn check_reductions(who: (&Context, &Group<'_>), arrays: Arrays, length: usize) {
    let (_, group) = who;
    let (me, root) = (group.member(), group.members() - 1);
    let (mine, before) = (block(me, length), vec![BEFORE; length]);
    let waited = |call: &dyn Fn(&mut [u64]) -> Result<(), Error>| {
        let mut data = mine.clone();
        call(&mut data).expect("done");
        data
    };
    let sum = waited(&|data| group.allreduce(Op::Sum, data));
    assert!(arrays.result(who, CollectiveKind::Allreduce, &mine, length) == sum);
    let received = if me == root { length } else { 0 };
    let reduced = arrays.result(who, CollectiveKind::Reduce { root }, &mine, received);
    assert!(reduced == if me == root { sum } else { Vec::new() });
    let scanned = waited(&|data| group.scan(Op::Sum, data));
    assert!(arrays.result(who, CollectiveKind::Scan, &mine, length) == scanned);
    let scanned = waited(&|data| group.exclusive_scan(Op::Sum, data));
    let found = arrays.result(who, CollectiveKind::ExclusiveScan, &mine, length);
    assert!(found == if me == 0 { before } else { scanned });
    let whole = block(me, length * group.members() as usize);
    let mut part = vec![0; length];
    group.reduce_scatter(Op::Sum, &whole, &mut part).expect("done");
    assert!(arrays.result(who, CollectiveKind::ReduceScatter, &whole, length) == part);
}

fn check_blocks(who: (&Context, &Group<'_>), arrays: Arrays, length: usize) {
    let (_, group) = who;
    let (me, members, root) = (group.member(), group.members(), group.members() / 2);
    let (mine, all) = (block(me, length), length * members as usize);
    let here = |count| if me == root { count } else { 0 };
    let mut wanted = vec![0; here(all)];
    group.gather(root, &mine, &mut wanted).expect("done");
    assert!(arrays.result(who, CollectiveKind::Gather { root }, &mine, here(all)) == wanted);
    let whole = block(me, all);
    let mut wanted = vec![0; length];
    group.scatter(root, &whole, &mut wanted).expect("done");
    let found = arrays.result(who, CollectiveKind::Scatter { root }, &whole[..here(all)], length);
    assert!(found == wanted);
    let mut wanted = vec![0; all];
    group.allgather(&mine, &mut wanted).expect("done");
    assert!(arrays.result(who, CollectiveKind::Allgather, &mine, all) == wanted);
    group.alltoall(&whole, &mut wanted).expect("done");
    assert!(arrays.result(who, CollectiveKind::Alltoall, &whole, all) == wanted);
    // The data of a broadcast is in the output.
    let (kind, data) = (CollectiveKind::Broadcast { root }, arrays.half(true, length));
    data.copy_from(&bytes_of(&mine)[..]);
    let (none, report) = (SharedBytes::default(), Report::Handle);
    // SAFETY: the memory stays, and nothing is combined.
    let request = unsafe { group.start_shared::<u64>(kind, none, data, Op::Sum, report) };
    who.0.wait(request.expect("begun")).expect("over");
    assert!(numbers(data.shared()) == block(root, length));
}

fn check_counts(who: (&Context, &Group<'_>), arrays: Arrays, length: usize) {
    let (_, group) = who;
    let (me, members, root) = (group.member(), group.members(), group.members() - 1);
    let counts: Vec<usize> = (0..members as usize).map(|member| length + member).collect();
    let (own, all) = (counts[me as usize], counts.iter().sum());
    let here = |count| if me == root { count } else { 0 };
    let (mine, whole, counts) = (block(me, own), block(me, all), &counts[..]);
    let mut wanted = vec![0; here(all)];
    group.gatherv(root, &mine, counts, &mut wanted).expect("done");
    let kind = CollectiveKind::GatherEach { root, counts };
    assert!(arrays.result(who, kind, &mine, here(all)) == wanted);
    let mut wanted = vec![0; own];
    group.scatterv(root, &whole, counts, &mut wanted).expect("done");
    let kind = CollectiveKind::ScatterEach { root, counts };
    assert!(arrays.result(who, kind, &whole[..here(all)], own) == wanted);
    let mut wanted = vec![0; all];
    group.allgatherv(&mine, counts, &mut wanted).expect("done");
    assert!(arrays.result(who, CollectiveKind::AllgatherEach { counts }, &mine, all) == wanted);
    let receive = &vec![own; members as usize][..];
    let mut wanted = vec![0; own * members as usize];
    group.alltoallv(&whole, counts, &mut wanted, receive).expect("done");
    let kind = CollectiveKind::AlltoallEach { send: counts, receive };
    assert!(arrays.result(who, kind, &whole, wanted.len()) == wanted);
    let mut wanted = vec![0; own];
    group.reduce_scatterv(Op::Sum, &whole, counts, &mut wanted).expect("done");
    let kind = CollectiveKind::ReduceScatterEach { counts };
    assert!(arrays.result(who, kind, &whole, own) == wanted);
}

/// All of them, in memory of the program's own and in a window's.
#[test]
fn collectives_by_address_do_what_those_that_wait_do() {
    run("collectives_by_address_do_what_those_that_wait_do", LAYOUTS, |context| {
        let words = 12_000 * context.ranks() as usize;
        let mut own = vec![0u64; words];
        let window = context.window(words * 8).expect("window");
        let job = context.group();
        let half = job.split(Some(context.rank() % 2), 0).expect("split").expect("a colour");
        for base in [own.as_mut_ptr().cast(), window.base()] {
            let arrays = Arrays { base, words };
            for (group, length) in [(&job, 1), (&half, 3), (&job, 5000)] {
                check_reductions((context, group), arrays, length);
                check_blocks((context, group), arrays, length);
                check_counts((context, group), arrays, length);
            }
        }
        let wrong = Arrays { base: window.base(), words };
        let more = wrong.begin(&job, CollectiveKind::Allgather, &[1; 2], 1);
        assert!(matches!(more, Err(Error::BadLength { given: 1, .. })), "{more:?}");
        let root = context.ranks();
        let member = wrong.begin(&job, CollectiveKind::Gather { root }, &[1], 0);
        assert!(matches!(member, Err(Error::BadMember { .. })), "{member:?}");
        let short = wrong.begin(&job, CollectiveKind::Allreduce, &[1; 2], 1);
        assert!(matches!(short, Err(Error::BadLength { .. })), "{short:?}");
        context.barrier().expect("barrier");
    });
}

/// Both arrays are lent from the start to the end, or until the request is released.
#[test]
fn arrays_are_lent_until_their_collective_is_over() {
    run("arrays_are_lent_until_their_collective_is_over", &[&[2], &[1, 1]], |context| {
        let (mut own, job) = (vec![0u64; 64], context.group());
        let arrays = Arrays { base: own.as_mut_ptr().cast(), words: 64 };
        let lent = || {
            let place = |second| arrays.half(second, 8).as_ptr();
            [false, true].map(|second| context.lends(place(second), 8))
        };
        if context.rank() == 1 {
            context.recv(Source::Rank(0), Tag::Is(1), &mut []).expect("receive");
        }
        let sum = arrays.begin(&job, CollectiveKind::Allreduce, &[3; 8], 8).expect("begun");
        if context.rank() == 0 {
            assert_eq!(lent(), [false, true], "what is sent was copied");
            context.send(1, 1, &[]).expect("send");
        }
        context.wait(sum).expect("over");
        assert_eq!(lent(), [false; 2]);
        assert_eq!(numbers(arrays.half(true, 8).shared()), [6; 8]);
        context.barrier().expect("barrier");
        let copy = job.duplicate().expect("duplicate");
        if context.rank() == 0 {
            let all = arrays.begin(&copy, CollectiveKind::Allgather, &[3; 8], 16).expect("begun");
            assert_eq!(lent(), [true; 2]);
            context.release(all).expect("there");
            assert_eq!(lent(), [false; 2]);
        }
        context.barrier().expect("barrier");
    });
}
