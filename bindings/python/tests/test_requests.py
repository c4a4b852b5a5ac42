"""Requests of a rank to itself."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_puts_and_gets_go_on_by_themselves() -> None:
    window = kumi.window((4, 5))
    data = np.arange(8.0)
    put = window.iput(0, data, 3, notify=2)
    assert put.wait() is None
    assert window.wait_notify(2, 1) == 1
    assert window.array.reshape(-1)[3:11].tolist() == data.tolist()
    get = window.iget(0, 4, 3)
    assert get.wait().tolist() == [1.0, 2.0, 3.0]
    out = np.zeros((2, 2))
    assert window.iget(0, 5, out=out).wait() is out
    assert out.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert window.iget(0, 18).wait().shape == (2,)
    window.iput(0, data[:1], 19, sent=True).wait()
    window.flush()
    assert window.array[3, 4] == 0.0


def test_atomics_have_the_windows_sign_and_width() -> None:
    for dtype in (np.int32, np.uint32, np.int64, np.uint64):
        window = kumi.window(2, dtype)
        least = -5 if np.dtype(dtype).kind == "i" else 5
        assert window.iswap(0, 1, least).wait() == 0
        assert window.ifetch_add(0, 1, 1).wait() == least
        assert window.icompare_swap(0, 1, least + 1, 12).wait() == least + 1
        assert window.ifetch_and(0, 1, 10).wait() == 12
        assert window.ifetch_or(0, 1, 3).wait() == 8
        assert window.ifetch_xor(0, 1, 1).wait() == 11
        assert window.array.tolist() == [0, 10]
    with pytest.raises(kumi.BadTypeError):
        kumi.window(1).ifetch_add(0, 0, 1)


def test_messages_are_received_in_the_order_of_their_receives() -> None:
    buffers = [np.zeros(2, np.int64) for _ in range(3)]
    receives = [kumi.irecv(buffer, 0, 7) for buffer in buffers]
    assert not any(receive.done() for receive in receives)
    sends = [kumi.isend(0, np.full(2, number), 7) for number in range(3)]
    assert kumi.wait_all(sends) == [None] * 3
    assert kumi.wait_all(receives) == [kumi.Status(0, 7, 16)] * 3
    assert [buffer.tolist() for buffer in buffers] == [[0, 0], [1, 1], [2, 2]]


def test_some_of_many() -> None:
    buffers = [bytearray(1) for _ in range(6)]
    receives = {tag: kumi.irecv(buffers[tag], tag=tag) for tag in range(6)}
    kumi.send(0, b"x", 4)
    tags = list(receives)
    assert kumi.wait_any(receives.values()) == 4
    assert receives.pop(tags[4]).wait() == (0, 4, 1)
    for tag in (0, 1, 2, 3, 5):
        kumi.send(0, b"y", tag)
    while receives:
        tags = list(receives)
        ended = kumi.wait_some(receives.values())
        assert ended
        for index in ended:
            assert receives.pop(tags[index]).wait().tag == tags[index]
    assert b"".join(buffers) == b"yyyyxy"
    with pytest.raises(kumi.BadArgumentError):
        kumi.wait_any([])


def test_thousands_at_once() -> None:
    window = kumi.window(5_000, np.int64)
    requests = [window.ifetch_add(0, place, place) for place in range(5_000)]
    assert kumi.wait_all(requests) == [0] * 5_000
    assert (window.array == np.arange(5_000)).all()


def test_a_result_is_taken_once() -> None:
    request = kumi.isend(0, b"once")
    request.wait()
    for again in (request.wait, request.done, request.cancel, request.release):
        with pytest.raises(kumi.StaleRequestError):
            again()
    with pytest.raises(kumi.StaleRequestError):
        kumi.wait_all([request])
    receive = kumi.irecv(bytearray(9))
    with pytest.raises(kumi.RequestListedError):
        kumi.wait_all([receive, receive])
    with pytest.raises(TypeError):
        kumi.wait_some([receive, "that"])  # type: ignore[list-item]
    assert receive.wait().length == 4


def test_errors_are_those_of_the_operation() -> None:
    window = kumi.window(4, read=False)
    with pytest.raises(kumi.NoRightError):
        window.iget(0, 0, 1).wait()
    with pytest.raises(kumi.OutOfBoundsError):
        window.iput(0, np.zeros(2), 3).wait()
    with pytest.raises(kumi.BadNotifyError):
        window.iput(0, np.zeros(1), notify=64)
    with pytest.raises(kumi.BadRankError):
        kumi.isend(1, b"")
    with pytest.raises(TypeError, match="data"):
        kumi.isend(0, "text")
    with pytest.raises(TypeError, match="read-only"):
        kumi.irecv(b"fixed")
    kumi.send(0, b"too long", 1)
    with pytest.raises(kumi.TruncatedError) as caught:
        kumi.irecv(bytearray(3), tag=1).wait()
    assert caught.value.needed == 8
    # All have ended, although one has failed.
    kumi.send(0, b"too long", 1)
    kumi.send(0, b"fits", 2)
    fits = bytearray(4)
    with pytest.raises(kumi.TruncatedError):
        kumi.wait_all([kumi.irecv(bytearray(3), tag=1), kumi.irecv(fits, tag=2)])
    assert fits == b"fits"


def test_cancelled_requests_say_so() -> None:
    receive = kumi.irecv(bytearray(4), tag=3)
    assert receive.cancel()
    with pytest.raises(kumi.RequestCancelledError):
        receive.wait()
    kumi.send(0, b"late", 3)
    done = kumi.irecv(bytearray(4), tag=3)
    assert done.wait().length == 4


def test_lent_memory_stays_as_it_is() -> None:
    octets = bytearray(8)
    array = np.zeros(8, np.uint8)
    requests = [kumi.irecv(octets, tag=1), kumi.irecv(array, tag=2)]
    with pytest.raises(BufferError):
        octets.clear()
    with pytest.raises(ValueError):
        array.resize(4, refcheck=False)
    window = kumi.window(8, np.uint8)
    requests.append(kumi.irecv(window.array, tag=3))
    with pytest.raises(kumi.BufferLentError):
        window.free()
    assert not window.freed
    for request in requests:
        request.release()
    window.free()
    octets.clear()
    array.resize(4, refcheck=False)
    # Messages are for the next receive.
    kumi.send(0, b"left", 3)
    assert kumi.recv(tag=3).data == b"left"


def test_a_window_goes_once_its_requests_have_ended() -> None:
    window = kumi.window(8, np.uint8)
    request = kumi.irecv(window.array[4:], tag=6)
    with pytest.raises(kumi.BufferLentError):
        window.free()
    kumi.send(0, b"here", 6)
    # It is over, and nobody has asked for its result yet.
    window.free()
    assert request.wait().length == 4
    # Memory beside a window is not the window's.
    data = np.zeros(16, np.uint8)
    window = kumi.window_on(data[:8])
    request = kumi.irecv(data[8:], tag=6)
    window.free()
    request.release()


def test_memory_lives_as_long_as_its_request_and_no_longer() -> None:
    class Array(np.ndarray[Any, Any]):
        """An array that can be watched."""

    data = np.arange(3.0).view(Array)
    watched = weakref.ref(data)
    receive = kumi.irecv(data, tag=5)
    del data
    gc.collect()
    assert watched() is not None
    del receive
    gc.collect()
    assert watched() is None
    kumi.send(0, b"nobody", 5)
    assert kumi.recv(tag=5).data == b"nobody"


def test_other_threads_run_during_a_wait_and_may_not_wait_themselves() -> None:
    receive = kumi.irecv(bytearray(1), tag=6)
    refused: list[BaseException] = []

    def other() -> None:
        try:
            receive.wait()
        except kumi.WrongThreadError as error:
            refused.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(refused) == 1
    kumi.send(0, b"x", 6)
    receive.wait()


def test_coroutines_await_requests() -> None:
    window = kumi.window(3, np.int64)
    seen: list[int] = []

    async def ask(tag: int) -> int:
        buffer = np.zeros(1, np.int64)
        status = await kumi.irecv(buffer, tag=tag)
        assert status == (0, tag, 8)
        seen.append(tag)
        return int(buffer[0]) + await window.ifetch_add(0, 0, 1) * 0

    async def answer() -> None:
        for tag in (2, 0, 1):
            await asyncio.sleep(0.01)
            await kumi.isend(0, np.array([10 * tag]), tag)

    async def both() -> list[int]:
        *numbers, _ = await asyncio.gather(*(ask(tag) for tag in range(3)), answer())
        return [number for number in numbers if number is not None]

    # Several loops, one after the other.
    for _ in range(2):
        seen.clear()
        assert asyncio.run(both()) == [0, 10, 20]
        assert seen == [2, 0, 1]
    assert window.array[0] == 6


def test_a_request_survives_the_end_of_a_task_that_waits_for_it() -> None:
    buffer = bytearray(4)

    async def run() -> None:
        receive = kumi.irecv(buffer, tag=8)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_of(receive), 0.02)
        kumi.send(0, b"late", 8)
        assert (await receive).length == 4
        with pytest.raises(kumi.StaleRequestError):
            await receive
        failing = kumi.irecv(bytearray(1), tag=8)
        kumi.send(0, b"late", 8)
        with pytest.raises(kumi.TruncatedError):
            await failing

    asyncio.run(run())
    assert buffer == b"late"


def test_a_loop_that_is_told_twice_loses_no_request() -> None:
    async def run() -> None:
        first, second = (kumi.irecv(bytearray(1), tag=tag) for tag in (1, 2))
        begin = asyncio.Event()

        async def later() -> kumi.Status:
            await begin.wait()
            return await second

        tasks = [asyncio.create_task(_of(first)), asyncio.create_task(later())]
        await asyncio.sleep(0.01)
        kumi.send(0, b"x", 1)
        # The loop looks, then the task begins to wait, then the loop looks once more.
        assert first.done()
        begin.set()
        assert not second.done()
        await tasks[0]
        kumi.send(0, b"y", 2)
        assert (await asyncio.wait_for(tasks[1], 60)).tag == 2

    asyncio.run(run())


def _refused_free(_: kumi.Request[Any]) -> None:
    window = kumi.window(8, np.uint8)
    lent = kumi.irecv(window.array, tag=9)
    with pytest.raises(kumi.BufferLentError):
        window.free()
    lent.release()


def _failed_wait(_: kumi.Request[Any]) -> None:
    def wait() -> bool:
        kumi._native.collect_ends()
        raise kumi.KumiError("after it has learnt of ends")

    with pytest.raises(kumi.KumiError):
        kumi._requests._until(wait)


def _failed_look(third: kumi.Request[Any]) -> None:
    class Array(np.ndarray[Any, Any]):
        """An array whose end releases a request."""

        def __del__(self) -> None:
            if last:
                last.pop().release()

    last = [third]
    octets = np.zeros(1, np.uint8).view(Array)
    kept = kumi.irecv(octets, tag=9)
    del octets
    kumi.send(0, b"x", 9)
    with pytest.raises(kumi.StaleRequestError):
        third.done()
    kept.release()


@pytest.mark.parametrize("call", [_refused_free, _failed_wait, _failed_look])
def test_a_call_that_fails_keeps_no_end_from_a_loop(
    call: Callable[[kumi.Request[Any]], None],
) -> None:
    async def run() -> None:
        awaited, other = (kumi.irecv(bytearray(1), tag=tag) for tag in (1, 2))
        task = asyncio.create_task(_of(awaited))
        while asyncio.get_running_loop() not in kumi._event_loop._WAITING:
            await asyncio.sleep(0)
        kumi.send(0, b"x", 1)
        # It learns of the end before the loop does.
        call(other)
        assert (await asyncio.wait_for(task, 60)).tag == 1

    asyncio.run(run())


def test_what_has_just_ended_is_released_and_not_cancelled() -> None:
    kumi.isend(0, b"x").release()
    sent = kumi.isend(0, b"y")
    assert not sent.cancel()
    sent.wait()
    assert [kumi.recv().data for _ in range(2)] == [b"x", b"y"]


async def _of(request: kumi.Request[Any]) -> Any:
    return await request


def test_the_end_of_a_job_gives_all_memory_back() -> None:
    octets = bytearray(8)
    receive = kumi.irecv(octets)
    kumi.finalize()
    octets.clear()
    with pytest.raises(kumi.NotInitialisedError):
        receive.wait()
