"""What needs several ranks: run by the whole-system tests on four ranks of two nodes, as
``kumi run -n 4 --nodes 2 python3 ranks.py``. Every rank prints the tests that it passed."""

import os
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


def main() -> None:
    with kumi.init():
        for function in TESTS:
            function()
            print("passed", function.__name__, flush=True)
        kumi.barrier()


if __name__ == "__main__":
    main()
