//! Groups and their collectives, between real processes, over shared memory and UDP.

mod common;

use common::{Job, Numbers, fewer, run, start};
use kumi_mem::{CollectiveRequest, Context, Error, Group, Op, Report, Source, Tag, UserOp};

/// One rank, one node, several nodes, both; as many on each node, and not.
const LAYOUTS: &[&[u32]] = &[&[1], &[3], &[1, 1], &[2, 2], &[3, 1, 2], &[4, 4]];

/// A number of the element of a member's block.
fn element(member: u32, index: usize) -> u64 {
    (u64::from(member) << 32) | index as u64
}

fn block(member: u32, length: usize) -> Vec<u64> {
    (0..length).map(|index| element(member, index)).collect()
}

fn sum_up_to(members: u32, index: usize) -> u64 {
    (0..members).map(|member| element(member, index)).sum()
}

/// Whether these are the sums of the data of the first members, from an index on.
fn are_sums(data: &[u64], members: u32, from: usize) -> bool {
    data.iter().zip(from..).all(|(value, index)| *value == sum_up_to(members, index))
}

fn check_reductions(group: &Group<'_>, length: usize) {
    let (me, members) = (group.member(), group.members());
    let root = members / 2;
    let mut data = block(me, length);
    group.allreduce(Op::Sum, &mut data).expect("allreduce");
    assert!(are_sums(&data, members, 0));
    let mut data = block(me, length);
    group.reduce(root, Op::Sum, &mut data).expect("reduce");
    assert!(me != root || are_sums(&data, members, 0));
    let mut data = block(me, length);
    group.scan(Op::Sum, &mut data).expect("scan");
    assert!(are_sums(&data, me + 1, 0));
    let mut data = block(me, length);
    group.exclusive_scan(Op::Sum, &mut data).expect("exclusive scan");
    assert!(if me == 0 { data == block(0, length) } else { are_sums(&data, me, 0) });
    let mut part = vec![0; length];
    let whole = block(me, length * members as usize);
    group.reduce_scatter(Op::Sum, &whole, &mut part).expect("reduce-scatter");
    assert!(are_sums(&part, members, me as usize * length));
}

fn check_blocks(group: &Group<'_>, length: usize) {
    let (me, members) = (group.member(), group.members());
    let root = members - 1;
    let all: Vec<u64> = (0..members).flat_map(|member| block(member, length)).collect();
    let mut data = block(me, length);
    group.broadcast(root, &mut data).expect("broadcast");
    assert!(data == block(root, length));
    let mut gathered = vec![0; if me == root { all.len() } else { 0 }];
    group.gather(root, &block(me, length), &mut gathered).expect("gather");
    assert!(me != root || gathered == all);
    let mut mine = vec![0; length];
    group.scatter(root, if me == root { &all } else { &[] }, &mut mine).expect("scatter");
    assert!(mine == block(me, length));
    let mut gathered = vec![0; all.len()];
    group.allgather(&mine, &mut gathered).expect("allgather");
    assert!(gathered == all);
    let mut exchanged = vec![0; all.len()];
    group.alltoall(&block(me, all.len()), &mut exchanged).expect("alltoall");
    let wanted = |from| (0..length).map(move |index| element(from, me as usize * length + index));
    assert!((0..members).flat_map(wanted).eq(exchanged));
}

/// Blocks of member times `step` elements.
fn check_blocks_of_all_lengths(group: &Group<'_>, step: usize) {
    let (me, members) = (group.member(), group.members());
    let counts: Vec<usize> = (0..members as usize).map(|member| member * step).collect();
    let all: Vec<u64> = (0..members).flat_map(|it| block(it, counts[it as usize])).collect();
    let mine = block(me, counts[me as usize]);
    let mut gathered = vec![0; all.len()];
    group.gatherv(0, &mine, &counts, &mut gathered).expect("gatherv");
    assert!(me != 0 || gathered == all);
    let mut part = vec![0; mine.len()];
    group.scatterv(0, &all, &counts, &mut part).expect("scatterv");
    assert!(part == mine);
    let mut gathered = vec![0; all.len()];
    group.allgatherv(&mine, &counts, &mut gathered).expect("allgatherv");
    assert!(gathered == all);
    let whole = block(me, all.len());
    group.reduce_scatterv(Op::Sum, &whole, &counts, &mut part).expect("reduce-scatterv");
    assert!(are_sums(&part, members, counts[..me as usize].iter().sum()));
}

