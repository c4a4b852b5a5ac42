"""Each wait runs the functions of all calls. Skipped where the commands were not built."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_call import call_command

from kumi import call

ROUTINES = """
from collections.abc import Callable

from kumi import call


@call.routine
def points(n: int, f: Callable[[int], int]) -> int:
    return sum(f(i) for i in range(n))


@call.routine
def plain(x: int) -> int:
    return x + 1


@call.routine
class Kept:
    def plain(self, x: int) -> int:
        return x + 1


@call.routine
def worker(number: int, more: Callable[[int], int]) -> int:
    rounds = 1
    while more(number):
        rounds += 1
    return rounds
"""

#: Time limit of calls in seconds: a wait that hangs fails.
LIMIT = 60.0
POINTS = 5
WORKERS = 8


@pytest.fixture(scope="module")
def routines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("served") / "waits.py"
    path.write_text(ROUTINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        yield path


@pytest.fixture(scope="module")
def one_slot(routines: Path) -> Iterator[call.Connection]:
    with call.Server(routines, slots=1) as server:
        yield call.connect(server.address)


@pytest.fixture
def own_slot(routines: Path) -> Iterator[call.Connection]:
    with call.Server(routines, slots=1) as server:
        yield call.connect(server.address)


class Ahead:
    """A call that has the only slot and needs its function, and one that waits for the slot."""

    def __init__(self, server: call.Connection) -> None:
        self.asked = 0
        self.ahead = server.call_async("points", POINTS, self._point, timeout=LIMIT)
        self.behind = server.call_async("plain", 41, timeout=LIMIT)

    def _point(self, i: int) -> int:
        self.asked += 1
        return i

    def check(self) -> None:
        assert self.asked == POINTS
        assert self.behind.result(0) == 42
        assert self.ahead.result(LIMIT) == 10


def begun_elsewhere(both: Ahead) -> None:
    thread = threading.Thread(target=both.behind.wait)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "wait",
    [
        lambda both: call.wait_all([both.behind, both.ahead]),
        lambda both: call.wait_any([both.behind]),
        lambda both: both.behind.result(),
        lambda both: both.behind.wait(LIMIT),
        begun_elsewhere,
    ],
    ids=["all", "any", "result", "limit", "thread"],
)
def test_a_wait_runs_functions_of_calls_ahead(one_slot: call.Connection, wait: Callable[[Ahead], object]) -> None:
    both = Ahead(one_slot)
    wait(both)
    both.check()


def test_a_plain_call_waits_too(one_slot: call.Connection) -> None:
    both = Ahead(one_slot)
    assert one_slot.call("plain", 1, timeout=LIMIT) == 2
    both.check()


def test_a_function_may_wait(one_slot: call.Connection) -> None:
    # Another connection, and a call ahead of it that asks while the function waits.
    outer = Ahead(one_slot)
    asked: list[int] = []

    def nested(i: int) -> int:
        asked.append(i)
        return i if asked != [0] else int(outer.behind.result(LIMIT))

    last = one_slot.call_async("points", 2, nested, timeout=LIMIT)
    assert last.result(LIMIT) == 42 + 1 and asked == [0, 1]
    outer.check()


def test_workers_that_fetch_their_work_run_at_once(routines: Path) -> None:
    asked = [0] * WORKERS
    end = time.monotonic() + LIMIT

    def more(number: int) -> int:
        asked[number] += 1
        # Work until each worker has asked once.
        return int(0 in asked and time.monotonic() < end)

    with call.Server(routines, slots=WORKERS) as served:
        server = call.connect(served.address)
        workers = [server.call_async("worker", number, more, timeout=2 * LIMIT) for number in range(WORKERS)]
        rounds = call.wait_all(workers)
    assert time.monotonic() < end
    assert rounds == asked


def test_a_coroutine_is_not_held_up_by_a_call_that_nobody_waits_for(own_slot: call.Connection) -> None:
    asked: list[int] = []

    def point(i: int) -> int:
        asked.append(i)
        return i

    ahead = own_slot.call_async("points", POINTS, point, timeout=LIMIT)
    # It runs: the call behind it has no slot.
    assert asyncio.run(asyncio.wait_for(own_slot.acall("plain", 41, timeout=LIMIT), LIMIT)) == 42
    assert asked == list(range(POINTS))
    assert ahead.result(LIMIT) == 10


def test_the_thread_that_waits_outlives_what_a_function_raises(own_slot: call.Connection) -> None:
    def leave(i: int) -> int:
        raise SystemExit(3)

    ahead = own_slot.call_async("points", POINTS, leave, timeout=LIMIT)
    # Each waits in the same thread.
    for x in range(2):
        assert asyncio.run(asyncio.wait_for(own_slot.acall("plain", x, timeout=LIMIT), LIMIT)) == x + 1
    with pytest.raises(call.CallbackError) as failed:
        ahead.result(LIMIT)
    assert isinstance(failed.value.__cause__, SystemExit)
