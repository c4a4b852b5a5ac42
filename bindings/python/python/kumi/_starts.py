"""Operations on windows that go on after their call has returned."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import Array, empty, octets, whole, writable
from ._errors import BadArgumentError, BadTypeError
from ._requests import Request, guard, nothing
from ._scope import Freed


class Starts(Freed):
    """The functions of windows that start requests."""

    __slots__ = ()

    _native: _native.NativeWindow
    _dtype: np.dtype[Any]

    @abstractmethod
    def _elements(self, array: object, what: str) -> Array: ...

    @abstractmethod
    def _bytes(self, rank: int, offset: SupportsIndex) -> int: ...

    @abstractmethod
    def _check(self, rank: int, start: int, length: int) -> None: ...

    def iput(
        self,
        rank: int,
        array: npt.ArrayLike,
        offset: SupportsIndex = 0,
        notify: int | None = None,
        *,
        sent: bool = False,
    ) -> Request[None]:
        """Starts :meth:`put` and returns at once.

        The request ends when the data is in place, or was refused: then it raises the error. With ``sent`` it ends
        already when ``array`` may be changed. Until then the array must stay as it is.
        """
        checked = self._elements(array, "array")
        start = self._bytes(rank, offset)
        native = _native.start_put(
            self._native, rank, octets(checked), start, notify, sent, guard(checked)
        )
        return Request(native, nothing)

    def iget(
        self,
        rank: int,
        offset: SupportsIndex = 0,
        count: SupportsIndex | None = None,
        *,
        out: Array | None = None,
    ) -> Request[Array]:
        """Starts :meth:`get` and returns at once. The result is ``out``, or a new array of ``count`` elements.

        Without ``out`` and ``count`` it reads to the end of the piece. Nobody may use ``out`` before the end.
        """
        start = self._bytes(rank, offset)
        width = self._dtype.itemsize
        if out is None:
            rest = max(0, self._native.size_at(rank) - start) // width
            number = rest if count is None else whole(count, "count")
            if number < 0:
                raise BadArgumentError(f"count is {number}: use 0 or more")
            self._check(rank, start, number * width)
            into = empty((number,), self._dtype)
        elif count is not None:
            raise BadTypeError("give either out or count: out has both")
        else:
            into = self._elements(writable(out, "out"), "out")
        native = _native.start_get(self._native, rank, octets(into), start, guard(into))
        return Request(native, lambda _: into)

    def ifetch_add(
        self, rank: int, offset: SupportsIndex, value: SupportsIndex
    ) -> Request[int]:
        """Starts :meth:`fetch_add` and returns at once. The result is the previous value."""
        return self._start("add", rank, offset, value)

    def ifetch_and(
        self, rank: int, offset: SupportsIndex, value: SupportsIndex
    ) -> Request[int]:
        """Starts :meth:`fetch_and` and returns at once."""
        return self._start("and", rank, offset, value)

    def ifetch_or(
        self, rank: int, offset: SupportsIndex, value: SupportsIndex
    ) -> Request[int]:
        """Starts :meth:`fetch_or` and returns at once."""
        return self._start("or", rank, offset, value)

    def ifetch_xor(
        self, rank: int, offset: SupportsIndex, value: SupportsIndex
    ) -> Request[int]:
        """Starts :meth:`fetch_xor` and returns at once."""
        return self._start("xor", rank, offset, value)

    def iswap(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> Request[int]:
        """Starts :meth:`swap` and returns at once."""
        return self._start("swap", rank, offset, value)

    def icompare_swap(
        self, rank: int, offset: SupportsIndex, expected: SupportsIndex, value: SupportsIndex
    ) -> Request[int]:
        """Starts :meth:`compare_swap` and returns at once."""
        return self._start("compare_swap", rank, offset, expected, value)

    def _start(
        self,
        operation: str,
        rank: int,
        offset: SupportsIndex,
        first: SupportsIndex,
        second: SupportsIndex = 0,
    ) -> Request[int]:
        numbers, width = operands(self._dtype, first, second)
        start = self._bytes(rank, offset)
        native = _native.start_atomic(self._native, operation, rank, start, numbers, width)
        return Request(native, lambda before: signed(self._dtype, before))


def operands(
    dtype: np.dtype[Any], first: SupportsIndex, second: SupportsIndex
) -> tuple[list[int], int]:
    """Operands of an atomic operation as unsigned numbers, and its width in bytes."""
    width = dtype.itemsize
    if dtype.kind not in "iu" or width not in (4, 8) or not dtype.isnative:
        kinds = "int32, uint32, int64 or uint64"
        raise BadTypeError(f"atomic operations need a window of {kinds}, not {dtype}")
    modulus = 1 << 8 * width
    return [whole(number, "a number") % modulus for number in (first, second)], width


def signed(dtype: np.dtype[Any], before: int) -> int:
    """A value of the dtype that came as an unsigned number."""
    modulus = 1 << 8 * dtype.itemsize
    return before - modulus if dtype.kind == "i" and before >= modulus // 2 else before
