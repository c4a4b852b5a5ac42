"""Windows of a job of one rank: what is checked, and how long memory lives."""

import gc
import threading

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_the_array_is_the_window_itself() -> None:
    window = kumi.window((3, 4), np.int32)
    assert (window.shape, window.dtype) == ((3, 4), np.dtype(np.int32))
    assert window.array.shape == (3, 4)
    assert window.array.flags.writeable and window.array.flags.aligned
    assert not window.array.any()
    window.put(0, np.array([[1, 2], [3, 4]], np.int32), offset=4)
    assert window.array.tolist() == [[0] * 4, [1, 2, 3, 4], [0] * 4]
    window.array[2] = 9
    assert window.get(0, 7, 3).tolist() == [4, 9, 9]
    assert window.get(0).tolist() == window.array.ravel().tolist()
    assert window.size_at(0) == 12


def test_get_fills_what_it_is_given() -> None:
    window = kumi.window(6, np.uint16)
    window.array[:] = range(6)
    out = np.zeros((2, 2), np.uint16)
    assert window.get(0, 1, out=out) is out
    assert out.tolist() == [[1, 2], [3, 4]]
    assert window.get(0, 2, 2, dtype=np.uint8).tolist() == [2, 0]
    assert window.get(0, 6).size == 0
    for wrong in (np.zeros((2, 4), np.uint16)[:, :2], b"bytes", np.broadcast_to(out, (3, 2, 2))):
        with pytest.raises(TypeError):
            window.get(0, out=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="either"):
        window.get(0, 0, 1, out=out)
    with pytest.raises(ValueError, match="count"):
        window.get(0, 0, -1)


def test_what_does_not_fit_is_refused_and_nothing_written() -> None:
    window = kumi.window(4)
    for array, offset in ((np.ones(5), 0), (np.ones(1), 4), (np.ones(1), -1), (np.ones(1), 1 << 70)):
        with pytest.raises(kumi.OutOfBoundsError):
            window.put(0, array, offset)
    with pytest.raises(IndexError):
        window.get(0, 0, 5)
    with pytest.raises(TypeError, match="float32"):
        window.put(0, np.ones(1, np.float32))
    with pytest.raises(TypeError, match="contiguous"):
        window.put(0, np.ones((4, 2))[:, 0])
    with pytest.raises(TypeError, match="list"):
        window.put(0, [1.0])
    with pytest.raises(kumi.BadRankError):
        window.put(1, np.ones(1))
    with pytest.raises(kumi.BadNotifyError):
        window.put(0, np.ones(1), notify=64)
    with pytest.raises(kumi.BadNotifyError):
        window.put(0, np.ones(1), notify=-1)
    assert not window.array.any()


def test_rights_are_kept() -> None:
    window = kumi.window(1, np.int64, read=False, write=False, atomic=False)
    with pytest.raises(kumi.NoRightError):
        window.put(0, np.ones(1, np.int64))
    with pytest.raises(PermissionError):
        window.get(0)
    with pytest.raises(kumi.NoRightError):
        window.fetch_add(0, 0, 1)
    assert window.array[0] == 0


def test_bytes_go_into_windows_of_bytes() -> None:
    window = kumi.window(8, "u1")
    window.put(0, b"to you", 1)
    assert window.array.tobytes() == b"\0to you\0"


def test_structures_and_dates_are_elements_too() -> None:
    kind = np.dtype([("O", np.int16), ("when", "M8[s]")])
    window = kumi.window(2, kind)
    window.put(0, np.array([(7, "2001-02-03")], kind), 1)
    assert window.array[1]["O"] == 7
    assert str(window.get(0, 1)[0]["when"]) == "2001-02-03T00:00:00"
    with pytest.raises(TypeError, match="objects"):
        kumi.window(1, object)


