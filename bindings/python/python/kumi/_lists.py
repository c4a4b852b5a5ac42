"""Lists of pieces of a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arrays import Array, whole
from ._errors import BadArgumentError, BadTypeError, OutOfBoundsError

#: Offset and length of each piece.
Pieces: TypeAlias = (
    Iterable[tuple[SupportsIndex, SupportsIndex]] | npt.NDArray[np.integer[Any]]
)

_MOST = np.iinfo(np.int64).max


def several(arrays: Any) -> list[Any]:
    """Returns the arrays as a list, also for a single array."""
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]


def table(pieces: Pieces, width: int, rank: int, size: int) -> npt.NDArray[np.int64]:
    """Offset and length of each piece in bytes, a row for each.

    All lie in a rank's piece of ``size`` bytes. Elements have ``width`` bytes.
    """
    rows = _columns(pieces) if isinstance(pieces, np.ndarray) else _pairs(pieces)
    offsets, lengths = rows.T
    room = size // width
    wrong = (rows < 0).any(axis=1) | (offsets > room) | (lengths > room - offsets)
    if wrong.any():
        number = int(wrong.argmax())
        offset, length = (int(value) for value in rows[number])
        if length < 0:
            raise BadArgumentError(f"piece {number} has the length {length}: use 0 or more")
        raise OutOfBoundsError(
            f"piece {number}, {length} elements from {offset} on, is outside of the window's "
            f"{room} at rank {rank}",
            rank=rank,
            offset=offset * width,
            length=length * width,
            size=size,
        )
    return rows * width


def _columns(pieces: Array) -> npt.NDArray[np.int64]:
    if pieces.dtype.kind not in "iu" or pieces.ndim != 2 or pieces.shape[1] != 2:
        raise BadTypeError(
            "an array of pieces is of integers and has two columns, offset and length: this is "
            f"of {pieces.dtype} and of shape {pieces.shape}"
        )
    if pieces.dtype == np.uint64:
        pieces = np.minimum(pieces, np.uint64(_MOST))
    # A copy, so that the checked numbers do not change.
    return pieces.astype(np.int64, order="C")


def _pairs(pieces: Iterable[Any]) -> npt.NDArray[np.int64]:
    rows = []
    for number, piece in enumerate(pieces):
        pair = tuple(piece) if isinstance(piece, Iterable) else ()
        if len(pair) != 2:
            raise BadTypeError(f"piece {number} is {piece!r}: use (offset, length)")
        # A number of more than 64 bits is outside of any window; clamping keeps it outside.
        rows.append([max(-1, min(whole(value, "a number of a piece"), _MOST)) for value in pair])
    return np.array(rows, np.int64).reshape(-1, 2)
