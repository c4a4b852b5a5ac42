"""Checks of arrays that all functions share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def plain(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype, if its elements mean the same in every process."""
    made = np.dtype(dtype)
    if made.hasobject:
        raise TypeError(f"dtype {made} holds Python objects, which other ranks cannot use")
    return made


def contiguous(array: object, what: str) -> Array:
    """The array, if it can be sent as it lies in memory."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a numpy array, not {type(array).__name__}")
    plain(array.dtype)
    if not array.flags.c_contiguous:
        raise TypeError(
            f"{what} is not contiguous in C order: pass numpy.ascontiguousarray({what})"
        )
    return array


def writable(array: object, what: str) -> Array:
    """As :func:`contiguous`, for an array that is written to."""
    if isinstance(array, np.generic):
        raise TypeError(f"{what} must be a numpy array, not a scalar: it is written to")
    checked = contiguous(array, what)
    if not checked.flags.writeable:
        raise TypeError(f"{what} is read-only and cannot be written to")
    return checked


def output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """``out`` if it fits, or a new array."""
    if out is None:
        return np.empty(shape, dtype)
    checked = writable(out, "out")
    if checked.shape != shape or checked.dtype != dtype:
        raise TypeError(
            f"out must be of shape {shape} and dtype {dtype}, "
            f"not {checked.shape} and {checked.dtype}"
        )
    return checked


def memory_of(thing: Any) -> Array:
    """The memory of an object as an array, not copied."""
    return np.asarray(thing if isinstance(thing, np.ndarray) else memoryview(thing))


def owner(array: Array) -> Array:
    """The array whose memory this one shows: itself, or the one that it was made from."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def octets(array: Array) -> Array:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8)