/// Elements of a block. All but the first do not fit into one packet under Miri, either.
const LENGTHS: &[usize] = if cfg!(miri) { &[1, 300] } else { &[0, 1, 5, 100, 5000, 70_000] };
const STEPS: &[usize] = if cfg!(miri) { &[50] } else { &[1, 50, 20_000] };

fn check_all(group: &Group<'_>) {
    for length in LENGTHS {
        check_reductions(group, *length);
        check_blocks(group, *length);
    }
    for step in STEPS {
        check_blocks_of_all_lengths(group, *step);
    }
    group.barrier().expect("barrier");
}

#[test]
fn groups_give_the_right_results() {
    run("groups_give_the_right_results", LAYOUTS, |context| {
        let (me, job) = (context.rank(), context.group());
        check_all(&job);
        // Odd and even ones, the last first.
        let half = job.split(Some(me % 2), -i64::from(me)).expect("split").expect("a colour");
        assert_eq!(half.members(), (context.ranks() + 1 - me % 2) / 2);
        for member in 0..half.members() {
            let rank = half.rank_of(member).expect("a member");
            assert_eq!((rank % 2, half.member_of(rank)), (me % 2, Some(member)));
            assert!(member == 0 || rank < half.rank_of(member - 1).expect("a member"));
        }
        assert_eq!(half.member_of(me ^ 1), None);
        check_all(&half);
        // Those of a node, and of these the first of each.
        let node = job.split(Some(context.node()), 0).expect("split").expect("a colour");
        assert!((0..node.members()).all(|it| context.same_node(node.rank_of(it).expect("member"))));
        check_all(&node);
        let colour = (node.member() == 0).then_some(7);
        if let Some(leaders) = job.split(colour, 0).expect("split") {
            check_all(&leaders);
        } else {
            assert_ne!(node.member(), 0);
        }
        check_all(&job.duplicate().expect("duplicate"));
    });
}

#[test]
fn groups_do_not_mix() {
    run("groups_do_not_mix", &[&[4], &[2, 2], &[1, 1, 1]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let job = context.group();
        let copy = job.duplicate().expect("duplicate");
        let reversed: Vec<u32> = (0..ranks).rev().collect();
        let reversed = job.subset(&reversed).expect("subset").expect("all are in it");
        assert_eq!(reversed.member(), ranks - 1 - me);
        // What some send in one group waits while others are still in another.
        for round in 0..if cfg!(miri) { 4 } else { 300u32 } {
            let mut data = [round];
            if me == 0 {
                job.broadcast(0, &mut data).expect("broadcast");
                copy.broadcast(0, &mut [round + 1]).expect("broadcast");
                reversed.broadcast(ranks - 1, &mut [round + 2]).expect("broadcast");
                continue;
            }
            let mut others = [0, 0];
            reversed.broadcast(ranks - 1, &mut others[..1]).expect("broadcast");
            copy.broadcast(0, &mut others[1..]).expect("broadcast");
            job.broadcast(0, &mut data).expect("broadcast");
            assert_eq!((data, others), ([round], [round + 2, round + 1]));
        }
        // And a program's messages are not the library's.
        let next = (me + 1) % ranks;
        context.send(next, 5, b"own").expect("send");
        let mut sum = [1u8];
        copy.allreduce(Op::Sum, &mut sum).expect("allreduce");
        assert_eq!(u32::from(sum[0]), ranks);
        assert_eq!(context.recv_vec(Source::Any, Tag::Any).expect("receive").1, b"own");
    });
}

