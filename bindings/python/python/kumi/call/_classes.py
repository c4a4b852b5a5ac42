"""Served classes: each object is an instance in a process of its own."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .._native import NativeMemory, describe_routines
from ._errors import DescriptionError
from ._serving import ATTRIBUTE, DescribedFunction, quoted, symbol


@dataclass(frozen=True)
class MethodOptions:
    """Options from the decorator of a method."""

    name: str | None
    results: Sequence[str] | None
    options: Sequence[str]


def is_method(function: Any) -> bool:
    """Whether a function is an instance method of a class."""
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not around or around.endswith("<locals>") or not inspect.isfunction(function):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name == "self"


class Method(DescribedFunction):
    """A method that clients can call."""

    def __init__(self, cls: type, attribute: str) -> None:
        function = getattr(cls, attribute)
        marked = getattr(function, ATTRIBUTE, MethodOptions(None, None, ()))
        # Its name is not bound yet where the decorator runs.
        signature = inspect.signature(function, eval_str=True, locals={cls.__name__: cls})
        if not signature.parameters:
            raise DescriptionError(
                f"`{attribute}` takes no instance: give it the parameter self, or begin its name with an underscore"
            )
        self.cls = cls
        self.attribute = attribute
        super().__init__(
            function,
            marked.name or attribute,
            f"{symbol(cls)}.{attribute}",
            signature.replace(parameters=list(signature.parameters.values())[1:]),
            marked.results,
            marked.options,
        )

    def new_instance(self) -> Any:
        """Creates an instance of its class."""
        try:
            return self.cls()
        except BaseException as error:
            # The server's operator sees the traceback.
            traceback.print_exception(error)
            raise

    def of(self, instance: Any) -> Method:
        """The method bound to an instance."""
        bound = copy.copy(self)
        bound.function = getattr(instance, self.attribute)
        return bound

    def run(self, memory: NativeMemory, places: list[tuple[int, int, Any]]) -> str | None:
        """Runs the method, and fails if the instance keeps an array of the call: the next call reuses that memory."""
        before = sys.getrefcount(memory)
        raised = super().run(memory, places)
        if sys.getrefcount(memory) == before:
            return raised
        # Unreachable arrays do no harm.
        gc.collect()
        if sys.getrefcount(memory) == before:
            return raised
        kept = f"`{self.name}` keeps an array that it was given, whose memory is the call's: keep a copy, as array.copy()"
        return f"{raised}; {kept}" if raised else f"ValueError: {kept}"


class ServedClass:
    """A class whose instances clients use as objects."""

    def __init__(self, cls: type, name: str | None) -> None:
        self.cls = cls
        self.name = name or cls.__name__
        try:
            _constructible(cls)
            methods = [Method(cls, attribute) for attribute in _public(cls)]
        except DescriptionError as error:
            raise DescriptionError(f"class `{self.name}`: {error}") from None
        if not methods:
            raise DescriptionError(f"class `{self.name}` has no method whose name begins with no underscore")
        lines = [f"DefClass {self.name}"]
        doc = inspect.getdoc(cls)
        if doc:
            lines.append(quoted(doc))
        lines += ["{", *(one.declared("DefMethod", one.name) for one in methods), "}"]
        each = describe_routines("\n".join(lines), len(methods))
        for one, description in zip(methods, each, strict=True):
            one.description = description
        #: Methods by their names at the server.
        self.methods = {f"{self.name}.{one.name}": one for one in methods}

    @property
    def origin(self) -> type:
        """The class that has the decorator."""
        return self.cls

    def descriptions(self) -> list[str]:
        """The descriptions of all methods."""
        return [one.description for one in self.methods.values()]

    def find(self, name: str) -> Method | None:
        """The method with this name at the server."""
        return self.methods.get(name)


def _constructible(cls: type) -> None:
    """Refuses a class whose constructor needs arguments."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ValueError as error:
        raise DescriptionError(f"it cannot be told what `__init__` takes: {error}") from None
    for one in parameters:
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise DescriptionError(
                f"`__init__` takes `{one.name}`, and objects are made without arguments: give it a default, or take it in a "
                f"method that clients call first"
            )


def _public(cls: type) -> Iterator[str]:
    """The names of public methods, those of base classes first."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    for name, value in found.items():
        if isinstance(value, staticmethod | classmethod):
            kind = type(value).__name__
            raise DescriptionError(
                f"`{name}` is a {kind}, and clients call methods of objects: make it one, or begin its name with an underscore"
            )
        if hasattr(type(value), "__get__") and not inspect.isclass(value) and callable(getattr(cls, name)):
            yield name


def methods_of_unserved_classes(module: ModuleType, offered: Iterable[Any]) -> Iterator[str]:
    """Decorated methods of a module that no served class has."""
    classes = [one.cls for one in offered if isinstance(one, ServedClass)]
    for value in vars(module).values():
        if not inspect.isclass(value) or value.__module__ != module.__name__:
            continue
        if not any(issubclass(cls, value) for cls in classes):
            marked = (one for one in vars(value).values() if isinstance(getattr(one, ATTRIBUTE, None), MethodOptions))
            yield from (one.__qualname__ for one in marked)
