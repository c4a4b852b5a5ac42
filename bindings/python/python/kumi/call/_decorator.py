"""The decorator that makes functions routines, and classes those of objects."""

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
    """Makes a function a routine that can be served, or a class one of objects; here it stays what it is.

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

    Arrays that it is called with are those of the call, without a copy: they can be read only (but for :data:`Out` and
    :data:`InOut`), and belong to the function until it returns: what it keeps is a copy. So do files (annotated as
    ``pathlib.Path``, or ``bytes`` for their content) and functions of the client (``Callable[[float], float]``).

    An object is an instance of the class in a process of its own, made without arguments. Methods whose names begin with no
    underscore are called by clients. A method may have the decorator too, with ``name``, ``order`` and ``results``.

    Args:
        name: What callers call it; the name of the function or class.
        idempotent: A call may be run twice with the effect of one: it is retried when a server is lost. Not of classes.
        order: Operations of a call, an expression of numbers that are sent and of sizes, as ``"2*n^3"``.
        results: The names of what it gives; ``result``, or ``result1`` and so on.

    Raises:
        DescriptionError: Its annotations say something that routines do not have, or the class cannot be made without
            arguments.
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
    """What a function or class is served as; None: it is not."""
    # A class that inherits from one that is served is another.
    found = vars(value).get(ATTRIBUTE) if inspect.isclass(value) else getattr(value, ATTRIBUTE, None)
    return found if isinstance(found, ServedFunction | ServedClass) else None
