"""Collective operations of all ranks: all call them, in the same order, with the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from ._arrays import Array
from ._group import Op, group
from ._requests import Request


def broadcast(array: Array, root: int = 0) -> None:
    """Copies the root's array to all ranks, into ``array``."""
    group().broadcast(array, root)


def allreduce(array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
    """Combines the arrays of all ranks, element by element; all ranks get the same result, bit by bit.

    The result goes to ``out``, which may be ``array`` itself, or to a new array.
    """
    return group().allreduce(array, op, out=out)


def reduce(
    array: Array, op: Op = Op.SUM, root: int = 0, *, out: Array | None = None
) -> Array | None:
    """As :func:`allreduce`, with the result at the root; the other ranks get None.

    ``out`` is used at the root only.
    """
    return group().reduce(array, op, root, out=out)


def gather(array: Array, root: int = 0, *, out: Array | None = None) -> Array | None:
    """Collects the arrays of all ranks at the root, of shape ``(size, *array.shape)`` there.

    The other ranks get None; ``out`` is used at the root only.
    """
    return group().gather(array, root, out=out)


def alltoall(array: Array, *, out: Array | None = None) -> Array:
    """Sends the i-th block of the first axis to rank i and receives a block from each rank.

    The first axis must be a multiple of the number of ranks. The result has the same shape; the
    block from rank i is its i-th.
    """
    return group().alltoall(array, out=out)


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
    return group().alltoallv(array, counts, out_counts, out=out)


def start_barrier() -> Request[None]:
    """Starts :func:`kumi.barrier` and returns at once. It has ended when all ranks have started theirs.

    For this and the following, :meth:`kumi.Group.start_barrier` says what all ranks keep to.
    """
    return group().start_barrier()


def start_broadcast(array: Array, root: int = 0) -> Request[None]:
    """Starts :func:`broadcast` and returns at once."""
    return group().start_broadcast(array, root)


def start_allreduce(
    array: Array, op: Op = Op.SUM, *, out: Array | None = None
) -> Request[Array]:
    """Starts :func:`allreduce` and returns at once. The result is ``out``, or a new array."""
    return group().start_allreduce(array, op, out=out)


def start_reduce(
    array: Array, op: Op = Op.SUM, root: int = 0, *, out: Array | None = None
) -> Request[Array | None]:
    """Starts :func:`reduce` and returns at once. The result is that array at the root, otherwise None."""
    return group().start_reduce(array, op, root, out=out)


def start_gather(
    array: Array, root: int = 0, *, out: Array | None = None
) -> Request[Array | None]:
    """Starts :func:`gather` and returns at once. The result is that array at the root, otherwise None."""
    return group().start_gather(array, root, out=out)


def start_scatter(array: Array | None, out: Array, root: int = 0) -> Request[Array]:
    """Starts :meth:`kumi.Group.scatter` of all ranks and returns at once. The result is ``out``."""
    return group().start_scatter(array, out, root)


def start_allgather(array: Array, *, out: Array | None = None) -> Request[Array]:
    """Starts :meth:`kumi.Group.allgather` of all ranks and returns at once. The result is ``out``, or a new array."""
    return group().start_allgather(array, out=out)


def start_alltoall(array: Array, *, out: Array | None = None) -> Request[Array]:
    """Starts :func:`alltoall` and returns at once. The result is ``out``, or a new array."""
    return group().start_alltoall(array, out=out)
