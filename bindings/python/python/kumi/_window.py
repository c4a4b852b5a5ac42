"""Windows: memory of each rank that the others read and write without its help."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import (
    Array,
    as_array,
    contiguous,
    empty,
    memory_of,
    octets,
    output,
    owner,
    plain,
    sizes_of,
    whole,
    writable,
)
from ._completion import Completion
from ._errors import BadArgumentError, BadTypeError, FreedWindowError, OutOfBoundsError
from ._event_loop import noticed
from ._fifo import Fifo
from ._lists import Pieces, several, table
from ._regions import Region
from ._starts import Starts, operands, signed

_MODULUS = 1 << 64

#: One array, or several.
_Arrays = TypeVar("_Arrays", Array, list[Array], tuple[Array, ...])


class Window(Starts):
    """One piece of memory per rank, made by :func:`kumi.window` or :func:`kumi.window_on` at all
    ranks together.

    Offsets and counts are numbers of elements of the window's ``dtype``, counted through a rank's piece in C
    order, whatever its shape. Only FIFOs and signal ports are placed by bytes, because they are not arrays.
    Each piece has 64 notification counters, 0 to 63.

    A window lasts until :meth:`free`, the end of a ``with`` block, or :func:`kumi.finalize`. Dropping the
    object does not free it, because other ranks may use this rank's piece. After :meth:`free` every operation
    raises :class:`kumi.FreedWindowError`. Arrays made from :attr:`array` remain usable; the memory is freed
    with the last of them.
    """

    __slots__ = ("__weakref__", "_array", "_dtype", "_native", "_shape")

    def __init__(self, native: _native.NativeWindow, array: Array) -> None:
        self._native = native
        self._shape: tuple[int, ...] = array.shape
        self._dtype: np.dtype[Any] = array.dtype
        self._array: Array | None = array

    @property
    def array(self) -> Array:
        """This rank's piece as an array, without a copy.

        Other ranks may write to it at any time. Read data of a put after its notification
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
        offset: SupportsIndex | Region = 0,
        notify: int | None = None,
        *,
        completion: Completion | None = None,
    ) -> None:
        """Writes a contiguous array of the window's dtype into a rank's piece.

        With a :func:`kumi.region` in place of the offset, the elements go there. The array then has the
        region's shape and need not be contiguous.

        Returns when ``array`` may be changed; :meth:`flush` waits until the data is in place. Then the
        target's counter ``notify`` and this rank's ``completion`` rise by 1. A rank on another node checks
        bounds and rights when the data arrives. If it refuses, a later call to that rank (or of the
        completion, if there is one) raises :class:`kumi.RefusedError`.
        """
        if isinstance(offset, Region):
            self._put_region(rank, array, offset, notify, completion)
            return
        checked = self._elements(array, "array")
        start = self._bytes(rank, offset)
        if completion is None:
            self._native.put(rank, octets(checked), start, notify)
        else:
            whole = (start, checked.nbytes, checked.nbytes, 1)
            counter = _counter(completion)
            _native.put_blocks(self._native, rank, octets(checked), whole, notify, counter)

    def _put_region(
        self,
        rank: int,
        array: npt.ArrayLike,
        region: Region,
        notify: int | None,
        completion: Completion | None,
    ) -> None:
        given = as_array(array, "array")
        checked = self._elements(np.ascontiguousarray(given), "array")
        if given.shape != region.shape:
            raise BadArgumentError(f"array is of shape {given.shape}, the region of {region.shape}")
        blocks = self._blocks(rank, region)
        counter = _counter(completion)
        _native.put_blocks(self._native, rank, octets(checked), blocks, notify, counter)

    def get(
        self,
        rank: int,
        offset: SupportsIndex | Region = 0,
        count: SupportsIndex | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Reads from a rank's piece and waits for the data.

        Fills ``out``, or returns a new array of ``count`` elements of ``dtype`` (default: the window's).
        Without ``out`` and ``count`` it reads to the end of the piece. With a :func:`kumi.region` in place of
        the offset the result has the region's shape, and ``out`` need not be contiguous.
        """
        if isinstance(offset, Region):
            if count is not None or dtype is not None:
                raise BadTypeError("a region has its own shape, of the window's dtype")
            return self._get_region(rank, offset, out)
        start = self._bytes(rank, offset)
        kind = self._dtype if dtype is None else plain(dtype)
        if out is not None:
            if count is not None or dtype is not None:
                raise BadTypeError("give either out or count and dtype: out has both")
            into = output(out, np.shape(out), np.asarray(out).dtype)
        else:
            if count is None:
                rest = max(0, self._native.size_at(rank) - start)
                number = rest // kind.itemsize
            else:
                number = whole(count, "count")
            if number < 0:
                raise BadArgumentError(f"count is {number}: use 0 or more")
            self._check(rank, start, number * kind.itemsize)
            into = empty((number,), kind)
        self._native.get(rank, octets(into), start)
        return into

    def _get_region(self, rank: int, region: Region, out: Array | None) -> Array:
        count = math.prod(sizes_of(region.shape))
        self._check(rank, self._bytes(rank, region.offset), count * self._dtype.itemsize)
        into = empty(region.shape, self._dtype)
        if out is not None and (out.shape != into.shape or out.dtype != into.dtype):
            raise BadTypeError(
                f"out must be of shape {into.shape} and dtype {into.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        _native.get_blocks(self._native, rank, octets(into), self._blocks(rank, region))
        if out is None:
            return into
        out[...] = into
        return out

    def put_list(
        self,
        rank: int,
        pieces: Pieces,
        array: npt.ArrayLike | list[Array] | tuple[Array, ...],
        notify: int | None = None,
        *,
        completion: Completion | None = None,
    ) -> None:
        """Writes a contiguous array into several pieces of a rank's piece, one after the other.

        ``pieces`` are pairs ``(offset, length)`` of numbers of elements, in any order, as an iterable or as
        an array of integers with two columns. ``array`` may be a list or tuple of arrays, which are taken one
        after the other; their ends need not coincide with ends of pieces. The arrays together must have as
        many elements as the pieces, otherwise :class:`kumi.BadLengthError` is raised.

        If a piece is outside of the rank's piece, nothing is written. Where pieces overlap, the last one's
        elements remain. ``notify`` and ``completion`` rise once, when all data is in place; otherwise this is
        like :meth:`put`.
        """
        given = [octets(self._elements(one, "array")) for one in several(array)]
        places = self._places(rank, pieces)
        _native.put_list(self._native, rank, places, given, notify, _counter(completion))

    @overload
    def get_list(self, rank: int, pieces: Pieces) -> Array: ...

    @overload
    def get_list(self, rank: int, pieces: Pieces, *, out: _Arrays) -> _Arrays: ...

    def get_list(self, rank: int, pieces: Pieces, *, out: Any = None) -> Any:
        """Reads several pieces of a rank's piece, one after the other, and waits for them: the reverse of
        :meth:`put_list`.

        Returns a new array of one dimension, or fills ``out``: an array of the window's dtype, or a
        list or tuple of them, which are filled one after the other and must not share memory
        (:class:`kumi.OverlapError`).
        """
        places = self._places(rank, pieces)
        if out is None:
            elements = sum(places[:, 1].tolist()) // self._dtype.itemsize
            out = np.empty(elements, self._dtype)
        into = [octets(self._elements(writable(one, "out"), "out")) for one in several(out)]
        _native.get_list(self._native, rank, places, into)
        return out

    def _places(self, rank: int, pieces: Pieces) -> npt.NDArray[np.int64]:
        return table(pieces, self._dtype.itemsize, rank, self._native.size_at(rank))

    def multicast(
        self,
        ranks: Iterable[int],
        array: npt.ArrayLike,
        offset: SupportsIndex = 0,
        notify: int | None = None,
    ) -> None:
        """Writes a contiguous array into the pieces of several ranks, and waits until all have the data.

        Each rank is written once, however often it is named; this rank may be among them. Ranks on other
        nodes pass the data on along a tree. If one refuses, others may have the data.
        """
        checked = self._elements(array, "array")
        members = _members(ranks)
        start = self._bytes(members[0] if members else 0, offset)
        _native.multicast(self._native, members, octets(checked), start, notify)

    def fetch_add(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Adds to one element of a rank's piece atomically; returns the previous value.

        This and the other atomic operations need a window of integers of 4 or 8 bytes. Sums wrap around. Each
        operation is atomic with respect to those of all ranks on this window, and waits for its result.
        """
        return self._atomic("add", rank, offset, value)

    def fetch_and(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Bitwise "and" with one element of a rank's piece; returns the previous value."""
        return self._atomic("and", rank, offset, value)

    def fetch_or(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Bitwise "or" with one element of a rank's piece; returns the previous value."""
        return self._atomic("or", rank, offset, value)

    def fetch_xor(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Bitwise "exclusive or" with one element of a rank's piece; returns the previous value."""
        return self._atomic("xor", rank, offset, value)

    def swap(self, rank: int, offset: SupportsIndex, value: SupportsIndex) -> int:
        """Stores into one element of a rank's piece; returns the previous value."""
        return self._atomic("swap", rank, offset, value)

    def compare_swap(
        self, rank: int, offset: SupportsIndex, expected: SupportsIndex, value: SupportsIndex
    ) -> int:
        """Stores into one element of a rank's piece if it is ``expected``. Returns the previous value: if that
        is ``expected``, the store happened."""
        return self._atomic("compare_swap", rank, offset, expected, value)

    def _atomic(
        self,
        operation: str,
        rank: int,
        offset: SupportsIndex,
        first: SupportsIndex,
        second: SupportsIndex = 0,
    ) -> int:
        numbers, width = operands(self._dtype, first, second)
        start = self._bytes(rank, offset)
        before = _native.atomic(self._native, operation, rank, start, numbers, width)
        return signed(self._dtype, before)

    def fifo(self, offset: int, capacity: int, notify: int = 0) -> Fifo:
        """Makes a FIFO in this rank's piece, at byte ``offset`` (a multiple of
        ``kumi.FIFO_ALIGNMENT``). Not collective.

        It takes ``kumi.FIFO_OVERHEAD + capacity`` bytes, which belong to it until it is freed;
        ``capacity`` is a multiple of 8 from 16 to 2**31. A record takes 8 bytes and its length,
        padded to a multiple of 8. With every record the counter ``notify`` goes up by 1; FIFOs may
        share one, to wait for any of them.
        """
        native = _native.NativeFifo(self._native, self._place(_native.rank(), offset), capacity, notify)
        return Fifo(native, offset)

    def append(self, rank: int, offset: int, data: Any) -> None:
        """Appends a bytes-like object of at most ``kumi.max_record()`` bytes as one record to the FIFO at byte
        ``offset`` of a rank's piece. Waits while the FIFO is full.

        Returns when the record is in the FIFO, after everything put to that rank before. Records of one rank
        stay in order; none is lost or overwritten.
        """
        _native.append(self._native, rank, self._place(rank, offset), data, False, True)

    def try_append(self, rank: int, offset: int, data: Any) -> bool:
        """As :meth:`append` without waiting for room: False if the FIFO is full."""
        return _native.append(self._native, rank, self._place(rank, offset), data, False, False)

    def multicast_append(self, ranks: Iterable[int], offset: int, data: Any) -> None:
        """Appends a record to the FIFOs of several ranks at the same byte ``offset``, and waits until all have
        it.

        Each rank gets the record once, however often it is named; this rank may be among them. Ranks on other
        nodes pass it on along a tree. A rank whose FIFO is full gets it when there is room, without delaying
        the others. If one refuses it, the others have it.
        """
        _native.multicast_append(self._native, _members(ranks), self._place(_native.rank(), offset), data, False, True)

    def try_multicast_append(self, ranks: Iterable[int], offset: int, data: Any) -> list[int]:
        """As :meth:`multicast_append` without waiting for room. Returns the ranks whose FIFO is full, in rising
        order; all others have the record."""
        return _native.multicast_append(
            self._native, _members(ranks), self._place(_native.rank(), offset), data, False, False
        )

    def on_signal(
        self, offset: int, capacity: int, handler: Callable[[int, bytes], object]
    ) -> None:
        """Makes a signal port in this rank's piece, placed as a FIFO is (:meth:`fifo`):
        ``handler(source, data)`` runs for each record that :meth:`signal` sends to it.

        Handlers run on a thread of the port, with the interpreter's lock, also while this rank computes or
        waits: one at a time for a port, in the order of each sender. A handler cannot call functions of this
        package (:class:`kumi.WrongThreadError`): it should set, count or queue something. If a handler raises
        an exception, this rank's next call that communicates does nothing. It raises
        :class:`kumi.HandlerError` with that exception as its cause.
        """
        if not callable(handler):
            raise BadTypeError(f"handler must be callable, which {type(handler).__name__} is not")
        _native.on_signal(self._native, self._place(_native.rank(), offset), capacity, handler)

    def remove_signal(self, offset: int) -> None:
        """Removes a signal port after waiting for a running handler; unhandled records are dropped. :meth:`free`
        does this too."""
        _native.remove_signal(self._native, self._place(_native.rank(), offset))

    def signal(self, rank: int, offset: int, data: Any = b"") -> None:
        """Sends a signal: appends a record to the port at byte ``offset`` of a rank's piece. The port's handler
        then runs there. Waits while the port is full, but not for the handler."""
        _native.append(self._native, rank, self._place(rank, offset), data, True, True)

    def try_signal(self, rank: int, offset: int, data: Any = b"") -> bool:
        """As :meth:`signal` without waiting for room: False if the port is full."""
        return _native.append(self._native, rank, self._place(rank, offset), data, True, False)

    def multicast_signal(self, ranks: Iterable[int], offset: int, data: Any = b"") -> None:
        """Sends a signal to the ports of several ranks at the same byte ``offset``, as :meth:`multicast_append`
        does with FIFOs. Does not wait for handlers."""
        _native.multicast_append(self._native, _members(ranks), self._place(_native.rank(), offset), data, True, True)

    def try_multicast_signal(
        self, ranks: Iterable[int], offset: int, data: Any = b""
    ) -> list[int]:
        """As :meth:`multicast_signal` without waiting for room. Returns the ranks whose port is full, in rising
        order; all others have the signal."""
        return _native.multicast_append(
            self._native, _members(ranks), self._place(_native.rank(), offset), data, True, False
        )

    def notified(self, notify: int) -> int:
        """Returns how many puts have raised this counter of this rank's piece since the window was made."""
        return self._native.notified(notify)

    def wait_notify(self, notify: int, at_least: int) -> int:
        """Waits until a counter of this rank's piece is at least this; returns its value.

        Counters are never reset: the n-th wait of a program with one put per step waits for n.
        """
        return self._native.wait_notify(notify, at_least)

    def flush(self, rank: int | None = None) -> None:
        """As :func:`kumi.flush`."""
        _native.flush(rank)

    def free(self) -> None:
        """Frees this rank's piece. Not collective. Freeing it again has no effect.

        Make sure first, with :func:`kumi.barrier`, that no other rank still uses it.
        """
        if self.freed:
            return  # By an earlier call, or by finalize().
        try:
            self._native.free()
        finally:
            # It collects ends, also when it refuses.
            noticed()
        self._array = None
        _native.reap()

    def __repr__(self) -> str:
        state = ", freed" if self.freed else ""
        return f"<kumi.Window shape={self._shape} dtype={self._dtype}{state}>"

    def _elements(self, array: object, what: str) -> Array:
        if self._dtype == np.uint8 and isinstance(array, (bytes, bytearray, memoryview)):
            return octets(contiguous(memory_of(array), what))
        checked = contiguous(array, what)
        if checked.dtype != self._dtype:
            raise BadTypeError(f"{what} is of dtype {checked.dtype}, the window of {self._dtype}")
        return checked

    def _bytes(self, rank: int, offset: SupportsIndex) -> int:
        start = whole(offset, "offset") * self._dtype.itemsize
        self._fits_word(rank, start)
        return start

    def _place(self, rank: int, offset: SupportsIndex) -> int:
        """The place of a FIFO, in bytes."""
        start = whole(offset, "offset")
        self._fits_word(rank, start)
        return start

    def _fits_word(self, rank: int, start: int) -> None:
        # A number of more than 64 bits is outside of any window.
        if not 0 <= start < _MODULUS:
            self._check(rank, start, 0)

    def _check(self, rank: int, start: int, length: int) -> None:
        """Checks whether these bytes can be in a rank's piece, before memory is allocated for them."""
        size = self._native.size_at(rank)
        if start < 0 or start + length > size:
            raise OutOfBoundsError(
                f"bytes {start}..{start}+{length} are outside of the window's {size} bytes at "
                f"rank {rank}",
                rank=rank,
                offset=start,
                length=length,
                size=size,
            )

    def _blocks(self, rank: int, region: Region) -> tuple[int, int, int, int]:
        size = self._dtype.itemsize
        start = self._bytes(rank, region.offset)
        rest = (region.stride * size, region.block * size, region.blocks)
        if not all(0 <= number < _MODULUS for number in rest):
            raise BadArgumentError(f"{region} is no region: make it with kumi.region()")
        return start, *rest


def _counter(completion: Completion | None) -> _native.NativeCompletion | None:
    if completion is None or isinstance(completion, Completion):
        return None if completion is None else completion._native
    raise BadTypeError(f"completion must be a kumi.Completion, not {type(completion).__name__}")


def _members(ranks: Iterable[SupportsIndex]) -> list[int]:
    # A number of more than 64 bits is not a rank; clamping keeps it invalid.
    most = _MODULUS // 2 - 1
    return [max(-1, min(whole(rank, "a rank"), most)) for rank in ranks]


def _view(native: _native.NativeWindow, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The memory as an array. The array keeps the buffer, and so the memory."""
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

    This rank's piece has ``shape``, which may differ between ranks, and is all zeros. Other ranks may ``get``
    from it, ``put`` to it and ``fetch_add`` to it, unless the rights forbid that.
    """
    kind = plain(dtype)
    sizes = sizes_of(shape)
    # Sizes of more than 64 bits are refused at all ranks, like sizes that exceed the memory.
    count = min(math.prod(sizes) * kind.itemsize, _MODULUS - 1)
    native = _native.NativeWindow(count, read, write, atomic)
    try:
        return Window(native, _view(native, sizes, kind))
    except BaseException:
        # Without an array nobody could free the window.
        native.free()
        _native.reap()
        raise


def window_on(
    memory: Any,
    *,
    read: bool = True,
    write: bool = True,
    atomic: bool = True,
) -> Window:
    """Makes a window on memory of the program, with its present contents.

    Collective, like :func:`kumi.window`; other ranks may call that at the same time, with the same dtype.
    ``memory`` is a numpy array or any other object with the buffer protocol (``bytearray``, ``array.array``,
    ``mmap.mmap``, ``memoryview``), writable and contiguous in C order. The window has its shape and dtype,
    and :attr:`Window.array` shows the memory.

    The window holds the memory until it is freed, even if the program drops all other references. Meanwhile
    the memory cannot be resized (``bytearray`` raises ``BufferError``, numpy ``ValueError``). With ``atomic``
    the memory must begin at a multiple of 8, which new numpy arrays do; for FIFOs in it, at a multiple of
    ``kumi.FIFO_ALIGNMENT``. Other ranks, even on the same node, reach it by frames, which the library serves
    while the program computes.
    """
    array = writable(memory_of(memory), "memory")
    # numpy does not move an array's memory while a weak reference to it exists, even on request.
    guard = weakref.ref(owner(array))
    native = _native.NativeWindow.on(octets(array), guard, read, write, atomic)
    return Window(native, array)
