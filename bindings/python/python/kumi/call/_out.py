"""Destinations of results: arrays and paths of the program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ._errors import ArgumentError
from ._held import Keep
from ._interface import Parameter, Routine

Out = Mapping[str, Any] | np.ndarray[Any, Any] | Keep | None


class Destinations(NamedTuple):
    """Where results go."""

    #: Arrays and KEEP, by parameter number.
    arrays: dict[int, Any]
    #: Paths of files, by name.
    paths: dict[str, Any]
    #: The numbers of the results that the caller gets, in order.
    wanted: tuple[int, ...]


def chosen(routine: Routine, out: Out) -> Destinations:
    """Splits ``out`` into arrays, paths and results that are declined."""
    if out is None:
        return Destinations({}, {}, routine.back)
    declined: set[int] = set()
    if isinstance(out, Mapping):
        numbers = {routine.parameters[index].name: index for index in routine.back}
        for name in [name for name, value in out.items() if value is None]:
            if name not in numbers:
                raise ArgumentError(f"`{routine.name}` gives no result `{name}`")
            declined.add(numbers[name])
        out = {name: value for name, value in out.items() if value is not None}
    wanted = tuple(index for index in routine.back if index not in declined)
    arrays = {one.name: one.index for one in routine.parameters if one.returned and one.is_array}
    if not isinstance(out, Mapping):
        if len(arrays) != 1:
            raise ArgumentError(
                f"`{routine.name}` gives {len(arrays)} arrays; name those that out= is for: out={{name: array}}"
            )
        return Destinations({next(iter(arrays.values())): out}, {}, wanted)
    paths = {name: value for name, value in out.items() if name not in arrays}
    files = {one.name for one in routine.parameters if one.returned and one.is_file}
    for name, path in paths.items():
        if name not in files:
            raise ArgumentError(f"`{routine.name}` gives no array and no file `{name}`")
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(f"`{routine.name}`: out= for the file `{name}` is a path")
    return Destinations({arrays[name]: value for name, value in out.items() if name in arrays}, paths, wanted)


def place(
    routine: str, parameter: Parameter, out: Any, shape: tuple[int, ...], others: Iterable[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """Checks that ``out`` can receive the result, and returns it as an array.

    Raises:
        ArgumentError: It cannot be. Nothing was sent.
    """
    what = f"`{routine}`: out= for `{parameter.name}`"
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"{what} is {type(out).__name__}; give an array of numpy")
    if out.dtype != parameter.dtype or not out.dtype.isnative:
        raise ArgumentError(f"{what} has elements of {out.dtype}, the routine gives {parameter.dtype}")
    if out.shape + (1,) * (len(shape) - out.ndim) != shape:
        raise ArgumentError(f"{what} has the shape {out.shape}, the routine gives {shape}")
    if not out.flags.writeable:
        raise ArgumentError(f"{what} is read-only")
    if not (out.flags.f_contiguous if parameter.order == "F" else out.flags.c_contiguous):
        order = "Fortran's" if parameter.order == "F" else "C's"
        raise ArgumentError(
            f"{what} is not contiguous in {order} order; give numpy.empty({shape}, order={parameter.order!r})"
        )
    for array in others:
        # A retry on another server sends the arguments again, so they must not overlap results. All arrays
        # are contiguous: comparing bounds suffices.
        if np.may_share_memory(array, out):
            raise ArgumentError(f"{what} shares memory with another array of the call; use two arrays")
    return out.reshape(shape, order=parameter.order)  # type: ignore[call-overload,no-any-return]
