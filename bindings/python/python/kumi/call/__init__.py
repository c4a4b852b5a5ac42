"""Calls of numerical routines on servers.

.. code-block:: python

    import numpy as np
    import kumi

    server = kumi.call.connect("server:7070")
    c = server.call("dmmul", a, b)                  # like a local call; sizes follow from the arrays
    handle = server.call_async("dmmul", a, b)       # meanwhile something else
    c = handle.result()

    kumi.call("dmmul", a, b)                        # on the server that KUMI_CALL_SERVER names

It needs no job: any Python program may call.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from typing import Any

from ._connection import Connection, Handle, wait_all, wait_any
from ._errors import (
    ArgumentError,
    BusyError,
    CallbackError,
    CallError,
    CancelledError,
    ConnectError,
    ConnectionLostError,
    CrashedError,
    FileError,
    NotPermittedError,
    NotRunnableError,
    RoutineNotFound,
    StatusError,
    TimedOutError,
    TooLargeError,
)
from ._interface import Parameter, Routine

__all__ = [
    "ArgumentError",
    "BusyError",
    "CallError",
    "CallbackError",
    "CancelledError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "CrashedError",
    "FileError",
    "Handle",
    "NotPermittedError",
    "NotRunnableError",
    "Parameter",
    "Routine",
    "RoutineNotFound",
    "StatusError",
    "TimedOutError",
    "TooLargeError",
    "connect",
    "wait_all",
    "wait_any",
]


def connect(address: str, *, token: str = "", timeout: float = 10.0) -> Connection:
    """Connects to a server at ``host:port`` or ``unix:path``, in at most ``timeout`` seconds."""
    return Connection(address, token, timeout)


_lock = threading.Lock()
_usual: dict[tuple[int, str], Connection] = {}


def _connection() -> Connection:
    """The connection of ``kumi.call(…)``; a fork of a process has its own."""
    key = (os.getpid(), os.environ.get("KUMI_CALL_SERVER", "127.0.0.1:7070"))
    with _lock:
        if key not in _usual:
            _usual[key] = connect(key[1])
        return _usual[key]


class _Callable(types.ModuleType):
    """``kumi.call`` itself can be called."""

    def __call__(self, name: str, /, *args: Any, **named: Any) -> Any:
        try:
            return _connection().call(name, *args, **named)
        except ConnectionLostError:
            # The next call connects anew; this one may have run.
            with _lock:
                _usual.clear()
            raise


sys.modules[__name__].__class__ = _Callable
