"""Parts of a rank's piece that are not contiguous: columns, blocks, every n-th element."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from ._arrays import Array, sizes_of
from ._errors import BadArgumentError, KumiError, OutOfBoundsError


class Region(NamedTuple):
    """Blocks of equal length at equal distances in a piece, as :func:`region` makes them.

    Use it in place of an offset: ``window.put(rank, array, region)``, ``window.get(rank, region)``. Numbers
    are elements, counted through the piece in C order.
    """

    #: Shape of the array that the elements are.
    shape: tuple[int, ...]
    #: Where the first block begins.
    offset: int
    #: From the start of a block to that of the next.
    stride: int
    #: Elements of a block.
    block: int
    #: How many blocks.
    blocks: int


def region(shape: int | tuple[int, ...], index: Any) -> Region:
    """Selects the elements that ``array[index]`` would have if ``array`` had ``shape``. That is the shape of the
    target's piece, which may differ from this rank's.

    ``kumi.region((rows, columns), np.s_[:, 0])`` is the first column. The index may contain integers and
    slices that go forward. The elements must form blocks of equal length at equal distances: a part of one
    axis, a column of a matrix, a rectangle. Otherwise :class:`kumi.BadArgumentError` is raised.
    """
    sizes = sizes_of(shape)
    # An array of this shape that takes no memory: nothing reads it. Its strides are those of a piece whose
    # elements have one byte.
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    try:
        whole: Array = np.lib.stride_tricks.as_strided(
            np.zeros(1, np.uint8), sizes, steps, writeable=False
        )
        part = whole[_basic(index)]
    except IndexError as error:
        raise OutOfBoundsError(f"outside of shape {sizes}: {error}") from error
    except (OverflowError, TypeError, ValueError) as error:
        if isinstance(error, KumiError):
            raise
        raise BadArgumentError(f"no region of shape {sizes}: {error}") from error
    offset = _address(part) - _address(whole)
    stride, block, count = _blocks(part)
    return Region(part.shape, offset if part.size else 0, stride, block, count)


def _basic(index: Any) -> tuple[Any, ...]:
    """The index in a form that always gives a view; otherwise numpy would read elements."""
    items = tuple(_item(item) for item in (index if isinstance(index, tuple) else (index,)))
    return items if any(item is ... for item in items) else (*items, ...)


def _item(item: Any) -> Any:
    if item is None or item is ... or isinstance(item, slice):
        return item
    # Booleans and arrays of one number act as numbers, but numpy selects with them by another rule.
    if not isinstance(item, (bool, np.bool_, np.ndarray)):
        try:
            return operator.index(item)
        except TypeError:
            pass
    raise BadArgumentError("only integers and slices can be used, not lists or arrays of them")


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _blocks(part: Array) -> tuple[int, int, int]:
    """Stride, length and number of the blocks that the elements form, in their order."""
    if part.size == 0:
        return 0, 0, 0
    stride, block, count = 0, 1, 1
    for size, step in zip(part.shape[::-1], part.strides[::-1], strict=True):
        if size == 1:
            continue
        if count == 1 and step == block:
            block *= size
        elif count == 1 and step > block:
            stride, count = step, size
        elif count > 1 and step == stride * count:
            count *= size
        else:
            raise BadArgumentError(
                "these elements are not blocks of equal length at equal distances, forward: "
                "use several regions"
            )
    return stride or block, block, count
