"""Futures of calls, and the executor that makes them."""

from __future__ import annotations

import atexit
import concurrent.futures
import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError, CallError, CancelledError
from ._resources import resources
from ._waiter import waiter

if TYPE_CHECKING:
    from ._connection import Connection
    from ._handle import Handle
    from ._object import Object


#: Most calls under way, unless the program says otherwise. A server takes 1,024 calls of a connection.
IN_FLIGHT = 256


class CallFuture(concurrent.futures.Future[Any]):
    """The result of a call that an :class:`Executor` makes: a future of ``concurrent.futures``.

    Its exceptions are those of :meth:`Handle.result`.
    """

    def __init__(self) -> None:
        super().__init__()
        # Guards the two below.
        self._call_lock = threading.Lock()
        self._handle: Handle | None = None
        self._is_asked = False

    def cancel(self) -> bool:
        """Cancels the call. One that is sent is stopped by its server, and ends with :class:`CancelledError`.

        Returns whether the call was not over yet. The result that comes before the server has stopped the call counts.
        """
        if super().cancel():
            return True
        with self._call_lock:
            if self.done():
                return False
            self._is_asked, handle = True, self._handle
        if handle is not None:
            _cancel(handle)
        return True

    def cancelled(self) -> bool:
        """Whether the call was cancelled, before it was sent or at its server."""
        return super().cancelled() or (self.done() and isinstance(self.exception(), CancelledError))

    def _follow(self, handle: Handle) -> None:
        """Gets the result of a call that has begun."""
        with self._call_lock:
            self._handle, is_asked = handle, self._is_asked
        if is_asked:
            _cancel(handle)
        waiter().watch(handle, self._ended)

    def _ended(self, raised: BaseException | None) -> None:
        with self._call_lock:
            handle, self._handle = self._handle, None
        assert handle is not None
        try:
            if raised is not None:
                raise raised
            value = handle.result(0)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(value)


class AwaitedFuture(CallFuture):
    """The result of a call for a task of ``asyncio``.

    For ``asyncio``, a future that is cancelled is a task that is. A call that something else has cancelled at its server
    fails instead, with :class:`CancelledError`.
    """

    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return concurrent.futures.Future.cancelled(self)


def _cancel(handle: Handle) -> None:
    # Of a lost connection the call ends by itself.
    with suppress(CallError):
        handle.cancel()


def following(handle: Handle) -> AwaitedFuture:
    """A future of a call that has begun, for a task."""
    future = AwaitedFuture()
    future.set_running_or_notify_cancel()
    future._follow(handle)
    return future


#: How long the end of the process waits for a thread that sends, in seconds.
_LEAVE = 1.0


class Sender:
    """A thread that begins calls in their order, and waits while too many are under way. It does not keep its owner."""

    def __init__(self, owner: object, in_flight: int | None = IN_FLIGHT) -> None:
        self._begun: queue.SimpleQueue[tuple[CallFuture, Callable[[], Handle]] | None] = queue.SimpleQueue()
        self._room = None if in_flight is None else threading.Semaphore(in_flight)
        self._is_leaving = False
        # A daemon: a server that reads nothing does not keep the process.
        self.thread = threading.Thread(target=self._run, name="kumi.call sender", daemon=True)
        self.thread.start()
        _senders.add(self)
        weakref.finalize(owner, self.stop)

    def put(self, begin: Callable[[], Handle]) -> CallFuture:
        """Has a call begun when its turn comes."""
        return self._put(CallFuture(), begin)

    def put_awaited(self, begin: Callable[[], Handle]) -> CallFuture:
        """Has a call of a task begun when its turn comes."""
        return self._put(AwaitedFuture(), begin)

    def _put(self, future: CallFuture, begin: Callable[[], Handle]) -> CallFuture:
        # The call is in the trace of who wants it.
        self._begun.put((future, partial(copy_context().run, begin)))
        return future

    def stop(self) -> None:
        """Ends the thread after the calls that it has."""
        self._begun.put(None)

    def leave(self) -> None:
        """Ends the thread when the process ends, whatever it has."""
        self._is_leaving = True
        self.stop()
        if self._room is not None:
            self._room.release()
        self.thread.join(_LEAVE)

    def _run(self) -> None:
        while (one := self._begun.get()) is not None:
            if self._room is not None:
                self._room.acquire()
            if self._is_leaving:
                return
            self._send(*one)
            # While it waits for the next it keeps no call.
            del one

    def _send(self, future: CallFuture, begin: Callable[[], Handle]) -> None:
        room = self._room
        if not future.set_running_or_notify_cancel():
            if room is not None:
                room.release()
            return
        if room is not None:
            future.add_done_callback(lambda _: room.release())
        try:
            future._follow(begin())
        except BaseException as error:
            future.set_exception(error)


