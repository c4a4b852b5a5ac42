"""Checks of arrays that all functions share."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ._errors import BadArgumentError, BadTypeError, OutOfMemoryError

Array = npt.NDArray[Any]


def whole(number: SupportsIndex, what: str) -> int:
    """Returns the number if it is a whole one."""
    try:
        return operator.index(number)
    except TypeError as error:
        raise BadTypeError(f"{what} must be a whole number: {error}") from error


def sizes_of(shape: Any) -> tuple[int, ...]:
    """Returns a shape as a tuple; it may be given as one number."""
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    elif not isinstance(shape, Iterable):
        raise BadTypeError(f"shape must be a number or a tuple, not {type(shape).__name__}")
    sizes = tuple(whole(size, "a dimension") for size in shape)
    if any(size < 0 for size in sizes):
        raise BadArgumentError(f"shape {sizes} has a negative dimension")
    return sizes


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Creates an array."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        wanted = math.prod(shape) * dtype.itemsize
        raise OutOfMemoryError(f"no room for an array: {error}", bytes=wanted) from error


def plain(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Returns the dtype if its elements mean the same in every process."""
    try:
        made = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise BadTypeError(f"not a dtype: {error}") from error
    if made.hasobject:
        raise BadTypeError(f"dtype {made} holds Python objects, which other ranks cannot use")
    if made.itemsize == 0:
        raise BadTypeError(f"dtype {made} has no size")
    return made


def as_array(array: Any, what: str) -> Array:
    """Converts the value to a numpy array."""
    try:
        return np.asarray(array)
    except (TypeError, ValueError) as error:
        raise BadTypeError(f"{what} must be a numpy array: {error}") from error


def contiguous(array: object, what: str) -> Array:
    """Returns the array if it can be sent from its own memory."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        raise BadTypeError(f"{what} must be a numpy array, not {type(array).__name__}")
    plain(array.dtype)
    if not array.flags.c_contiguous:
        raise BadTypeError(
            f"{what} is not contiguous in C order: pass numpy.ascontiguousarray({what})"
        )
    return array


def writable(array: object, what: str) -> Array:
    """As :func:`contiguous`, for an array that is written to."""
    if isinstance(array, np.generic):
        raise BadTypeError(f"{what} must be a numpy array, not a scalar: it is written to")
    checked = contiguous(array, what)
    if not checked.flags.writeable:
        raise BadTypeError(f"{what} is read-only and cannot be written to")
    return checked


def output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """``out`` if it fits, or a new array."""
    if out is None:
        return empty(shape, dtype)
    checked = writable(out, "out")
    if checked.shape != shape or checked.dtype != dtype:
        raise BadTypeError(
            f"out must be of shape {shape} and dtype {dtype}, "
            f"not {checked.shape} and {checked.dtype}"
        )
    return checked


def memory_of(thing: Any) -> Array:
    """The memory of an object as an array, not copied."""
    try:
        return np.asarray(thing if isinstance(thing, np.ndarray) else memoryview(thing))
    except (TypeError, ValueError) as error:
        raise BadTypeError(f"no memory that a window can be on: {error}") from error


def owner(array: Array) -> Array:
    """Returns the array that owns the memory: this one, or the one of which it is a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def octets(array: Array) -> Array:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8)
