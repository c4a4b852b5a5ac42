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
    """A connection to a server. Threads may share it; their calls run at the same time."""

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

        Arguments are those that are sent, in the order of the parameters or by name. Scalars that follow
        from the shapes of arrays, or have defaults, may be left out. Arrays are sent from where they are, if
        they have the routine's type and order. Results are new arrays.

        Args:
            timeout: Seconds that the call may take; the server stops it then.
            out: Arrays into which results are received, by name, or the array of the only one: of the routine's type, shape
                and order. After a failure there may be anything in them. Of files that come back the paths to which they
                are written; of others the bytes come back.

            priority: Among your calls through a metaserver that wait, 0 to 9; the metaserver may bound it. A server
                refuses any but 0.

        Raises:
            CallError: It failed; of arguments that do not fit (:class:`ArgumentError`) nothing was sent.
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
        """Begins a call as :meth:`call` does; its arguments are sent when this returns."""
        _checked(priority)
        call = self._prepared(name, args, named, out)
        return call.begun(self._native.start(name, call.native, timeout, priority))

    def object(self, name: str, /, *, timeout: float | None = None, priority: int = 0) -> Object:
        """Makes an object of a class, and waits until it is there.

        .. code-block:: python

            with server.object("counter") as counter:
                counter.add(3)
                counter.total()

        Args:
            name: The class.
            timeout: Seconds that this may take.
            priority: As of :meth:`call`, until the object has its place.

        Raises:
            CallError: There is no such class, it cannot be run, or the server has as many objects as it may have.
        """
        _checked(priority)
        return Object(self._native.object(name, timeout, priority), name, self.names)


def _checked(priority: int) -> None:
    if priority not in range(10):
        raise ArgumentError(f"priority={priority!r}; there are 0 to 9")
