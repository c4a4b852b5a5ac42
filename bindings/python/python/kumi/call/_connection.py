"""Connections to servers, and calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._native import NativeBell, NativeCall, NativeClient
from ._errors import ArgumentError, CallbackError, CallError, StatusError, TooLargeError
from ._functions import Folder, Function
from ._interface import Parameter, Routine, array
from ._out import Out, chosen, place
from ._results import in_order


class Handle:
    """A call that is under way. It is cancelled when nobody has it any more."""

    def __init__(
        self,
        routine: Routine,
        native: NativeCall,
        results: dict[int, Any],
        functions: Sequence[Function],
        folder: Folder,
    ) -> None:
        self._routine = routine
        self._native = native
        self._results = results
        self._functions = functions
        self._folder = folder
        self._value: Any = None
        self._error: CallError | None = None
        self._over = False
        # Whoever waits has it.
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether it is over; does not wait."""
        return self._over or self._native.is_over()

    def _serve(self) -> bool:
        """Calls functions that the routine waits for; whether it is over."""
        return bool(self._functions) and self.wait(0.0)

    def cancel(self) -> None:
        """Asks the server to end it; :meth:`wait` then raises :class:`CancelledError`."""
        if not self._over:
            self._native.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, at most ``timeout`` seconds; whether it is over."""
        if self._over:
            return True
        if timeout is not None and not timeout >= 0:
            raise ArgumentError(f"a wait of {timeout} s")
        begin = time.monotonic()
        if not self._lock.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            return False
        try:
            if timeout is not None:
                timeout = max(0.0, timeout - (time.monotonic() - begin))
            return self._over or self._wait(timeout)
        finally:
            self._lock.release()

    def _wait(self, timeout: float | None) -> bool:
        try:
            values = self._native.wait(timeout)
        except StatusError as error:
            error.results = self._collect(error._values)
            self._error, self._over = error, True
            return True
        except CallbackError as error:
            raised = [one.error for one in self._functions if one.error is not None]
            error.__cause__ = raised[0] if raised else None
            self._error, self._over = error, True
            if raised and not isinstance(raised[0], Exception):
                # Ctrl-C and the like are not the call's failure.
                raise raised[0] from None
            return True
        except CallError as error:
            self._error, self._over = error, True
            return True
        if values is None:
            return False
        self._value, self._over = self._collect(values), True
        return True

    def result(self, timeout: float | None = None) -> Any:
        """What the routine gives: None, one value, or :class:`Results`, a tuple in the order of the parameters.

        Raises:
            CallError: The call failed.
            TimeoutError: It is not over after ``timeout`` seconds; it goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"`{self._routine.name}` is not over after {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value

    def _collect(self, values: list[tuple[int, Any]]) -> Any:
        return _collected(self._routine, self._results, values, self._folder)


def _collected(
    routine: Routine, results: dict[int, Any], values: list[tuple[int, Any]], folder: Folder
) -> Any:
    """What a call gives: results that are arrays, values that came back, and files."""
    if not routine.back:
        return None
    if values:
        results = results | dict(values)
    if folder.back:
        results |= folder.results()
    return in_order(routine, [results.get(index) for index in routine.back])


class _Prepared(NamedTuple):
    """What a call is given."""

    routine: Routine
    #: For the native module.
    native: list[Any]
    #: Arrays for its results, by parameter.
    results: dict[int, Any]
    functions: list[Function]
    folder: Folder


