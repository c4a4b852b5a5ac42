"""Lists of pieces and records for many ranks, in a job of one rank: places and what is refused."""

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_pieces_are_filled_one_after_the_other() -> None:
    window, done = kumi.window((4, 5), np.int16), kumi.Completion()
    pieces = [(17, 2), (3, 0), (4, 3), (0, 1)]
    window.put_list(0, pieces, np.arange(1, 7, dtype=np.int16), notify=3, completion=done)
    wanted = np.zeros(20, np.int16)
    wanted[[17, 18, 4, 5, 6, 0]] = range(1, 7)
    assert window.array.ravel().tolist() == wanted.tolist()
    assert (window.notified(3), done.wait()) == (1, 1)
    got = window.get_list(0, pieces)
    assert got.dtype == window.dtype and got.tolist() == [1, 2, 3, 4, 5, 6]
    out = np.zeros((2, 3), np.int16)
    assert window.get_list(0, pieces, out=out) is out
    assert out.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_pieces_and_arrays_need_not_fall_together() -> None:
    window = kumi.window(100, np.int64)
    rng = np.random.default_rng(5)
    for _ in range(50):
        places = rng.permutation(100)[: rng.integers(1, 20)]
        pieces = [(int(place), 1) for place in places]
        values = rng.integers(0, 1 << 60, len(places))
        cuts = np.sort(rng.integers(0, len(values) + 1, 3))
        window.array[:] = 0
        window.put_list(0, pieces, np.split(values, cuts))
        assert window.array[places].tolist() == values.tolist()
        assert np.count_nonzero(window.array) == np.count_nonzero(values)
        into = tuple(np.zeros(len(part), np.int64) for part in np.split(values, cuts))
        assert window.get_list(0, np.array(pieces), out=into) is into
        assert np.concatenate(into).tolist() == values.tolist()


@pytest.mark.parametrize("code", ["i1", "u1", "i2", "u4", "i8", "u8", ">i4"])
def test_pieces_are_iterables_or_columns_of_integers(code: str) -> None:
    window = kumi.window(9)
    pieces = np.array([[7, 2], [1, 1]], code)
    transposed = np.array([[7, 1], [2, 1]], code).T
    for given in (pieces, transposed, pieces.tolist(), zip([7, 1], [2, 1], strict=True), list(pieces)):
        window.array[:] = 0
        window.put_list(0, given, np.array([1.0, 2.0, 3.0]))
        assert window.array.tolist() == [0, 3, 0, 0, 0, 0, 0, 1, 2]


def test_nothing_is_a_list_too() -> None:
    window = kumi.window(3, np.uint8)
    nothing: list[Any] = [[], np.zeros((0, 2), int), [(3, 0)]]
    for pieces in nothing:
        window.put_list(0, pieces, b"", notify=0)
        window.put_list(0, pieces, [], notify=0)
        assert window.get_list(0, pieces).size == 0
        assert window.get_list(0, pieces, out=[]) == []
    assert window.notified(0) == 6
    empty = kumi.window(0, np.uint8)
    assert empty.get_list(0, [(0, 0)]).size == 0


def test_where_pieces_overlap_the_last_remains() -> None:
    window = kumi.window(4, np.uint8)
    window.put_list(0, [(0, 3), (1, 2)], [b"ab", b"cde"])
    assert window.array.tobytes() == b"ade\0"
    assert window.get_list(0, [(0, 3), (0, 3)]).tobytes() == b"adeade"


