"""Windows: memory of each rank that the others read and write without its help."""

from __future__ import annotations

import operator
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import Array, contiguous, octets, output, plain
from ._errors import FreedWindowError, OutOfBoundsError

_MODULUS = 1 << 64


class Window:
    """One piece of memory per rank, made by :func:`kumi.window` at all ranks together.

    Offsets and counts are numbers of elements of the window's ``dtype``, counted through a rank's
    piece in C order whatever its shape. Each piece has 64 notification counters, 0 to 63.

    A window stays until :meth:`free`, the end of a ``with`` block, or :func:`kumi.finalize`.
    Losing the object does not free it, for others may use this rank's piece. After :meth:`free`
    every operation raises :class:`kumi.FreedWindowError`; arrays made from :attr:`array` remain
    usable, and the memory is given back when the last of them is gone.
    """

    __slots__ = ("__weakref__", "_array", "_dtype", "_native", "_shape")

    def __init__(self, native: _native.NativeWindow, shape: tuple[int, ...], dtype: Any) -> None:
        self._native = native
        self._shape = shape
        self._dtype: np.dtype[Any] = dtype
        self._array: Array | None = _view(native, shape, dtype)

    @property
    def array(self) -> Array:
        """This rank's piece as an array, without a copy.

        Others may write to it at any time: read what a put brought after its notification
        (:meth:`wait_notify`), or after a barrier that followed a flush.
        """
        if self._array is None:
            raise FreedWindowError("this window was freed; keep the array if you need it longer")
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of this rank's piece."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, at all ranks."""
        return self._dtype

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._native.freed

    def size_at(self, rank: int) -> int:
        """Number of elements of a rank's piece."""
        return self._native.size_at(rank) // self._dtype.itemsize

    def put(
        self,
        rank: int,
        array: npt.ArrayLike,
        offset: SupportsIndex = 0,
        notify: int | None = None,
    ) -> None:
        """Writes a contiguous array of the window's dtype into a rank's piece.

        Returns when ``array`` may be changed; :meth:`flush` waits until the data is in place. With
        ``notify`` that counter there goes up by 1 once it is. A rank on another node checks bounds
        and rights when the data arrives: if it refuses, a later call to that rank raises
        :class:`kumi.RefusedError`.
        """
        checked = self._elements(array, "array")
        self._native.put(rank, octets(checked), self._bytes(rank, offset), notify)

    def get(
        self,
        rank: int,
        offset: SupportsIndex = 0,
        count: SupportsIndex | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Reads from a rank's piece and waits for the data.

        Fills ``out``, or returns a new array of ``count`` elements of ``dtype`` (the window's
        unless given). Without both it reads to the end of the piece.
        """
        start = self._bytes(rank, offset)
        kind = self._dtype if dtype is None else plain(dtype)
        if out is not None:
            if count is not None or dtype is not None:
                raise TypeError("give either out or count and dtype: out has both")
            into = output(out, np.shape(out), np.asarray(out).dtype)
        else:
            if count is None:
                rest = max(0, self._native.size_at(rank) - start)
                number = rest // kind.itemsize
            else:
                number = operator.index(count)
            if number < 0:
                raise ValueError(f"count is {number}: use 0 or more")
            into = np.empty(number, kind)
        self._native.get(rank, octets(into), start)
        return into

    def fetch_add(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Adds to one element of a rank's piece as one step; returns what was there.

        The window's dtype must be ``int64`` or ``uint64``. Sums wrap around.
        """
        if self._dtype not in (np.dtype(np.int64), np.dtype(np.uint64)):
            raise TypeError(f"fetch_add needs a window of int64 or uint64, not {self._dtype}")
        operand = operator.index(value) % _MODULUS
        before = self._native.fetch_add(rank, self._bytes(rank, offset), operand)
        if self._dtype.kind == "i" and before >= _MODULUS // 2:
            before -= _MODULUS
        return before

    def notified(self, notify: int) -> int:
        """How many puts have raised this counter of the own piece since the window was made."""
        return self._native.notified(notify)

    def wait_notify(self, notify: int, at_least: int) -> int:
        """Waits until a counter of the own piece shows at least this; returns what it shows.

        Counters are never reset: the n-th wait of a program with one put per step waits for n.
        """
        return self._native.wait_notify(notify, at_least)

    def flush(self, rank: int | None = None) -> None:
        """As :func:`kumi.flush`."""
        _native.flush(rank)

    def free(self) -> None:
        """Frees this rank's piece. Not collective; a second time does nothing.

        Make sure first, with :func:`kumi.barrier`, that no other rank still uses it.
        """
        if self.freed:
            return  # By an earlier call, or by finalize().
        self._native.free()
        self._array = None
        _native.reap()

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        state = ", freed" if self.freed else ""
        return f"<kumi.Window shape={self._shape} dtype={self._dtype}{state}>"

    def _elements(self, array: object, what: str) -> Array:
        if self._dtype == np.uint8 and isinstance(array, (bytes, bytearray, memoryview)):
            return np.frombuffer(array, np.uint8)
        checked = contiguous(array, what)
        if checked.dtype != self._dtype:
            raise TypeError(f"{what} is of dtype {checked.dtype}, the window of {self._dtype}")
        return checked

    def _bytes(self, rank: int, offset: SupportsIndex) -> int:
        start = operator.index(offset)
        # What does not fit a word is outside of any window.
        if not 0 <= start < _MODULUS // self._dtype.itemsize:
            text = f"element {start} is outside of the window's piece at rank {rank}"
            raise OutOfBoundsError(text, rank=rank, offset=start * self._dtype.itemsize)
        return start * self._dtype.itemsize


def _view(native: _native.NativeWindow, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The memory as an array, which keeps the buffer and by it the memory."""
    if 0 in shape:
        return np.empty(shape, dtype)
    memory: Any = native
    octets_of_it = np.frombuffer(memory, np.uint8)
    array: Array = octets_of_it.view(dtype).reshape(shape)
    return array


def window(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = np.float64,
    *,
    read: bool = True,
    write: bool = True,
    atomic: bool = True,
) -> Window:
    """Makes a window; all ranks call it in the same order, with the same dtype.

    This rank's piece has ``shape``, which may differ between ranks, and is all zeros. The others
    may ``get`` from it, ``put`` to it and ``fetch_add`` to it unless the right is taken away.
    """
    kind = plain(dtype)
    if kind.itemsize == 0:
        raise TypeError(f"dtype {kind} has no size")
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    sizes = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape {sizes} has a negative dimension")
    count = 1
    for size in sizes:
        count *= size
    native = _native.NativeWindow(count * kind.itemsize, read, write, atomic)
    return Window(native, sizes, kind)
