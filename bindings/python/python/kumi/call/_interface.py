"""Parameters and results of a routine, and the conversion of a Python call's arguments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import ArgumentError

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(spelled)
    for name, spelled in {
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "i64": "int64",
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "u64": "uint64",
        "f32": "float32",
        "f64": "float64",
        "c64": "complex64",
        "c128": "complex128",
    }.items()
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a routine."""

    #: Its number.
    index: int
    #: Its name.
    name: str
    #: ``in``, ``out``, ``inout`` or ``work``.
    mode: str
    #: The numbers' type; None: a text.
    dtype: np.dtype[Any] | None
    #: For each dimension of an array the number of the scalar that is its size; -1: it is something else.
    sizes: tuple[int, ...]
    #: The scalars that follow from the shape of the array.
    follow: frozenset[int]
    #: ``C`` or ``F``.
    order: str
    #: Whether a part of the array travels only.
    partial: bool
    #: Whether it has a default.
    default: bool
    #: What it is for.
    doc: str
    #: Whether it is a file.
    is_file: bool = False
    #: Whether it is a function of the program; then its own parameters.
    is_function: bool = False
    inner: tuple[Parameter, ...] = ()

    @property
    def sent(self) -> bool:
        """Whether it goes to the server."""
        return self.mode in ("in", "inout")

    @property
    def returned(self) -> bool:
        """Whether it comes back."""
        return self.mode in ("out", "inout")

    @property
    def is_array(self) -> bool:
        """Whether it is an array of numbers."""
        return self.dtype is not None and bool(self.sizes)

    def __str__(self) -> str:
        if self.is_function:
            given = ", ".join(str(one) for one in self.inner if one.sent)
            back = ", ".join(str(one) for one in self.inner if one.returned)
            return f"{self.name}: ({given}) -> ({back})"
        if self.is_file:
            return f"{self.name}: file"
        kind = "str" if self.dtype is None else self.dtype.name
        return f"{self.name}: {kind}{'[]' * len(self.sizes)}"


class Routine:
    """The description of a routine; ``print`` shows it."""

    def __init__(self, description: str) -> None:
        said = json.loads(description)
        self.name: str = said["name"]
        self.doc: str = said.get("doc", "")
        #: The class of which it is a method; of a routine nothing.
        self.of_class: str = said.get("class", "")
        self.status: int | None = said.get("status")
        self.parameters = tuple(_parameter(at, one) for at, one in enumerate(said["params"]))
        self.sent = tuple(one for one in self.parameters if one.sent)
        #: The numbers of the parameters that a call gives.
        self.back = tuple(
            one.index for one in self.parameters if one.returned and one.index != self.status
        )
        #: What native calls are given: all but work arrays and scalars and texts that only come back.
        self.given = tuple(
            one
            for one in self.parameters
            if one.sent or one.mode == "out" and (one.is_array or one.is_file)
        )
        follow = {index for one in self.sent if one.is_array for index in one.follow}
        #: Scalars that follow from arrays.
        self.follow = frozenset(one.index for one in self.sent if not one.is_array and one.index in follow)
        #: What may be left out together: scalars that follow from arrays, or have defaults.
        self.optional = frozenset(
            one.index
            for one in self.sent
            if not one.is_array and (one.default or one.index in follow)
        )
        self.required = tuple(one for one in self.sent if one.index not in self.optional)

    def __str__(self) -> str:
        back = [str(one) for one in self.parameters if one.returned and one.index != self.status]
        text = f"{self.name}({', '.join(map(str, self.sent))}) -> ({', '.join(back)})"
        return f"{text}\n{self.doc}" if self.doc else text

    __repr__ = __str__

    def bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[int, Any]:
        """The arguments, by parameter number."""
        names = {one.name: one for one in self.sent}
        bound: dict[int, Any] = {}
        for name, value in named.items():
            # With an underscore: the name is one of Python's or of the method that calls.
            one = names.get(name) or names.get(name.removesuffix("_"))
            if one is None:
                raise ArgumentError(f"`{self.name}` takes no `{name}`: {self}")
            if one.index in bound:
                raise ArgumentError(f"`{self.name}`: `{one.name}` was given twice")
            bound[one.index] = value
        # Either all optional parameters are given, or only those that do not follow from arrays.
        named_sizes = tuple(one for one in self.sent if one.index not in self.follow)
        for choice in (self.sent, named_sizes, self.required):
            left = [one for one in choice if one.index not in bound]
            if len(left) == len(args):
                bound.update((one.index, value) for one, value in zip(left, args, strict=True))
                break
        else:
            raise ArgumentError(self._count_error(len(args) + len(named)))
        return bound

    def _count_error(self, given: int) -> str:
        """The arguments that a call may have, by name."""

        def listed(these: tuple[Parameter, ...]) -> str:
            return f" ({', '.join(one.name for one in these)})" if these else ""

        text = f"`{self.name}` takes {len(self.sent)} arguments{listed(self.sent)}"
        if self.optional:
            left_out = ", ".join(one.name for one in self.sent if one.index in self.optional)
            text += f", or {len(self.required)}{listed(self.required)}: {left_out} can be left out"
        return f"{text}; {given} were given"


