"""One-sided operations, FIFOs and signals of one rank: types, places and what is refused."""

import queue
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


@pytest.mark.parametrize("code", ["i4", "u4", "i8", "u8"])
def test_atomic_operations_agree_with_arithmetic(code: str) -> None:
    window = kumi.window(3, code)
    low, high = np.iinfo(code).min, np.iinfo(code).max
    assert [window.swap(0, 1, high), window.fetch_add(0, 1, 1)] == [0, high]
    assert [window.fetch_add(0, 1, -1), window.fetch_and(0, 1, 0b1100)] == [low, high]
    assert [window.fetch_or(0, 1, 0b0011), window.fetch_xor(0, 1, 0b0101)] == [0b1100, 0b1111]
    assert window.compare_swap(0, 1, 9, 7) == 0b1010
    assert window.compare_swap(0, 1, 0b1010, 7) == 0b1010
    assert window.array.tolist() == [0, 7, 0]
    with pytest.raises(kumi.OutOfBoundsError):
        window.swap(0, 3, 1)
    with pytest.raises(kumi.BadRankError):
        window.swap(1, 0, 1)


def test_atomic_operations_need_integers_of_a_word() -> None:
    for code in ("f8", "i2", "M8[s]", ">i4"):
        with pytest.raises(TypeError, match="atomic operations need"):
            kumi.window(1, code).fetch_or(0, 0, 1)


def test_completions_count_puts() -> None:
    window, done = kumi.window(8), kumi.Completion()
    assert (done.done(), done.wait(), done.wait(0)) == (0, 0, 0)
    for place in range(3):
        window.put(0, np.full(2, 1.0 + place), 2 * place, notify=1, completion=done)
    assert (done.wait(3), done.done(), window.notified(1)) == (3, 3, 3)
    with pytest.raises(kumi.NeverDoneError) as caught:
        done.wait(4)
    assert (caught.value.begun, caught.value.at_least) == (3, 4)
    assert window.array.tolist() == [1, 1, 2, 2, 3, 3, 0, 0]
    del done
    again = kumi.Completion()
    kumi.finalize()
    kumi.init()
    with pytest.raises(kumi.FreedCompletionError):
        again.done()


SHAPE = (4, 5, 6)
REGIONS = [
    np.s_[:, :, 0],
    np.s_[1],
    np.s_[-1, :, 2:5],
    np.s_[2, 3],
    np.s_[:, 4, :],
    np.s_[1:3],
    np.s_[::2, 0, 0],
    np.s_[:, :, ::3],
    np.s_[0, 1, 2],
    np.s_[1:1],
    np.s_[..., 5],
    np.s_[:, None, :, 1],
    np.s_[:],
    3,
]


@pytest.mark.parametrize("index", REGIONS)
def test_regions_are_what_numpy_means(index: Any) -> None:
    window = kumi.window(SHAPE, np.int16)
    mirror = np.zeros(SHAPE, np.int16)
    part = kumi.region(SHAPE, index)
    values = np.random.default_rng(1).integers(1, 99, part.shape).astype(np.int16)
    window.put(0, values, part, notify=0)
    mirror[index] = values
    assert np.array_equal(window.array, mirror)
    got = window.get(0, part)
    assert got.shape == part.shape and np.array_equal(got, values)
    assert window.notified(0) == 1


def test_arrays_of_regions_need_not_be_contiguous() -> None:
    window = kumi.window((3, 4), np.int32)
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    column = kumi.region((3, 4), np.s_[:, 1])
    window.put(0, grid[:, 3], column)
    assert window.array[:, 1].tolist() == [3, 7, 11]
    out = np.zeros((3, 2), np.int32)
    assert window.get(0, column, out=out[:, 1]) is not None
    assert out.tolist() == [[0, 3], [0, 7], [0, 11]]
    with pytest.raises(ValueError, match="shape"):
        window.put(0, grid[:2, 3], column)
    with pytest.raises(TypeError, match="int64"):
        window.put(0, np.arange(3), column)
    with pytest.raises(TypeError, match="out must be"):
        window.get(0, column, out=np.zeros(3))
    with pytest.raises(TypeError, match="region"):
        window.get(0, column, 3)
    with pytest.raises(kumi.OutOfBoundsError):
        window.put(0, np.zeros(4, np.int32), kumi.region((4, 4), np.s_[:, 0]))


