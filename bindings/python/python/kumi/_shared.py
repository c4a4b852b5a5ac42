"""Shared memory: arrays that all ranks see, locks and conditions."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import plain, sizes_of, whole
from ._errors import BadArgumentError, BadTypeError, KumiError, OutOfMemoryError

_HOMES = ("blocks", "round-robin", "first-touch")


class SharedArray(np.ndarray[Any, np.dtype[Any]]):
    """A numpy array that all ranks see; :func:`kumi.shared_array` makes it.

    It is used as any other array. Slices and other views of it are of this class, too. What computations return is a new
    array of this rank alone.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # `a += 1` gives the array itself. New results are no shared memory, and their class does not say so.
        if array is self:
            return self
        made = np.asarray(array)
        return made[()] if made.ndim == 0 else made

    def bring(self, *, write: bool = False) -> None:
        """Brings what is not here of this array, as a system call needs that reads it, or writes it (``write``).

        The kernel fetches nothing: ``file.write(array)`` may raise ``OSError`` (``EFAULT``) without this. It holds until the
        next lock, barrier or wait for a condition.
        """
        _bring(np.asarray(self), write)

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """As that of numpy; fetches what is not here before."""
        self.bring()
        super().tofile(fid, sep, format)


def _span(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Address and length of the bytes from the first to the last element."""
    start: int = array.__array_interface__["data"][0]
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    before = sum(step for step in steps if step < 0)
    return start + before, sum(abs(step) for step in steps) + array.itemsize


def _bring(array: npt.NDArray[Any], write: bool) -> None:
    if array.size == 0:
        return
    start, length = _span(array)
    if array.ndim > 1 and length != array.nbytes:
        # What lies between the rows is left where it is.
        for row in array:
            _bring(row, write)
    else:
        _native.shared_bring(start, length, write)


def shared_array(
    shape: SupportsIndex | tuple[SupportsIndex, ...],
    dtype: npt.DTypeLike = np.float64,
    *,
    home: str | SupportsIndex = "blocks",
    update: bool = False,
) -> SharedArray:
    """Makes one array that all ranks see, of zeros.

    Collective: all ranks call it with the same arguments, in the same order. What a rank writes is visible to the others
    after :func:`kumi.barrier`, or under the same :func:`kumi.lock`. Two ranks may write different elements at the same
    time, but not the same one.

    ``home`` says where the array lives: ``"blocks"`` (each rank has a part of the same length, in order),
    ``"round-robin"`` (pages in turn), ``"first-touch"`` (each page where it is used first), or a rank for all of it. A
    rank is fastest where the home is its own node.

    ``update=True`` is for arrays that few ranks write and many read soon after: a barrier, or the end of a lock, brings
    all copies up to date, so that nobody has to fetch them again.

    The memory stays until :func:`kumi.finalize`, also without references. Afterwards it must not be used: copy what is
    still needed before.
    """
    sizes, element = sizes_of(shape), plain(dtype)
    if isinstance(home, str):
        if home not in _HOMES:
            raise BadArgumentError(f"home is {home!r}: give {', '.join(_HOMES)} or a rank")
        kind, rank = home, -1
    else:
        kind, rank = "rank", whole(home, "home")
    count = element.itemsize
    for size in sizes:
        count *= size
    if count >= 1 << 63:
        raise OutOfMemoryError(f"no room for an array of {count} bytes", bytes=count)
    # An array without elements has an address, too.
    memory: Any = _native.NativeSharedBytes(max(count, 1), kind, rank, bool(update))
    return SharedArray(sizes, element, buffer=memory)


def bring(array: Any, *, write: bool = False) -> None:
    """Brings what is not here of an array, or of any other object with a buffer, that shows shared memory.

    See :meth:`SharedArray.bring`. Memory that is not shared is left alone.
    """
    if not isinstance(array, np.ndarray):
        try:
            array = np.asarray(memoryview(array))
        except (TypeError, ValueError) as error:
            raise BadTypeError(f"array must have a buffer: {error}") from error
    _bring(np.asarray(array), write)


def shared_statistics() -> dict[str, int]:
    """What this rank's shared memory has done so far: ``"faults"``, ``"fetches"``, ``"diffs"`` and so on."""
    return dict(_native.shared_statistics())


class _Numbered:
    """What all ranks know by a number."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    @property
    def number(self) -> int:
        """Its number."""
        return self._number

    def __repr__(self) -> str:
        return f"kumi.{type(self).__name__.lower()}({self._number})"


class Lock(_Numbered):
    """A lock of all ranks; :func:`kumi.lock` makes it. It belongs to the thread that took it."""

    __slots__ = ()

    def acquire(self) -> None:
        """Waits until nobody has the lock, and takes it. What was written under it before is visible then."""
        _native.shared_lock(self._number)

    def release(self) -> None:
        """Gives the lock back."""
        _native.shared_unlock(self._number)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except KumiError as failure:
            if error is None:
                raise
            # The first error matters more; the message also shows the other.
            error.add_note(f"then the release of lock {self._number} failed: {failure}")


class Condition(_Numbered):
    """A condition of all ranks, which is set or not; :func:`kumi.condition` makes it."""

    __slots__ = ()

    def set(self) -> None:
        """Sets it. What this rank has written to shared memory since the last barrier is visible to those who wait."""
        _native.shared_set(self._number)

    def reset(self) -> None:
        """Resets it."""
        _native.shared_reset(self._number)

    def wait(self) -> None:
        """Waits until it is set."""
        _native.shared_wait(self._number)


def lock(number: SupportsIndex) -> Lock:
    """The lock with a number, 0 to 4,294,967,295: ``with kumi.lock(3): ...``.

    All ranks call this, :func:`kumi.condition` or :func:`kumi.shared_array` together for the first time, since shared
    memory begins then.
    """
    checked = whole(number, "the number of a lock")
    _native.shared_start(checked)
    return Lock(checked)


def condition(number: SupportsIndex) -> Condition:
    """The condition with a number, 0 to 4,294,967,295, which is not set before.

    The first call is collective, as that of :func:`kumi.lock`.
    """
    checked = whole(number, "the number of a condition")
    _native.shared_start(checked)
    return Condition(checked)