def _parameter(index: int, said: dict[str, Any]) -> Parameter:
    kind = said["type"]
    dtype = None
    inner: tuple[Parameter, ...] = ()
    is_function = isinstance(kind, dict) and "callback" in kind
    if is_function:
        inner = tuple(_parameter(at, one) for at, one in enumerate(kind["callback"]))
    elif isinstance(kind, dict) and "number" in kind:
        dtype = _DTYPES[kind["number"]]
    elif kind not in ("string", "file"):
        raise ArgumentError(f"`{said['name']}` is of a type that this version does not know: {kind}")
    dims = said.get("dims", [])

    def scalar(of: Any) -> int:
        return int(of["param"]) if isinstance(of, dict) and "param" in of else -1

    ends = {scalar(dimension.get(key)) for dimension in dims for key in ("size", "end")}

    return Parameter(
        index=index,
        name=said["name"],
        mode=said["mode"],
        dtype=dtype,
        sizes=tuple(scalar(dimension["size"]) for dimension in dims),
        follow=frozenset(ends - {-1}),
        order="F" if said.get("order") == "column" else "C",
        partial=any({"start", "end", "step"} & set(dimension) for dimension in dims),
        default="default" in said,
        doc=said.get("doc", ""),
        is_file=kind == "file",
        is_function=is_function,
        inner=inner,
    )


#: Kinds of numbers, each of which holds what those before it hold, as far as it is large enough.
_KINDS = "biufc"


def _fits(given: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> bool:
    """Whether numbers of a list, for which numpy has chosen a type, may be converted to another type; fractions
    may lose digits."""
    if given.size == 0:
        return True
    kind, target = given.dtype.kind, wanted.kind
    if kind not in _KINDS or (kind in "fc" and _KINDS.index(kind) > _KINDS.index(target)):
        return False
    with np.errstate(all="ignore"):
        converted = given.astype(wanted)
        if kind in "fc":
            return bool((np.isfinite(converted) == np.isfinite(given)).all())
        back = converted.astype(given.dtype)
    # Between signed and unsigned integers: a number that changes its sign in one direction changes back in
    # the other.
    return bool((back == given).all() and ((converted < 0) == (given < 0)).all())


def array(routine: str, parameter: Parameter, value: Any) -> np.ndarray[Any, Any]:
    """Returns ``value`` as an array of the parameter's type and order, without a copy if it is one already."""
    wanted = np.dtype(parameter.dtype)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"`{routine}`: `{parameter.name}` is no array: {error}") from error
    if given.dtype != wanted and not np.can_cast(given.dtype, wanted, "safe"):
        if isinstance(value, np.ndarray) or not _fits(given, wanted):
            raise ArgumentError(
                f"`{routine}`: `{parameter.name}` has elements of {given.dtype}, "
                f"the routine wants {wanted}"
            )
    missing = len(parameter.sizes) - given.ndim
    if missing < 0:
        raise ArgumentError(
            f"`{routine}`: `{parameter.name}` has {given.ndim} dimensions, "
            f"the routine wants {len(parameter.sizes)}"
        )
    # A vector is a matrix of one column.
    given = given.reshape(given.shape + (1,) * missing)
    return np.asarray(given, dtype=wanted, order=parameter.order)  # type: ignore[call-overload,no-any-return]
