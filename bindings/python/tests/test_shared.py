"""Shared memory in a job of one rank; `ranks_shared.py` has what needs several."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kumi

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import kumi
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def run(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as a job of one rank; one that hangs fails."""
    variables = {**os.environ, "KUMI_SINGLETON": "1", **environment}
    command = [sys.executable, "-c", BEGIN + text]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("home", ["blocks", "round-robin", "first-touch", 0, np.int64(0)])
def test_an_array_is_as_any_other(job: kumi.Job, home: Any) -> None:
    array = kumi.shared_array((3, 4), np.float32, home=home)
    assert isinstance(array, np.ndarray) and type(array) is kumi.SharedArray
    assert array.shape == (3, 4) and array.dtype == np.float32
    assert not array.any() and array.flags.writeable and array.flags.c_contiguous
    array[1] = 2
    array += 1
    assert type(array) is kumi.SharedArray and type(array[1:]) is kumi.SharedArray
    assert array.tolist() == [[1] * 4, [3] * 4, [1] * 4]
    shown: Any = array
    assert memoryview(shown)[1, 2] == 3


def test_results_are_no_shared_arrays(job: kumi.Job) -> None:
    array = kumi.shared_array(5)
    assert type(array + 1) is np.ndarray and type(np.sqrt(array)) is np.ndarray
    assert isinstance(array.sum(), np.float64) and isinstance(np.sum(array), np.float64)
    assert type(array.sum(keepdims=True)) is np.ndarray


def test_elements_of_any_plain_type(job: kumi.Job) -> None:
    pairs = kumi.shared_array(3, [("a", "i4"), ("b", "f8")])
    pairs[1] = (4, 0.5)
    assert pairs["b"].tolist() == [0, 0.5, 0]
    assert kumi.shared_array(()).shape == ()
    assert kumi.shared_array((3, 0), np.int8).tolist() == [[], [], []]
    assert kumi.shared_array(2, "U3").tolist() == ["", ""]


def test_its_memory_lasts_without_the_first_reference(job: kumi.Job) -> None:
    part = kumi.shared_array(1000)[10:20:3]
    part[:] = 6
    kumi.barrier()
    assert part.tolist() == [6.0] * 4


WRONG: list[tuple[type[Exception], Callable[[], object]]] = [
    (kumi.BadTypeError, lambda: kumi.shared_array(3, object)),
    (kumi.BadTypeError, lambda: kumi.shared_array("3")),  # type: ignore[arg-type]
    (kumi.BadTypeError, lambda: kumi.shared_array(2.5)),  # type: ignore[arg-type]
    (kumi.BadArgumentError, lambda: kumi.shared_array(-1)),
    (kumi.BadArgumentError, lambda: kumi.shared_array(1, home="here")),
    (kumi.BadTypeError, lambda: kumi.shared_array(1, home=0.5)),  # type: ignore[arg-type]
    (kumi.BadRankError, lambda: kumi.shared_array(1, home=1)),
    (kumi.BadRankError, lambda: kumi.shared_array(1, home=-1)),
    (kumi.OutOfMemoryError, lambda: kumi.shared_array(1 << 70)),
    (kumi.OutOfMemoryError, lambda: kumi.shared_array(1 << 50)),
    (kumi.BadArgumentError, lambda: kumi.lock(-1)),
    (kumi.BadArgumentError, lambda: kumi.lock(1 << 32)),
    (kumi.BadTypeError, lambda: kumi.lock("1")),  # type: ignore[arg-type]
    (kumi.BadArgumentError, lambda: kumi.condition(1 << 70)),
    (kumi.BadTypeError, lambda: kumi.bring(3)),
    (kumi.SharedMemoryError, lambda: kumi.lock(0).release()),
    (kumi.SharedMemoryError, lambda: kumi.window_on(kumi.shared_array(8))),
]


@pytest.mark.parametrize(("kind", "call"), WRONG)
def test_what_is_wrong_is_an_exception_of_the_package(
    job: kumi.Job, kind: type[Exception], call: Callable[[], object]
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, kumi.KumiError)
    # The memory is as it was.
    array = kumi.shared_array(3)
    array[:] = 1
    kumi.barrier()
    assert array.sum() == 3


def test_a_lock_is_not_taken_twice(job: kumi.Job) -> None:
    with kumi.lock(1) as lock:
        assert lock.number == 1 and repr(lock) == "kumi.lock(1)"
        with pytest.raises(kumi.SharedMemoryError, match="holds it already"), kumi.lock(1):
            pass
        with kumi.lock(2):
            pass
    with kumi.lock(1):
        pass


def test_the_first_error_in_a_lock_is_the_one_that_counts(job: kumi.Job) -> None:
    with pytest.raises(ZeroDivisionError) as caught, kumi.lock(1) as lock:
        lock.release()
        raise ZeroDivisionError
    assert "not hold it" in caught.value.__notes__[0]


def test_a_condition_that_is_set_lets_everybody_go_on(job: kumi.Job) -> None:
    condition = kumi.condition(3)
    assert condition.number == 3 and repr(condition) == "kumi.condition(3)"
    condition.set()
    condition.wait()
    condition.reset()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_DSM_BYTES", "1M")
    with kumi.init():
        kumi.shared_array(100_000)
        with pytest.raises(kumi.OutOfMemoryError, match="KUMI_DSM_BYTES") as caught:
            kumi.shared_array(100_000)
        assert caught.value.bytes == 802_816  # Whole pages.
    monkeypatch.setenv("KUMI_DSM_PROTOCOL", "sloppy")
    with kumi.init(), pytest.raises(kumi.BadArgumentError, match="KUMI_DSM_PROTOCOL"):
        kumi.lock(1)


