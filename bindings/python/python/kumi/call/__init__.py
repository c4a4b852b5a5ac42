"""Calls of numerical routines on servers.

.. code-block:: python

    import numpy as np
    import kumi

    server = kumi.call.connect("server:7070")
    c = server.call("dmmul", a, b)                  # like a local call; sizes follow from the arrays
    handle = server.call_async("dmmul", a, b)       # meanwhile something else
    c = handle.result()

    kumi.call.call("dmmul", a, b)                   # on the server that KUMI_CALL_SERVER names

    with server.object("factored") as f:            # an object of a class keeps its state from call to call
        f.factor(a)
        x = f.solve(b)

No job is needed: any Python program may call. The guide to calling routines (``docs/guide/calling.md``) explains files,
callbacks, objects, retries and security for all languages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ._connection import Connection
from ._context import remaining, traced, traceparent
from ._decorator import routine
from ._errors import (
    ArgumentError,
    BusyError,
    CallbackError,
    CallError,
    CancelledError,
    ConnectError,
    ConnectionLostError,
    CrashedError,
    DescriptionError,
    ExpiredError,
    FileError,
    HeldElsewhereError,
    HeldLostError,
    NoServerError,
    NotPermittedError,
    NotRunnableError,
    ObjectLostError,
    RaisedError,
    RoutineNotFound,
    StatusError,
    TimedOutError,
    TlsError,
    TooLargeError,
)
from ._futures import IN_FLIGHT, CallFuture, Executor
from ._handle import Handle, as_completed, wait_all, wait_any
from ._held import KEEP, Held
from ._interface import Parameter, Routine
from ._logs import CallLog, LogLine
from ._object import Object
from ._out import Out as Destination
from ._results import Results
from ._output import TextSink
from ._server import Server, serve
from ._transaction import Later, Moved, Report, StepReport, Transaction, TransactionError
from ._types import Array, FortranArray, InOut, Out, Text

__all__ = [
    "ArgumentError",
    "Array",
    "BusyError",
    "CallError",
    "CallFuture",
    "CallLog",
    "CallbackError",
    "CancelledError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "CrashedError",
    "DescriptionError",
    "Executor",
    "ExpiredError",
    "FileError",
    "FortranArray",
    "Handle",
    "Held",
    "HeldElsewhereError",
    "HeldLostError",
    "InOut",
    "KEEP",
    "NoServerError",
    "Later",
    "LogLine",
    "Moved",
    "NotPermittedError",
    "NotRunnableError",
    "Object",
    "ObjectLostError",
    "Out",
    "Parameter",
    "RaisedError",
    "Report",
    "Results",
    "Routine",
    "RoutineNotFound",
    "Server",
    "StatusError",
    "StepReport",
    "Text",
    "TimedOutError",
    "TlsError",
    "TooLargeError",
    "Transaction",
    "TransactionError",
    "acall",
    "as_completed",
    "call",
    "call_async",
    "connect",
    "map",
    "object",
    "remaining",
    "routine",
    "serve",
    "traced",
    "traceparent",
    "transaction",
    "wait_all",
    "wait_any",
]


def connect(
    address: str,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
    file_bytes: int | None = None,
) -> Connection:
    """Connects to a server or a metaserver.

    Args:
        address: ``host:port``, ``tls://host:port`` or ``unix:path``.
        token: The token of the user. Default: ``KUMI_CALL_TOKEN``.
        ca: For ``tls://``, a PEM file with the certificates of trusted authorities. Default: ``KUMI_CALL_CA``, or the
            system's authorities.
        timeout: Time limit for connecting, in seconds.
        file_bytes: Size limit of files that come back. Default: ``KUMI_CALL_FILE_BYTES``, or 16 GiB.
    """
    return Connection(address, token, timeout, ca, file_bytes)


def transaction(servers: Sequence[str] = (), **options: Any) -> Transaction:
    """Begins a transaction: it records calls, and runs them on several servers at the end of the ``with``.

    .. code-block:: python

        with kumi.call.transaction(["one:7070", "two:7070"]) as t:
            c = t.call("dmmul", a, b)               # stays at a server
            d = t.call("dmmul", c, b)
        d.result()

    Instead of servers, ``meta="meta:7071"`` (or a :func:`connect` to a metaserver) names a metaserver, which chooses the servers.
    The default metaserver is that of ``KUMI_CALL_META``.

    Args:
        servers: Addresses of servers; none: a metaserver chooses them.
        options: The options of :class:`Transaction`: ``token``, ``ca``, ``timeout`` (seconds of a call) and ``attempts``. With
            servers also ``policy`` and ``in_flight`` (concurrent calls of a server). With a metaserver also ``priority``.
    """
    return Transaction(servers, **options)


_lock = threading.Lock()
_usual: dict[tuple[int, str], Connection] = {}


def _connection() -> Connection:
    """The connection that :func:`call` uses. Each process has its own, also after a fork."""
    key = (os.getpid(), os.environ.get("KUMI_CALL_SERVER", "127.0.0.1:7070"))
    with _lock:
        if key not in _usual:
            _usual[key] = connect(key[1])
        return _usual[key]


def object(
    name: str,
    /,
    *,
    timeout: float | None = None,
    priority: int = 0,
    threads: int | None = None,
    memory: int | None = None,
) -> Object:
    """Creates an object as :meth:`Connection.object` does, on the server that ``KUMI_CALL_SERVER`` names."""
    return _connection().object(name, timeout=timeout, priority=priority, threads=threads, memory=memory)


def call(
    name: str,
    /,
    *args: Any,
    timeout: float | None = None,
    out: Destination = None,
    priority: int = 0,
    output: TextSink | None = None,
    threads: int | None = None,
    memory: int | None = None,
    **named: Any,
) -> Any:
    """Calls a routine as :meth:`Connection.call` does, on the server that ``KUMI_CALL_SERVER`` names."""
    asked: dict[str, Any] = {"output": output, "threads": threads, "memory": memory}
    return _connection().call(name, *args, timeout=timeout, out=out, priority=priority, **asked, **named)


def call_async(
    name: str,
    /,
    *args: Any,
    timeout: float | None = None,
    out: Destination = None,
    priority: int = 0,
    output: TextSink | None = None,
    threads: int | None = None,
    memory: int | None = None,
    **named: Any,
) -> Handle:
    """Begins a call as :meth:`Connection.call_async` does, on the server that ``KUMI_CALL_SERVER`` names."""
    asked: dict[str, Any] = {"output": output, "threads": threads, "memory": memory}
    return _connection().call_async(name, *args, timeout=timeout, out=out, priority=priority, **asked, **named)


async def acall(
    name: str,
    /,
    *args: Any,
    timeout: float | None = None,
    out: Destination = None,
    priority: int = 0,
    output: TextSink | None = None,
    threads: int | None = None,
    memory: int | None = None,
    **named: Any,
) -> Any:
    """Calls a routine in a coroutine as :meth:`Connection.acall` does, on the server that ``KUMI_CALL_SERVER`` names."""
    asked: dict[str, Any] = {"output": output, "threads": threads, "memory": memory}
    return await _connection().acall(name, *args, timeout=timeout, out=out, priority=priority, **asked, **named)


def map(
    name: str,
    /,
    *inputs: Iterable[Any],
    timeout: float | None = None,
    priority: int = 0,
    in_flight: int = IN_FLIGHT,
    threads: int | None = None,
    memory: int | None = None,
) -> Iterator[Any]:
    """Calls a routine for each input as :meth:`Connection.map` does, on the server that ``KUMI_CALL_SERVER`` names."""
    asked: dict[str, Any] = {"threads": threads, "memory": memory}
    return _connection().map(name, *inputs, timeout=timeout, priority=priority, in_flight=in_flight, **asked)
