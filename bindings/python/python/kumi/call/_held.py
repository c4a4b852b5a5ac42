"""Arrays that stay at a server, as arguments of later calls."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from .._native import NativeClient, NativeHeld
from .._scope import Freed
from ._errors import ArgumentError, HeldElsewhereError, HeldLostError
from ._interface import Parameter
from ._types import SPELLED


class Keep(Enum):
    """The destination of a result that stays at the server."""

    KEEP = "KEEP"

    def __repr__(self) -> str:
        return "kumi.call.KEEP"


#: As a destination of a result (``out=``): it stays at the server, and the result is a :class:`Held`.
KEEP = Keep.KEEP


class Held(Freed):
    """An array at a server: the result of a call with ``out=KEEP``, or what :meth:`Connection.hold` sent there. It is an argument of later calls on the same connection.

    On a connection to a metaserver these calls run at the server of the array, and nowhere else. All arrays of a call are at one
    server; otherwise it raises :class:`HeldElsewhereError`.

    .. code-block:: python

        with server.call("dmmul", a, b, out=kumi.call.KEEP) as ab:
            c = server.call("dmmul", ab, a)          # ab does not travel
            ab.fetch()

    It ends

    - with :meth:`free` or the ``with``,
    - when nothing references it any more,
    - with its connection, or that of the metaserver's client to its server,
    - after the time that the server allows, one hour by default.

    Calls that use it later raise :class:`HeldLostError`.
    """

    def __init__(self, client: NativeClient, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> None:
        self._client = client
        self._freed = False
        #: Type of the elements.
        self.dtype = dtype
        #: Elements along each dimension.
        self.shape = shape
        #: Memory order, ``C`` or ``F``.
        self.order = order
        self._native = NativeHeld(client, math.prod(shape) * self.dtype.itemsize)

    @property
    def server(self) -> str | None:
        """The name of its server. None: the call that makes it is not over, or has failed."""
        at = self._native.server()
        return None if at is None else at[0]

    @property
    def address(self) -> str | None:
        """The address of its server, if a metaserver has named it."""
        at = self._native.server()
        return None if at is None else at[1]

    @property
    def lost(self) -> bool:
        """Whether it has ended, as far as the client knows without asking."""
        return self._freed or self._native.is_lost()

    def fetch(self, out: np.ndarray[Any, Any] | None = None, *, timeout: float | None = None) -> np.ndarray[Any, Any]:
        """Returns a copy of the array.

        Args:
            out: The array for the copy. It must have the same type, shape and memory order.
            timeout: Time limit in seconds.

        Raises:
            HeldLostError: It has ended.
        """
        self._check()
        if out is None:
            out = np.empty(self.shape, self.dtype, order=self.order)  # type: ignore[call-overload]
        elif out.dtype != self.dtype or out.shape != self.shape or not out.flags.writeable:
            raise ArgumentError(f"out= is no writable array of {self.dtype} of the shape {self.shape}")
        elif not (out.flags.f_contiguous if self.order == "F" else out.flags.c_contiguous):
            raise ArgumentError(f"out= is not contiguous in the order {self.order}")
        # An array in column order is its transpose in row order.
        self._native.fetch(out.T if self.order == "F" else out, timeout)
        return out

    def free(self) -> None:
        """Has the server drop the array. Freeing it again has no effect."""
        if not self._freed:
            self._freed = True
            self._native.free()

    def _check(self, what: str = "it") -> None:
        if not self.lost:
            return
        at = self._native.server()
        if self._freed:
            why = "it was freed"
        elif at is None:
            why = "the call that makes it has failed or is not over"
        else:
            why = f"its connection was lost (to {' at '.join(filter(None, at))})"
        raise HeldLostError(f"{what} is an array that is not at its server any more: {why}; call again what makes it")

    def _argument(self, client: object, routine: str, parameter: Parameter) -> None:
        """Checks that a call over this connection can have the array."""
        what = f"`{routine}`: `{parameter.name}`"
        self._check(what)
        if client is not self._client:
            raise HeldElsewhereError(f"{what} is an array at the server of another connection: fetch() it, or call there")
        if parameter.partial:
            raise ArgumentError(f"{what} travels in pieces, so it cannot be an array that stays at the server")
        if self.dtype != parameter.dtype:
            raise ArgumentError(f"{what} has elements of {self.dtype}, the routine wants {parameter.dtype}")
        if self.order != parameter.order and sum(size > 1 for size in self.shape) > 1:
            raise ArgumentError(f"{what} is in the order {self.order}, the routine wants {parameter.order}: fetch() it")

    def __repr__(self) -> str:
        return f"<kumi.call.Held array of {self.dtype}, shape {self.shape}{', lost' if self.lost else ''}>"


def kept(client: object, routine: str, parameter: Parameter, shape: tuple[int, ...]) -> Held:
    """What a result is that is to stay."""
    what = f"`{routine}`: `{parameter.name}`"
    if not isinstance(client, NativeClient):
        raise ArgumentError(f"{what} is a result of an object's method: give the array that receives it")
    if parameter.partial:
        raise ArgumentError(f"{what} travels in pieces, so it cannot stay at the server")
    assert parameter.dtype is not None
    return Held(client, parameter.dtype, shape, parameter.order)


def held(client: NativeClient, array: np.ndarray[Any, Any], timeout: float | None) -> Held:
    """Sends an array that stays at the server."""
    if array.ndim == 0 or array.dtype not in SPELLED:
        raise ArgumentError(f"only arrays of numbers that routines have can be held, not {array.dtype} of the shape {array.shape}")
    is_column = array.flags.f_contiguous and not array.flags.c_contiguous
    if not is_column:
        array = np.ascontiguousarray(array)
    made = Held(client, array.dtype, array.shape, "F" if is_column else "C")
    # An array in column order is its transpose in row order.
    made._native.put(array.T if is_column else array, timeout)
    return made
