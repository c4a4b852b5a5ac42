"""The decorator that marks functions and classes as routines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from ._classes import MethodOptions, ServedClass, is_method
from ._errors import DescriptionError
from ._serving import ATTRIBUTE, ServedFunction

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def routine(function: _Function, /) -> _Function: ...
@overload
def routine(
    *,
    name: str | None = None,
    idempotent: bool = False,
    order: str | None = None,
    results: Sequence[str] | None = None,
) -> Callable[[_Function], _Function]: ...
def routine(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    order: str | None = None,
    results: Sequence[str] | None = None,
) -> Any:
    """Marks a function as a routine, or a class as a class of objects. This program can use both as before.

    .. code-block:: python

        @kumi.call.routine(order="n*m")
        def scale(a: Array[float64, "n", "m"], f: float = 2.0) -> Array[float64, "n", "m"]:
            "Multiplies by f."
            return a * f

        @kumi.call.routine(name="counter")
        class Counter:
            def __init__(self) -> None:
                self._total = 0

            def add(self, x: int) -> int:
                self._total += x
                return self._total

    Array arguments are views of the call's memory. They are read-only, except for :data:`Out` and :data:`InOut`. They are valid
    until the function returns, so a function that keeps one copies it. The same holds for files (``pathlib.Path``, or
    ``bytes`` for their content) and for functions of the client (``Callable[[float], float]``).

    Each object is an instance of the class in a process of its own, created without arguments. Clients can call methods whose
    names begin with no underscore. A method may have the decorator too, with ``name``, ``order`` and ``results``.

    Args:
        name: The name for callers. Default: the name of the function or class.
        idempotent: Two runs have the effect of one, so a call is retried when its server is lost. Not for classes.
        order: Number of operations of a call, an expression of scalar inputs and sizes, such as ``"2*n^3"``.
        results: The names of the results. Default: ``result``, or ``result1`` and so on.

    Raises:
        DescriptionError: Routines do not support the annotations, or the class needs arguments for an instance.
    """

    def decorate(function: Any) -> Any:
        options = [f"CalcOrder {order}"] if order is not None else []
        if inspect.isclass(function):
            if options or idempotent or results is not None:
                raise DescriptionError(
                    f"`{function.__name__}` is a class, which has name= alone: give order= and results= to its methods, with "
                    f"the same decorator"
                )
            setattr(function, ATTRIBUTE, ServedClass(function, name))
        elif is_method(function):
            if idempotent:
                raise DescriptionError(
                    f"`{function.__qualname__}` is a method, whose calls are on one object and are never run again: leave "
                    f"idempotent= away"
                )
            setattr(function, ATTRIBUTE, MethodOptions(name, results, options))
        else:
            if idempotent:
                options.append("@idempotent")
            setattr(function, ATTRIBUTE, ServedFunction(function, name, results, options))
        return function

    return decorate if function is None else decorate(function)


def served(value: Any) -> ServedFunction | ServedClass | None:
    """The routine or class that the decorator made of a value; None: it has no decorator."""
    # A subclass of a served class is not served itself.
    found = vars(value).get(ATTRIBUTE) if inspect.isclass(value) else getattr(value, ATTRIBUTE, None)
    return found if isinstance(found, ServedFunction | ServedClass) else None
