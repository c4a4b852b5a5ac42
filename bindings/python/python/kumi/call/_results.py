"""Results of routines that return several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, overload

from ._interface import Routine


class Results(tuple[Any, ...]):
    """The results of a routine: a tuple in the order of the parameters, whose members also have the parameters' names.

    ``results.B`` is the same as ``results["B"]``; the latter also where the name is that of a method of tuples.
    """

    _names: tuple[str, ...]

    def __new__(cls, names: tuple[str, ...], values: tuple[Any, ...]) -> Results:
        made = super().__new__(cls, values)
        made._names = names
        return made

    def __getattr__(self, name: str) -> Any:
        # Not for `_names` itself, which is missing while a copy is made.
        if name != "_names" and name in self._names:
            return self[self._names.index(name)]
        raise AttributeError(f"there is no result `{name}`; there are {', '.join(self.__dict__.get('_names', ()))}")

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> Any: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Any, ...]: ...
    def __getitem__(self, key: SupportsIndex | str | slice, /) -> Any:
        if isinstance(key, str):
            if key not in self._names:
                raise KeyError(f"there is no result `{key}`; there are {', '.join(self._names)}")
            return super().__getitem__(self._names.index(key))
        return super().__getitem__(key)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._names]

    def __reduce__(self) -> tuple[Any, ...]:
        return Results, (self._names, tuple(self))

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in zip(self._names, self, strict=True))})"


def in_order(routine: Routine, results: Mapping[int, Any], wanted: Sequence[int]) -> Any:
    """The results of a call by number that are wanted: None, one value, or :class:`Results`."""
    back = [results.get(index) for index in wanted]
    if len(back) < 2:
        return back[0] if back else None
    return Results(tuple(routine.parameters[index].name for index in wanted), tuple(back))