def test_fetch_add_returns_what_was_there() -> None:
    unsigned, signed = kumi.window(2, np.uint64), kumi.window(2, np.int64)
    assert [unsigned.fetch_add(0, 1, 5), unsigned.fetch_add(0, 1, -6)] == [0, 5]
    assert unsigned.array.tolist() == [0, 2**64 - 1]
    assert [signed.fetch_add(0, 1, -5), signed.fetch_add(0, 1, 7)] == [0, -5]
    assert signed.array.tolist() == [0, 2]
    with pytest.raises(kumi.OutOfBoundsError):
        signed.fetch_add(0, 2, 1)
    with pytest.raises(TypeError, match="int64"):
        kumi.window(1).fetch_add(0, 0, 1)


def test_notifications_count() -> None:
    window = kumi.window(1)
    assert window.notified(63) == 0
    for count in range(1, 4):
        window.put(0, np.full(1, float(count)), notify=63)
        assert window.wait_notify(63, count) == count
    assert (window.notified(63), window.notified(0)) == (3, 0)
    with pytest.raises(kumi.BadNotifyError):
        window.wait_notify(64, 0)
    window.flush()


def test_a_freed_window_is_refused() -> None:
    with kumi.window(2) as window:
        window.put(0, np.ones(2))
    window.free()
    assert window.freed and "freed" in repr(window)
    for call in (
        lambda: window.put(0, np.ones(1)),
        lambda: window.get(0, 0, 1),
        lambda: window.notified(0),
        lambda: window.array,
        lambda: window.size_at(0),
    ):
        with pytest.raises(kumi.FreedWindowError):
            call()


def test_an_array_keeps_the_memory_of_its_window() -> None:
    first = kumi.window(1000)
    kept = first.array[10:20]
    kept[:] = 5
    first.free()
    del first
    gc.collect()
    # It would get the same memory if that had been given back.
    second = kumi.window(1000)
    second.array[:] = 7
    assert kept.tolist() == [5] * 10
    address = second.array.__array_interface__["data"][0]
    del kept
    # Now the first one's is free, and the next window takes it.
    third = kumi.window(1000)
    assert third.array.__array_interface__["data"][0] < address
    assert not third.array.any()


def test_memory_is_given_back_only_by_the_owner() -> None:
    window = kumi.window(100)
    address = window.array.__array_interface__["data"][0]
    held = [window.array]
    window.free()
    # The last array may go in any thread.
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    again = kumi.window(100)
    assert again.array.__array_interface__["data"][0] == address


def test_arrays_outlive_the_job() -> None:
    array = kumi.window(5).array
    array[:] = 3
    kumi.finalize()
    assert array.sum() == 15
    kumi.init()
    window = kumi.window(5)
    window.array[:] = 4
    assert (array.sum(), window.array.sum()) == (15, 20)


def test_the_end_of_a_block_after_the_end_of_the_job_is_no_mistake() -> None:
    with kumi.window(1) as window:
        kumi.finalize()
    assert window.freed


def test_windows_of_another_job_are_refused() -> None:
    old = kumi.window(5)
    kumi.finalize()
    kumi.init()
    kumi.window(5)
    with pytest.raises(kumi.FreedWindowError):
        old.put(0, np.ones(1))


def test_many_windows_one_after_another() -> None:
    for count in range(1000):
        with kumi.window(count) as window:
            window.put(0, np.full(count, 1.0))
            assert window.array.sum() == count


def test_too_much_is_refused() -> None:
    with pytest.raises(kumi.KumiError):
        kumi.window(1 << 50, np.uint8)
    with pytest.raises(ValueError, match="negative"):
        kumi.window((2, -1))
    # What numpy cannot show is no window either.
    for shape in ((1 << 40, 0, 1 << 40), (1,) * 100):
        with pytest.raises(ValueError, match="array|dimension"):
            kumi.window(shape)
    windows = [kumi.window(1) for _ in range(256)]
    with pytest.raises(kumi.WindowRefusedError):
        kumi.window(1)
    for window in windows:
        window.free()
    assert not kumi.window(0).array.size
