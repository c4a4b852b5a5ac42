"""Python functions as routines: their descriptions, and their invocation on the memory of a call."""

from __future__ import annotations

import inspect
import math
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np

from .._native import NativeMemory, describe_routines
from ._client_function import ClientFunction
from ._errors import DescriptionError
from ._types import Kind, kind_of


#: The attribute in which a decorated function or class keeps its routine.
ATTRIBUTE = "__kumi_routine__"


@dataclass(frozen=True)
class _Param:
    """A parameter of the routine: an argument of the function, a result, or a size that the function does not see."""

    name: str
    kind: Kind
    role: str
    default: Any = None

    def declared(self) -> str:
        mode = {"size": "in", "argument": self.kind.mode, "result": "out"}[self.role]
        text = self.kind.declared(self.name, mode)
        return text if self.default is None else f"{text} = {_literal(self.name, self.default)}"


class DescribedFunction:
    """A Python function as a routine or a method: its parameters, and its invocation on the memory of a call."""

    #: Its canonical description.
    description: str

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        symbol: str,
        signature: inspect.Signature,
        results: Sequence[str] | None,
        options: Sequence[str],
    ) -> None:
        self.function = function
        self.name = name
        self.symbol = symbol
        try:
            self.params = _params(signature, results)
        except DescriptionError as error:
            raise DescriptionError(f"`{self.name}`: {error}") from None
        self.results = [one for one in self.params if one.role == "result"]
        self.options = tuple(options)

    def declared(self, keyword: str, name: str) -> str:
        """Its declaration in the interface language."""
        passed = ", ".join(one.name for one in self.params if one.role == "argument")
        lines = [f"{keyword} {name}({', '.join(one.declared() for one in self.params)})"]
        doc = inspect.getdoc(self.function)
        if doc:
            lines.append(quoted(doc))
        lines += self.options
        lines.append(f'Calls "Python" {self.symbol}({passed});')
        return "\n".join(lines)

    def run(self, memory: NativeMemory, places: list[tuple[int, int, Any]]) -> str | None:
        """Calls the function on the memory of a call. Returns a summary of the exception that it raised, or None."""
        try:
            self._run(memory, places)
        except BaseException as error:
            # The server's operator sees the traceback.
            traceback.print_exception(error)
            return exception_summary(error)
        return None

    def _run(self, memory: NativeMemory, places: list[tuple[int, int, Any]]) -> None:
        given = {}
        results: list[tuple[_Param, Any]] = []
        for one, (offset, bytes_, value) in zip(self.params, places, strict=True):
            kind = one.kind
            if one.role == "result":
                place = value if kind.file else _place(memory, kind, offset, bytes_, value)
                results.append((one, place))
            elif one.role == "argument":
                given[one.name] = _argument(memory, one, offset, bytes_, value)
        said = self.function(**given)
        values = said if len(results) > 1 else [said][: len(results)]
        if len(results) > 1 and not isinstance(said, tuple | list):
            raise TypeError(f"it returned {type(said).__name__}; the description has {len(results)} results")
        if len(values) != len(results):
            raise TypeError(f"it returned {len(values)} values; the description has {len(results)} results")
        for (one, place), value in zip(results, values, strict=True):
            _put(one, place, value)


