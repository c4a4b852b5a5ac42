"""Groups of ranks, and collective operations of them."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from . import _native
from ._arrays import Array, contiguous, octets, output, whole, writable
from ._errors import BadArgumentError, BadTypeError
from ._requests import Request, guard
from ._scope import Freed


_Result = TypeVar("_Result")


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


def _code(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or dtype == np.float16:
        raise BadTypeError(f"arrays of {dtype} cannot be reduced: use integers, float32 or float64")
    if not dtype.isnative:
        raise BadTypeError(f"arrays of {dtype} are of another byte order than this machine's")
    return f"{dtype.kind}{dtype.itemsize}"


def _operation(op: Op) -> int:
    if op not in set(Op):
        raise BadArgumentError(f"{op!r} is not a kumi.Op")
    return int(op)


class Group(Freed):
    """Some ranks of the job, its *members*, in an order. They are numbered from 0.

    :func:`group` gives that of all ranks; :meth:`split`, :meth:`subset` and :meth:`duplicate` make others of it.
    All members call a group's methods in the same order, with the same arguments. Groups that share members never
    mix. A member that finds another one in another method gets :class:`kumi.GroupDisagreesError`.

    .. code-block:: python

        half = kumi.group().split(kumi.rank() % 2)      # the even ranks, and the odd ones
        print(half.allreduce(array))
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.NativeGroup) -> None:
        self._native = native

    @property
    def member(self) -> int:
        """This rank's number in the group."""
        return self._native.member

    @property
    def members(self) -> int:
        """How many members there are."""
        return self._native.members

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._native.freed

    def rank_of(self, member: int) -> int:
        """The rank of a member."""
        return self._native.rank_of(member)

    def member_of(self, rank: int) -> int | None:
        """The number of a rank in the group, or None if it is no member."""
        return self._native.member_of(rank)

    def split(self, colour: int | None, key: int = 0) -> Group | None:
        """Makes a group of the members with the same colour, ordered by key and then by their numbers here.

        A member without a colour gets None.
        """
        return _made(self._native.split(colour, key))

    def subset(self, members: Iterable[SupportsIndex]) -> Group | None:
        """Makes a group of these members of this one, in this order; the others get None.

        All members of this group give the same list.
        """
        return _made(self._native.subset([whole(member, "a member") for member in members]))

    def duplicate(self) -> Group:
        """Makes a group with the same members, for a library whose calls are not to mix with the program's."""
        return Group(self._native.duplicate())

    def free(self) -> None:
        """Frees this rank's part of the group. The job's group cannot be freed."""
        self._native.free()

    # ---- collective operations ------------------------------------------------------------------

    def barrier(self) -> None:
        """Returns when all members have called it."""
        self._native.barrier()

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Copies the root's array to all members, into ``array``."""
        self._native.broadcast(root, octets(writable(array, "array")))

    def _reduced(self, how: str, array: Array, op: Op, root: int, out: Array | None) -> Array:
        result, (code, operation) = _in_place(array, op, out)
        self._native.reduce(how, root, octets(result), code, operation)
        return result

    def allreduce(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """Combines the arrays of all members, element by element; all get the same result, bit by bit.

        The result goes to ``out``, which may be ``array`` itself, or to a new array.
        """
        return self._reduced("all", array, op, 0, out)

    def reduce(
        self, array: Array, op: Op = Op.SUM, root: int = 0, *, out: Array | None = None
    ) -> Array | None:
        """As :meth:`allreduce`, with the result at the root; the other members get None.

        ``out`` is used at the root only.
        """
        if self.member == root:
            return self._reduced("root", array, op, root, out)
        self._reduced("root", array, op, root, None)
        return None

    def scan(self, array: Array, op: Op = Op.SUM, *, out: Array | None = None) -> Array:
        """Combines the arrays of the members up to this one, itself too."""
        return self._reduced("scan", array, op, 0, out)

    def exclusive_scan(
        self, array: Array, op: Op = Op.SUM, *, out: Array | None = None
    ) -> Array | None:
        """Combines the arrays of the members before this one. The first member gets None."""
        result = self._reduced("exclusive", array, op, 0, None if self.member == 0 else out)
        return None if self.member == 0 else result

    def gather(self, array: Array, root: int = 0, *, out: Array | None = None) -> Array | None:
        """Collects the arrays of all members at the root, of shape ``(members, *array.shape)`` there.

        The other members get None; ``out`` is used at the root only.
        """
        checked = contiguous(array, "array")
        if self.member != root:
            self._native.gather(root, octets(checked), None, None)
            return None
        result = output(out, (self.members, *checked.shape), checked.dtype)
        self._native.gather(root, octets(checked), None, octets(result))
        return result

    def gatherv(
        self,
        array: Array,
        counts: Sequence[SupportsIndex] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
    ) -> Array | None:
        """As :meth:`gather` of arrays whose first axes differ: they are laid end to end.

        At the root ``counts`` are the lengths of these axes. The others need not give them, and get None.
        """
        checked, entry = _axis(array)
        if self.member != root:
            self._native.gather(root, octets(checked), [], None)
            return None
        lengths = self._counts(counts)
        result = output(out, (sum(lengths), *checked.shape[1:]), checked.dtype)
        self._native.gather(root, octets(checked), _bytes(lengths, entry), octets(result))
        return result

    def scatter(self, array: Array | None, out: Array, root: int = 0) -> Array:
        """Deals the root's array out: the i-th entry of its first axis to member i, into ``out``, which is returned.

        The others' ``array`` is not used and may be None.
        """
        result = writable(out, "out")
        checked = self._dealt(array, result) if self.member == root else None
        self._native.scatter(root, _octets(checked), None, octets(result))
        return result

    def scatterv(
        self,
        array: Array | None,
        out: Array,
        counts: Sequence[SupportsIndex] | None = None,
        root: int = 0,
    ) -> Array:
        """As :meth:`scatter` of parts whose lengths differ: the first ``counts[0]`` entries of the first axis go to
        member 0, and so on.

        The others' ``array`` and ``counts`` are not used and may be None.
        """
        result = writable(out, "out")
        if self.member != root:
            self._native.scatter(root, None, [], octets(result))
            return result
        checked, entry = _axis(array)
        lengths = self._counts(counts)
        if checked.dtype != result.dtype or checked.shape[1:] != result.shape[1:]:
            raise BadTypeError(
                f"array and out must be of one dtype and one shape but for the first axis, not "
                f"{checked.dtype}, {checked.shape} and {result.dtype}, {result.shape}"
            )
        self._native.scatter(root, octets(checked), _bytes(lengths, entry), octets(result))
        return result

    def allgather(self, array: Array, *, out: Array | None = None) -> Array:
        """Collects the arrays of all members at all members, of shape ``(members, *array.shape)``."""
        checked = contiguous(array, "array")
        result = output(out, (self.members, *checked.shape), checked.dtype)
        self._native.allgather(octets(checked), None, octets(result))
        return result

    def allgatherv(
        self, array: Array, counts: Sequence[SupportsIndex], *, out: Array | None = None
    ) -> Array:
        """As :meth:`allgather` of arrays whose first axes have the lengths ``counts``: they are laid end to end."""
        checked, entry = _axis(array)
        lengths = self._counts(counts)
        result = output(out, (sum(lengths), *checked.shape[1:]), checked.dtype)
        self._native.allgather(octets(checked), _bytes(lengths, entry), octets(result))
        return result

    def alltoall(self, array: Array, *, out: Array | None = None) -> Array:
        """Sends the i-th block of the first axis to member i and receives a block from each member.

        The first axis must be a multiple of the number of members. The result has the same shape; the block from
        member i is its i-th.
        """
        checked = self._blocks(array)
        result = output(out, checked.shape, checked.dtype)
        self._native.alltoall(octets(checked), None, octets(result))
        return result

    def alltoallv(
        self,
        array: Array,
        counts: Sequence[SupportsIndex],
        out_counts: Sequence[SupportsIndex],
        *,
        out: Array | None = None,
    ) -> Array:
        """As :meth:`alltoall` with blocks of different lengths: the first ``counts[0]`` entries of the first axis go
        to member 0, the next ``counts[1]`` to member 1, and so on.

        ``out_counts[i]`` is the number of entries from member i; it equals that member's ``counts`` for this one.
        Both lists have a number for every member, and ``counts`` add up to the first axis.
        """
        checked, entry = _axis(array)
        given, taken = self._counts(counts), self._counts(out_counts)
        if checked.shape[0] != sum(given):
            raise BadArgumentError(
                f"the counts add up to {sum(given)}, not to shape {checked.shape}"
            )
        result = output(out, (sum(taken), *checked.shape[1:]), checked.dtype)
        lengths = (_bytes(given, entry), _bytes(taken, entry))
        self._native.alltoall(octets(checked), lengths, octets(result))
        return result

    def reduce_scatter(
        self,
        array: Array,
        op: Op = Op.SUM,
        *,
        counts: Sequence[SupportsIndex] | None = None,
        out: Array | None = None,
    ) -> Array:
        """Combines the arrays of all members and deals the result out: the i-th block of the first axis to member i.

        The blocks are equal, or have the lengths ``counts``, which all members give.
        """
        checked, entry = _axis(array)
        code, operation = _code(checked.dtype), _operation(op)
        members = self.members
        if counts is None:
            if checked.shape[0] % members != 0:
                raise BadArgumentError(
                    f"the first axis of shape {checked.shape} is not a multiple of the {members} members"
                )
            lengths = [checked.shape[0] // members] * members
        else:
            lengths = self._counts(counts)
        result = output(out, (lengths[self.member], *checked.shape[1:]), checked.dtype)
        work = octets(checked.copy())
        self._native.reduce_scatter(work, _bytes(lengths, entry), octets(result), code, operation)
        return result

    # ---- collective operations that are requests ------------------------------------------------

    def start_barrier(self) -> Request[None]:
        """Starts :meth:`barrier` and returns at once. It has ended when all members have started theirs.

        This and the following are :class:`kumi.Request`. All members start them in the same order as their other
        collectives, and wait for them in any order. Up to 128 of a group are under way at a time. Arrays are the
        request's until it has ended. A request that is dropped or released before is given up: others may wait for
        this member for ever.
        """
        return self._start("barrier", 0, None, None, None)

    def start_broadcast(self, array: Array, root: int = 0) -> Request[None]:
        """Starts :meth:`broadcast` and returns at once."""
        into = writable(array, "array")
        return self._start("broadcast", root, None, into, None)

    def start_allreduce(
        self, array: Array, op: Op = Op.SUM, *, out: Array | None = None
    ) -> Request[Array]:
        """Starts :meth:`allreduce` and returns at once. The result is ``out``, or a new array."""
        result, how = _in_place(array, op, out)
        return self._start("allreduce", 0, None, result, result, how)

    def start_reduce(
        self, array: Array, op: Op = Op.SUM, root: int = 0, *, out: Array | None = None
    ) -> Request[Array | None]:
        """Starts :meth:`reduce` and returns at once. The result is that array at the root, otherwise None."""
        is_root = self.member == root
        work, how = _in_place(array, op, out if is_root else None)
        result = work if is_root else None
        return self._start("reduce", root, None, work, result, how)

    def start_gather(
        self, array: Array, root: int = 0, *, out: Array | None = None
    ) -> Request[Array | None]:
        """Starts :meth:`gather` and returns at once. The result is that array at the root, otherwise None."""
        checked = contiguous(array, "array")
        result: Array | None = None
        if self.member == root:
            result = output(out, (self.members, *checked.shape), checked.dtype)
        return self._start("gather", root, checked, result, result)

    def start_scatter(
        self, array: Array | None, out: Array, root: int = 0
    ) -> Request[Array]:
        """Starts :meth:`scatter` and returns at once. The result is ``out``."""
        result = writable(out, "out")
        checked = self._dealt(array, result) if self.member == root else None
        return self._start("scatter", root, checked, result, result)

    def start_allgather(self, array: Array, *, out: Array | None = None) -> Request[Array]:
        """Starts :meth:`allgather` and returns at once. The result is ``out``, or a new array."""
        checked = contiguous(array, "array")
        result = output(out, (self.members, *checked.shape), checked.dtype)
        return self._start("allgather", 0, checked, result, result)

    def start_alltoall(self, array: Array, *, out: Array | None = None) -> Request[Array]:
        """Starts :meth:`alltoall` and returns at once. The result is ``out``, or a new array."""
        checked = self._blocks(array)
        result = output(out, checked.shape, checked.dtype)
        return self._start("alltoall", 0, checked, result, result)

    def _start(
        self,
        kind: str,
        root: int,
        send: Array | None,
        receive: Array | None,
        result: _Result,
        how: tuple[str, int] | None = None,
    ) -> Request[_Result]:
        guards = guard(send), guard(receive)
        native = self._native.start(kind, root, _octets(send), _octets(receive), how, guards)
        return Request(native, lambda _: result)

    def _blocks(self, array: Array) -> Array:
        """The array, if its first axis has a block for each member."""
        checked = contiguous(array, "array")
        members = self.members
        if checked.ndim == 0 or checked.shape[0] % members != 0:
            raise BadArgumentError(
                f"the first axis of shape {checked.shape} is not a multiple of the {members} members"
            )
        return checked

    def _dealt(self, array: Array | None, out: Array) -> Array:
        """The root's array, if it has an ``out`` for each member."""
        checked = contiguous(array, "array")
        if checked.shape != (self.members, *out.shape) or checked.dtype != out.dtype:
            raise BadTypeError(
                f"array must be of shape {(self.members, *out.shape)} and dtype {out.dtype}, "
                f"not {checked.shape} and {checked.dtype}"
            )
        return checked

    def _counts(self, counts: Sequence[SupportsIndex] | None) -> list[int]:
        numbers = [whole(count, "a count") for count in counts or ()]
        if len(numbers) != self.members or any(number < 0 for number in numbers):
            raise BadArgumentError(f"counts are {numbers}: give one, 0 or more, for every member")
        return numbers

    def __repr__(self) -> str:
        if self.freed:
            return "<kumi.Group, freed>"
        return f"<kumi.Group member {self.member} of {self.members}>"


def _in_place(
    array: Array, op: Op, out: Array | None
) -> tuple[Array, tuple[str, int]]:
    """The array that a reduction changes, in which is what it reduces, and how that is done."""
    checked = contiguous(array, "array")
    how = _code(checked.dtype), _operation(op)
    result = output(out, checked.shape, checked.dtype)
    if result is not checked:
        np.copyto(result, checked)
    return result, how


def _octets(array: Array | None) -> Array | None:
    return None if array is None else octets(array)


def _axis(array: Array | None) -> tuple[Array, int]:
    """The array, and the bytes of an entry of its first axis."""
    checked = contiguous(array, "array")
    if checked.ndim == 0:
        raise BadArgumentError("a number has no axis to be divided")
    return checked, math.prod(checked.shape[1:]) * checked.itemsize


def _bytes(lengths: Sequence[int], entry: int) -> list[int]:
    return [length * entry for length in lengths]


def _made(native: _native.NativeGroup | None) -> Group | None:
    return None if native is None else Group(native)


_job = Group(_native.NativeGroup.job())


def group() -> Group:
    """The group of all ranks, whose members have their numbers."""
    return _job
