"""Exceptions of calls. All are :class:`CallError`; each says what happened and what to do."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from .._errors import KumiError


class CallError(KumiError):
    """A call has failed."""


class ArgumentError(CallError, ValueError):
    """The arguments do not fit the routine in number, type, shape or size, or a setting is wrong. Nothing was sent."""


class RoutineNotFound(CallError, LookupError):
    """The server has no routine of this name; the message suggests similar names."""


class ConnectError(CallError, ConnectionError):
    """The server cannot be reached."""

    # Both base classes define __str__; this one shows the message.
    __str__ = KumiError.__str__


class ConnectionLostError(CallError, ConnectionError):
    """The connection was lost. A call in progress may have run."""

    __str__ = KumiError.__str__


class TooLargeError(CallError):
    """The call needs more memory than is allowed."""


class BusyError(CallError):
    """The queue of waiting calls is full; try again later."""


class NoServerError(CallError):
    """The metaserver has no server for the call, or its servers were lost. The call may have run in part."""


class CrashedError(CallError):
    """The routine crashed or ended its process.

    Attributes:
        detail: The signal, or ``-1 - exit code``.
    """

    detail: int


class TimedOutError(CallError, TimeoutError):
    """The call exceeded its time limit and was stopped."""

    __str__ = KumiError.__str__


class CancelledError(CallError, concurrent.futures.CancelledError):
    """The call was cancelled."""


class NotRunnableError(CallError):
    """The routine's library or symbol is missing at the server."""


class NotPermittedError(CallError, PermissionError):
    """The server denies access: the token is missing or unknown, or the user may not call this routine."""

    __str__ = KumiError.__str__


class ExpiredError(CallError, PermissionError):
    """The token has expired."""

    __str__ = KumiError.__str__


class TlsError(CallError, ConnectionError):
    """The server's certificate is not valid, or only one side uses TLS. Nothing was sent."""

    __str__ = KumiError.__str__


class RaisedError(CallError):
    """The routine raised an exception; the message has its type and the last line of its message."""


class ObjectLostError(CallError):
    """The object has ended: somebody ended it, or one of its calls crashed or was stopped. This call has not run."""


class HeldLostError(CallError, LookupError):
    """An array is not at the server any more: it was freed, its time is over, or its connection was lost. This call has not run."""

    __str__ = KumiError.__str__


class HeldElsewhereError(ArgumentError):
    """An array is at the server of another connection. Nothing was sent."""


class DescriptionError(CallError, TypeError):
    """The annotations of a function or class do not allow to serve it."""

    __str__ = KumiError.__str__


class CallbackError(CallError):
    """A callback of this program raised an exception, and the routine was stopped.

    The exception is the ``__cause__``.
    """


class FileError(CallError, OSError):
    """A file cannot be read or written, here or at the server."""

    __str__ = KumiError.__str__


class StatusError(CallError):
    """The routine has run and returned a failure status.

    Attributes:
        status: The status.
        results: The results that it returned nevertheless.
    """

    status: int
    results: Any = None
    _values: list[tuple[int, Any]] = []


for _class in (CallError, *CallError.__subclasses__()):
    _class.__module__ = "kumi.call"