/// 2 by 2 matrices, whose product depends on the order.
fn multiply(into: &mut [u64], other: &[u64]) {
    for (a, b) in into.chunks_exact_mut(4).zip(other.chunks_exact(4)) {
        let product = |row: usize, column: usize| {
            let (left, right) = (a[2 * row].wrapping_mul(b[column]), a[2 * row + 1]);
            left.wrapping_add(right.wrapping_mul(b[2 + column]))
        };
        let product = [product(0, 0), product(0, 1), product(1, 0), product(1, 1)];
        a.copy_from_slice(&product);
    }
}

#[test]
fn operations_of_the_program() {
    run("operations_of_the_program", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let matrix = |member: u32| {
            let mut numbers = Numbers(u64::from(member));
            [(); 4].map(|()| numbers.next())
        };
        let job = context.group();
        // Members of a node that do not follow one another.
        let mixed = job.split(Some(0), i64::from(me % 2)).expect("split").expect("a colour");
        for group in [&job, &mixed] {
            let mut wanted = matrix(0);
            (1..group.members()).for_each(|member| multiply(&mut wanted, &matrix(member)));
            // Much data is not cut inside of a matrix, since pieces are for commutative operations only.
            for count in [1, fewer(20_000, 100)] {
                let mine = matrix(group.member()).repeat(count);
                let mut product = mine.clone();
                group.allreduce(UserOp::ordered(multiply), &mut product).expect("allreduce");
                assert!(product == wanted.repeat(count));
                let mut product = mine.clone();
                group.reduce(ranks - 1, UserOp::ordered(multiply), &mut product).expect("reduce");
                assert!(group.member() != ranks - 1 || product == wanted.repeat(count));
            }
        }
        let most = |into: &mut [i32], other: &[i32]| {
            into.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
        };
        let mut data = vec![me as i32; fewer(50_000, 1_000)];
        job.allreduce(UserOp::commutative(most), &mut data).expect("allreduce");
        assert!(data.iter().all(|value| *value == ranks as i32 - 1));
        let floats = job.scan(Op::BitXor, &mut [1.0f32]);
        assert!(matches!(floats, Err(Error::BadOperation { .. })), "{floats:?}");
    });
}

#[test]
fn members_that_disagree_are_told() {
    for layout in [&[2][..], &[1, 1]] {
        let body = |context: &Context| {
            let me = context.rank();
            let copies: Vec<_> =
                (0..3).map(|_| context.group().duplicate().expect("duplicate")).collect();
            // Rank 1 waits in vain; rank 0 has sent and goes on.
            let mut data = [0u64; 2];
            if me == 0 {
                copies[0].broadcast(0, &mut data).expect("sent");
                copies[1].broadcast(0, &mut data).expect("sent");
                copies[2].gather(1, &data, &mut []).expect("sent");
            } else {
                let other = copies[0].barrier();
                let told = matches!(
                    other,
                    Err(Error::GroupDisagrees { rank: 0, theirs: "broadcast", ours: "barrier" })
                );
                assert!(told, "{other:?}");
                let shorter = copies[1].broadcast(0, &mut data[..1]);
                let told = matches!(shorter, Err(Error::BadLength { given: 16, needed: 8, .. }));
                assert!(told, "{shorter:?}");
                let root = copies[2].scatter(0, &[], &mut data);
                let told = matches!(root, Err(Error::GroupDisagrees { theirs: "gather", .. }));
                assert!(told, "{root:?}");
            }
            context.barrier().expect("other groups go on");
        };
        let name = "members_that_disagree_are_told";
        start(name, &Job { layout, ..Job::default() }, body).finish();
    }
}

