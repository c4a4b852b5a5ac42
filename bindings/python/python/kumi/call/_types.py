"""Annotations for the parameters and results of served functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np

from ._errors import DescriptionError

#: The names of types in descriptions.
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
# Function names in expressions.
_FUNCTIONS = frozenset({"min", "max", "abs"})
_PYTHON = {int: "int64", float: "float64", complex: "complex128"}


def dtype_of(kind: Any) -> np.dtype[Any]:
    """The numpy type for an annotation.

    Raises:
        DescriptionError: Routines have no such type.
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
    """A number (without sizes), an array, a file, a function of the client, or a text (without a dtype)."""

    dtype: np.dtype[Any] | None
    sizes: tuple[str, ...] = ()
    order: Literal["C", "F"] = "C"
    mode: str = "in"
    #: For a file: the function gets or returns its path or its content.
    file: Literal["path", "content"] | None = None
    #: For a function of the client: its parameters and its results.
    function: tuple[tuple[Kind, ...], tuple[Kind, ...]] | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is a text."""
        return self.dtype is None and self.file is None and self.function is None

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.dtype is not None and bool(self.sizes)

    def names(self) -> Iterator[str]:
        """The names in its sizes."""
        for size in self.sizes:
            yield from (name for name in _NAME.findall(size) if name not in _FUNCTIONS)

    def declared(self, name: str, mode: str) -> str:
        """Its declaration as a parameter in a description."""
        if self.file is not None:
            return f"mode_{mode} filename {name}"
        if self.function is not None:
            inner = ", ".join(one.declared(each, way) for each, one, way in self.inner())
            return f"{name}({inner})"
        spelled = "string" if self.dtype is None else SPELLED[self.dtype]
        order = " @order(F)" if self.order == "F" and len(self.sizes) > 1 else ""
        return f"mode_{mode} {spelled} {name}{''.join(f'[{size}]' for size in self.sizes)}{order}"


    def inner(self) -> list[tuple[str, Kind, Literal["in", "out"]]]:
        """The parameters of a function of the client: sizes, inputs and results."""
        takes, gives = self.function or ((), ())
        sizes = dict.fromkeys(name for one in (*takes, *gives) for name in one.names())
        whole = Kind(np.dtype("int64"))
        each: list[tuple[str, Kind, Literal["in", "out"]]] = [(name, whole, "in") for name in sizes]
        each += [(f"given{at + 1}", one, "in") for at, one in enumerate(takes)]
        return each + [(f"back{at + 1}", one, "out") for at, one in enumerate(gives)]


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
    """An annotation with brackets, such as ``Array[float64, "n"]``."""

    def __init__(self, name: str, make: Callable[[Any], Kind]) -> None:
        self._name = name
        self._make = make

    def __getitem__(self, item: Any) -> Kind:
        return self._make(item)

    def __repr__(self) -> str:
        return f"kumi.call.{self._name}"


#: ``Array[float64, "n", "m"]``: an array in row order (the last index varies fastest). Sizes are names, integers, or expressions
#: of names (``"2*n+1"``). A name that is no parameter follows from the shape of an input array. Type checkers read texts in
#: brackets as types; for them write ``Annotated[numpy.ndarray, Array[float64, "n", "m"]]``.
Array = _Spelling("Array", lambda item: _array(item, "C"))

#: An array in column order (the first index varies fastest).
FortranArray = _Spelling("FortranArray", lambda item: _array(item, "F"))

#: ``Text[256]``: a text result of at most so many bytes, without the zero at its end.
Text = _Spelling("Text", lambda most: Kind(None, (f"{_size(most)} + 1",)))


def _of_mode(item: Any, mode: str) -> Kind:
    kind = kind_of(item)
    if not kind.is_array and kind.file != "path":
        raise DescriptionError(f"only arrays and files (Path) are written where they are, not {item!r}")
    return replace(kind, mode=mode)


def _function(annotation: Any) -> Kind:
    takes, gives = get_args(annotation) or (..., None)
    if not isinstance(takes, list):
        raise DescriptionError("of a function also what it takes and gives is needed: Callable[[float], float]")
    if gives in (None, type(None)):
        back: tuple[Any, ...] = ()
    else:
        back = get_args(gives) if get_origin(gives) is tuple else (gives,)
    kinds = tuple(map(kind_of, takes)), tuple(map(kind_of, back))
    for kind in (*kinds[0], *kinds[1]):
        if kind.file or kind.function or kind.mode != "in":
            raise DescriptionError("a function of the client takes and gives numbers, texts and arrays")
    if any(kind.is_text and kind.sizes for kind in kinds[0]):
        raise DescriptionError("a text that a function of the client is given has no size: str")
    if any(kind.is_text and not kind.sizes for kind in kinds[1]):
        raise DescriptionError("a text that a function of the client gives has a largest size: Text[256]")
    return Kind(None, function=kinds)


#: ``Out[Array[float64, "n"]]``: an array that the function writes, given to it and not sent by callers. ``Out[Path]``: so a file.
Out = _Spelling("Out", lambda item: _of_mode(item, "out"))

#: ``InOut[Array[float64, "n"]]``: an array that the function changes where it is, and that comes back. ``InOut[Path]``: so a
#: file.
InOut = _Spelling("InOut", lambda item: _of_mode(item, "inout"))


def kind_of(annotation: Any) -> Kind:
    """Translates an annotation.

    Raises:
        DescriptionError: It is not a valid annotation.
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
    if annotation is Path:
        return Kind(None, file="path")
    if annotation is bytes:
        return Kind(None, file="content")
    if annotation is Callable or get_origin(annotation) is Callable:
        return _function(annotation)
    if annotation is np.ndarray or getattr(annotation, "__origin__", None) is np.ndarray:
        raise DescriptionError('of an array also the sizes are needed: Array[float64, "n", "m"]')
    return Kind(dtype_of(annotation))
