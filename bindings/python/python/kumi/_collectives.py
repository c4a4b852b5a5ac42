"""Collective operations: all ranks call them, in the same order, with the same arguments."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from . import _native
from ._arrays import Array, contiguous, octets, output, whole, writable
from ._errors import BadArgumentError, BadTypeError


class Op(enum.IntEnum):
    """How reductions combine elements. Integer sums and products wrap around."""

    SUM = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    #: Integers only, as the following.
    BITAND = 5
    BITOR = 6
    BITXOR = 7


def broadcast(array: Array, root: int = 0) -> None:
    """Copies the root's array to all ranks, into ``array``."""
    _native.broadcast(root, octets(writable(array, "array")))


def _code(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or dtype == np.float16:
        raise BadTypeError(f"arrays of {dtype} cannot be reduced: use integers, float32 or float64")
    if not dtype.isnative:
        raise BadTypeError(f"arrays of {dtype} are of another byte order than this machine's")
    return f"{dtype.kind}{dtype.itemsize}"


def _reduced(array: Array, op: Op, root: int | None, out: Array | None) -> Array:
    checked = contiguous(array, "array")
    code = _code(checked.dtype)
    if op not in set(Op):
        raise BadArgumentError(f"{op!r} is not a kumi.Op")
    operation = int(op)
    result = output(out, checked.shape, checked.dtype)
    if result is not checked:
        np.copyto(result, checked)
    _native.reduce(root, octets(result), code, operation)
    return result


def allreduce(array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
    """Combines the arrays of all ranks, element by element; all ranks get the same result, bit by bit.

    The result goes to ``out``, which may be ``array`` itself, or to a new array.
    """
    return _reduced(array, op, None, out)


def reduce(
    array: Array, op: Op = Op.SUM, root: int = 0, *, out: Array | None = None
) -> Array | None:
    """As :func:`allreduce`, with the result at the root; the other ranks get None.

    ``out`` is used at the root only.
    """
    if _native.rank() == root:
        return _reduced(array, op, root, out)
    _reduced(array, op, root, None)
    return None


def gather(array: Array, root: int = 0, *, out: Array | None = None) -> Array | None:
    """Collects the arrays of all ranks at the root, of shape ``(size, *array.shape)`` there.

    The other ranks get None; ``out`` is used at the root only.
    """
    checked = contiguous(array, "array")
    if _native.rank() != root:
        _native.gather(root, octets(checked), None)
        return None
    result = output(out, (_native.size(), *checked.shape), checked.dtype)
    _native.gather(root, octets(checked), octets(result))
    return result


def alltoall(array: Array, *, out: Array | None = None) -> Array:
    """Sends the i-th block of the first axis to rank i and receives a block from each rank.

    The first axis must be a multiple of the number of ranks. The result has the same shape; the
    block from rank i is its i-th.
    """
    checked = contiguous(array, "array")
    ranks = _native.size()
    if checked.ndim == 0 or checked.shape[0] % ranks != 0:
        raise BadArgumentError(
            f"the first axis of shape {checked.shape} is not a multiple of the {ranks} ranks"
        )
    result = output(out, checked.shape, checked.dtype)
    _native.alltoall(octets(checked), octets(result))
    return result


def alltoallv(
    array: Array,
    counts: Sequence[SupportsIndex],
    out_counts: Sequence[SupportsIndex],
    *,
    out: Array | None = None,
) -> Array:
    """As :func:`alltoall` with blocks of different lengths: the first ``counts[0]`` entries of the first axis go
    to rank 0, the next ``counts[1]`` to rank 1, and so on.

    ``out_counts[i]`` is the number of entries from rank i; it equals that rank's ``counts`` for this rank.
    Both lists have a number for every rank, and ``counts`` add up to the first axis.
    """
    checked = contiguous(array, "array")
    given, taken = (_counts(numbers) for numbers in (counts, out_counts))
    if checked.ndim == 0 or checked.shape[0] != sum(given):
        raise BadArgumentError(f"the counts add up to {sum(given)}, not to shape {checked.shape}")
    shape = checked.shape[1:]
    entry = math.prod(shape) * checked.itemsize
    result = output(out, (sum(taken), *shape), checked.dtype)
    sent, received = ([count * entry for count in numbers] for numbers in (given, taken))
    _native.alltoallv(octets(checked), sent, octets(result), received)
    return result


def _counts(counts: Sequence[SupportsIndex]) -> list[int]:
    numbers = [whole(count, "a count") for count in counts]
    if len(numbers) != _native.size() or any(number < 0 for number in numbers):
        raise BadArgumentError(f"counts are {numbers}: give one, 0 or more, for every rank")
    return numbers
