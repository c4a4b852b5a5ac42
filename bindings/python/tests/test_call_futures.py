"""Futures, coroutines, map and as_completed of calls. Skipped where the commands were not built."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_call import call_command

from kumi import call
from kumi.call._futures import Sender
from kumi.call._waiter import Waiter

ROUTINES = """
from collections.abc import Callable

import time

from kumi import call


@call.routine
def plain(x: int) -> int:
    return x + 1


@call.routine
def fails(x: int) -> int:
    raise ValueError(f"no {x}")


@call.routine
def endless() -> None:
    while True:
        time.sleep(1)


@call.routine
def until(x: int, over: Callable[[int], int]) -> int:
    while not over(x):
        time.sleep(0.01)
    return x


@call.routine
class Log:
    def __init__(self) -> None:
        self.digits = 0

    def add(self, digit: int) -> int:
        self.digits = self.digits * 10 + digit
        return self.digits

    def forever(self) -> None:
        while True:
            time.sleep(1)
"""

#: Time limit of calls in seconds: a wait that hangs fails.
LIMIT = 120.0
MANY = 400
SLOTS = 2


@pytest.fixture(scope="module")
def routines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("served") / "futures.py"
    path.write_text(ROUTINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        yield path


@pytest.fixture(scope="module")
def address(routines: Path) -> Iterator[str]:
    with call.Server(routines, slots=SLOTS) as server:
        yield server.address


@pytest.fixture
def server(address: str) -> Iterator[call.Connection]:
    with call.connect(address) as connection:
        yield connection


@pytest.fixture
def pool(address: str) -> Iterator[call.Executor]:
    with call.Executor(address) as executor:
        yield executor


class Gate:
    """A function that keeps a routine until it is opened."""

    def __init__(self) -> None:
        self._is_open = False
        self.asked = threading.Event()

    def open(self) -> None:
        self._is_open = True

    def __call__(self, x: int) -> int:
        self.asked.set()
        return int(self._is_open)


# ---- the executor ----


def test_results_come_in_the_order_of_the_inputs(pool: call.Executor) -> None:
    assert isinstance(pool, concurrent.futures.Executor)
    assert list(pool.map("plain", range(50))) == list(range(1, 51))  # type: ignore[arg-type]


def test_calls_are_sent_in_their_order(server: call.Connection) -> None:
    with server.object("Log") as log, call.Executor(log) as pool:
        futures = [pool.submit("add", digit) for digit in range(1, 10)]
        assert futures[-1].result(LIMIT) == 123_456_789


def test_hundreds_of_calls_have_no_threads_of_their_own(pool: call.Executor) -> None:
    pool.submit("plain", 0).result(LIMIT)
    threads = threading.active_count()
    futures = [pool.submit("plain", x) for x in range(MANY)]
    assert threading.active_count() <= threads
    done = concurrent.futures.wait(futures, LIMIT)
    assert not done.not_done
    assert [future.result() for future in futures] == list(range(1, MANY + 1))


def test_errors_are_typed_and_come_with_the_result(pool: call.Executor) -> None:
    with pytest.raises(call.RaisedError, match="no 3"):
        pool.submit("fails", 3).result(LIMIT)
    assert isinstance(pool.submit("plain", "x").exception(LIMIT), call.ArgumentError)
    assert isinstance(pool.submit("nothing").exception(LIMIT), call.RoutineNotFound)
    # They do no harm to others.
    assert pool.submit("plain", 1).result(LIMIT) == 2


def test_an_executor_that_was_shut_down_takes_no_calls(address: str) -> None:
    pool = call.Executor(address)
    last = pool.submit("plain", 1)
    pool.shutdown()
    assert last.done() and last.result() == 2
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit("plain", 1)
    pool.shutdown()


def test_a_call_that_is_not_sent_is_cancelled_here(address: str) -> None:
    gate = Gate()
    with call.Executor(address, in_flight=1) as pool:
        ahead = pool.submit("until", 1, gate)
        behind = pool.submit("plain", 1)
        assert gate.asked.wait(LIMIT)
        assert behind.cancel() and behind.cancelled()
        assert not ahead.done()
        gate.open()
        assert ahead.result(LIMIT) == 1
        assert not ahead.cancel() and not ahead.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        behind.result()


def test_shutting_down_cancels_what_is_not_sent(address: str) -> None:
    gate = Gate()
    pool = call.Executor(address, in_flight=1)
    ahead = pool.submit("until", 1, gate)
    behind = [pool.submit("plain", x) for x in range(10)]
    assert gate.asked.wait(LIMIT)
    pool.shutdown(wait=False, cancel_futures=True)
    gate.open()
    assert ahead.result(LIMIT) == 1
    assert all(future.cancelled() for future in behind)
    assert not concurrent.futures.wait(behind, LIMIT).not_done


def test_a_call_that_runs_is_cancelled_at_the_server(pool: call.Executor) -> None:
    # They have all slots.
    running = [pool.submit("endless") for _ in range(SLOTS)]
    behind = pool.submit("plain", 1)
    for future in running:
        # Until it is sent, cancelling it would not reach the server.
        while not future.running():
            threading.Event().wait(0.01)
        assert future.cancel()
    for future in running:
        with pytest.raises(call.CancelledError):
            future.result(LIMIT)
        assert future.cancelled()
    assert behind.result(LIMIT) == 2


def test_the_futures_of_a_killed_server_end(routines: Path) -> None:
    with call.Server(routines, slots=1) as server:
        pool = call.Executor(server.address, in_flight=4)
        gate = Gate()
        running = pool.submit("until", 1, gate)
        futures = [running, *(pool.submit("endless") for _ in range(20))]
        assert gate.asked.wait(LIMIT)
        server._process.kill()
        ends = [future.exception(LIMIT) for future in futures]
    assert isinstance(ends[0], call.ConnectionLostError)
    # Those that were not sent find no server.
    assert all(isinstance(end, call.ConnectionLostError | call.ConnectError) for end in ends)
    assert isinstance(ends[-1], call.ConnectError)
    pool.shutdown()


def test_a_dropped_executor_leaves_no_thread(server: call.Connection) -> None:
    pool = call.Executor(server)
    last = pool.submit("plain", 1)
    thread = pool._sender.thread
    del pool
    assert last.result(LIMIT) == 2
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_calls_that_cannot_be_waited_for_end(server: call.Connection) -> None:
    class Broken:
        def add(self, key: int, native: object) -> None: ...

        def remove(self, key: int) -> None: ...

        def wait(self, seconds: float) -> list[int]:
            raise call.CallError("no more files")

    waiter = Waiter()
    works, waiter._set = waiter._set, Broken()  # type: ignore[assignment]
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    waiter.watch(server.call_async("plain", 1), ends.put)
    assert isinstance(ends.get(timeout=LIMIT), call.CallError)
    waiter._set = works
    waiter.watch(server.call_async("plain", 1), ends.put)
    assert ends.get(timeout=LIMIT) is None
    waiter.stop()


# ---- coroutines ----


def test_an_event_loop_goes_on_while_calls_run(server: call.Connection) -> None:
    ticks = 0

    def over(x: int) -> int:
        # The routine ends when the loop has gone on for a while.
        return int(ticks >= 100)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main() -> list[Any]:
        ticking = asyncio.create_task(tick())
        calls = [server.acall("until", x, over, timeout=LIMIT) for x in range(SLOTS)]
        results = await asyncio.gather(*calls)
        ticking.cancel()
        return results

    assert asyncio.run(main()) == list(range(SLOTS))
    assert ticks >= 100


def test_hundreds_of_calls_are_awaited_at_once(server: call.Connection) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(server.acall("plain", x) for x in range(MANY)))

    assert asyncio.run(main()) == list(range(1, MANY + 1))


def test_a_handle_can_be_awaited(server: call.Connection) -> None:
    async def main() -> None:
        assert await server.call_async("plain", 1) == 2
        with pytest.raises(call.RaisedError):
            await server.call_async("fails", 1)
        over = server.call_async("plain", 2)
        over.wait(LIMIT)
        assert await over == 3

    asyncio.run(main())


def test_a_call_that_something_else_has_cancelled_does_not_cancel_its_task(server: call.Connection) -> None:
    async def main() -> None:
        handle = server.call_async("endless")

        async def wait() -> None:
            await handle

        task = asyncio.create_task(wait())
        # It begins to wait.
        await asyncio.sleep(0)
        handle.cancel()
        done, _ = await asyncio.wait([task], timeout=LIMIT)
        assert done == {task} and not task.cancelled()
        assert isinstance(task.exception(), call.CancelledError)

    asyncio.run(main())


def test_a_cancelled_task_cancels_its_call(server: call.Connection) -> None:
    async def main() -> None:
        gates = [Gate() for _ in range(SLOTS)]
        tasks = [asyncio.create_task(server.acall("until", 1, gate)) for gate in gates]
        for gate in gates:
            # They run.
            assert await asyncio.to_thread(gate.asked.wait, LIMIT)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await task
        # It has a slot only if they have ended.
        assert await server.acall("plain", 1, timeout=LIMIT) == 2

    asyncio.run(main())


def test_a_method_is_awaited(server: call.Connection) -> None:
    async def main() -> None:
        with server.object("Log") as log:
            for digit in (1, 2, 3):
                last = await log.acall("add", digit)
            assert last == 123
            with pytest.raises(call.TimedOutError):
                await log.acall("forever", timeout=0.1)
            with pytest.raises(call.ObjectLostError):
                await log.acall("add", 1)

    asyncio.run(main())


def test_a_coroutine_beside_a_close_ends(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = call.connect(address)
    closing = threading.Thread(target=connection.close)
    put = Sender.put_awaited

    def put_beside_close(sender: Sender, begin: Callable[[], call.Handle]) -> call.CallFuture:
        closing.start()
        # It has to wait for this call, which would never begin behind the end of the sender.
        closing.join(0.5)
        return put(sender, begin)

    monkeypatch.setattr(Sender, "put_awaited", put_beside_close)
    with contextlib.suppress(call.ConnectError):
        assert asyncio.run(asyncio.wait_for(connection.acall("plain", 1), LIMIT)) == 2
    closing.join(LIMIT)
    assert not closing.is_alive()


def test_the_default_connection_has_coroutines(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_CALL_SERVER", address)

    async def main() -> int:
        result: int = await call.acall("plain", 4)
        return result

    assert asyncio.run(main()) == 5
    assert list(call.map("plain", [1, 2], in_flight=1)) == [2, 3]


# ---- map and as_completed ----


def test_map_takes_inputs_as_calls_begin(server: call.Connection) -> None:
    taken = itertools.count()
    results = server.map("plain", (next(taken) for _ in itertools.count()), in_flight=4)
    assert [next(results) for _ in range(10)] == list(range(1, 11))
    assert next(taken) <= 14
    results.close()  # type: ignore[attr-defined]


def test_map_raises_in_its_place(server: call.Connection) -> None:
    inputs = iter([1, 2])
    failing = server.map("fails", inputs, in_flight=1)
    with pytest.raises(call.RaisedError, match="no 1"):
        next(failing)
    with pytest.raises(StopIteration):
        next(failing)
    assert list(inputs) == [2]


def test_map_cancels_what_runs_when_it_is_left(server: call.Connection) -> None:
    gates = [Gate() for _ in range(SLOTS + 1)]
    gates[0].open()
    results = server.map("until", range(SLOTS + 1), gates, in_flight=SLOTS + 1)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    # It has a slot only if they have ended.
    assert server.call("plain", 1, timeout=LIMIT) == 2


def test_map_refuses_nonsense(server: call.Connection) -> None:
    for inputs, in_flight in (([], 1), ([[1]], 0)):
        with pytest.raises(call.ArgumentError):
            server.map("plain", *inputs, in_flight=in_flight)


def test_as_completed_gives_the_first_first(server: call.Connection) -> None:
    gate = Gate()
    slow = server.call_async("until", 1, gate, timeout=LIMIT)
    fast = server.call_async("plain", 1, timeout=LIMIT)
    ended = call.as_completed([slow, fast], LIMIT)
    assert next(ended) is fast
    gate.open()
    assert next(ended) is slow
    assert slow.result() == 1
    assert list(ended) == []


def test_as_completed_tells_of_those_that_are_not_over(server: call.Connection) -> None:
    handles = [server.call_async("endless"), server.call_async("plain", 1)]
    handles[1].wait(LIMIT)
    ended = call.as_completed(handles, 0.0)
    assert next(ended) is handles[1]
    with pytest.raises(TimeoutError, match="1 of 2 calls"):
        next(ended)