class ServedFunction(DescribedFunction):
    """A function as a routine."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        results: Sequence[str] | None,
        options: Sequence[str],
    ) -> None:
        name = name or str(getattr(function, "__name__", ""))
        signature = inspect.signature(function, eval_str=True)
        super().__init__(function, name, symbol(function), signature, results, options)
        (self.description,) = describe_routines(self.declared("Define", name), 1)

    @property
    def origin(self) -> Callable[..., Any]:
        """The decorated function."""
        return self.function

    def descriptions(self) -> list[str]:
        """All routines that it offers."""
        return [self.description]

    def find(self, name: str) -> ServedFunction | None:
        """The routine that servers know by this name."""
        return self if name == self.name else None


def symbol(of: Any) -> str:
    """Returns where another process can import a function or a class.

    Raises:
        DescriptionError: Another process cannot import it.
    """
    found = f"{of.__module__}.{getattr(of, '__qualname__', '')}"
    if not all(part.isidentifier() for part in found.split(".")):
        raise DescriptionError(f"`{found}` has no name by which another process would find it")
    return found


def _argument(memory: NativeMemory, one: _Param, offset: int, bytes_: int, value: Any) -> Any:
    """The argument that the function gets."""
    kind = one.kind
    if kind.is_array:
        array = _place(memory, kind, offset, bytes_, value)
        array.flags.writeable = kind.mode != "in"
        return array
    if kind.function is not None:
        return ClientFunction(one.name, kind, value)
    if kind.file is not None:
        return Path(value) if kind.file == "path" else Path(value).read_bytes()
    return value


def _place(
    memory: NativeMemory, kind: Kind, offset: int, bytes_: int, shape: Any
) -> np.ndarray[Any, Any]:
    """The place of an array, a number or a text in memory."""
    if kind.dtype is None:
        return np.ndarray((bytes_,), np.uint8, memoryview(memory), offset)
    shape = shape if kind.sizes else ()
    return np.ndarray(shape, kind.dtype, memoryview(memory), offset, order=kind.order)


def _file(what: str, kind: Kind, place: str, value: Any) -> None:
    """Copies a resulting file to its place."""
    if kind.file == "content":
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"{what} is {type(value).__name__}, and described as bytes")
        Path(place).write_bytes(value)
    elif not isinstance(value, Path):
        raise TypeError(f"{what} is {type(value).__name__}, and described as a Path")
    else:
        shutil.copyfile(value, place)


def _put(one: _Param, place: Any, value: Any) -> None:
    """Copies a result to its place."""
    what = f"`{one.name}`"
    if one.kind.file is not None:
        _file(what, one.kind, place, value)
        return
    if one.kind.dtype is None:
        if not isinstance(value, str):
            raise TypeError(f"{what} is {type(value).__name__}, and described as a text")
        text = value.encode() + b"\0"
        if len(text) > len(place):
            raise ValueError(f"{what} has {len(text) - 1} bytes; the description allows {len(place) - 1}")
        place[: len(text)] = np.frombuffer(text, np.uint8)
        return
    given = np.asarray(value)
    if given.shape != place.shape:
        raise ValueError(f"{what} has the shape {given.shape}; the description says {place.shape}")
    # Conversions may lose digits of fractions, but change no integers.
    casting = "same_kind" if place.dtype.kind in "fc" else "safe"
    if given.ndim == 0 and given.dtype.kind in "iu" and place.dtype.kind in "iu":
        limits = np.iinfo(place.dtype)
        if not limits.min <= int(given) <= limits.max:
            raise OverflowError(f"{what} is {given}, which {place.dtype} does not hold")
        casting = "unsafe"
    if not np.can_cast(given.dtype, place.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"{what} has elements of {given.dtype}; the description says {place.dtype}")
    np.copyto(place, given, casting=casting)  # type: ignore[arg-type]


def exception_summary(error: BaseException) -> str:
    """The type of an exception and the last line of its message."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    return f"{kind}: {lines[-1].strip()}" if lines else kind


def _params(signature: inspect.Signature, results: Sequence[str] | None) -> list[_Param]:
    arguments = []
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            raise DescriptionError(f"`{one}`: a routine has named parameters only")
        if one.annotation is one.empty:
            raise DescriptionError(f'`{one.name}` has no annotation; give one, as Array[float64, "n"]')
        kind = kind_of(one.annotation)
        default = None if one.default is one.empty else one.default
        if default is not None and (kind.sizes or kind.file or kind.function):
            what = "an array" if kind.sizes else "a file" if kind.file else "a function"
            raise DescriptionError(f"`{one.name}` is {what}, which has no default")
        arguments.append(_Param(one.name, kind, "argument", default))
    back = _results(signature.return_annotation, results)
    return [*_sizes(arguments, back), *arguments, *back]


def _results(annotation: Any, names: Sequence[str] | None) -> list[_Param]:
    if annotation is inspect.Signature.empty:
        raise DescriptionError("what it gives has no annotation; give one, as -> None")
    if annotation in (None, type(None)):
        each: tuple[Any, ...] = ()
    elif get_origin(annotation) is tuple:
        each = get_args(annotation)
    else:
        each = annotation if isinstance(annotation, tuple) else (annotation,)
    if names is None:
        names = ["result"] if len(each) == 1 else [f"result{at + 1}" for at in range(len(each))]
    if isinstance(names, str) or len(names) != len(each):
        raise DescriptionError(f"results={names!r}, and {len(each)} are annotated")
    back = [_Param(name, kind_of(one), "result") for name, one in zip(names, each, strict=True)]
    for one in back:
        if one.kind.function is not None:
            raise DescriptionError("a function cannot be given back")
        if one.kind.is_text and not one.kind.sizes:
            raise DescriptionError("a text that is given back has a largest size: Text[256]")
        if one.kind.mode != "in":
            raise DescriptionError("Out and InOut are of arguments")
    return back


def _sizes(arguments: list[_Param], back: list[_Param]) -> list[_Param]:
    """Sizes that are not arguments of the function."""
    known = {one.name for one in arguments}
    follow = {size.strip() for one in arguments if one.kind.mode != "out" for size in one.kind.sizes}
    wanted = dict.fromkeys(name for one in [*arguments, *back] for name in one.kind.names())
    sizes = []
    for name in wanted:
        if name in known:
            continue
        if name not in follow:
            raise DescriptionError(
                f"`{name}` is the size of no array that is sent; make it a parameter, `{name}: int`"
            )
        sizes.append(_Param(name, Kind(np.dtype("int64")), "size"))
    return sizes


def _literal(name: str, value: Any) -> str:
    """A default in a description."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DescriptionError(f"`{name}` cannot have the default {value!r}")
    return repr(value)


def quoted(text: str) -> str:
    """A text in a description."""
    known = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    each = (known.get(letter) or (letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}") for letter in text)
    return f'"{"".join(each)}"'
