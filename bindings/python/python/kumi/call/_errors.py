"""Exceptions of calls. All are :class:`CallError`; each says what happened and what to do."""

from __future__ import annotations

from typing import Any

from .._errors import KumiError


class CallError(KumiError):
    """A call has failed."""


class ArgumentError(CallError, ValueError):
    """Arguments that do not fit the routine: their number, type, shape or size; or an address or a variable of the environment that
    says what cannot be. Nothing was sent."""


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


class NoServerError(CallError):
    """A metaserver has no server for the call, or its servers are gone; it may have run in part."""


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
    """The server does not take this client: it has no token, or nobody's, or may not call this routine."""

    __str__ = KumiError.__str__


class ExpiredError(CallError, PermissionError):
    """The token has expired."""

    __str__ = KumiError.__str__


class TlsError(CallError, ConnectionError):
    """The server is not who it should be, or one side alone speaks TLS. Nothing was sent."""

    __str__ = KumiError.__str__


class RaisedError(CallError):
    """The routine has run and ended with an exception; the message is its kind and the last line of its message."""


class ObjectLostError(CallError):
    """The object of the call is no more: it was ended, or a call of it was stopped or has crashed. This call has not run."""


class DescriptionError(CallError, TypeError):
    """A function that cannot be served as it is described."""

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
    _values: list[tuple[int, Any]] = []


for _class in (CallError, *CallError.__subclasses__()):
    _class.__module__ = "kumi.call"
