"""What functions that are served take and give, as annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ._errors import DescriptionError

#: How descriptions spell types.
SPELLED = {
    np.dtype(name): spelled
    for name, spelled in {
        "int8": "int8",
        "int16": "int16",
        "int32": "int",
        "int64": "int64",
        "uint8": "uint8",
        "uint16": "uint16",
        "uint32": "uint32",
        "uint64": "uint64",
        "float32": "float",
        "float64": "double",
        "complex64": "scomplex",
        "complex128": "dcomplex",
    }.items()
}

_NAME = re.compile(r"[A-Za-z_]\w*")
# Functions of expressions.
_FUNCTIONS = frozenset({"min", "max", "abs"})
_PYTHON = {int: "int64", float: "float64", complex: "complex128"}


def dtype_of(kind: Any) -> np.dtype[Any]:
    """The type of numbers that is meant.

    Raises:
        DescriptionError: Routines have none such.
    """
    if kind is bool:
        raise DescriptionError("routines have no bool; take an int that is 0 or 1")
    try:
        dtype: np.dtype[Any] = np.dtype(_PYTHON.get(kind, kind))
    except TypeError:
        raise DescriptionError(f"{kind!r} is no type of numbers") from None
    dtype = dtype.newbyteorder("=")
    if dtype not in SPELLED:
        known = ", ".join(each.name for each in SPELLED)
        raise DescriptionError(f"routines have no numbers of {dtype}; there are {known}")
    return dtype


@dataclass(frozen=True)
class Kind:
    """A number (without sizes), an array, or a text (without a dtype)."""

    dtype: np.dtype[Any] | None
    sizes: tuple[str, ...] = ()
    order: Literal["C", "F"] = "C"
    mode: str = "in"

    def names(self) -> Iterator[str]:
        """What its sizes name."""
        for size in self.sizes:
            yield from (name for name in _NAME.findall(size) if name not in _FUNCTIONS)

    def declared(self, name: str, mode: str) -> str:
        """It as a parameter of a description."""
        spelled = "string" if self.dtype is None else SPELLED[self.dtype]
        order = " @order(F)" if self.order == "F" and len(self.sizes) > 1 else ""
        return f"mode_{mode} {spelled} {name}{''.join(f'[{size}]' for size in self.sizes)}{order}"


def _size(size: Any) -> str:
    if isinstance(size, str) and size.strip():
        return size
    try:
        return str(size.__index__())
    except AttributeError:
        raise DescriptionError(f"a size is a name, an expression or an integer, not {size!r}") from None


def _array(item: Any, order: Literal["C", "F"]) -> Kind:
    if not isinstance(item, tuple) or len(item) < 2:
        raise DescriptionError('give the type of its numbers and its sizes: Array[float64, "n", "m"]')
    return Kind(dtype_of(item[0]), tuple(map(_size, item[1:])), order)


class _Spelling:
    """What makes a kind of what stands in its brackets."""

    def __init__(self, name: str, make: Callable[[Any], Kind]) -> None:
        self._name = name
        self._make = make

    def __getitem__(self, item: Any) -> Kind:
        return self._make(item)

    def __repr__(self) -> str:
        return f"kumi.call.{self._name}"


#: ``Array[float64, "n", "m"]``: an array whose last index moves fastest. Sizes are names, integers, or expressions of names
#: (``"2*n+1"``). What no parameter is called follows from the shape of an array that is sent. Type checkers, which take texts in
#: brackets for types, are content with ``Annotated[numpy.ndarray, Array[float64, "n", "m"]]``.
Array = _Spelling("Array", lambda item: _array(item, "C"))

#: As :data:`Array`, but the first index moves fastest.
FortranArray = _Spelling("FortranArray", lambda item: _array(item, "F"))

#: ``Text[256]``: a text that is given back, of so many bytes at most (and a zero at its end).
Text = _Spelling("Text", lambda most: Kind(None, (f"{_size(most)} + 1",)))


def _of_mode(item: Any, mode: str) -> Kind:
    kind = kind_of(item)
    if kind.dtype is None or not kind.sizes:
        raise DescriptionError(f"only arrays are written where they are, not {item!r}")
    return Kind(kind.dtype, kind.sizes, kind.order, mode)


#: ``Out[Array[float64, "n"]]``: an array that the function writes, given to it and not sent by callers.
Out = _Spelling("Out", lambda item: _of_mode(item, "out"))

#: ``InOut[Array[float64, "n"]]``: an array that the function changes where it is, and that comes back.
InOut = _Spelling("InOut", lambda item: _of_mode(item, "inout"))


def kind_of(annotation: Any) -> Kind:
    """What an annotation means.

    Raises:
        DescriptionError: Nothing.
    """
    for meant in getattr(annotation, "__metadata__", ()):
        if isinstance(meant, Kind):
            return meant
    if isinstance(annotation, Kind):
        return annotation
    if hasattr(annotation, "__metadata__"):
        return kind_of(annotation.__origin__)
    if annotation is str:
        return Kind(None)
    if annotation is np.ndarray or getattr(annotation, "__origin__", None) is np.ndarray:
        raise DescriptionError('of an array also the sizes are needed: Array[float64, "n", "m"]')
    return Kind(dtype_of(annotation))