/// So it is when the calls are requests: whether the other's message has come before, or comes while this rank waits.
#[test]
fn members_that_disagree_in_requests_are_told() {
    run("members_that_disagree_in_requests_are_told", &[&[2], &[1, 1]], |context| {
        let (me, job) = (context.rank(), context.group());
        let copies: Vec<_> = (0..3).map(|_| job.duplicate().expect("duplicate")).collect();
        let tell = || context.send(1 - me, 3, &[]).expect("send");
        let told = || context.recv(Source::Rank(1 - me), Tag::Is(3), &mut []).expect("receive");
        if me == 0 {
            copies[0].start_broadcast(0, vec![5u64; 2]).expect("begun").wait().expect("sent");
            tell();
            told();
            copies[1].start_broadcast(0, vec![5u64; 2]).expect("begun").wait().expect("sent");
            copies[2].start_gather(1, vec![5u64; 2]).expect("begun").wait().expect("sent");
        } else {
            told();
            let after = copies[0].start_barrier(Report::Handle).expect("begun");
            let before = copies[1].start_barrier(Report::Handle).expect("begun");
            let root = copies[2].start_scatter(0, vec![0u64; 0], 2).expect("begun");
            tell();
            for barrier in [after, before] {
                let other = context.wait(barrier);
                let right = matches!(
                    other,
                    Err(Error::GroupDisagrees { rank: 0, theirs: "broadcast", ours: "barrier" })
                );
                assert!(right, "{other:?}");
            }
            let other = root.wait();
            let right = matches!(other, Err(Error::GroupDisagrees { theirs: "gather", .. }));
            assert!(right, "{other:?}");
        }
        assert_eq!(context.requests().expect("channel"), 0);
        job.barrier().expect("other groups go on");
    });
}

/// The message of a broadcast that was given up is no later one's, though tags come again.
#[test]
fn what_was_given_up_is_nobody_elses() {
    // Its 127 barriers are quick in shared memory only, under Miri.
    let layouts: &[&[u32]] = if cfg!(miri) { &[&[2]] } else { &[&[2], &[1, 1]] };
    run("what_was_given_up_is_nobody_elses", layouts, |context| {
        let (me, job) = (context.rank(), context.group());
        let group = job.duplicate().expect("duplicate");
        if me == 0 {
            context.recv(Source::Rank(1), Tag::Is(3), &mut []).expect("receive");
            group.start_broadcast(0, vec![1u64]).expect("begun").wait().expect("sent");
        } else {
            drop(group.start_broadcast(0, vec![1u64]).expect("begun"));
            context.send(0, 3, &[]).expect("send");
        }
        for _ in 0..127 {
            let barrier = group.start_barrier(Report::Handle).expect("begun");
            context.wait(barrier).expect("barrier");
        }
        let next = group.start_broadcast(0, vec![2u64]);
        if me == 0 {
            next.expect("begun").wait().expect("sent");
        } else {
            assert!(matches!(next, Err(Error::TooManyRequests { most: 128 })), "{next:?}");
        }
        job.barrier().expect("other groups go on");
    });
}

#[test]
fn wrong_members_are_refused_at_all() {
    run("wrong_members_are_refused_at_all", &[&[3], &[2, 1]], |context| {
        let (me, job) = (context.rank(), context.group());
        for wrong in [&[0, 0][..], &[0, 3]] {
            let list = if me == 1 { wrong } else { &[0, 1] };
            let result = job.subset(list).map(drop);
            assert!(matches!(result, Err(Error::BadMembers { member: 1, .. })), "{result:?}");
        }
        let other = job.subset(if me == 2 { &[1, 2] } else { &[2, 1] }).map(drop);
        assert!(matches!(other, Err(Error::BadMembers { .. })), "{other:?}");
        let pair = job.subset(&[2, 0]).expect("subset");
        assert_eq!(pair.as_ref().map(Group::member), [Some(1), None, Some(0)][me as usize]);
        let none = job.split(None, 0).expect("split");
        assert!(none.is_none());
        if let Some(pair) = pair {
            check_reductions(&pair, 3);
            let result = pair.broadcast(2, &mut [0u8]);
            let told = matches!(result, Err(Error::BadMember { member: 2, members: 2 }));
            assert!(told, "{result:?}");
            assert!(matches!(pair.rank_of(2), Err(Error::BadMember { .. })));
        }
        let counts = job.allgatherv(&[0u8; 2], &[2, 2], &mut [0; 4]);
        assert!(matches!(counts, Err(Error::BadLength { given: 2, needed: 3, .. })), "{counts:?}");
        let root = context.broadcast(3, &mut [0u8]);
        assert!(matches!(root, Err(Error::BadRank { rank: 3, ranks: 3 })), "{root:?}");
        job.barrier().expect("barrier");
    });
}

