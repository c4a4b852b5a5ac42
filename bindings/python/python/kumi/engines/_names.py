"""The variables of ranks: what ``%%kumi`` cells, :meth:`kumi.Engines.push` and :meth:`kumi.Engines.scatter` set."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_main = ModuleType("__main__")
#: The variables of this rank.
namespace: dict[str, Any] = _main.__dict__


def become_main() -> None:
    """Makes the variables those of the module ``__main__``, where pickles look for what cells define."""
    sys.modules["__main__"] = _main


def give(function: object) -> None:
    """Gives a function of the notebook those variables of the rank that it names and the notebook does not have."""
    if not isinstance(function, FunctionType) or function.__module__ != "__main__":
        return
    own = function.__globals__
    for name in _names_in(function.__code__):
        if name in namespace and name not in own:
            own[name] = namespace[name]


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


class Variable:
    """A variable of the ranks, as an argument: each rank takes its own value. ``engines["x"]`` makes one."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return value_of, (self.name,)

    def __repr__(self) -> str:
        return f"<variable {self.name} of the ranks>"


def value_of(name: str) -> Any:
    """The value of a variable at this rank."""
    try:
        return namespace[name]
    except KeyError:
        raise NameError(f"the rank has no variable {name!r}; push or scatter it, or set it in a cell") from None


def store(values: dict[str, Any]) -> None:
    """Sets variables."""
    namespace.update(values)


def run_cell(text: str, name: str) -> None:
    """Runs a cell. The value of an expression at its end is printed, unless it is None."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text, name)
    last: ast.Expression | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(last, name, "eval"), namespace)
        if value is not None:
            namespace["_"] = value
            print(repr(value), file=sys.stdout)
