"""Windows on memory that the program has, in a job of one rank: which, for how long, and what is refused."""

import array
import gc
import mmap
import weakref
from typing import Any

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_the_array_is_the_window() -> None:
    mine = np.arange(6, dtype=np.int32).reshape(2, 3)
    with kumi.window_on(mine) as window:
        assert (window.shape, window.dtype, window.size_at(0)) == ((2, 3), np.dtype(np.int32), 6)
        assert np.shares_memory(window.array, mine)
        window.put(0, np.array([8, 9], np.int32), 2, notify=1)
        assert (mine.tolist(), window.notified(1)) == ([[0, 1, 8], [9, 4, 5]], 1)
        mine[1, 2] = 7
        assert window.get(0, 4).tolist() == [4, 7]
        assert (window.fetch_add(0, 0, 5), mine[0, 0]) == (0, 5)
        window.put_list(0, [(5, 1), (1, 1)], np.array([1, 2], np.int32))
        window.multicast([0], np.array([3], np.int32), 4)
        column = kumi.region((2, 3), np.s_[:, 2])
        assert window.get(0, column).tolist() == [8, 1]
    assert mine.tolist() == [[5, 2, 8], [9, 3, 1]]
    with pytest.raises(kumi.FreedWindowError):
        window.array  # noqa: B018


@pytest.mark.parametrize(
    ("memory", "dtype"),
    [
        (bytearray(16), "u1"),
        (array.array("d", [0.0, 0.0]), "f8"),
        (mmap.mmap(-1, 4096), "u1"),
        (memoryview(bytearray(16)).cast("I"), "u4"),
        (memoryview(bytearray(32))[8:24], "u1"),
        (np.zeros(2, [("a", "i4"), ("b", "M8[s]")]), [("a", "i4"), ("b", "M8[s]")]),
        (np.zeros(()), "f8"),
        (np.zeros(4, ">i2").view(np.recarray), ">i2"),
    ],
)
def test_any_object_with_memory_will_do(memory: Any, dtype: Any) -> None:
    with kumi.window_on(memory) as window:
        assert window.dtype == np.dtype(dtype)
        size = window.array.nbytes
        raw = np.frombuffer(bytes(range(1, 9)) * (size // 8), window.dtype)
        window.put(0, raw)
        there = memory.tobytes() if isinstance(memory, np.ndarray) else bytes(memory)
        assert there[:8] == bytes(range(1, 9))
        assert np.array_equal(window.get(0).view(np.uint8), raw.view(np.uint8))


def test_memory_of_nothing_is_a_window_too() -> None:
    for nothing in (bytearray(), np.zeros((0, 3))):
        window = kumi.window_on(nothing)
        assert window.size_at(0) == 0
        with pytest.raises(kumi.OutOfBoundsError):
            window.put(0, np.zeros(1, window.dtype))


def test_fifos_lie_in_it() -> None:
    room = np.zeros(4096 + 64, np.uint8)
    aligned = room[-room.ctypes.data % 64 :][:4096]
    window = kumi.window_on(aligned)
    fifo = window.fifo(64, 64)
    window.append(0, 64, b"record")
    assert fifo.pop() == (0, b"record")
    window.free()
    assert fifo.freed


def test_rights_are_kept() -> None:
    mine = np.ones(2, np.int64)
    window = kumi.window_on(mine, read=False, write=False, atomic=False)
    with pytest.raises(kumi.NoRightError):
        window.put(0, np.zeros(1, np.int64))
    with pytest.raises(kumi.NoRightError):
        window.get(0)
    with pytest.raises(kumi.NoRightError):
        window.fetch_add(0, 0, 1)
    assert mine.tolist() == [1, 1]


def test_memory_stays_while_the_window_lives() -> None:
    class Mine(bytearray):
        pass

    memory = Mine(b"x" * 1000)
    gone = weakref.ref(memory)
    window = kumi.window_on(memory)
    del memory
    gc.collect()
    assert gone() is not None
    window.put(0, np.full(1000, ord("y"), np.uint8))
    assert window.get(0).tobytes() == b"y" * 1000
    window.free()
    gc.collect()
    assert gone() is None


def test_memory_stays_though_the_window_object_is_lost() -> None:
    memory = bytearray(8)
    kumi.window_on(memory)
    gc.collect()
    with pytest.raises(BufferError):
        memory.extend(b"more")
    kumi.finalize()
    memory.extend(b"more")
    kumi.init()


def test_memory_cannot_be_resized_while_the_window_lives() -> None:
    plain, numbers, pages = bytearray(8), array.array("i", [1, 2]), mmap.mmap(-1, 4096)
    window, other, third = (kumi.window_on(memory) for memory in (plain, numbers, pages))
    for wrong in (plain.clear, lambda: numbers.append(3), pages.close):
        with pytest.raises(BufferError):
            wrong()
    for used in (window, other, third):
        used.free()
    plain.clear()
    numbers.append(3)
    pages.close()


def test_arrays_cannot_be_resized_while_the_window_lives() -> None:
    mine, whole = np.zeros(1000), np.zeros(1000)
    window, part = kumi.window_on(mine), kumi.window_on(whole[10:20])
    for resized in (mine, whole):
        for check in (True, False):
            with pytest.raises(ValueError, match="resize"):
                resized.resize(1_000_000, refcheck=check)
    window.put(0, np.ones(1000))
    part.put(0, np.ones(10))
    assert mine.all() and whole.sum() == 10
    window.free()
    part.free()
    # Now they can.
    mine.resize(2000, refcheck=False)
    assert mine.sum() == 1000


def test_what_cannot_be_written_to_as_it_lies_is_refused() -> None:
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    grid = np.zeros((4, 4))
    wrong: list[Any] = [
        fixed,
        grid[:, 0],
        grid.T[:2],
        np.broadcast_to(np.zeros(4), (4, 4)),
        np.float64(1),
        np.array([object()]),
        np.zeros(2, "V0"),
        np.asfortranarray(grid),
        b"bytes",
        memoryview(bytearray(8))[::2],
        memoryview(bytearray(8)).toreadonly(),
        "text",
        7,
        None,
        [1.0],
        grid.tolist(),
    ]
    for memory in wrong:
        with pytest.raises(TypeError):
            kumi.window_on(memory)
    # None of them has left a window: there is still room for all.
    windows = [kumi.window_on(grid) for _ in range(256)]
    with pytest.raises(kumi.WindowRefusedError):
        kumi.window_on(grid)
    for window in windows:
        window.free()


def test_what_the_library_refuses_is_let_go() -> None:
    memory = bytearray(65)
    odd = np.frombuffer(memory, np.uint8)[1:]
    with pytest.raises(kumi.WindowRefusedError, match="8"):
        kumi.window_on(odd)
    window = kumi.window_on(odd, atomic=False)
    window.put(0, b"\7")
    window.free()
    del odd, window
    gc.collect()
    assert memory[1] == 7
    memory.extend(b"more")


def test_two_windows_may_share_memory() -> None:
    mine = np.zeros(4)
    first, second = kumi.window_on(mine), kumi.window_on(mine[2:])
    first.put(0, np.ones(3))
    second.put(0, np.full(1, 5.0), 1)
    assert first.get(0).tolist() == [1, 1, 1, 5]
    first.free()
    assert second.get(0).tolist() == [1, 5]