/// Nothing waits for others when a collective is begun as a request, not even in a job's first one.
#[test]
fn beginning_waits_for_nobody() {
    run("beginning_waits_for_nobody", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let job = context.group();
        if me > 0 {
            context.recv(Source::Rank(me - 1), Tag::Is(1), &mut []).expect("receive");
        }
        let barrier = job.start_barrier(Report::Handle).expect("begun");
        let sum = job.start_allreduce(Op::Sum, vec![me; 3]).expect("begun");
        if me + 1 < ranks {
            context.send(me + 1, 1, &[]).expect("send");
        }
        assert_eq!(sum.wait().expect("sum"), [ranks * (ranks - 1) / 2; 3]);
        context.wait(barrier).expect("barrier");
    });
}

/// Begins one of each, of two groups at once, and waits for them the other way round.
#[test]
fn collectives_go_on_by_themselves() {
    run("collectives_go_on_by_themselves", LAYOUTS, |context| {
        let job = context.group();
        let half = job.split(Some(context.rank() % 2), 0).expect("split").expect("a colour");
        for length in [1, 40, fewer(9000, 300)] {
            let begun: Vec<_> = [&job, &half].map(|group| Begun::all(group, length)).into();
            // One that waits, among those that are under way.
            check_reductions(&job, length);
            for (begun, group) in begun.into_iter().zip([&job, &half]).rev() {
                begun.check(group, length);
            }
        }
        // Under Miri 128 barriers at a time take minutes.
        if !cfg!(miri) {
            check_the_most(context, &half);
        }
        let wrong = job.start_broadcast(context.ranks(), vec![0u8]).map(drop);
        assert!(matches!(wrong, Err(Error::BadMember { .. })), "{wrong:?}");
        let floats = job.start_allreduce(Op::BitAnd, vec![1.0f64]).map(drop);
        assert!(matches!(floats, Err(Error::BadOperation { .. })), "{floats:?}");
    });
}

/// More cannot be under way at a member, here the first, which the others keep waiting.
fn check_the_most(context: &Context, group: &Group<'_>) {
    let first = group.rank_of(0).expect("a member");
    if group.member() > 0 {
        context.recv(Source::Rank(first), Tag::Is(2), &mut []).expect("receive");
    }
    let begin = || group.start_barrier(Report::Handle);
    let most: Vec<_> = (0..128).map(|_| begin().expect("begun")).collect();
    if group.member() == 0 && group.members() > 1 {
        let more = begin();
        assert!(matches!(more, Err(Error::TooManyRequests { most: 128 })), "{more:?}");
        let waits = group.barrier();
        assert!(matches!(waits, Err(Error::TooManyRequests { most: 128 })), "{waits:?}");
        for member in 1..group.members() {
            let rank = group.rank_of(member).expect("a member");
            context.send(rank, 2, &[]).expect("send");
        }
    }
    for result in context.wait_all(&most).expect("all") {
        result.expect("barrier");
    }
    group.barrier().expect("barrier");
}

