"""Shared memory: run as :mod:`ranks` is. Every rank prints the tests that it passed."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import kumi

TESTS: list[Callable[[], None]] = []


def test(function: Callable[[], None]) -> Callable[[], None]:
    TESTS.append(function)
    return function


@test
def a_barrier_shows_what_was_written() -> None:
    me, ranks = kumi.rank(), kumi.size()
    for home in ("blocks", "round-robin", "first-touch", ranks - 1):
        array = kumi.shared_array((50, 401), np.int32, home=home, update=home == "round-robin")
        assert array.shape == (50, 401) and not array.any()
        kumi.barrier()
        for turn in range(4):
            # Every rank writes to every page, and nobody to another's elements.
            flat = array.reshape(-1)
            flat[(me + turn) % ranks :: ranks] = 10 * turn + me
            kumi.barrier()
            owners = (np.arange(flat.size) - turn) % ranks
            assert np.array_equal(flat, 10 * turn + owners), (home, turn)
            kumi.barrier()


@test
def a_lock_guards_a_sum() -> None:
    total = kumi.shared_array(2, np.int64, home=0)
    lock = kumi.lock(5)
    for number in range(50):
        with lock:
            total += [1, number]
    kumi.barrier()
    assert total.tolist() == [50 * kumi.size(), 1225 * kumi.size()]
    with kumi.lock(6):
        pass
    kumi.barrier()


@test
def a_condition_hands_a_value_on() -> None:
    me, ranks = kumi.rank(), kumi.size()
    values = kumi.shared_array((ranks, 512), home="blocks")
    if me > 0:
        kumi.condition(me - 1).wait()
        values[me] = values[me - 1] + 1.0
    else:
        values[me] = 1.0
    kumi.condition(me).set()
    kumi.barrier()
    assert (values == 1.0 + np.arange(ranks)[:, None]).all()
    kumi.barrier()
    kumi.condition(me).reset()
    kumi.barrier()


def view(array: Any) -> memoryview:
    """Its memory; before Python 3.12 type checkers do not know that arrays have one."""
    return memoryview(array)


def others(array: kumi.SharedArray) -> None:
    """Gives the array other contents, whose pages are with rank 0 alone."""
    kumi.barrier()
    if kumi.rank() == 0:
        array.reshape(-1)[:] = np.arange(array.size)
    kumi.barrier()


@test
def system_calls_and_code_in_c_use_it() -> None:
    array = kumi.shared_array((300, 100), np.int64, home=0)
    wanted = np.arange(30_000).reshape(300, 100)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "array")
        others(array)
        array.tofile(path)
        assert np.array_equal(np.fromfile(path, np.int64), wanted.ravel())
        others(array)
        np.save(path + ".npy", array)
        assert np.array_equal(np.load(path + ".npy"), wanted)
        others(array)
        array.bring()
        with open(path, "wb", buffering=0) as file:
            assert file.write(view(array)) == array.nbytes
        assert np.array_equal(np.fromfile(path, np.int64), wanted.ravel())
        others(array)
        column = array[:, 7]
        kumi.bring(column)
        assert column.tobytes() == np.ascontiguousarray(wanted[:, 7]).tobytes()
        others(array)
        rows = array[3:90:4, 2:5]
        kumi.bring(rows)
        assert np.array_equal(rows, wanted[3:90:4, 2:5])
        others(array)
        if kumi.rank() == 1:
            kumi.bring(array)
            with open(path, "rb", buffering=0) as file:
                array[:] = 0
                assert file.readinto(view(array).cast("B")) == array.nbytes
            array[0, 0] = 5
            array[1] = np.fromfile(path, np.int64, 100)
        kumi.barrier()
        again = wanted.copy()
        again[0, 0], again[1] = 5, np.arange(100)
        assert np.array_equal(array, again)
    others(array)
    assert view(array)[299, 99] == 29_999
    others(array)
    assert int(np.sum(array)) == 30_000 * 29_999 // 2
    others(array)
    assert array.astype(float).dot(np.ones(100)).sum() == 30_000 * 29_999 / 2
    kumi.barrier()


@test
def the_kernel_writes_to_pages_that_were_brought() -> None:
    array = kumi.shared_array(5000, np.int64, home=0)
    others(array)
    if kumi.rank() == kumi.size() - 1:
        with tempfile.TemporaryFile(buffering=0) as file:
            (np.arange(5000) * 3).tofile(file)
            file.seek(0)
            # Pages that were only read: the kernel's writes must be noticed, too.
            array.bring(write=True)
            assert file.readinto(view(array).cast("B")) == array.nbytes
    kumi.barrier()
    assert np.array_equal(array, np.arange(5000) * 3)
    kumi.barrier()


@test
def operations_of_the_channel_take_it() -> None:
    me, ranks = kumi.rank(), kumi.size()
    right, left = (me + 1) % ranks, (me - 1) % ranks
    source = kumi.shared_array(3000, np.int64, home=0)
    target = kumi.shared_array((ranks, 3000), np.int64, home="first-touch")
    wanted = np.arange(3000)

    def arrived() -> None:
        assert np.array_equal(target[me], wanted)
        kumi.barrier()
        assert (target == wanted).all()
        kumi.barrier()
        target[me] = 0

    others(source)
    kumi.sendrecv(right, source, target[me], left)
    arrived()
    others(source)
    sent = kumi.isend(right, source, 4)
    received = kumi.irecv(target[me], left, 4)
    assert received.wait().length == 24_000
    sent.wait()
    arrived()
    with kumi.window(3000, np.int64) as window:
        others(source)
        window.put(right, source, notify=0)
        window.wait_notify(0, 1)
        assert np.array_equal(window.array, wanted)
        kumi.barrier()
        window.get(right, out=target[me])
        arrived()
        request = window.iget(left, out=target[me])
        request.wait()
        arrived()
    others(source)
    assert np.array_equal(kumi.allreduce(source), ranks * wanted)
    others(source)
    if me == 2 % ranks:
        target[me] = source
    kumi.broadcast(target[me], 2 % ranks)
    arrived()
    others(source)
    assert np.array_equal(kumi.start_allreduce(source).wait(), ranks * wanted)
    kumi.barrier()


@test
def what_a_short_message_leaves_alone_stays_another_ranks() -> None:
    me, last = kumi.rank(), kumi.size() - 1
    for writer in {1, last}:
        array = kumi.shared_array(1000, np.uint8, home=0)
        kumi.barrier()
        if me == 0:
            received = kumi.irecv(array, writer, 8)
            kumi.send(writer, b"", 9)
            assert received.wait().length == 10
        if me == writer:
            kumi.recv(0, 9)
            array[500:] = 7
            kumi.send(0, bytes(range(1, 11)), 8)
        kumi.barrier()
        wanted = [*range(1, 11), *[0] * 490, *[7] * 500]
        assert array.tolist() == wanted, writer
        kumi.barrier()


def main() -> None:
    with kumi.init():
        for function in TESTS:
            function()
            print("passed", function.__name__, flush=True)


if __name__ == "__main__":
    main()
