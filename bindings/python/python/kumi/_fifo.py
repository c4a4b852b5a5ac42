"""FIFOs, which :meth:`kumi.Window.fifo` makes."""

from __future__ import annotations

from typing import Final, NamedTuple

from . import _native
from ._scope import Freed

#: Bytes that a FIFO or signal port takes in its window beside its capacity.
FIFO_OVERHEAD: Final = _native.FIFO_OVERHEAD
#: The offset of a FIFO or signal port in its window, in bytes, is a multiple of this.
FIFO_ALIGNMENT: Final = _native.FIFO_ALIGNMENT


class Record(NamedTuple):
    """A record from a FIFO."""

    #: The rank that appended it.
    source: int
    #: What it says.
    data: bytes


class Fifo(Freed):
    """The owner's end of a queue of records in a window, made by :meth:`kumi.Window.fifo`.

    Iterating over it takes record after record and waits for the next one, without end:

    .. code-block:: python

        for source, data in fifo:
            if data == b"enough":
                break

    A FIFO lasts until :meth:`free`, the end of a ``with`` block, or the end of its window. Dropping the
    object does not free it, because other ranks may append.
    """

    __slots__ = ("__weakref__", "_native", "_offset")

    def __init__(self, native: _native.NativeFifo, offset: int) -> None:
        self._native = native
        self._offset = offset

    @property
    def offset(self) -> int:
        """Its place in the owner's piece, in bytes: ranks that append use this offset."""
        return self._offset

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._native.freed

    def pop(self) -> Record:
        """Takes the next record, waiting for it if necessary. Records of one rank come in their order."""
        return Record(*self._native.pop())

    def try_pop(self) -> Record | None:
        """Takes the next record if there is one."""
        record = self._native.try_pop()
        return None if record is None else Record(*record)

    def __iter__(self) -> Fifo:
        return self

    def __next__(self) -> Record:
        return self.pop()

    def free(self) -> None:
        """Ends the FIFO, and drops the records in it. Ending it again has no effect.

        Make sure first that no other rank appends; a rank that waits for room gets :class:`kumi.NoFifoError`.
        """
        self._native.free()

    def __repr__(self) -> str:
        state = ", freed" if self.freed else ""
        return f"<kumi.Fifo offset={self._offset}{state}>"
