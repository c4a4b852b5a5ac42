"""Exceptions of calls. All are :class:`CallError`; each says what happened and what to do."""

from __future__ import annotations

from typing import Any

from .._errors import KumiError


class CallError(KumiError):
    """A call has failed."""


class ArgumentError(CallError, ValueError):
    """Arguments that do not fit the routine: their number, type, shape or size. Nothing was sent."""


class RoutineNotFound(CallError, LookupError):
    """The server has no routine of this name; the message names the nearest."""


class ConnectError(CallError, ConnectionError):
    """The server cannot be reached."""

    # Of two built-in ancestors the one that knows the text shows it.
    __str__ = KumiError.__str__


class ConnectionLostError(CallError, ConnectionError):
    """The connection was lost. A call that was under way may have run."""

    __str__ = KumiError.__str__


class TooLargeError(CallError):
    """The call needs more memory than a call may have."""


class BusyError(CallError):
    """As many calls wait as may; try again later."""


class CrashedError(CallError):
    """The routine crashed or ended its process.

    Attributes:
        detail: The signal, or -1 - the exit code.
    """

    detail: int


class TimedOutError(CallError, TimeoutError):
    """The call took longer than it may, and was stopped."""

    __str__ = KumiError.__str__


class CancelledError(CallError):
    """The call was cancelled."""


class NotRunnableError(CallError):
    """The routine's library or symbol is not there."""


class NotPermittedError(CallError, PermissionError):
    """The server does not take this client."""

    __str__ = KumiError.__str__


class CallbackError(CallError):
    """A function of this program that the routine called has failed; the routine was ended.

    What the function raised is the ``__cause__``.
    """


class FileError(CallError, OSError):
    """A file cannot be read or written, here or at the server."""

    __str__ = KumiError.__str__


class StatusError(CallError):
    """The routine has run and says that it failed.

    Attributes:
        status: What it says.
        results: What it gave all the same.
    """

    status: int
    results: Any = None


for _class in (CallError, *CallError.__subclasses__()):
    _class.__module__ = "kumi.call"
