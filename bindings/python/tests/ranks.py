"""What needs several ranks: run by the whole-system tests on four ranks of two nodes, as
``kumi run -n 4 --nodes 2 python3 ranks.py``. Every rank prints the tests that it passed."""

import asyncio
import itertools
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable

import numpy as np

import kumi

TESTS: list[Callable[[], None]] = []


def test(function: Callable[[], None]) -> Callable[[], None]:
    TESTS.append(function)
    return function


@test
def messages_go_round() -> None:
    me, ranks = kumi.rank(), kumi.size()
    data = np.arange(50_000, dtype=np.int64) * (me + 1)
    kumi.send((me + 1) % ranks, data, me)
    before = (me - 1) % ranks
    into = np.zeros_like(data)
    assert kumi.recv_into(into, before, before) == (before, before, data.nbytes)
    assert np.array_equal(into, np.arange(50_000) * (before + 1))


@test
def exchanges_go_both_ways() -> None:
    me, ranks = kumi.rank(), kumi.size()
    after, before = (me + 1) % ranks, (me - 1) % ranks
    # More than any ring holds: neither waits for the other to receive first.
    data, into = np.full(200_000, me, np.int64), np.zeros(200_000, np.int64)
    status = kumi.sendrecv(after, data, into, before, tag=3, recv_tag=3)
    assert status == (before, 3, data.nbytes) and (into == before).all()
    # Rank r sends s + 1 rows to rank s.
    rows = np.full((ranks * (ranks + 1) // 2, 2), me, np.int16)
    got = kumi.alltoallv(rows, range(1, ranks + 1), [me + 1] * ranks)
    assert got.tolist() == [[rank] * 2 for rank in range(ranks) for _ in range(me + 1)]


@test
def requests_reach_every_rank() -> None:
    me, ranks = kumi.rank(), kumi.size()
    window = kumi.window((ranks, 3000), np.int64)
    counter = kumi.window(1, np.int64)
    rows = [np.full(3000, 100 * me + rank) for rank in range(ranks)]
    puts = [window.iput(rank, rows[rank], 3000 * me, notify=1) for rank in range(ranks)]
    counts = [counter.ifetch_add(0, 0, 1) for _ in range(25)]
    assert kumi.wait_all(puts) == [None] * ranks
    window.wait_notify(1, ranks)
    assert (window.array == 100 * np.arange(ranks)[:, None] + me).all()
    taken = kumi.wait_all(counts)
    assert taken == sorted(taken)
    gets = [window.iget(rank, 3000 * me + 5, 10) for rank in range(ranks)]
    assert [get.wait().tolist() for get in gets] == [[100 * me + r] * 10 for r in range(ranks)]
    buffers = [np.zeros(3000, np.int64) for _ in range(ranks)]
    receives = {rank: kumi.irecv(buffers[rank], rank, 2) for rank in range(ranks)}
    sends = [kumi.isend(rank, rows[rank], 2) for rank in range(ranks)]
    while receives:
        among = list(receives)
        for index in kumi.wait_some(receives.values()):
            rank = among[index]
            assert receives.pop(rank).wait() == (rank, 2, 24_000)
            assert (buffers[rank] == 100 * rank + me).all()
    kumi.wait_all(sends)
    kumi.barrier()
    assert counter.get(0).tolist() == [25 * ranks]
    kumi.barrier()


@test
def coroutines_await_other_ranks() -> None:
    me, ranks = kumi.rank(), kumi.size()
    window = kumi.window(4, np.int64)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    async def ask(rank: int) -> None:
        for number in range(20):
            await window.ifetch_add(rank, 1, number)
            buffer = np.zeros(1, np.int64)
            receive = kumi.irecv(buffer, rank, 4)
            await kumi.isend(rank, np.array([number * ranks + me]), 4)
            assert await receive == (rank, 4, 8) and buffer[0] == number * ranks + rank

    async def everybody() -> None:
        heart = asyncio.create_task(beat())
        await asyncio.gather(*(ask(rank) for rank in range(ranks)))
        # A message that is long in coming stops nobody.
        late = kumi.irecv(bytearray(4), (me - 1) % ranks, 5)
        before = beats
        while beats < before + 20:
            await asyncio.sleep(0.001)
        assert not late.done() or ranks > 1
        await kumi.isend((me + 1) % ranks, b"late", 5)
        await late
        heart.cancel()

    asyncio.run(everybody())
    kumi.barrier()
    assert window.array[1] == 190 * ranks
    kumi.barrier()


@test
def what_is_disclosed_makes_sense() -> None:
    nodes = kumi.cluster_nodes()
    assert nodes in (0, 2)  # Where the system lacks what it takes, nothing is.
    for node in range(nodes):
        known = kumi.node_load(node)
        if known is not None:
            assert known.load >= 0 and 0 < known.memory <= 1
            assert known.network >= 0 and known.age >= 0
    assert kumi.node_load(nodes) is None and kumi.node_load(-1) is None
    # What daemons know of the others may be old; on a busy machine by seconds.
    end = time.monotonic() + 60
    stopped = list(range(kumi.size()))
    while stopped and time.monotonic() < end:
        time.sleep(0.01)
        stopped = [rank for rank in stopped if not kumi.rank_runs(rank)]
    assert not stopped, f"after a minute ranks {stopped} do not run"
    kumi.barrier()


@test
def messages_of_any_rank() -> None:
    if kumi.rank() == 0:
        came = {(m.source, m.tag, m.data) for m in (kumi.recv() for _ in range(1, kumi.size()))}
        assert came == {(rank, 10 * rank, b"x" * rank) for rank in range(1, kumi.size())}
    else:
        kumi.send(0, b"x" * kumi.rank(), 10 * kumi.rank())
    kumi.barrier()


@test
def puts_and_gets_reach_every_rank() -> None:
    me, ranks = kumi.rank(), kumi.size()
    # Pieces of different sizes, two rows and more.
    with kumi.window((2 + me, ranks), np.int32) as window:
        assert [window.size_at(rank) for rank in range(ranks)] == [
            (2 + rank) * ranks for rank in range(ranks)
        ]
        for rank in range(ranks):
            window.put(rank, np.array([me * 100 + rank], np.int32), ranks + me, notify=me)
        for rank in range(ranks):
            assert window.wait_notify(rank, 1) == 1
        assert window.array[1].tolist() == [rank * 100 + me for rank in range(ranks)]
        assert not window.array[0].any() and not window.array[2:].any()
        kumi.barrier()  # The others have theirs too.
        for rank in range(ranks):
            there = window.get(rank, ranks, ranks)
            assert there.tolist() == [other * 100 + rank for other in range(ranks)]
        kumi.barrier()


@test
def large_pieces_arrive_whole() -> None:
    me, ranks = kumi.rank(), kumi.size()
    count = 300_000
    right, left = (me + 1) % ranks, (me - 1) % ranks
    with kumi.window(count) as window:
        mine = np.random.default_rng(me).random(count)
        window.put(right, mine, notify=5)
        window.wait_notify(5, 1)
        expected = np.random.default_rng(left).random(count)
        assert np.array_equal(window.array, expected)
        assert np.array_equal(window.get(right), mine)
        kumi.barrier()


@test
def counting_together_loses_nothing() -> None:
    times, ranks = 50, kumi.size()
    with kumi.window(1, np.int64) as window:
        seen = [window.fetch_add(0, 0, 1) for _ in range(times)]
        assert seen == sorted(set(seen))
        kumi.barrier()
        assert window.get(0).tolist() == [times * ranks]
        kumi.barrier()


@test
def what_is_refused_touches_nothing() -> None:
    me, ranks = kumi.rank(), kumi.size()
    with kumi.window(4, np.uint8) as window, kumi.window(4, np.uint8, write=False) as fixed:
        kumi.barrier()
        for rank in range(ranks):
            # Of this node's ranks at once, of the others' with the flush.
            for target, offset, error in (
                (window, 2, kumi.OutOfBoundsError),
                (fixed, 0, kumi.NoRightError),
            ):
                try:
                    target.put(rank, b"\1\1\1", offset)
                    window.flush(rank)
                except error:
                    assert kumi.same_node(rank)
                except kumi.RefusedError as refused:
                    assert not kumi.same_node(rank)
                    assert (refused.rank, refused.count) == (rank, 1)
                else:
                    raise AssertionError(f"rank {rank} has not refused it")
            try:
                window.get(rank, 2, 3)
            except kumi.OutOfBoundsError as error_of_get:
                assert error_of_get.rank == rank
            else:
                raise AssertionError(f"rank {rank} has given what is not there")
        kumi.barrier()
        assert not window.array.any() and not fixed.array.any(), me


@test
def collectives_agree_with_numpy() -> None:
    me, ranks = kumi.rank(), kumi.size()
    every = [np.random.default_rng(rank).integers(1, 50, (ranks, 7)) for rank in range(ranks)]
    folds = {
        kumi.Op.SUM: np.add,
        kumi.Op.PRODUCT: np.multiply,
        kumi.Op.MIN: np.minimum,
        kumi.Op.MAX: np.maximum,
        kumi.Op.BITAND: np.bitwise_and,
        kumi.Op.BITOR: np.bitwise_or,
        kumi.Op.BITXOR: np.bitwise_xor,
    }
    for op, fold in folds.items():
        wanted = fold.reduce(every)
        assert np.array_equal(kumi.allreduce(every[me], op), wanted), op
        for root in range(ranks):
            got = kumi.reduce(every[me], op, root)
            assert (got is None) == (me != root)
            assert got is None or np.array_equal(got, wanted), op
    for root in range(ranks):
        got = kumi.gather(every[me], root)
        assert (got is None) == (me != root)
        assert got is None or np.array_equal(got, every)
        array = every[me].copy()
        kumi.broadcast(array, root)
        assert np.array_equal(array, every[root])
    got = kumi.alltoall(every[me])
    assert np.array_equal(got, [every[rank][me] for rank in range(ranks)])


@test
def groups_agree_with_numpy() -> None:
    me, ranks = kumi.rank(), kumi.size()
    half = kumi.group().split(me % 2, -me)
    assert half is not None and half.rank_of(half.members - 1) == me % 2
    ours = list(range(ranks))[me % 2 :: 2][::-1]
    assert [half.member_of(rank) for rank in ours] == list(range(half.members))
    for length in (3, 30_000):
        every = np.arange(ranks * length, dtype=np.int64).reshape(ranks, length)
        theirs, own = every[ours], half.member
        assert np.array_equal(half.allreduce(every[me]), theirs.sum(axis=0))
        assert np.array_equal(half.scan(every[me]), theirs[: own + 1].sum(axis=0))
        before = half.exclusive_scan(every[me])
        if before is None:
            assert own == 0
        else:
            assert own > 0 and np.array_equal(before, theirs[:own].sum(axis=0))
        gathered = half.allgather(every[me])
        assert np.array_equal(gathered, theirs)
        part = half.scatter(every[: half.members], np.zeros(length, np.int64), 1)
        assert np.array_equal(part, every[own])
        counts = [length + member for member in range(half.members)]
        whole = np.arange(sum(counts))
        block = half.reduce_scatter(whole, counts=counts)
        start = sum(counts[:own])
        assert np.array_equal(block, whole[start : start + counts[own]] * half.members)
        assert np.array_equal(half.allgatherv(block // half.members, counts), whole)
        collected = half.gatherv(block, counts, root=1)
        if collected is None:
            assert own != 1
        else:
            assert own == 1 and np.array_equal(collected, whole * half.members)
    first = kumi.group().subset([0])
    assert (first is None) == (me != 0)
    half.free()
    kumi.barrier()


@test
def a_message_that_is_too_long_is_named() -> None:
    if kumi.rank() == 0:
        kumi.send(kumi.size() - 1, np.zeros(3))
    elif kumi.rank() == kumi.size() - 1:
        try:
            kumi.recv_into(np.zeros(2))
        except kumi.TruncatedError as error:
            assert error.needed == 24
        else:
            raise AssertionError("a message that is too long was taken")
    kumi.barrier()


@test
def other_threads_work_while_a_rank_waits() -> None:
    # Rank 1 sends only when a thread of rank 0, which waits for that, has written the file.
    if kumi.rank() == 0:
        with tempfile.NamedTemporaryFile() as file:
            kumi.send(1, file.name.encode())

            def work() -> None:
                time.sleep(0.05)
                file.write(b"done")
                file.flush()

            thread = threading.Thread(target=work)
            thread.start()
            assert kumi.recv(1).data == b"seen"
            thread.join()
    elif kumi.rank() == 1:
        path = kumi.recv(0).data
        while os.stat(path).st_size == 0:
            time.sleep(0.001)
        kumi.send(0, b"seen")
    kumi.barrier()


@test
def atomic_operations_of_all_ranks_lose_nothing() -> None:
    me, ranks = kumi.rank(), kumi.size()
    for kind in (np.uint32, np.int64):
        with kumi.window(2, kind) as window:
            for _ in range(30):
                window.fetch_xor(0, 0, 1 << me)
                while True:  # An addition by hand.
                    seen = int(window.get(0, 1, 1)[0])
                    if window.compare_swap(0, 1, seen, seen + 1) == seen:
                        break
            kumi.barrier()
            assert window.get(0).tolist() == [0, 30 * ranks]
            kumi.barrier()
            assert window.fetch_or(0, 0, 1 << me) & (1 << me) == 0
            kumi.barrier()
            assert window.get(0, 0, 1)[0] == (1 << ranks) - 1
            kumi.barrier()


@test
def columns_go_into_columns() -> None:
    me, ranks = kumi.rank(), kumi.size()
    # Pieces of different widths; columns of more than a packet.
    shapes = [(500, 2 * ranks + rank) for rank in range(ranks)]
    with kumi.window(shapes[me], np.int64) as window:
        mine = np.arange(1500).reshape(500, 3) + 10_000 * me
        done = kumi.Completion()
        for rank in range(ranks):
            pair = kumi.region(shapes[rank], np.s_[:, 2 * me : 2 * me + 2])
            window.put(rank, mine[:, :2], pair, notify=7, completion=done)
        assert done.wait() == ranks
        window.wait_notify(7, ranks)
        for rank in range(ranks):
            wanted = np.arange(1500).reshape(500, 3)[:, :2] + 10_000 * rank
            assert np.array_equal(window.array[:, 2 * rank : 2 * rank + 2], wanted)
        assert not window.array[:, 2 * ranks :].any()
        kumi.barrier()
        for rank in range(ranks):
            there = window.get(rank, kumi.region(shapes[rank], np.s_[::4, 2 * me]))
            assert np.array_equal(there, mine[::4, 0])
        kumi.barrier()


@test
def a_completion_tells_what_is_refused() -> None:
    me, ranks = kumi.rank(), kumi.size()
    with kumi.window(1, np.int64, write=me % 2 == 0) as window:
        kumi.barrier()
        done = kumi.Completion()
        for rank in range(ranks):
            try:
                window.put(rank, np.array([7]), completion=done)
            except kumi.NoRightError:
                assert kumi.same_node(rank) and rank % 2 == 1
        far = sum(rank % 2 == 1 and not kumi.same_node(rank) for rank in range(ranks))
        for _ in range(far):
            try:
                done.wait()
            except kumi.RefusedError as refused:
                assert refused.rank % 2 == 1 and not kumi.same_node(refused.rank)
            else:
                raise AssertionError("nobody has refused it")
        assert done.wait() == ranks // 2
        kumi.barrier()
        assert window.array[0] == (7 if me % 2 == 0 else 0)
        kumi.barrier()


@test
def a_multicast_reaches_those_it_names() -> None:
    me, ranks = kumi.rank(), kumi.size()
    with kumi.window((ranks, 1000)) as window:
        mine = np.full(1000, 1.0 + me)
        window.multicast(range(me, ranks), mine, 1000 * me, notify=1)
        window.wait_notify(1, me + 1)
        kumi.barrier()
        assert window.array[:, 0].tolist() == [1.0 + rank if rank <= me else 0 for rank in range(ranks)]
        kumi.barrier()


@test
def records_of_all_ranks_arrive_in_their_order() -> None:
    me, ranks, each = kumi.rank(), kumi.size(), 40
    with kumi.window(4096, np.uint8) as window:
        fifo = window.fifo(64, 256, notify=2) if me == 0 else None
        kumi.barrier()
        if fifo is None:
            # Far more than there is room for.
            for number in range(each):
                window.append(0, 64, bytes([number]) * 20)
        else:
            last = [-1] * ranks
            for source, data in itertools.islice(fifo, each * (ranks - 1)):
                assert data == bytes([last[source] + 1]) * 20
                last[source] += 1
            assert last[1:] == [each - 1] * (ranks - 1) and fifo.try_pop() is None
        kumi.barrier()
        assert window.notified(2) == (each * (ranks - 1) if me == 0 else 0)
        kumi.barrier()


@test
def signals_reach_ranks_that_compute() -> None:
    me, ranks = kumi.rank(), kumi.size()
    seen: list[tuple[int, bytes]] = []
    with kumi.window(1024, np.uint8) as window:
        window.on_signal(0, 512, lambda source, data: seen.append((source, data)))
        kumi.barrier()
        for rank in range(ranks):
            for number in range(3):
                window.signal(rank, 0, bytes([me, number]))
        while len(seen) < 3 * ranks:  # Without a call of the library.
            time.sleep(0.001)
        for rank in range(ranks):
            of_it = [data for source, data in seen if source == rank]
            assert of_it == [bytes([rank, number]) for number in range(3)]
        kumi.barrier()


@test
def a_wait_that_is_interrupted_can_be_waited_again() -> None:
    me, ranks = kumi.rank(), kumi.size()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with kumi.window(1) as window:
        for wait in (lambda: window.wait_notify(0, 1), kumi.recv):
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                wait()
            except KeyboardInterrupt:
                timer.join()
            else:
                raise AssertionError("nothing was to come yet")
        kumi.barrier()
        window.put((me + 1) % ranks, np.ones(1), notify=0)
        kumi.send((me + 2) % ranks, b"to you")
        assert window.wait_notify(0, 1) == 1
        assert kumi.recv().data == b"to you"
        kumi.barrier()


@test
def lists_reach_every_rank() -> None:
    me, ranks, rows = kumi.rank(), kumi.size(), 700
    with kumi.window((rows, ranks, 3), np.int64) as window:
        # This rank's three elements of each row, the last row first, as two pieces each: more than
        # a frame has room for.
        starts = 3 * (ranks * np.arange(rows)[::-1] + me)
        columns = [starts, np.full(rows, 1), starts + 1, np.full(rows, 2)]
        pieces = np.stack(columns, axis=1).reshape(-1, 2)
        mine = np.arange(3 * rows) + 10_000 * me
        done = kumi.Completion()
        for rank in range(ranks):
            window.put_list(rank, pieces, [mine[:5], mine[5:]], notify=3, completion=done)
        assert done.wait() == ranks
        window.wait_notify(3, ranks)
        for rank in range(ranks):
            wanted = np.arange(3 * rows).reshape(rows, 3)[::-1] + 10_000 * rank
            assert np.array_equal(window.array[:, rank], wanted)
        kumi.barrier()
        for rank in range(ranks):
            assert np.array_equal(window.get_list(rank, pieces), mine)
            parts = [np.zeros(7, np.int64), np.zeros(3 * rows - 7, np.int64)]
            window.get_list(rank, pieces, out=parts)
            assert np.array_equal(np.concatenate(parts), mine)
            try:
                window.put_list(rank, [(0, 1), (3 * rows * ranks, 1)], mine[:2])
            except kumi.OutOfBoundsError as error:
                assert error.rank == rank
            else:
                raise AssertionError("a piece outside was taken")
        kumi.barrier()


@test
def records_of_all_go_to_all() -> None:
    me, ranks, each = kumi.rank(), kumi.size(), 25
    everybody = range(ranks)
    with kumi.window(4096, np.uint8) as window:
        fifo = window.fifo(0, 128, notify=1)
        kumi.barrier()
        next_of = [0] * ranks

        def take(record: kumi.Record | None) -> None:
            if record is not None:
                assert record.data == bytes([next_of[record.source]]) * 30
                next_of[record.source] += 1

        for number in range(each):
            full = list(everybody)
            while full:  # There is room for three.
                full = window.try_multicast_append(full, 0, bytes([number]) * 30)
                take(fifo.try_pop())
        while sum(next_of) < each * ranks:
            take(fifo.pop())
        assert next_of == [each] * ranks
        kumi.barrier()
        if me == 0:
            window.multicast_append(everybody, 0, b"the last")
        assert fifo.pop() == (0, b"the last") and fifo.try_pop() is None
        seen: list[tuple[int, bytes]] = []
        window.on_signal(1024, 512, lambda source, data: seen.append((source, data)))
        kumi.barrier()
        window.multicast_signal(everybody, 1024, bytes([me]))
        while len(seen) < ranks:  # Without a call of the library.
            time.sleep(0.001)
        assert sorted(seen) == [(rank, bytes([rank])) for rank in everybody]
        kumi.barrier()


@test
def windows_on_own_memory_are_like_others() -> None:
    me, ranks = kumi.rank(), kumi.size()
    memory: object = [
        np.zeros((ranks, 1000)),
        bytearray(8000 * ranks),
        None,
        memoryview(bytearray(8000 * ranks + 8))[8:],
    ][me % 4]
    if memory is None:
        window = kumi.window(8000 * ranks, np.uint8)
    elif me % 4 == 0:
        # The others count bytes.
        window = kumi.window_on(np.asarray(memory).reshape(-1).view(np.uint8))
    else:
        window = kumi.window_on(memory)
    with window:
        mine = np.full(1000, 1.0 + me).view(np.uint8)
        for rank in range(ranks):
            window.put(rank, mine, 8000 * me, notify=me)
        for rank in range(ranks):
            window.wait_notify(rank, 1)
        wanted = np.repeat(1.0 + np.arange(ranks), 1000)
        assert np.array_equal(window.array.view(np.float64), wanted)
        if isinstance(memory, np.ndarray):
            assert np.array_equal(memory.ravel(), wanted)
        kumi.barrier()
        right = (me + 1) % ranks
        assert np.array_equal(window.get(right, 8000 * me, 8000), mine)
        kumi.barrier()
        window.put_list(right, [(9, 2), (3, 1)], bytes([me, me, me]), notify=63)
        window.wait_notify(63, 1)
        left = (me - 1) % ranks
        assert window.array[[9, 10, 3]].tolist() == [left] * 3
        window.multicast(range(ranks), bytes([me]), 100 + me, notify=62)
        window.wait_notify(62, ranks)
        assert window.array[100 : 100 + ranks].tolist() == list(range(ranks))
        kumi.barrier()


def main() -> None:
    with kumi.init():
        for function in TESTS:
            function()
            print("passed", function.__name__, flush=True)
        kumi.barrier()


if __name__ == "__main__":
    main()
