"""Connections to servers, and calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from .._native import NativeClient, NativeObject
from .._scope import Block
from . import _logs, _waits
from ._context import in_trace
from ._errors import ArgumentError, ConnectError, ConnectionLostError
from ._futures import IN_FLIGHT, Sender
from ._handle import Handle, in_turn
from ._held import Held, held
from ._logs import CallLog
from ._object import Object
from ._out import Out
from ._output import OutputReceiver, TextSink
from ._resources import resources
from ._prepare import Caller


_Answer = TypeVar("_Answer")


class Connection(Caller, Block):
    """A connection to a server or a metaserver. Threads may share it; their calls run concurrently.

    A connection that is lost is made again by the next call. The calls that it had under way fail, because they may have run.
    It ends with :meth:`close` or the end of its ``with`` block.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        timeout: float = 10.0,
        ca: str | os.PathLike[str] | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self.address = address
        self._connect: Callable[[], NativeClient] = partial(
            NativeClient.connect, address, token, timeout, ca, file_bytes
        )
        # Held while a lost connection is made again, and for what begins the calls of coroutines.
        self._lock = threading.Lock()
        self._live: NativeClient | None = self._connect()
        self._sender: Sender | None = None
        self._routines = {}

    @property
    def _native(self) -> NativeClient:
        """The connection, made again if it was lost."""
        with self._lock:
            if self._live is None:
                raise ConnectError(f"the connection to {self.address} was closed: connect again")
            if self._live.is_lost():
                self._live = self._connect()
                # The server may be of another version now.
                self._routines = {}
            return self._live

    @property
    def _target(self) -> NativeClient:
        return self._native

    def _ask(self, question: Callable[[NativeClient | NativeObject], _Answer]) -> _Answer:
        try:
            return question(self._native)
        except ConnectionLostError:
            # It had no effect: ask again, over another connection.
            return question(self._native)

    def close(self) -> None:
        """Closes the connection. Calls that are under way go on; other uses raise :class:`ConnectError`."""
        with self._lock:
            self._live = None
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.stop()

    def _leave(self, error: BaseException | None) -> None:
        self.close()

    @property
    def server(self) -> str:
        """The server's name."""
        return self._native.server()

    def names(self, part: str = "") -> list[str]:
        """The routines whose names contain ``part``."""
        return self._ask(lambda _: self._native.names(part))

    def logs(self, last: int = 20, *, trace: str | None = None) -> list[CallLog]:
        """Your latest calls, as the server has them, or those of a trace: when they ran, and how they ended. They have no lines.

        On a connection to a metaserver, those at all its servers. A server that cannot be asked is told of by a warning.

        Args:
            last: How many calls at most, up to 1000.
            trace: The number of a trace, 32 hexadecimal digits: all its calls instead.

        Raises:
            CallError: The server keeps no logs because it is of an earlier version, or cannot be reached.
        """
        return self._ask(lambda _: _logs.latest(self._native, last, trace))

    def log(self, call: int, *, server: str | None = None) -> CallLog:
        """One of your calls with what its routine has printed.

        Args:
            call: Its number: :attr:`CallLog.call`, or on a connection to a metaserver :attr:`CallLog.placed`. Of several
                attempts it is the last.
            server: On a connection to a metaserver, the name of a server. The number is then that of the server.

        Raises:
            CallError: There is no log of this call.
        """
        return self._ask(lambda _: _logs.whole(self._native, call, server))

    def hold(self, array: np.ndarray[Any, Any], *, timeout: float | None = None) -> Held:
        """Sends an array that stays at the server, and is an argument of later calls on this connection.

        It keeps its type and shape, and its memory order if it is contiguous; otherwise it is sent in row order.

        Args:
            timeout: Time limit in seconds.

        Raises:
            ArgumentError: It is no array of numbers, or the connection is one to a metaserver.
            CallError: The server has no room, or is of an earlier version.
        """
        return held(self._native, np.asarray(array), timeout)

    def call(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        output: TextSink | None = None,
        threads: int | None = None,
        memory: int | None = None,
        **named: Any,
    ) -> Any:
        """Calls a routine and waits.

        The arguments are the inputs, in the order of the parameters or by name. A name that this method or Python itself
        takes gets an underscore: ``timeout_=5``, ``lambda_=0.5``. Scalars that follow from the shapes of arrays,
        or have defaults, may be left out. Arrays of the routine's type and memory order are sent without a copy. Results are
        new arrays.

        Args:
            timeout: Time limit of the call in seconds. The server stops a call that exceeds it.
            out: Destinations of results by name, or the only one. An array must have the routine's type, shape and memory
                order; after a failure its contents are undefined. The destination of a file is a path; without one its
                bytes come back. A result whose destination is None is declined, and is not among the results.
            priority: Priority among your calls that wait at a metaserver, 0 to 9. The metaserver may lower it. A server
                accepts only 0.
            output: A file, such as ``sys.stdout``. When the call is over, also if it failed, what the routine has printed is
                written to it, at most 1 MiB. Servers of earlier versions send nothing.
            threads: Threads for the routine. The call takes as many of the server's slots as that needs, and waits for them.
            memory: Bytes of memory for the routine and all that it starts. More ends the call.

                A server that does not give so much refuses the call (:class:`TooLargeError`).

        Raises:
            CallError: The call failed. If the arguments do not fit (:class:`ArgumentError`), nothing was sent.
        """
        if output is not None:
            asked: dict[str, Any] = {"output": output, "threads": threads, "memory": memory}
            return self.call_async(name, *args, timeout=timeout, out=out, priority=priority, **asked, **named).result()
        _checked(priority)
        call = self._prepared(name, args, named, out)
        native = self._asking(threads, memory)
        # This call may wait for a slot that a call with functions has.
        if call.functions or _waits.under_way():
            return call.begun(in_trace(lambda: native.start(name, call.native, timeout, priority))).result()
        return call.ran(lambda: in_trace(lambda: native.call(name, call.native, timeout, priority)))

    def call_async(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        output: TextSink | None = None,
        threads: int | None = None,
        memory: int | None = None,
        **named: Any,
    ) -> Handle:
        """Begins a call and returns when the arguments are sent. The arguments are those of :meth:`call`."""
        _checked(priority)
        call = self._prepared(name, args, named, out)
        native = self._asking(threads, memory)
        receiver = None if output is None else OutputReceiver(output)
        native = native if receiver is None else native.printing(receiver.native)
        return call.begun(in_trace(lambda: native.start(name, call.native, timeout, priority)), receiver)

    async def acall(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        output: TextSink | None = None,
        threads: int | None = None,
        memory: int | None = None,
        **named: Any,
    ) -> Any:
        """Calls a routine in a coroutine; the event loop goes on meanwhile, also while the arguments are sent.

        The arguments and errors are those of :meth:`call`. If the task is cancelled, the call is. Functions of the call run
        in a thread of the package.
        """
        asked: dict[str, Any] = {"output": output, "threads": threads, "memory": memory}
        begin = partial(self.call_async, name, *args, timeout=timeout, out=out, priority=priority, **asked, **named)
        # What is put after :meth:`close` has stopped the sender would never begin.
        with self._lock:
            if self._sender is None:
                self._sender = Sender(self)
            future = self._sender.put_awaited(begin)
        return await asyncio.wrap_future(future)

    def map(
        self,
        name: str,
        /,
        *inputs: Iterable[Any],
        timeout: float | None = None,
        priority: int = 0,
        in_flight: int = IN_FLIGHT,
        threads: int | None = None,
        memory: int | None = None,
    ) -> Iterator[Any]:
        """Calls a routine with the first of each input, then with the second of each, and so on.

        .. code-block:: python

            for c in server.map("dmmul", many_a, many_b):
                ...

        The results come in the order of the inputs. At most ``in_flight`` calls are under way; inputs are taken as calls
        begin, so they may be endless. When the loop over the results ends early, the calls that are under way are cancelled.

        Args:
            timeout: Time limit of each call in seconds.
            priority: As in :meth:`call`.
            in_flight: Most calls under way.
            threads: As in :meth:`call`, for each call; also ``memory``.

        Raises:
            CallError: A call failed; in the place of its result.
        """
        _checked(priority)
        if in_flight < 1:
            raise ArgumentError(f"in_flight={in_flight}: no call could begin")
        if not inputs:
            raise ArgumentError(f"`{name}`: there are no inputs to map over")
        resources(threads, memory)
        begin = partial(self.call_async, name, timeout=timeout, priority=priority, threads=threads, memory=memory)
        return in_turn(begin, zip(*inputs), in_flight)

    def object(
        self,
        name: str,
        /,
        *,
        timeout: float | None = None,
        priority: int = 0,
        threads: int | None = None,
        memory: int | None = None,
    ) -> Object:
        """Creates an object of a class, and waits until it exists.

        .. code-block:: python

            with server.object("counter") as counter:
                counter.add(3)
                counter.total()

        Args:
            name: The class.
            timeout: Time limit in seconds.
            priority: As in :meth:`call`.
            threads: As in :meth:`call`, for the object and each call on it; also ``memory``.

        Raises:
            CallError: There is no such class, it cannot be run, or the server has too many objects.
        """
        _checked(priority)
        native = self._asking(threads, memory)
        return Object(in_trace(lambda: native.object(name, timeout, priority)), name, self.names)

    def _asking(self, threads: int | None, memory: int | None) -> NativeClient:
        """The native client, whose calls and objects ask for this."""
        if threads is None and memory is None:
            return self._native
        return self._native.asking(*resources(threads, memory))


def _checked(priority: int) -> None:
    if priority not in range(10):
        raise ArgumentError(f"priority={priority!r}; there are 0 to 9")