def test_what_is_no_region_is_refused() -> None:
    for index in (np.s_[::-1], np.s_[::2, ::2, ::2], np.s_[:3, :3, :3], [0, 2], np.s_[[1], :]):
        with pytest.raises(ValueError, match="integers and slices|equal distances"):
            kumi.region(SHAPE, index)
    with pytest.raises(IndexError):
        kumi.region(SHAPE, 4)


def test_regions_of_pieces_of_any_size_read_nothing() -> None:
    # Far more than there is memory for, so that reading it would end the program.
    huge = (1 << 20, 1 << 20)
    last = ((1 << 20) - 1, (1 << 20) - 1)
    assert kumi.region(huge, last) == ((), (1 << 40) - 1, 1, 1, 1)
    assert kumi.region(huge, np.int16(3)).offset == 3 << 20
    assert kumi.region(huge, (..., 5)).shape == (1 << 20,)
    wrong: list[Any] = [[1 << 19], np.array([1 << 19]), np.array(1 << 19), True, np.True_, 1.0, "1"]
    for item in wrong:
        for index in (item, (item,), (1, item), (slice(None), item)):
            with pytest.raises(ValueError, match="integers and slices"):
                kumi.region(huge, index)
    with pytest.raises(ValueError, match="integers and slices"):
        kumi.region((1 << 10, 1 << 10), np.ones((1 << 10, 1 << 10), bool))


def test_multicast_writes_each_rank_once() -> None:
    window = kumi.window(4, np.uint8)
    window.multicast([0, 0], b"\1\2", 1, notify=2)
    assert (window.array.tolist(), window.notified(2)) == ([0, 1, 2, 0], 1)
    window.multicast([], b"\1\2", 1)
    with pytest.raises(kumi.BadRankError):
        window.multicast(range(2), b"\1")
    with pytest.raises(kumi.OutOfBoundsError):
        window.multicast([0], b"\1\2", 3)


def test_records_come_in_order_and_none_is_lost() -> None:
    window = kumi.window(1024, np.uint8)
    fifo = window.fifo(64, 128, notify=3)
    assert (fifo.offset, fifo.freed, fifo.try_pop()) == (64, False, None)
    texts = [b"", b"a", b"longer than eight"]
    for text in texts:
        window.append(0, 64, text)
    window.append(0, 64, np.arange(2, dtype=np.int32))
    assert window.notified(3) == 4
    got = []
    for source, data in fifo:
        got.append(data)
        assert source == 0
        if len(got) == 4:
            break
    assert got == [*texts, np.arange(2, dtype=np.int32).tobytes()]
    count = 0
    while window.try_append(0, 64, bytes(24)):
        count += 1
    assert count == 4
    with pytest.raises(kumi.FifoFullError) as caught:
        window.append(0, 64, bytes(24))
    assert (caught.value.rank, caught.value.offset) == (0, 64)
    assert fifo.pop() == kumi.Record(0, bytes(24)) and len(list(islice(fifo, 3))) == 3


def test_fifos_say_what_they_cannot_do() -> None:
    window = kumi.window(1024, np.uint8)
    for offset, capacity in ((8, 64), (0, 20), (0, 8)):
        with pytest.raises(kumi.BadFifoError):
            window.fifo(offset, capacity)
    with pytest.raises(kumi.OutOfBoundsError):
        window.fifo(0, 1024)
    with pytest.raises(kumi.OutOfBoundsError):
        window.fifo(-64, 64)
    with pytest.raises(kumi.BadNotifyError):
        window.fifo(0, 64, notify=64)
    with window.fifo(0, 64) as fifo:
        with pytest.raises(kumi.BadFifoError):
            window.fifo(64, 64)
        with pytest.raises(kumi.RecordTooLongError) as caught:
            window.append(0, 0, bytes(kumi.max_record() + 1))
        assert caught.value.length == kumi.max_record() + 1
        with pytest.raises(kumi.RecordTooLongError):
            window.append(0, 0, bytes(64))
        with pytest.raises(TypeError, match="data"):
            window.append(0, 0, "text")
        with pytest.raises(kumi.NoFifoError):
            window.signal(0, 0)
    fifo.free()
    assert fifo.freed and "freed" in repr(fifo)
    for call in (fifo.pop, fifo.try_pop, lambda: next(fifo)):
        with pytest.raises(kumi.FreedFifoError):
            call()
    with pytest.raises(kumi.NoFifoError) as none:
        window.append(0, 0, b"")
    assert (none.value.rank, none.value.offset) == (0, 0)


