"""Several threads of a rank that call at the same time: ``kumi.init(threads=True)``."""

import asyncio
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import kumi

#: Longer than anything here takes on any machine.
LONG = 60


@pytest.fixture(autouse=True)
def job_of_threads(alone: None) -> Iterator[kumi.Job]:
    """Every test here is in one."""
    with kumi.init(threads=True) as joined:
        yield joined


def start(body: Callable[[], object]) -> Callable[[], None]:
    """Runs it in a thread; the result waits for its end and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> None:
        thread.join(LONG)
        assert not thread.is_alive(), "the thread hangs"
        if raised:
            raise raised[0]

    return join


def together(bodies: list[Callable[[], object]]) -> None:
    """Runs each in a thread of its own, at the same time."""
    gate = threading.Barrier(len(bodies))

    def behind(body: Callable[[], object]) -> Callable[[], object]:
        return lambda: (gate.wait(LONG), body())

    for join in [start(behind(body)) for body in bodies]:
        join()


def test_threads_send_receive_and_wait_at_the_same_time() -> None:
    threads, rounds = 6, 150

    def body(me: int) -> Callable[[], None]:
        after = (me + 1) % threads

        def run() -> None:
            for number in range(rounds):
                data = np.full(50, 1000 * me + number)
                into = np.zeros_like(data)
                before = 1000 * ((me - 1) % threads) + number
                if number % 3 == 0:
                    kumi.send(0, data, after)
                    assert kumi.recv_into(into, 0, me) == (0, me, data.nbytes)
                elif number % 3 == 1:
                    receive = kumi.irecv(into, 0, me)
                    sent = kumi.isend(0, data, after)
                    assert receive.wait() == (0, me, data.nbytes)
                    assert sent.wait() is None
                else:
                    both = [kumi.isend(0, data, after), kumi.irecv(into, 0, me)]
                    assert kumi.wait_any(both) in (0, 1)
                    assert kumi.wait_all(both)[1] == (0, me, data.nbytes)
                assert (into == before).all()

        return run

    together([body(me) for me in range(threads)])


def test_a_wait_holds_up_nobody_whatever_ends_first() -> None:
    late = kumi.irecv(bytearray(4), tag=1)
    join = start(lambda: late.wait() == (0, 1, 4))
    for number in range(300):
        into = bytearray(8)
        receive = kumi.irecv(into, tag=2)
        kumi.isend(0, number.to_bytes(8, "big"), 2).wait()
        assert receive.wait().length == 8
        assert int.from_bytes(into, "big") == number
    kumi.send(0, b"late", 1)
    join()


def test_each_thread_gets_the_end_that_it_waits_for() -> None:
    tags = list(range(12))
    for seed in range(20):
        buffers = [bytearray(1) for _ in tags]
        receives = [kumi.irecv(buffers[tag], tag=tag) for tag in tags]

        def wait(tag: int) -> Callable[[], None]:
            def run() -> None:
                assert receives[tag].wait() == (0, tag, 1)
                assert buffers[tag] == bytes([tag])

            return run

        joins = [start(wait(tag)) for tag in tags]
        for tag in random.Random(seed).sample(tags, len(tags)):
            kumi.send(0, bytes([tag]), tag)
        for join in joins:
            join()


def test_a_result_is_had_by_one_of_two_threads() -> None:
    for _ in range(50):
        receive = kumi.irecv(bytearray(1), tag=1)
        got: queue.SimpleQueue[object] = queue.SimpleQueue()

        def wait() -> None:
            try:
                got.put(receive.wait())
            except kumi.StaleRequestError as error:
                got.put(error)

        joins = [start(wait), start(wait)]
        kumi.send(0, b"x", 1)
        for join in joins:
            join()
        assert sorted(isinstance(got.get(), kumi.Status) for _ in range(2)) == [False, True]


def test_a_request_that_is_released_ends_the_wait_of_another_thread() -> None:
    receive = kumi.irecv(bytearray(1), tag=1)
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with pytest.raises(kumi.StaleRequestError):
            receive.wait()

    join = start(wait)
    begun.wait(LONG)
    time.sleep(0.02)
    receive.release()
    join()


def test_a_release_ends_a_wait_while_another_request_is_under_way() -> None:
    late = kumi.irecv(bytearray(1), tag=2)
    for wait_for in (kumi.Request.wait, lambda receive: kumi.wait_any([receive, late])):
        receive = kumi.irecv(bytearray(1), tag=1)
        waits = _has_turn()
        join = start(partial(wait_for, receive))
        waits()
        receive.release()
        with pytest.raises(kumi.StaleRequestError):
            join()
    kumi.send(0, b"x", 2)
    assert late.wait() == (0, 2, 1)


def test_releases_of_others_end_no_wait() -> None:
    mine = kumi.irecv(bytearray(1), tag=1)
    waits = _has_turn()
    join = start(mine.wait)
    waits()
    for _ in range(10):
        kumi.irecv(bytearray(1), tag=2).release()
        time.sleep(0.02)
    kumi.send(0, b"x", 1)
    join()
    with pytest.raises(kumi.StaleRequestError):
        mine.done()


def _has_turn() -> Callable[[], None]:
    """Waits, when it is called, until another thread waits for the queue: that one then takes what ends."""
    probe = kumi.irecv(bytearray(1), tag=1000)

    def wait() -> None:
        kumi.send(0, b"x", 1000)
        while not probe._native.over():
            time.sleep(0.001)
        # It waits again.
        time.sleep(0.1)

    return wait


def test_an_object_that_gets_its_buffer_back_may_wait_itself() -> None:
    class Array(np.ndarray[Any, Any]):
        """An array whose end waits for a request."""

        def __del__(self) -> None:
            if receives:
                got.append(receives.pop().wait())

    for take in (kumi.Request.wait, kumi.Request.done, lambda first: kumi.wait_all([first])):
        got: list[kumi.Status] = []
        receives: list[kumi.Request[kumi.Status]] = []
        data = np.zeros(1, np.uint8).view(Array)
        first = kumi.irecv(data, tag=1)
        receives.append(kumi.irecv(bytearray(1), tag=2))
        del data
        for tag in (1, 2):
            kumi.send(0, b"x", tag)
        start(partial(take, first))()
        assert got == [(0, 2, 1)]


def test_loops_of_several_threads_await_while_others_wait() -> None:
    counter = kumi.window(1, np.int64)
    late = kumi.irecv(bytearray(1), tag=99)

    async def ask(me: int, task: int) -> None:
        tag = 10 * me + task
        for number in range(40):
            into = np.zeros(1, np.int64)
            receive = kumi.irecv(into, tag=tag)
            await counter.ifetch_add(0, 0, 1)
            await asyncio.sleep(0)
            sent = kumi.isend(0, np.array([number]), tag)
            assert await receive == (0, tag, 8) and into[0] == number
            await sent

    async def tasks(me: int) -> None:
        await asyncio.gather(*(ask(me, task) for task in range(5)))

    def loop(me: int) -> Callable[[], object]:
        return lambda: asyncio.run(tasks(me))

    def blocking() -> None:
        for number in range(200):
            receive = kumi.irecv(bytearray(8), tag=77)
            kumi.send(0, bytes(8), 77)
            receive.wait()

    # It has the turn most of the time, and learns of the ends that the loops wait for.
    join = start(late.wait)
    together([loop(1), loop(2), loop(3), blocking])
    kumi.send(0, b"x", 99)
    join()
    assert counter.array[0] == 3 * 5 * 40


@pytest.mark.parametrize("blocked", [True, False])
def test_a_loop_that_sleeps_is_told_of_what_another_thread_has_taken(blocked: bool) -> None:
    loops, rounds = 2, 100
    turn = [threading.Semaphore(0) for _ in range(loops)]

    async def listen(me: int) -> None:
        for _ in range(rounds):
            receive = kumi.irecv(bytearray(1), tag=me)
            waits = asyncio.ensure_future(_of(receive))
            await asyncio.sleep(0)
            turn[me].release()
            # One loop sleeps, the other is busy when its end comes.
            time.sleep(0.005 * me)
            assert (await waits).tag == me

    def listener(me: int) -> Callable[[], object]:
        return lambda: asyncio.run(listen(me))

    def speak() -> None:
        for _ in range(rounds):
            for me in range(loops):
                assert turn[me].acquire(timeout=LONG)
            for me in range(loops):
                kumi.send(0, b"x", me)

    # It takes the ends of all, or one loop takes those of the other.
    late = kumi.irecv(bytearray(1), tag=99)
    join = start(late.wait) if blocked else None
    together([listener(me) for me in range(loops)] + [speak])
    kumi.send(0, b"x", 99)
    if join is not None:
        join()


async def _of(request: kumi.Request[Any]) -> Any:
    return await request


def test_records_of_a_fifo_go_to_one_thread_each() -> None:
    window = kumi.window(16384, np.uint8)
    fifo = window.fifo(0, 8192)
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def pop() -> None:
        while data := fifo.pop()[1]:
            got.put(data)

    joins = [start(pop) for _ in range(3)]
    for number in range(300):
        window.append(0, 0, bytes([1, number % 256, number // 256]))
    for _ in joins:
        window.append(0, 0, b"")
    for join in joins:
        join()
    numbers = sorted(data[1] + 256 * data[2] for data in (got.get() for _ in range(300)))
    assert numbers == list(range(300)) and got.empty()
    assert fifo.try_pop() is None


def test_claimed_messages_go_to_one_thread_each() -> None:
    got: queue.SimpleQueue[int] = queue.SimpleQueue()

    def take() -> None:
        while True:
            message = kumi.await_claim(0, 5)
            if got.qsize() % 7 == 3:
                # Back to the others, or to this one.
                message.release()
                message = kumi.await_claim(0, 5)
            data = message.receive().data
            if not data:
                return
            got.put(int.from_bytes(data, "big"))

    joins = [start(take) for _ in range(3)]
    for number in range(1, 301):
        kumi.send(0, number.to_bytes(2, "big"), 5)
    while got.qsize() < 300:
        time.sleep(0.001)
    for _ in joins:
        kumi.send(0, b"", 5)
    for join in joins:
        join()
    assert sorted(got.get() for _ in range(300)) == list(range(1, 301))


def test_windows_completions_and_groups_are_for_all_threads() -> None:
    window = kumi.window(1, np.int64)
    groups = [kumi.group().duplicate() for _ in range(4)]

    def body(group: kumi.Group) -> Callable[[], None]:
        def run() -> None:
            completion = kumi.Completion()
            own = np.zeros(1, np.int64)
            for number in range(100):
                window.fetch_add(0, 0, 1)
                window.put(0, own[:0], completion=completion)
                assert group.allreduce(np.array([number]))[0] == number
                assert group.start_allreduce(np.array([number])).wait()[0] == number
            assert completion.wait() == 100

        return run

    together([body(group) for group in groups])
    assert window.array[0] == 400


def test_only_the_thread_that_joined_leaves_and_only_when_nobody_calls() -> None:
    idents: queue.SimpleQueue[int] = queue.SimpleQueue()

    def receive() -> None:
        with pytest.raises(kumi.WrongThreadError):
            kumi.finalize()
        idents.put(threading.get_ident())
        assert kumi.recv(tag=3).data == b"go"

    join = start(receive)
    ident = idents.get(timeout=LONG)
    while sys._current_frames()[ident].f_code is not kumi.recv.__code__:
        time.sleep(0.001)
    time.sleep(0.05)
    with pytest.raises(kumi.BusyError):
        kumi.finalize()
    # Nothing has ended.
    kumi.send(0, b"go", 3)
    join()
    kumi.finalize()
    with pytest.raises(kumi.NotInitialisedError):
        kumi.rank()


def test_threads_are_refused_after_the_end_and_in_a_job_for_one() -> None:
    kumi.finalize()

    def refused(kind: type[Exception]) -> Callable[[], None]:
        def run() -> None:
            with pytest.raises(kind):
                kumi.rank()

        return run

    start(refused(kumi.NotInitialisedError))()
    with kumi.init():
        start(refused(kumi.WrongThreadError))()
        assert kumi.rank() == 0


def test_handlers_of_signal_ports_are_refused_all_the_same() -> None:
    window = kumi.window(1024, np.uint8)
    seen: queue.SimpleQueue[object] = queue.SimpleQueue()

    def handler(source: int, data: bytes) -> None:
        try:
            seen.put(kumi.rank())
        except kumi.WrongThreadError as error:
            seen.put(error)

    window.on_signal(0, 128, handler)
    window.signal(0, 0)
    assert isinstance(seen.get(timeout=LONG), kumi.WrongThreadError)


def test_a_window_that_is_being_freed_gets_no_port() -> None:
    window = kumi.window(1024, np.uint8)
    entered, leave = threading.Event(), threading.Event()

    def handler(source: int, data: bytes) -> None:
        entered.set()
        leave.wait(LONG)

    window.on_signal(0, 128, handler)
    window.signal(0, 0)
    assert entered.wait(LONG)
    # It waits for the handler.
    join = start(window.free)
    try:
        deadline = time.monotonic() + LONG / 2
        while not window.freed and time.monotonic() < deadline:
            time.sleep(0.001)
        with pytest.raises(kumi.FreedWindowError):
            window.on_signal(512, 128, handler)
        with pytest.raises(kumi.FreedWindowError):
            window.fifo(512, 128)
    finally:
        leave.set()
    join()
    assert window.freed


@pytest.mark.parametrize("first", [True, False])
def test_ctrl_c_ends_the_wait_of_the_main_thread(first: bool) -> None:
    mine, other = kumi.irecv(bytearray(1), tag=1), kumi.irecv(bytearray(1), tag=2)

    def later() -> None:
        # If it is first it has the turn; the main thread waits for that.
        if not first:
            time.sleep(0.1)
        other.wait()

    join = start(later)
    time.sleep(0.05)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            mine.wait()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    for tag in (1, 2):
        kumi.send(0, b"x", tag)
    join()
    assert mine.wait() == (0, 1, 1)


def test_buffers_are_given_back_in_any_thread() -> None:
    octets = bytearray(8)
    held: list[Any] = [kumi.irecv(octets, tag=1)]
    with pytest.raises(BufferError):
        octets.clear()
    start(held.clear)()
    octets.clear()