_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """The interpreter must not go while threads are in the native module."""
    for sender in list(_senders):
        sender.leave()


class Executor(concurrent.futures.Executor):
    """Calls routines by the interface of ``concurrent.futures``.

    .. code-block:: python

        with kumi.call.Executor("server:7070") as pool:
            future = pool.submit("dmmul", a, b)
            for density in pool.map("density", parts):
                ...
            future.result()

    One thread sends the calls in their order, another one waits for all of them and runs their functions. An argument
    must not change until the future of its call runs; through a metaserver: until it is done. Calls that are not over when
    the process ends are cancelled.

    Args:
        to: A connection or an object. A text: the address of a server or a metaserver, to which this connects, and from
            which it disconnects at the end.
        threads: As in :meth:`Connection.call`, for each call that does not name its own; also ``memory``. Calls on an object have
            what the object was made with.
        in_flight: Most calls under way. The others wait here. None: no limit, and a server whose queue is full refuses calls.
    """

    def __init__(
        self,
        to: Connection | Object | str,
        *,
        in_flight: int | None = IN_FLIGHT,
        threads: int | None = None,
        memory: int | None = None,
    ) -> None:
        if in_flight is not None and in_flight < 1:
            raise ArgumentError(f"in_flight={in_flight}: no call could begin")
        resources(threads, memory)
        asked = {"threads": threads, "memory": memory}
        self._asked = {name: number for name, number in asked.items() if number is not None}
        # It refers to this module.
        from ._object import Object

        if self._asked and isinstance(to, Object):
            raise ArgumentError("threads= and memory= of calls on an object are those with which it was made")
        self._own: Connection | None = None
        if isinstance(to, str):
            from ._connection import Connection

            to = self._own = Connection(to)
        self._to = to
        self._sender = Sender(self, in_flight)
        # Guards the two below.
        self._lock = threading.Lock()
        # Somebody else keeps each as long as its call is not over.
        self._futures: weakref.WeakSet[CallFuture] = weakref.WeakSet()
        self._is_shut = False

    def submit(self, routine: str, /, *args: Any, **named: Any) -> CallFuture:  # type: ignore[override]
        """Calls a routine; returns at once.

        Args:
            routine: Its name. For an object: that of a method.
            args: As in :meth:`Connection.call_async`, also ``named``.

        Raises:
            RuntimeError: The executor was shut down. All other errors come with the future's result.
        """
        with self._lock:
            if self._is_shut:
                raise RuntimeError("this executor was shut down: make another one")
            future = self._sender.put(partial(self._to.call_async, routine, *args, **(self._asked | named)))
            self._futures.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more calls.

        Args:
            wait: Whether to wait until all calls are over.
            cancel_futures: Whether to cancel the calls that are not sent yet.
        """
        with self._lock:
            is_first, self._is_shut = not self._is_shut, True
            left = list(self._futures)
        if cancel_futures:
            for future in left:
                # That of the base class leaves those alone that are sent.
                concurrent.futures.Future.cancel(future)
        if is_first:
            self._sender.stop()
        if wait:
            concurrent.futures.wait(left)
        if self._own is not None and (wait or not left):
            self._own.close()
