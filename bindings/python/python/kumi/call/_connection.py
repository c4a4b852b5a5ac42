"""Connections to servers, and calls."""

from __future__ import annotations

import os
from typing import Any

from .._native import NativeClient
from ._errors import ArgumentError
from ._handle import Handle
from ._object import Object
from ._out import Out
from ._prepare import Caller


class Connection(Caller):
    """A connection to a server or a metaserver. Threads may share it; their calls run concurrently."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        timeout: float = 10.0,
        ca: str | os.PathLike[str] | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self.address = address
        self._native: NativeClient = NativeClient.connect(address, token, timeout, ca, file_bytes)
        self._routines = {}

    @property
    def server(self) -> str:
        """The server's name."""
        return self._native.server()

    def names(self, part: str = "") -> list[str]:
        """The routines whose names contain ``part``."""
        return self._native.names(part)

    def call(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        **named: Any,
    ) -> Any:
        """Calls a routine and waits.

        The arguments are the inputs, in the order of the parameters or by name. Scalars that follow from the shapes of arrays,
        or have defaults, may be left out. Arrays of the routine's type and memory order are sent without a copy. Results are
        new arrays.

        Args:
            timeout: Time limit of the call in seconds. The server stops a call that exceeds it.
            out: Destinations of results by name, or the only one. An array must have the routine's type, shape and memory
                order; after a failure its contents are undefined. The destination of a file is a path; without one its
                bytes come back.
            priority: Priority among your calls that wait at a metaserver, 0 to 9. The metaserver may lower it. A server
                accepts only 0.

        Raises:
            CallError: The call failed. If the arguments do not fit (:class:`ArgumentError`), nothing was sent.
        """
        _checked(priority)
        call = self._prepared(name, args, named, out)
        if call.functions:
            return call.begun(self._native.start(name, call.native, timeout, priority)).result()
        return call.ran(lambda: self._native.call(name, call.native, timeout, priority))

    def call_async(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        **named: Any,
    ) -> Handle:
        """Begins a call and returns when the arguments are sent. The arguments are those of :meth:`call`."""
        _checked(priority)
        call = self._prepared(name, args, named, out)
        return call.begun(self._native.start(name, call.native, timeout, priority))

    def object(self, name: str, /, *, timeout: float | None = None, priority: int = 0) -> Object:
        """Creates an object of a class, and waits until it exists.

        .. code-block:: python

            with server.object("counter") as counter:
                counter.add(3)
                counter.total()

        Args:
            name: The class.
            timeout: Time limit in seconds.
            priority: As in :meth:`call`.

        Raises:
            CallError: There is no such class, it cannot be run, or the server has too many objects.
        """
        _checked(priority)
        return Object(self._native.object(name, timeout, priority), name, self.names)


def _checked(priority: int) -> None:
    if priority not in range(10):
        raise ArgumentError(f"priority={priority!r}; there are 0 to 9")