/// What fails when it is begun is no call of the group: the rank that begins it once more meets the others.
#[test]
fn a_start_that_fails_counts_for_nothing() {
    run("a_start_that_fails_counts_for_nothing", &[&[2], &[1, 1, 1]], |context| {
        let (me, ranks, job) = (context.rank(), context.ranks(), context.group());
        let other = Context::init_singleton().expect("a job of one");
        let foreign = other.completion().expect("completion");
        for turn in 0..3 {
            if me == turn {
                let refused = job.start_barrier(Report::Counter(&foreign));
                assert!(matches!(refused, Err(Error::ForeignCompletion)), "{refused:?}");
            }
            let barrier = job.start_barrier(Report::Handle).expect("begun");
            let sum = job.start_allreduce(Op::Sum, vec![me]).expect("begun");
            assert_eq!(sum.wait().expect("sum"), [ranks * (ranks - 1) / 2]);
            context.wait(barrier).expect("barrier");
        }
        job.barrier().expect("barrier");
        drop(foreign);
        other.finalize().expect("end");
    });
}

/// Threads that make groups of the same ranks at one time, each from a duplicate of its own, never get one for another's.
#[test]
fn threads_make_groups_at_one_time() {
    run("threads_make_groups_at_one_time", &[&[2], &[1, 1], &[2, 1]], |context| {
        let copies = [(); 3].map(|()| context.group().duplicate().expect("duplicate"));
        std::thread::scope(|threads| {
            for (copy, thread) in copies.iter().zip(1u64..) {
                threads.spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..fewer(40, 3) as u64 {
                        let group = copy.duplicate().expect("duplicate");
                        let mut sum = [thread << 32 | round];
                        group.allreduce(Op::Sum, &mut sum).expect("allreduce");
                        let wanted = (thread << 32 | round) * u64::from(group.members());
                        assert_eq!(sum, [wanted], "thread {thread}, round {round}");
                        kept.push(group);
                    }
                });
            }
        });
        context.barrier().expect("barrier");
    });
}

/// A panic in an operation of the program's ends its own request, whichever thread has called it.
#[test]
fn an_operation_that_panics_fails_its_request() {
    run("an_operation_that_panics_fails_its_request", &[&[2], &[1, 1]], |context| {
        let copy = context.group().duplicate().expect("duplicate");
        let panics = |into: &mut [u64], _: &[u64]| assert!(into.is_empty(), "no such sum");
        let sum = copy.start_reduce(0, UserOp::commutative(panics), vec![1; 3]).expect("begun");
        // Whoever drives the channel here combines.
        context.barrier().expect("barrier");
        let told = sum.wait();
        if context.rank() == 0 {
            let panicked =
                matches!(&told, Err(Error::OperationPanicked { text }) if text == "no such sum");
            assert!(panicked, "{told:?}");
        } else {
            told.expect("sent");
        }
        check_reductions(&context.group(), 40);
    });
}

struct Begun<'c> {
    sum: CollectiveRequest<'c, u64>,
    scanned: CollectiveRequest<'c, u64>,
    product: CollectiveRequest<'c, u64>,
    copied: CollectiveRequest<'c, u64>,
    gathered: CollectiveRequest<'c, u64>,
    dealt: CollectiveRequest<'c, u64>,
    all: CollectiveRequest<'c, u64>,
    exchanged: CollectiveRequest<'c, u64>,
    part: CollectiveRequest<'c, u64>,
}

