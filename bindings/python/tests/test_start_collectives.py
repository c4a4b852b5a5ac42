"""Collectives of a job of one rank that are requests."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def _started() -> list[tuple[kumi.Request[Any], Any]]:
    """One of each, of the job and of a group, with what it gives."""
    row = np.arange(4.0)
    pair: list[tuple[kumi.Request[Any], Any]] = []
    for of in (kumi, kumi.group().duplicate()):
        pair += [
            (of.start_barrier(), None),
            (of.start_broadcast(row.copy()), None),
            (of.start_allreduce(row), row),
            (of.start_reduce(row, kumi.Op.MAX), row),
            (of.start_gather(row), row[None]),
            (of.start_scatter(row[None], np.zeros(4)), row),
            (of.start_allgather(row), row[None]),
            (of.start_alltoall(row), row),
        ]
    return pair


def test_each_gives_what_its_call_returns() -> None:
    for request, expected in _started():
        result = request.wait()
        assert result is None if expected is None else np.array_equal(result, expected)
    started = _started()
    for result, (_, expected) in zip(kumi.wait_all(one for one, _ in started), started):
        assert result is None if expected is None else np.array_equal(result, expected)


def test_they_are_awaited_and_are_in_lists_beside_others() -> None:
    async def all_of_them() -> None:
        for request, expected in _started():
            result = await request
            assert result is None if expected is None else np.array_equal(result, expected)

    asyncio.run(all_of_them())
    receive = kumi.irecv(bytearray(1), tag=9)
    total = kumi.start_allreduce(np.ones(2))
    assert kumi.wait_any([receive, total]) == 1
    assert total.wait().tolist() == [1, 1]
    kumi.send(0, b"x", 9)
    receive.wait()


def test_results_go_to_given_memory() -> None:
    row, out = np.arange(3), np.zeros((1, 3), np.int64)
    assert kumi.start_allgather(row, out=out).wait() is out
    assert out.tolist() == [[0, 1, 2]]
    # In place, if that is what is given.
    assert kumi.start_allreduce(row, out=row).wait() is row
    into = np.zeros(3, np.int64)
    assert kumi.start_scatter(out, into).wait() is into and into.tolist() == [0, 1, 2]


def test_memory_of_windows_is_used_and_stays() -> None:
    own = np.arange(6.0)
    for window in (kumi.window(6), kumi.window_on(own)):
        window.array[:] = np.arange(6.0)
        view = window.array
        starts: list[Callable[[], kumi.Request[Any]]] = [
            lambda: kumi.start_allreduce(view[:2], out=view[2:4]),
            lambda: kumi.start_broadcast(view),
            lambda: kumi.start_gather(view[:2]),
        ]
        for start in starts:
            start().wait()
        assert view.tolist() == [0, 1, 0, 1, 4, 5]
        # One that has ended is let go although nobody has asked for its result.
        asked = kumi.start_broadcast(view[:2])
        window.free()
        assert asked.wait() is None
        kumi.start_broadcast(np.zeros(1)).release()


def test_lent_memory_is_not_resized() -> None:
    class Array(np.ndarray[Any, Any]):
        """An array that can be watched."""

    data = np.arange(3.0).view(Array)
    watched = weakref.ref(data)
    request = kumi.start_broadcast(data)
    with pytest.raises(ValueError):
        data.resize(2, refcheck=False)
    del data
    gc.collect()
    assert watched() is not None
    request.wait()
    del request
    gc.collect()
    assert watched() is None


def test_what_does_not_fit_is_refused_before_anything_begins() -> None:
    group = kumi.group()
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (kumi.BadRankError, lambda: group.start_broadcast(np.zeros(2), 1)),
        (kumi.BadRankError, lambda: group.start_reduce(np.zeros(2), root=7)),
        (kumi.BadTypeError, lambda: group.start_broadcast(np.zeros((2, 2))[:, 0])),
        (kumi.BadTypeError, lambda: group.start_allreduce(np.zeros(2, "c16"))),
        (kumi.BadTypeError, lambda: group.start_allgather(np.zeros(2), out=np.zeros(2))),
        (kumi.BadTypeError, lambda: group.start_scatter(np.zeros(3), np.zeros(2))),
        (kumi.BadOperationError, lambda: group.start_allreduce(np.zeros(2), kumi.Op.BITAND)),
        (kumi.BadArgumentError, lambda: group.start_alltoall(np.float64(1))),  # type: ignore[arg-type]
    ]
    both = np.zeros(4)
    refused.append(
        (kumi.OverlapError, lambda: group.start_alltoall(both[:2], out=both[1:3]))
    )
    odd = np.zeros(17, np.uint8)[1:].view(np.float64)
    if not odd.flags.aligned:
        refused.append(
            (kumi.BadTypeError, lambda: group.start_allreduce(odd, out=odd))
        )
    for error, start in refused:
        with pytest.raises(error):
            start()
    assert group.start_allreduce(np.ones(1)).wait().tolist() == [1]
    freed = group.duplicate()
    freed.free()
    with pytest.raises(kumi.FreedGroupError):
        freed.start_barrier()


def test_the_end_of_a_job_gives_collectives_up() -> None:
    data = np.arange(3.0)
    request = kumi.start_broadcast(data)
    kumi.finalize()
    data.resize(2, refcheck=False)
    with pytest.raises(kumi.NotInitialisedError):
        request.wait()