def test_pieces_outside_are_refused_and_nothing_written() -> None:
    window = kumi.window(8, np.int32)
    ones = np.ones(4, np.int32)
    wrong: list[tuple[Any, int]] = [
        ([(0, 3), (8, 1)], 1),
        ([(0, 1), (7, 3)], 1),
        ([(-1, 4)], 0),
        ([(0, 4), (9, 0)], 1),
        ([(1 << 62, 4)], 0),
        ([(1 << 70, 4)], 0),
        ([(0, 1 << 62)], 0),
        ([(0, 1 << 70)], 0),
        ([(1 << 63, 1 << 63)], 0),
        (np.array([[0, 3], [6, 3]]), 1),
        (np.array([[0, 3], [-(1 << 63), 1]]), 1),
        (np.array([[1, 2], [(1 << 64) - 1, 2]], np.uint64), 1),
        (np.array([[(1 << 64) - 1, (1 << 64) - 1]], np.uint64), 0),
    ]
    for pieces, number in wrong:
        calls: list[Callable[[], object]] = [
            lambda: window.put_list(0, pieces, ones),  # noqa: B023
            lambda: window.get_list(0, pieces),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(kumi.OutOfBoundsError, match=f"piece {number},") as caught:
                call()
            assert (caught.value.rank, caught.value.size) == (0, 32)
    for negative in ([(1, 1), (0, -1)], np.array([[1, 1], [0, -5]])):
        with pytest.raises(ValueError, match="piece 1 has the length"):
            window.put_list(0, negative, ones)
    assert not window.array.any()


def test_what_is_no_list_is_refused() -> None:
    window = kumi.window(8)
    ones = np.ones(2)
    wrong: list[Any] = [
        [(0, 1.0)],
        [("0", 1)],
        [(0, 1, 2)],
        [0, 2],
        7,
        "ab",
        np.zeros((1, 2)),
        np.zeros((2, 1), int),
        np.zeros(2, int),
        np.zeros((1, 2), bool),
    ]
    for pieces in wrong:
        with pytest.raises(TypeError):
            window.put_list(0, pieces, ones)
        with pytest.raises(TypeError):
            window.get_list(0, pieces)
    assert not window.array.any()


def test_arrays_must_fit_the_pieces() -> None:
    window = kumi.window(8)
    pieces = [(0, 2), (4, 1)]
    for short in (np.ones(2), np.ones(4), [np.ones(1), np.ones(3)], []):
        with pytest.raises(kumi.BadLengthError) as caught:
            window.put_list(0, pieces, short)
        assert caught.value.needed == 24
        with pytest.raises(kumi.BadLengthError):
            window.get_list(0, pieces, out=short)
    for other in (np.ones(3, np.float32), np.ones((3, 2))[:, 0], [1.0, 2.0, 3.0], [[1.0]], None):
        with pytest.raises(TypeError):
            window.put_list(0, pieces, other)  # type: ignore[arg-type]
    fixed = np.ones(3)
    fixed.flags.writeable = False
    for wrong in (np.ones(3, np.int64), np.ones((3, 2))[:, 0], fixed, b"x" * 24, [1.0]):
        with pytest.raises(TypeError):
            window.get_list(0, pieces, out=wrong)  # type: ignore[type-var]
    whole = np.zeros(4)
    with pytest.raises(kumi.OverlapError):
        window.get_list(0, pieces, out=[whole[:2], whole[1:2]])
    with pytest.raises(kumi.OverlapError):
        window.get_list(0, [(0, 8)], out=[whole, whole])
    window.get_list(0, pieces, out=[whole[2:], whole[1:2]])
    assert not window.array.any() and fixed.all()


def test_lists_know_ranks_counters_and_rights() -> None:
    window = kumi.window(8, np.uint8, read=False)
    for rank in (1, -1):
        with pytest.raises(kumi.BadRankError):
            window.put_list(rank, [(0, 1)], b"a")
        with pytest.raises(kumi.BadRankError):
            window.get_list(rank, [(0, 1)])
    for notify in (64, -1):
        with pytest.raises(kumi.BadNotifyError):
            window.put_list(0, [(0, 1)], b"a", notify)
    with pytest.raises(kumi.NoRightError):
        window.get_list(0, [(0, 1)])
    assert not window.array.any()
    window.free()
    with pytest.raises(kumi.FreedWindowError):
        window.put_list(0, [(0, 1)], b"a")


def test_records_for_many_come_once_to_each() -> None:
    window = kumi.window(1024, np.uint8)
    fifo = window.fifo(64, 16, notify=3)
    window.multicast_append([0, 0], 64, b"one")
    assert (fifo.pop(), fifo.try_pop(), window.notified(3)) == ((0, b"one"), None, 1)
    assert window.try_multicast_append(np.array([0, 0]), 64, b"two") == []
    assert window.try_multicast_append([0, 0], 64, b"three") == [0]
    with pytest.raises(kumi.FifoFullError):
        window.multicast_append(range(1), 64, b"three")
    assert (fifo.pop().data, fifo.try_pop()) == (b"two", None)
    window.multicast_append([], 64, b"to nobody")
    wrong: list[tuple[Any, Any]] = [
        (lambda: window.multicast_append([0, 1], 64, b""), kumi.BadRankError),
        (lambda: window.multicast_append([-1], 64, b""), kumi.BadRankError),
        (lambda: window.multicast_append([0, 1 << 70], 64, b""), kumi.BadRankError),
        (lambda: window.multicast_signal([-(1 << 70)], 64), kumi.BadRankError),
        (lambda: window.multicast([1 << 63], b""), kumi.BadRankError),
        (lambda: window.multicast_append(["0"], 64, b""), TypeError),  # type: ignore[list-item]
        (lambda: window.multicast_append(0, 64, b""), TypeError),  # type: ignore[arg-type]
        (lambda: window.multicast_append([0], -64, b""), kumi.OutOfBoundsError),
        (lambda: window.multicast_append([0], 128, b""), kumi.NoFifoError),
        (lambda: window.multicast_append([0], 64, bytes(17)), kumi.RecordTooLongError),
        (lambda: window.try_multicast_append([0], 64, "text"), TypeError),
        (lambda: window.multicast_signal([0], 64), kumi.NoFifoError),
        (lambda: window.try_multicast_signal([0], 64), kumi.NoFifoError),
    ]
    for call, error in wrong:
        with pytest.raises(error):
            call()
    assert fifo.try_pop() is None


def test_signals_for_many_run_handlers() -> None:
    window = kumi.window(1024, np.uint8)
    seen: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
    window.on_signal(0, 64, lambda source, data: seen.put((source, data)))
    window.multicast_signal([0, 0], 0, b"one")
    assert seen.get() == (0, b"one")
    assert window.try_multicast_signal([0], 0) == []
    assert seen.get() == (0, b"")
    window.remove_signal(0)
    assert seen.empty()
