"""Collectives that are requests, and claimed messages: run as :mod:`ranks` is. Every rank prints the tests that it
passed."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

import kumi

TESTS: list[Callable[[], None]] = []


def test(function: Callable[[], None]) -> Callable[[], None]:
    TESTS.append(function)
    return function


def refused(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}: memory of a request was let go")


@test
def collectives_go_on_by_themselves() -> None:
    me, ranks = kumi.rank(), kumi.size()
    others = kumi.group().split(0, -me)
    assert others is not None and others.member == ranks - 1 - me
    rows = np.arange(ranks * 3000, dtype=np.int64).reshape(ranks, 3000)
    own = np.full(3000, float(me + 1))
    for group, first in ((kumi.group(), 0), (others, ranks - 1)):
        mine, root = group.member, 1 % ranks
        told = rows.copy() if mine == root else np.zeros_like(rows)
        started: list[kumi.Request[Any]] = [
            group.start_allreduce(own, kumi.Op.MAX),
            group.start_broadcast(told, root),
            group.start_reduce(rows, root=root),
            group.start_gather(own, root),
            group.start_scatter(rows if mine == root else None, np.zeros(3000, np.int64), root),
            group.start_allgather(own),
            group.start_alltoall(rows + 10_000_000 * mine),
            group.start_barrier(),
        ]
        # In any order, and while a call that waits has others go on.
        started[7].wait()
        most, _, total, gathered, part, all_of_them, dealt = kumi.wait_all(started[:7])
        assert (most == ranks).all() and np.array_equal(told, rows)
        wanted = np.array([1.0 + group.rank_of(member) for member in range(ranks)])
        if mine == root:
            assert np.array_equal(total, ranks * rows)
            assert np.array_equal(gathered, np.broadcast_to(wanted[:, None], (ranks, 3000)))
        else:
            assert total is None and gathered is None
        assert np.array_equal(part, rows[mine])
        assert (all_of_them == wanted[:, None]).all()
        assert np.array_equal(dealt, rows[mine] + 10_000_000 * np.arange(ranks)[:, None])
        assert group.rank_of(0) == first
    others.free()


@test
def collectives_under_way_keep_their_memory() -> None:
    me, ranks = kumi.rank(), kumi.size()
    if ranks == 1:
        return
    with kumi.window(4) as window, kumi.window_on(np.zeros(4)) as second:
        for each in (window, second):
            each.array[:] = [me, 1, 0, 0]
            data = np.full(5, float(me))
            if me == 0:
                for rank in range(1, ranks):
                    kumi.recv(rank, 6)
            requests = [
                kumi.start_allreduce(data, out=data),
                kumi.start_allreduce(each.array[:2], out=each.array[2:]),
            ]
            if me > 0:
                # Rank 0 has not begun.
                assert kumi.wait_any([*requests, kumi.isend(me, b"", 7)]) == 2
                kumi.recv(me, 7)
                assert not requests[0].done() and not requests[1].cancel()
                refused(ValueError, lambda: data.resize(2, refcheck=False))
                refused(kumi.BufferLentError, each.free)
                # The own part is there; nothing of others is.
                assert each.array[2:].tolist() == [me, 1]
                kumi.send(0, b"", 6)
            total = ranks * (ranks - 1) / 2
            assert requests[1].wait().tolist() == [total, ranks]
            assert each.array.tolist() == [me, 1, total, ranks]
            assert requests[0].wait() is data and (data == total).all()
            kumi.barrier()


@test
def coroutines_await_collectives() -> None:
    me, ranks = kumi.rank(), kumi.size()

    async def sums(group: kumi.Group) -> None:
        for number in range(20):
            total = await group.start_allreduce(np.array([number * (group.member + 1)]))
            assert total[0] == number * ranks * (ranks + 1) // 2
            await group.start_barrier()

    async def both() -> None:
        await asyncio.gather(*(sums(group) for group in groups))

    groups = [kumi.group(), kumi.group().duplicate(), kumi.group().duplicate()]
    asyncio.run(both())
    kumi.barrier()


@test
def claimed_messages_come_from_other_ranks() -> None:
    me, ranks = kumi.rank(), kumi.size()
    data = np.arange(100_000) + me
    right, left = (me + 1) % ranks, (me - 1) % ranks
    sends = [kumi.isend(right, data[: 10 ** (number + 1)], 8) for number in range(5)]
    first = kumi.await_claim(left, 8)
    second = kumi.await_claim(left, 8)
    assert first.status == (left, 8, 80) and second.status == (left, 8, 800)
    first.release()
    for number in (0, 2, 3, 4):
        message = kumi.await_claim(tag=8)
        into = np.zeros(message.status.length // 8, np.int64)
        assert message.receive_into(into) == (left, 8, 8 * 10 ** (number + 1))
        assert np.array_equal(into, np.arange(len(into)) + left)
    assert second.receive().source == left
    kumi.wait_all(sends)
    kumi.barrier()


def main() -> None:
    with kumi.init():
        for function in TESTS:
            function()
            print("passed", function.__name__, flush=True)
        kumi.barrier()


if __name__ == "__main__":
    main()
