"""Start, end, threads, forks."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import kumi


def program(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as a job of one rank; one that hangs fails."""
    variables = {**os.environ, "KUMI_SINGLETON": "1", **environment}
    command = [sys.executable, "-c", text]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_job_of_one(job: kumi.Job) -> None:
    assert (kumi.rank(), kumi.size(), kumi.job()) == (0, 1, 0)
    assert kumi.same_node(0)
    kumi.barrier()
    kumi.flush()
    kumi.flush(0)
    kumi.fence()
    kumi.fence(0)
    kumi.progress()
    # There is no daemon.
    assert (kumi.cluster_nodes(), kumi.node_load(0), kumi.rank_runs(0)) == (0, None, True)
    first = kumi.time()
    assert kumi.time() >= first


def test_a_program_started_by_hand_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUMI_SINGLETON")
    with pytest.raises(kumi.NotLaunchedError, match="kumi run"):
        kumi.init()
    # It may try again.
    monkeypatch.setenv("KUMI_SINGLETON", "1")
    with kumi.init():
        assert kumi.size() == 1


def test_a_senseless_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_SPIN", "sideways")
    with pytest.raises(kumi.AttachError, match="KUMI_SPIN"):
        kumi.init()


CALLS: list[Callable[[], object]] = [
    kumi.rank,
    kumi.barrier,
    kumi.flush,
    kumi.fence,
    kumi.finalize,
    kumi.probe,
    lambda: kumi.window(1),
    lambda: kumi.send(0, b""),
    lambda: kumi.allreduce(np.zeros(1)),
    lambda: kumi.gather(np.zeros(1)),
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_works_before_the_start(call: Callable[[], object]) -> None:
    with pytest.raises(kumi.NotInitialisedError):
        call()


def test_once_is_enough(job: kumi.Job) -> None:
    with pytest.raises(kumi.AlreadyInitialisedError):
        kumi.init()
    assert kumi.rank() == 0


def test_finalize_inside_of_the_block_is_no_mistake() -> None:
    with kumi.init():
        kumi.finalize()
    with pytest.raises(kumi.NotInitialisedError):
        kumi.finalize()


def test_an_exception_leaves_the_block_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), kumi.init():
        raise ZeroDivisionError
    with pytest.raises(kumi.NotInitialisedError):
        kumi.rank()


def test_other_threads_are_refused(job: kumi.Job) -> None:
    window = kumi.window(4)
    raised: list[BaseException] = []
    calls = [*CALLS, lambda: window.put(0, np.zeros(1)), lambda: window.notified(0), window.free]

    def run() -> None:
        for call in calls:
            try:
                call()
            except kumi.WrongThreadError as error:
                raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(raised) == len(calls)
    assert not window.freed
    window.put(0, np.ones(4))
    assert window.array.sum() == 4


def test_a_fork_is_refused_and_ends_quietly() -> None:
    text = """
import os, sys, warnings
import kumi
warnings.simplefilter("ignore")
with kumi.init():
    child = os.fork()
    if child == 0:
        for call in (kumi.rank, kumi.init, kumi.finalize):
            try:
                call()
            except kumi.ForkedError:
                print("refused", flush=True)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(kumi.rank())
"""
    run = program(text)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "refused\nrefused\nrefused\n0\n")


def test_what_handlers_raise_may_give_the_interpreter_away_when_it_is_dropped() -> None:
    # The second exception of the first port is dropped; its destructor waits until a handler of the
    # second port, which meanwhile raises one too, has ended.
    text = """
import threading
import kumi
begin, dropped, ran, go = (threading.Event() for _ in range(4))
class Slow(Exception):
    def __del__(self):
        dropped.set()
        go.wait()
def first(source, data):
    begin.wait()
    raise Slow if data else ValueError("first")
def second(source, data):
    ran.set()
    dropped.wait()
    raise ValueError("second")
with kumi.init():
    window = kumi.window(2048, "u1")
    window.on_signal(0, 128, first)
    window.on_signal(1024, 128, second)
    window.signal(0, 0)
    window.signal(0, 0, b"slow")
    window.signal(0, 1024)
    begin.set()
    ran.wait()
    window.remove_signal(1024)
    go.set()
    window.remove_signal(0)
    try:
        kumi.barrier()
    except kumi.HandlerError as error:
        print(error.count, error.__cause__)
"""
    run = program(text)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "3 first\n")


def test_the_end_of_the_program_leaves_the_job() -> None:
    run = program("import kumi; kumi.init(); window = kumi.window(3); print(window.array.sum())")
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "0.0\n")


def test_a_program_that_fails_still_says_why() -> None:
    run = program("import kumi; kumi.init(); window = kumi.window(3); window.put(0, 'text')")
    assert run.returncode == 1
    assert run.stderr.endswith("TypeError: array must be a numpy array, not str\n")


@pytest.mark.parametrize("wait", ["kumi.recv()", "kumi.window(1).wait_notify(0, 1)"])
def test_other_threads_run_while_a_call_waits(wait: str) -> None:
    # Nothing ends the wait but the other thread, which ends the program.
    text = f"""
import os, threading, time
import kumi
def other():
    time.sleep(0.2)
    os._exit(42)
kumi.init()
threading.Thread(target=other).start()
{wait}
"""
    assert program(text, KUMI_SPIN="infinite").returncode == 42


def test_exceptions_are_of_the_package_and_can_be_copied(job: kumi.Job) -> None:
    with pytest.raises(kumi.BadRankError) as caught:
        kumi.send(7, b"")
    error = caught.value
    assert (error.rank, error.ranks) == (7, 1)
    assert "rank 7 does not exist" in str(error)
    assert isinstance(error, kumi.KumiError) and isinstance(error, ValueError)
    assert type(error).__module__ == "kumi"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.rank) == (str(error), 7)
    with pytest.raises(kumi.BadRankError):
        kumi.flush(-1)
    with pytest.raises(kumi.BadRankError):
        kumi.fence(1)
