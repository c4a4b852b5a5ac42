"""Preparation of calls: checks of arguments, and memory for results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .._native import NativeCall, NativeClient, NativeObject
from ._errors import ArgumentError, StatusError, TooLargeError
from ._functions import ResultFolder, Function
from ._held import Held, Keep, kept
from ._handle import Handle, collected
from ._interface import Parameter, Routine, array
from ._out import Out, chosen, place
from ._output import OutputReceiver


_Answer = TypeVar("_Answer")


class Prepared(NamedTuple):
    """The checked arguments of a call."""

    routine: Routine
    #: For the native module.
    native: list[Any]
    #: Arrays for results, by parameter.
    results: dict[int, Any]
    functions: list[Function]
    folder: ResultFolder
    #: The numbers of the results that the caller gets.
    wanted: tuple[int, ...]
    #: Arguments at the server, which stay there while the call may need them.
    held: list[Held]

    def begun(self, call: NativeCall, output: OutputReceiver | None = None) -> Handle:
        """The handle of the call that ``native`` has begun."""
        return Handle(
            self.routine, call, self.results, self.functions, self.folder, self.wanted, self.held, output
        )

    def ran(self, run: Callable[[], list[tuple[int, Any]]]) -> Any:
        """Runs the call with ``run``, and returns its results."""
        try:
            values = run()
        except StatusError as error:
            error.results = self._collected(error._values)
            raise
        return self._collected(values)

    def _collected(self, values: list[tuple[int, Any]]) -> Any:
        return collected(self.routine, self.results, values, self.folder, self.wanted)


class Caller(ABC):
    """Base class of connections and objects: they have routines that can be called."""

    _routines: dict[str, Routine]

    @abstractmethod
    def _ask(self, question: Callable[[NativeClient | NativeObject], _Answer]) -> _Answer:
        """Asks the other side something that has no effect there."""

    @property
    @abstractmethod
    def _target(self) -> NativeClient | NativeObject:
        """The connection or object at present."""

    def routine(self, name: str) -> Routine:
        """The description of a routine. The client fetches it once."""
        known = self._routines.get(name)
        if known is None:
            known = self._routines[name] = Routine(self._ask(lambda native: native.describe(name)))
        return known

    def _prepared(
        self, name: str, args: tuple[Any, ...], named: dict[str, Any], out: Out
    ) -> Prepared:
        """Checks the arguments of a call, and allocates its results."""
        routine = self.routine(name)
        bound = routine.bind(args, named) if args or named or routine.sent else {}
        outs, paths, wanted = chosen(routine, out)
        results: dict[int, Any] = {}
        native: list[Any] = []
        functions: list[Function] = []
        held: list[Held] = []
        folder = ResultFolder()
        if routine.given:
            arrays: dict[int, np.ndarray[Any, Any] | Held] = {}
            for one in routine.sent:
                if one.is_array and one.index in bound:
                    value = bound[one.index]
                    if isinstance(value, Held):
                        value._argument(self._target, routine.name, one)
                        held.append(value)
                    else:
                        value = array(routine.name, one, value)
                    arrays[one.index] = value
            scalars, shapes = self._fit(name, routine, bound, arrays)
            for one in routine.given:
                if one.is_array:
                    shape = tuple(shapes[one.index])
                    into = outs.get(one.index)
                    if isinstance(into, Keep):
                        into = outs[one.index] = kept(self._target, routine.name, one, shape)
                    elif into is not None:
                        others = [*arrays.values(), *(it for at, it in outs.items() if at != one.index)]
                        here = [it for it in others if isinstance(it, np.ndarray)]
                        into = place(routine.name, one, into, shape, here)
                    declined = one.returned and one.index not in wanted
                    native.append(_pair(routine.name, one, arrays.get(one.index), shape, results, into, declined))
                elif one.is_file:
                    native.append(folder.pair(one, bound.get(one.index), paths.get(one.name)))
                elif one.is_function:
                    functions.append(_function(routine.name, one, bound[one.index]))
                    native.append(functions[-1])
                else:
                    native.append(scalars[one.index])
            for index, value in results.items():
                if isinstance(value, Held):
                    continue
                shape = np.shape(bound[index]) if index in bound else value.shape
                results[index] = value.reshape(shape) if shape != value.shape else value
            results |= outs
        return Prepared(routine, native, results, functions, folder, wanted, held)

    def _fit(
        self, name: str, routine: Routine, bound: dict[int, Any], arrays: dict[int, np.ndarray[Any, Any] | Held]
    ) -> tuple[list[Any], list[list[int]]]:
        """Scalars and texts by parameter, including sizes inferred from arrays, and the shapes of all arrays."""
        scalars: list[Any] = [None] * len(routine.parameters)
        for one in routine.sent:
            plain = not (one.is_array or one.is_file or one.is_function)
            if plain and one.index in bound:
                scalars[one.index] = _scalar(routine.name, one, bound[one.index])
        given = [arrays[at].shape if at in arrays else None for at in range(len(scalars))]
        following, shapes = self._ask(lambda native: native.fit(name, scalars, given))
        for index, value in enumerate(following):
            if scalars[index] is None:
                scalars[index] = value
        return scalars, shapes


def _function(routine: str, parameter: Parameter, value: Any) -> Function:
    if not callable(value):
        raise ArgumentError(f"`{routine}`: `{parameter.name}` is a function")
    return Function(routine, parameter, value)


def _scalar(routine: str, parameter: Parameter, value: Any) -> Any:
    if parameter.dtype is None:
        if not isinstance(value, str):
            raise ArgumentError(f"`{routine}`: `{parameter.name}` is a text")
        return value
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise ArgumentError(f"`{routine}`: `{parameter.name}` is a scalar ({parameter.dtype})")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ArgumentError(
            f"`{routine}`: `{parameter.name}` cannot hold an integer of {value.bit_length()} bits"
        )
    return value


def _room(routine: str, parameter: Parameter, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A new array for a result. If only a section comes back, the rest is zero."""
    make = np.zeros if parameter.partial else np.empty
    try:
        return make(shape, parameter.dtype, order=parameter.order)  # type: ignore[call-overload,no-any-return]
    except (MemoryError, ValueError) as why:
        raise TooLargeError(f"`{routine}`: there is no memory for `{parameter.name}` of the shape {shape}: {why}") from None


def _pair(
    routine: str,
    parameter: Parameter,
    given: np.ndarray[Any, Any] | Held | None,
    shape: tuple[int, ...],
    results: dict[int, Any],
    into: np.ndarray[Any, Any] | Held | None = None,
    declined: bool = False,
) -> tuple[Any, Any]:
    """The input and the output array of a parameter, each here or at the server. A declined result has none, and does not
    come back."""
    if given is not None and given.shape != shape:
        raise ArgumentError(
            f"`{routine}`: `{parameter.name}` has the shape {given.shape}, the routine wants {shape}"
        )
    back: np.ndarray[Any, Any] | Held | None = None
    if parameter.returned and not declined:
        if into is not None:
            back = into
            if isinstance(given, np.ndarray) and isinstance(back, np.ndarray) and parameter.partial:
                back[...] = given
        elif isinstance(given, np.ndarray) and parameter.partial:
            back = given.copy(order="K")
        else:
            back = _room(routine, parameter, shape)
        results[parameter.index] = back
    return _memory(parameter, given), _memory(parameter, back)


def _memory(parameter: Parameter, array: np.ndarray[Any, Any] | Held | None) -> Any:
    """An array as the native module takes it."""
    if isinstance(array, Held):
        return array._native
    # An array in column order is its transpose in row order.
    return array.T if array is not None and parameter.order == "F" else array