def test_fifos_end_with_their_window_or_job() -> None:
    window = kumi.window(1024, np.uint8)
    address = window.array.__array_interface__["data"][0]
    first = window.fifo(0, 64)
    window.free()
    assert first.freed
    with kumi.window(1024, np.uint8) as again:
        assert again.array.__array_interface__["data"][0] == address
    window = kumi.window(1024, np.uint8)
    second = window.fifo(0, 64)
    del window
    kumi.finalize()
    assert second.freed
    kumi.init()
    with pytest.raises(kumi.FreedFifoError):
        second.pop()
    second.free()


def test_handlers_run_on_a_thread_of_their_own() -> None:
    window = kumi.window(1024, np.uint8)
    seen: queue.SimpleQueue[tuple[int, bytes, object]] = queue.SimpleQueue()
    refused = threading.Event()

    def handler(source: int, data: bytes) -> None:
        seen.put((source, data, threading.get_ident()))
        try:
            kumi.barrier()
        except kumi.WrongThreadError:
            refused.set()

    window.on_signal(0, 128, handler)
    for number in range(20):
        window.signal(0, 0, bytes([number]))
    got = [seen.get() for _ in range(20)]
    assert [data for _, data, _ in got] == [bytes([number]) for number in range(20)]
    assert {source for source, _, _ in got} == {0}
    assert threading.get_ident() not in {thread for _, _, thread in got}
    assert refused.wait(60)
    window.remove_signal(0)
    calls: list[Callable[[], object]] = [
        lambda: window.signal(0, 0),
        lambda: window.remove_signal(0),
    ]
    for call in calls:
        with pytest.raises(kumi.NoFifoError):
            call()
    with pytest.raises(TypeError, match="callable"):
        window.on_signal(0, 64, 7)  # type: ignore[arg-type]


def test_what_a_handler_raises_is_the_cause_of_the_next_calls_error() -> None:
    window = kumi.window(1024, np.uint8)
    ran = threading.Semaphore(0)

    def handler(source: int, data: bytes) -> None:
        try:
            if data:
                raise ZeroDivisionError(data.decode())
        finally:
            ran.release()

    window.on_signal(64, 128, handler)
    window.signal(0, 64, b"wrong")
    ran.acquire()
    # The port tells it after the handler has ended; removing the port waits for that.
    window.remove_signal(64)
    with pytest.raises(kumi.HandlerError, match="ZeroDivisionError: wrong") as caught:
        kumi.barrier()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (caught.value.offset, caught.value.count) == (64, 1)
    kumi.barrier()


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_handler_raises_is_told_at_the_end_at_the_latest(keep: bool) -> None:
    window = kumi.window(1024, np.uint8)
    # Memory that an array shows stays.
    kept = window.array if keep else None
    ran = threading.Event()

    def handler(source: int, data: bytes) -> None:
        ran.set()
        raise ZeroDivisionError

    window.on_signal(0, 64, handler)
    window.signal(0, 0)
    ran.wait()
    del window
    with pytest.raises(kumi.HandlerError) as caught:
        kumi.finalize()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert kept is None or kept.size == 1024
    with pytest.raises(kumi.NotInitialisedError):
        kumi.rank()


def test_a_window_ends_while_a_handler_runs() -> None:
    begun, go = threading.Event(), threading.Event()

    def handler(source: int, data: bytes) -> None:
        begun.set()
        go.wait()

    for end in ("free", "finalize"):
        window = kumi.window(1024, np.uint8)
        window.on_signal(0, 64, handler)
        window.signal(0, 0)
        begun.wait()
        # Both wait for the handler, which needs the interpreter meanwhile.
        threading.Timer(0.05, go.set).start()
        if end == "free":
            window.free()
        else:
            kumi.finalize()
        assert go.is_set()
        begun.clear()
        go.clear()