impl<'c> Begun<'c> {
    fn all(group: &Group<'c>, length: usize) -> Begun<'c> {
        let (me, last) = (group.member(), group.members() - 1);
        let (mine, whole) = (|| block(me, length), block(me, length * (last as usize + 1)));
        let multiply = |into: &mut [u64], other: &[u64]| {
            into.iter_mut().zip(other).for_each(|(a, b)| *a = a.wrapping_mul(*b));
        };
        let product = UserOp::ordered(multiply);
        Begun {
            sum: group.start_allreduce(Op::Sum, mine()).expect("allreduce"),
            scanned: group.start_exclusive_scan(Op::Sum, mine()).expect("scan"),
            product: group.start_reduce(last, product, vec![3; length]).expect("reduce"),
            copied: group.start_broadcast(last, mine()).expect("broadcast"),
            gathered: group.start_gather(last, mine()).expect("gather"),
            dealt: group.start_scatter(last, whole.clone(), length).expect("scatter"),
            all: group.start_allgather(mine()).expect("allgather"),
            exchanged: group.start_alltoall(whole.clone()).expect("alltoall"),
            part: group.start_reduce_scatter(Op::Sum, whole).expect("reduce-scatter"),
        }
    }

    fn check(self, group: &Group<'_>, length: usize) {
        let (me, members) = (group.member(), group.members());
        let (last, start) = (members - 1, me as usize * length);
        let done = |request: CollectiveRequest<'_, u64>| request.wait().expect("done");
        let blocks: Vec<u64> = (0..members).flat_map(|member| block(member, length)).collect();
        assert!(are_sums(&done(self.part), members, start));
        let from = |from| (0..length).map(move |index| element(from, start + index));
        assert!((0..members).flat_map(from).eq(done(self.exchanged)));
        assert!(done(self.all) == blocks);
        assert!((0..length).map(|index| element(last, start + index)).eq(done(self.dealt)));
        let gathered = done(self.gathered);
        assert!(if me == last { gathered == blocks } else { gathered.is_empty() });
        assert!(done(self.copied) == block(last, length));
        let (product, wanted) = (done(self.product), 3u64.wrapping_pow(members));
        assert!(me != last || product.iter().all(|value| *value == wanted));
        let scanned = done(self.scanned);
        assert!(if me == 0 { scanned == block(0, length) } else { are_sums(&scanned, me, 0) });
        assert!(are_sums(&done(self.sum), members, 0));
    }
}

/// A request that is dropped takes part no more; the memory is free, and other groups go on.
#[test]
fn a_collective_can_be_given_up() {
    run("a_collective_can_be_given_up", &[&[2], &[1, 1]], |context| {
        let copy = context.group().duplicate().expect("duplicate");
        let given_up =
            copy.start_allreduce(Op::Sum, vec![1u64; fewer(50_000, 1_000)]).expect("begun");
        if context.rank() == 0 {
            drop(given_up);
            context.barrier().expect("barrier");
        } else {
            context.barrier().expect("barrier");
            drop(given_up);
        }
        check_all(&context.group());
    });
}

/// Groups that come and go leave nothing: neither their numbers nor the memory that they share.
#[test]
fn groups_come_and_go() {
    const LONG: usize = fewer(10_000, 300);
    run("groups_come_and_go", &[&[2], &[2, 1]], |context| {
        let kept = context.group().duplicate().expect("duplicate");
        for round in 0..if cfg!(miri) { 4 } else { 600u64 } {
            let group = kept.split(Some(0), 0).expect("split").expect("a colour");
            let length = if round % 50 == 0 { LONG } else { 1 };
            let mut data = vec![round; length];
            group.allreduce(Op::Sum, &mut data).expect("allreduce");
            assert!(data.iter().all(|sum| *sum == round * u64::from(context.ranks())));
        }
        // Each takes one of the 256 windows there; without one, messages do. Miri would take minutes to make them.
        const WINDOWS: usize = fewer(255, 0);
        let most: Vec<_> = (0..WINDOWS).map(|_| context.window(0).expect("window")).collect();
        let groups: Vec<_> = (0..3).map(|_| kept.duplicate().expect("duplicate")).collect();
        for group in &groups {
            check_reductions(group, LONG);
            check_blocks(group, LONG);
        }
        context.barrier().expect("barrier");
        drop((most, groups));
        check_all(&kept);
    });
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn loss_changes_nothing() {
    let env = &[("KUMI_FAULTS", "loss=30,double=20,late=30,seed=8")];
    let job = Job { layout: &[2, 1, 2], env, ..Job::default() };
    let body = |context: &Context| {
        let job = context.group();
        let half = job.split(Some(context.rank() % 2), 0).expect("split").expect("a colour");
        for length in [1, 3000] {
            for group in [&job, &half] {
                check_reductions(group, length);
                check_blocks(group, length);
            }
        }
        context.barrier().expect("barrier");
    };
    start("loss_changes_nothing", &job, body).finish_on_a_bad_wire();
}