class Connection:
    """A connection to a server. Threads may share it; their calls run at the same time."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        timeout: float = 10.0,
        ca: str | os.PathLike[str] | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self.address = address
        self._native = NativeClient.connect(address, token, timeout, ca, file_bytes)
        self._routines: dict[str, Routine] = {}

    @property
    def server(self) -> str:
        """The server's name."""
        return self._native.server()

    def names(self, part: str = "") -> list[str]:
        """The routines whose names contain ``part``."""
        return self._native.names(part)

    def routine(self, name: str) -> Routine:
        """What a routine takes and gives; asked for once."""
        known = self._routines.get(name)
        if known is None:
            known = self._routines[name] = Routine(self._native.describe(name))
        return known

    def call(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        **named: Any,
    ) -> Any:
        """Calls a routine and waits.

        Arguments are those that are sent, in the order of the parameters or by name. Scalars that follow
        from the shapes of arrays, or have defaults, may be left out. Arrays are sent from where they are, if
        they have the routine's type and order. Results are new arrays.

        Args:
            timeout: Seconds that the call may take; the server stops it then.
            out: Arrays into which results are received, by name, or the array of the only one: of the routine's type, shape
                and order. After a failure there may be anything in them. Of files that come back the paths to which they
                are written; of others the bytes come back.

            priority: Among your calls through a metaserver that wait, 0 to 9; the metaserver may bound it. A server
                refuses any but 0.

        Raises:
            CallError: It failed; of arguments that do not fit (:class:`ArgumentError`) nothing was sent.
        """
        call = self._prepared(name, args, named, out, priority)
        if call.functions:
            return self._begin(call, timeout, priority).result()
        try:
            values = self._native.call(name, call.native, timeout, priority)
        except StatusError as error:
            error.results = _collected(call.routine, call.results, error._values, call.folder)
            raise
        return _collected(call.routine, call.results, values, call.folder)

    def call_async(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = None,
        out: Out = None,
        priority: int = 0,
        **named: Any,
    ) -> Handle:
        """Begins a call as :meth:`call` does; its arguments are sent when this returns."""
        return self._begin(self._prepared(name, args, named, out, priority), timeout, priority)

    def _begin(self, call: _Prepared, timeout: float | None, priority: int) -> Handle:
        native = self._native.start(call.routine.name, call.native, timeout, priority)
        return Handle(call.routine, native, call.results, call.functions, call.folder)

    def _prepared(
        self, name: str, args: tuple[Any, ...], named: dict[str, Any], out: Out, priority: int
    ) -> _Prepared:
        """Checks what a call is given, and makes room for its results."""
        if priority not in range(10):
            raise ArgumentError(f"priority={priority!r}; there are 0 to 9")
        routine = self.routine(name)
        bound = routine.bind(args, named) if args or named or routine.sent else {}
        outs, paths = chosen(routine, out)
        results: dict[int, Any] = {}
        native: list[Any] = []
        functions: list[Function] = []
        folder = Folder()
        if routine.given:
            arrays = {
                one.index: array(name, one, bound[one.index])
                for one in routine.sent
                if one.is_array and one.index in bound
            }
            scalars, shapes = self._fit(routine, bound, arrays)
            for one in routine.given:
                if one.is_array:
                    shape = tuple(shapes[one.index])
                    into = outs.get(one.index)
                    if into is not None:
                        others = [it for at, it in outs.items() if at != one.index and isinstance(it, np.ndarray)]
                        into = place(name, one, into, shape, [*arrays.values(), *others])
                    native.append(_pair(name, one, arrays.get(one.index), shape, results, into))
                elif one.is_file:
                    native.append(folder.pair(one, bound.get(one.index), paths.get(one.name)))
                elif one.is_function:
                    functions.append(_function(name, one, bound[one.index]))
                    native.append(functions[-1])
                else:
                    native.append(scalars[one.index])
            for index, value in results.items():
                shape = np.shape(bound[index]) if index in bound else value.shape
                results[index] = value.reshape(shape) if shape != value.shape else value
            results |= outs
        return _Prepared(routine, native, results, functions, folder)

    def _fit(
        self, routine: Routine, bound: dict[int, Any], arrays: dict[int, np.ndarray[Any, Any]]
    ) -> tuple[list[Any], list[list[int]]]:
        """The scalars and texts by parameter, also those that follow from arrays, and the shapes of all arrays."""
        scalars: list[Any] = [None] * len(routine.parameters)
        for one in routine.sent:
            plain = not (one.is_array or one.is_file or one.is_function)
            if plain and one.index in bound:
                scalars[one.index] = _scalar(routine.name, one, bound[one.index])
        given = [arrays[at].shape if at in arrays else None for at in range(len(scalars))]
        following, shapes = self._native.fit(routine.name, scalars, given)
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
    """An array to write to; of one that comes back in parts the rest is zeros."""
    make = np.zeros if parameter.partial else np.empty
    try:
        return make(shape, parameter.dtype, order=parameter.order)  # type: ignore[call-overload,no-any-return]
    except (MemoryError, ValueError) as why:
        raise TooLargeError(f"`{routine}`: there is no memory for `{parameter.name}` of the shape {shape}: {why}") from None


def _pair(
    routine: str,
    parameter: Parameter,
    given: np.ndarray[Any, Any] | None,
    shape: tuple[int, ...],
    results: dict[int, Any],
    into: np.ndarray[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """An array to send and one to write to."""
    if given is not None and given.shape != shape:
        raise ArgumentError(
            f"`{routine}`: `{parameter.name}` has the shape {given.shape}, the routine wants {shape}"
        )
    back = None
    if parameter.returned:
        if into is not None:
            back = into
            if given is not None and parameter.partial:
                back[...] = given
        elif given is not None and parameter.partial:
            back = given.copy(order="K")
        else:
            back = _room(routine, parameter, shape)
        results[parameter.index] = back
    # By columns is what the transposed array is by rows.
    turned = parameter.order == "F"
    flat = [None if one is None else one.T if turned else one for one in (given, back)]
    return flat[0], flat[1]


def wait_any(handles: Sequence[Handle], timeout: float | None = None) -> int | None:
    """Waits until one of the calls is over; its index. None: none is after ``timeout`` seconds."""
    if not handles:
        raise ArgumentError("no calls to wait for")
    end = None if timeout is None else time.monotonic() + timeout
    bell: NativeBell | None = None
    while True:
        for index, handle in enumerate(handles):
            if handle.done() or handle._serve():
                return index
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return None
        bell = bell or NativeBell([handle._native for handle in handles])
        bell.wait(left)


def wait_all(handles: Sequence[Handle]) -> list[Any]:
    """Waits for all of the calls; what they give. The first that failed raises, when all are over."""
    for handle in handles:
        handle.wait()
    return [handle.result() for handle in handles]