def test_what_it_does_is_counted(job: kumi.Job) -> None:
    assert kumi.shared_statistics() == {}
    array = kumi.shared_array(5000)
    array[::512] = 1
    with kumi.lock(1):
        pass
    counts = kumi.shared_statistics()
    assert counts["faults"] > 0 and counts["locks"] == 1 and counts["barriers"] == 0


@pytest.mark.parametrize("faults", ["userfault", "mprotect"])
def test_threads_take_turns_by_locks(faults: str) -> None:
    text = """
kumi.init(threads=True)
try:
    total = kumi.shared_array(1, np.int64)
except kumi.SharedMemoryError as error:
    print("none:", error)
    sys.exit()
def add():
    for _ in range(300):
        with kumi.lock(4):
            total[0] = total[0] + 1
threads = [threading.Thread(target=add) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(total[0])
"""
    done = run(text, KUMI_DSM_FAULTS=faults)
    assert (done.returncode, done.stderr) == (0, "")
    if faults == "userfault" and done.stdout.startswith("none:"):
        pytest.skip(f"no userfaultfd here: {done.stdout}")
    assert done.stdout == "1200\n"


def test_other_threads_touch_it_without_threads(job: kumi.Job) -> None:
    array = kumi.shared_array(100_000)

    def fill() -> None:
        array[:] = 3

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    kumi.barrier()
    assert array.sum() == 300_000


def test_ctrl_c_ends_a_wait_and_shared_memory() -> None:
    text = """
condition = None
def soon():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
with kumi.init():
    array = kumi.shared_array(5000)
    condition = kumi.condition(1)
    threading.Thread(target=soon).start()
    try:
        condition.wait()
    except KeyboardInterrupt:
        print("ended")
    array[:] = 2  # Its pages still come.
    try:
        kumi.barrier()
    except kumi.FaultError as error:
        print(error)
"""
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = "ended\nan earlier call for shared memory was interrupted: end the program\n"
    assert done.stdout == wanted


def test_ctrl_c_ends_a_wait_for_a_lock_and_the_memory_goes_on() -> None:
    text = """
with kumi.init(threads=True):
    array = kumi.shared_array(10)
    taken, done = threading.Event(), threading.Event()
    def hold():
        with kumi.lock(1):
            taken.set()
            done.wait()
            array[0] += 1
    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    def soon():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=soon).start()
    try:
        with kumi.lock(1):
            print("never")
    except KeyboardInterrupt:
        print("ended")
    done.set()
    holder.join()
    # The wait that ended has not got it.
    with kumi.lock(1):
        array[0] += 1
    kumi.barrier()
    print(int(array[0]))
"""
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ended\n2\n"


def test_a_signal_handler_touches_it_while_a_call_waits() -> None:
    text = """
with kumi.init():
    array = kumi.shared_array(1_000_000, home="first-touch")
    def handler(*_):
        array[:] = 1
        kumi_sent.set()
    kumi_sent = threading.Event()
    signal.signal(signal.SIGALRM, handler)
    window = kumi.window(1, np.int64)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    class Done(Exception): pass
    def end(*_): raise Done
    signal.signal(signal.SIGUSR1, end)
    def soon():
        kumi_sent.wait()
        os.kill(os.getpid(), signal.SIGUSR1)
    threading.Thread(target=soon).start()
    try:
        kumi.recv()
    except Done:
        print(int(array.sum()))
"""
    done = run(text)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1000000\n")


def test_an_array_after_the_end_shows_what_is_here_or_says_why_not() -> None:
    text = """
with kumi.init():
    array = kumi.shared_array(100_000)
    array[0] = 4
    copy = array[:10].copy()
print(array[0], copy[0], flush=True)
try:
    array.bring()
except kumi.SharedMemoryError as error:
    print(error, flush=True)
with kumi.init():
    try:
        kumi.send(0, array)
    except kumi.SharedMemoryError:
        print("refused", flush=True)
    kumi.shared_array(5)[:] = 1
print(array[99_999])
"""
    done = run(text)
    ended = "this array is in shared memory that kumi.finalize() has ended; copy it before"
    assert done.stdout == f"4.0 4.0\n{ended}\nrefused\n"
    assert done.returncode == -signal.SIGSEGV
    assert "byte 799992 of the shared memory: the shared memory has ended" in done.stderr


def test_memory_that_nothing_shows_is_gone_after_the_end() -> None:
    text = """
def mappings():
    return open("/proc/self/maps").read().count("memfd:kumi")
for _ in range(40):
    with kumi.init():
        array = kumi.shared_array(1000)
        array[:] = 1
        assert mappings() > 0
        del array
    assert mappings() == 0, mappings()
"""
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_has_none() -> None:
    text = """
import warnings
warnings.simplefilter("ignore")
with kumi.init():
    array = kumi.shared_array(1000)
    array[0] = 1
    child = os.fork()
    if child == 0:
        try:
            array.bring()
        except kumi.ForkedError:
            print("refused", flush=True)
        array[0]
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), array[0])
"""
    done = run(text)
    assert (done.returncode, done.stdout) == (0, f"refused\n{-signal.SIGSEGV} 1.0\n")
    assert "kumi: no access to address" in done.stderr


def test_the_end_of_the_program_ends_it() -> None:
    done = run("kumi.init(); array = kumi.shared_array(3); array[:] = 1; print(array.sum())")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "3.0\n")
