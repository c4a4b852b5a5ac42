"""Transactions: recorded calls that run together on several servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._native import NativeClient, run_transaction
from .._scope import Block
from ._connection import Connection
from ._context import in_trace
from ._errors import ArgumentError, CallError, ConnectError
from ._interface import Parameter, Routine, array
from ._resources import resources
from ._results import in_order


class TransactionError(CallError):
    """Calls of a transaction failed. The message names them and the calls that did not run because of them.

    Attributes:
        report: The report on all calls.
    """

    report: Report


TransactionError.__module__ = "kumi.call"


class Moved(NamedTuple):
    """Bytes of arrays, by their route."""

    #: From this program to servers.
    sent: int
    #: From servers to this program.
    received: int
    #: From server to server.
    between: int
    #: From one call to the next at the same server.
    stayed: int


@dataclass(frozen=True)
class StepReport:
    """The report on one call of a transaction."""

    #: The routine.
    routine: str
    #: The server where it ran last; None: it did not run.
    server: str | None
    #: Number of attempts.
    attempts: int
    #: Why inputs from another server came through the client; None: they came directly, or there were none.
    helped: str | None
    #: Seconds from the begin of the transaction to the call's begin and end.
    begun: float | None
    ended: float | None
    #: A sentence. If the call did not run, it names the failed call and the calls between.
    text: str


@dataclass(frozen=True)
class Report:
    """The report on a transaction."""

    #: The reports on the calls, in their order.
    steps: tuple[StepReport, ...]
    #: Bytes of arrays that were moved.
    moved: Moved
    #: Seconds that the transaction took.
    seconds: float
    #: A picture of the graph with states, servers and times.
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


class Later:
    """The future result of a recorded call. Later calls of the transaction may use it as an argument.

    An array that other calls read stays at the servers, unless it is :meth:`wanted`. After the transaction :meth:`result` or
    ``numpy.asarray`` gives the value.
    """

    def __init__(
        self, owner: Transaction, step: int, parameter: Parameter, shape: tuple[int, ...] | None
    ) -> None:
        self._owner = owner
        self._step = step
        self._parameter = parameter
        #: The shape of the array; None: the result is a scalar or a text.
        self.shape = shape
        self._final = shape
        self._wanted = False
        #: The parameters of later calls that read it.
        self._readers: list[Parameter] = []
        self._value: Any = None
        self._here = False
        self._error: str | None = None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of its numbers; None: the result is a text."""
        return self._parameter.dtype

    def wanted(self) -> Later:
        """Requests that the result comes back although later calls read it. Call this before the transaction runs.

        Raises:
            ArgumentError: The transaction has run.
        """
        if self._owner.ran:
            raise ArgumentError("the transaction has run: call wanted() before it runs")
        self._wanted = True
        return self

    def result(self) -> Any:
        """The array, number or text.

        Raises:
            CallError: The call has not run, or its result has stayed at the servers.
        """
        if self._here:
            return self._value
        if self._error is not None:
            error = TransactionError(self._error)
            assert self._owner.report is not None
            error.report = self._owner.report
            raise error
        if not self._owner.ran:
            raise CallError("the transaction has not run yet: it runs at the end of its `with`")
        if self._owner.report is None:
            raise CallError("the transaction ended before anything could be told of its calls")
        raise CallError(
            f"`{self._parameter.name}` stayed at the servers, since later calls read it; "
            "call its wanted() before the transaction runs"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = np.asarray(self.result(), dtype)
        return value.copy() if copy else value

    def __repr__(self) -> str:
        kind = "text" if self.dtype is None else self.dtype.name
        return f"<{self._parameter.name} of call {self._step}: {kind}, shape {self.shape}>"

    def _stays(self) -> bool:
        """Whether it stays at the servers: it needs no conversion, and the program does not want it."""
        thin = sum(size > 1 for size in self.shape or ()) < 2
        same = all(
            not one.partial and (thin or one.order == self._parameter.order)
            for one in self._readers
        )
        return bool(self._readers) and same and not self._wanted and not self._parameter.partial


@dataclass
class _Array:
    """An array parameter of a call, with its input and its result."""

    parameter: Parameter
    sent: np.ndarray[Any, Any] | Later | None
    back: Later | None


@dataclass
class _Recorded:
    routine: Routine
    args: list[Any]
    gives: list[Later]
    #: Threads and bytes of memory that it asks for, or 0.
    asked: tuple[int, int]


class Transaction(Block):
    """Records calls, and runs them at the end of a ``with`` or in :meth:`run`.

    Calls that do not depend on each other run concurrently on different servers.
    """

    def __init__(
        self,
        servers: Sequence[str] = (),
        *,
        meta: str | Connection | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        policy: str | None = None,
        in_flight: int | None = None,
        attempts: int = 4,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        if priority not in range(10):
            raise ArgumentError(f"priority={priority!r}; there are 0 to 9")
        if self._servers and priority != 0:
            raise ArgumentError("priority= is for calls through a metaserver: name one with meta=")
        if not self._servers and (policy is not None or in_flight is not None):
            raise ArgumentError("policy= and in_flight= are for servers that are named; a metaserver has its own")
        if isinstance(meta, Connection) and (token is not None or ca is not None):
            raise ArgumentError("token= and ca= are those of the connection that meta= is")
        how = 8 if in_flight is None else in_flight, attempts, policy or "min-completion", timeout
        self._how = (token, ca, *how)
        self._meta: tuple[NativeClient, int] | None = None
        if self._servers and meta is not None:
            raise ArgumentError("a transaction goes to servers or to a metaserver: name one of both")
        if self._servers:
            self._connection = _first(self._servers, token, ca)
        else:
            self._connection = _metaserver(meta, token, ca)
            self._meta = self._connection._native, priority
        self._calls: list[_Recorded] = []
        #: Whether the transaction has run, successfully or not.
        self.ran = False
        #: The report, after the run.
        self.report: Report | None = None

    def _leave(self, error: BaseException | None) -> None:
        if error is None and not self.ran:
            self.run()

    def call(
        self, name: str, /, *args: Any, threads: int | None = None, memory: int | None = None, **named: Any
    ) -> Any:
        """Records a call. Arguments are those of :meth:`Connection.call`; results of earlier calls are also possible.

        The transaction reads arrays when it runs, so it sees changes until then.

        Args:
            threads: As in :meth:`Connection.call`, also ``memory``. A server that does not give them is left for the next one.

        Returns:
            The future result: None, a :class:`Later`, or :class:`Results` of them, a tuple in the order of the parameters.

        Raises:
            ArgumentError: The arguments do not fit. Nothing is recorded.
        """
        if self.ran:
            raise ArgumentError("the transaction has run: begin another")
        asked = resources(threads, memory)
        routine = self._connection.routine(name)
        if routine.of_class:
            raise ArgumentError(
                f"`{name}` belongs to the class `{routine.of_class}`, and transactions call routines only: make an object with "
                f"kumi.call.object, and call its methods"
            )
        bound = routine.bind(args, named) if args or named or routine.sent else {}
        arrays: dict[int, Any] = {}
        for one in routine.sent:
            if one.index in bound:
                value = bound[one.index]
                if isinstance(value, Later):
                    self._check(name, one, value)
                if one.is_array:
                    arrays[one.index] = value if isinstance(value, Later) else array(name, one, value)
        scalars, shapes = self._connection._fit(name, routine, bound, arrays)
        native: list[Any] = []
        gives: dict[int, Later] = {}
        for one in routine.given:
            if not one.is_array:
                native.append(scalars[one.index])
                continue
            sent, shape = arrays.get(one.index), tuple(shapes[one.index])
            if sent is not None and sent.shape != shape:
                raise ArgumentError(
                    f"`{name}`: `{one.name}` has the shape {sent.shape}, the routine wants {shape}"
                )
            back = None
            if one.returned:
                back = gives[one.index] = Later(self, len(self._calls), one, shape)
                if isinstance(sent, np.ndarray):
                    back._final = np.shape(bound[one.index])
            native.append(_Array(one, sent, back))
        for one in native:
            if isinstance(one, _Array) and isinstance(one.sent, Later):
                one.sent._readers.append(one.parameter)
        for one in routine.parameters:
            if one.returned and one.index not in gives:
                gives[one.index] = Later(self, len(self._calls), one, None)
        self._calls.append(_Recorded(routine, native, list(gives.values()), asked))
        return in_order(routine, gives, routine.back)

    def _check(self, routine: str, parameter: Parameter, value: Later) -> None:
        def wrong(text: str) -> ArgumentError:
            return ArgumentError(f"`{routine}`: `{parameter.name}` {text}")

        if value._owner is not self:
            raise wrong("is what another transaction gives: take its result")
        if value.shape is None or not parameter.is_array:
            raise wrong("is a number or text that is known only when the transaction has run")
        if value.dtype != parameter.dtype:
            raise wrong(f"has elements of {value.dtype}, the routine wants {parameter.dtype}")
        if len(value.shape) != len(parameter.sizes):
            raise wrong(
                f"has {len(value.shape)} dimensions, the routine wants {len(parameter.sizes)}"
            )
        if parameter.partial and parameter.returned:
            raise wrong("travels in parts: take its result in a transaction of its own first")

    def run(self) -> Report:
        """Runs the calls.

        Raises:
            TransactionError: Some failed. The results of the others are available nevertheless.
            CallError: None was begun.
        """
        if self.ran:
            raise ArgumentError("the transaction has run: begin another")
        arrays = _Arrays()
        calls = [
            (one.routine.name, [arrays.argument(arg) for arg in one.args], *one.asked) for one in self._calls
        ]
        self.ran = True
        said = in_trace(lambda: run_transaction(self._servers, self._meta, self._how, arrays.given, calls))
        steps = [
            StepReport(**{key: value for key, value in step.items() if key != "values"})
            for step in said["steps"]
        ]
        self.report = Report(tuple(steps), Moved(*said["moved"]), said["seconds"], said["svg"])
        for call, step, report in zip(self._calls, said["steps"], steps, strict=True):
            values = None if step["values"] is None else dict(step["values"])
            for later in call.gives:
                arrays.settle(later, values, report.text)
        if said["error"] is not None:
            error = TransactionError(said["error"])
            error.report = self.report
            raise error
        return self.report

    def svg(self) -> str:
        """A picture of the graph, when it has run: states, servers and times."""
        if self.report is None:
            raise CallError("the transaction has not run yet")
        return self.report.svg


class _Arrays:
    """The arrays of a transaction, with the numbers by which the native module knows them."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, bool, str, list[int] | None, bool]] = []
        #: Of what calls give, by identity; the calls keep it.
        self._numbers: dict[int, int] = {}
        self._results: dict[int, np.ndarray[Any, Any]] = {}

    def argument(self, arg: Any) -> Any:
        """An argument for the native module."""
        if not isinstance(arg, _Array):
            return arg
        sent = None
        if isinstance(arg.sent, Later):
            sent = self._numbers[id(arg.sent)]
        elif arg.sent is not None:
            sent = self._input(arg.parameter, arg.sent)
        return sent, None if arg.back is None else self._output(arg.back, arg.sent)

    def _add(self, *given: Any) -> int:
        self.given.append(given)
        return len(self.given) - 1

    def _input(self, parameter: Parameter, value: np.ndarray[Any, Any]) -> int:
        flat = value.T if parameter.order == "F" else value
        return self._add(flat, False, value.dtype.name, None, False)

    def _output(self, later: Later, given: Any) -> int:
        number = self._numbers[id(later)] = self._add(*self._room(later, given))
        return number

    def _room(self, later: Later, given: Any) -> tuple[Any, bool, str, list[int] | None, bool]:
        """Where a result comes to, if it does."""
        one = later._parameter
        name = np.dtype(one.dtype).name
        if later._stays():
            return None, False, name, None, False
        shape, dtype, turned = later.shape or (), np.dtype(one.dtype), one.order == "F"
        value: np.ndarray[Any, Any]
        if isinstance(given, np.ndarray) and one.partial:
            value = given.copy(order="K")
        else:
            value = np.zeros(shape[::-1], dtype).T if turned else np.zeros(shape, dtype)
        self._results[id(later)] = value
        flat = value.T if turned else value
        return flat, True, name, list(shape), turned

    def settle(self, later: Later, values: dict[int, Any] | None, text: str) -> None:
        """Gives a result its value."""
        if values is None:
            later._error = text
        elif later.shape is None:
            later._value, later._here = values.get(later._parameter.index), True
        elif id(later) in self._results:
            value = self._results[id(later)]
            assert later._final is not None
            later._value = value.reshape(later._final)
            later._here = True


def _metaserver(
    meta: str | Connection | None, token: str | None, ca: str | os.PathLike[str] | None
) -> Connection:
    """A connection to a metaserver, unless it is one."""
    named = meta or os.environ.get("KUMI_CALL_META")
    if not named:
        raise ArgumentError(
            "a transaction needs a server at least, or a metaserver: name them, or set KUMI_CALL_META"
        )
    connection = named if isinstance(named, Connection) else Connection(named, token, ca=ca)
    if not connection._native.is_metaserver():
        raise ArgumentError(
            f"{connection.address} is a server, not a metaserver: name it in a list of servers"
        )
    return connection


def _first(
    servers: list[str], token: str | None, ca: str | os.PathLike[str] | None
) -> Connection:
    """A connection to the first server that can be reached, which knows the routines."""
    last: ConnectError | None = None
    for address in servers:
        try:
            return Connection(address, token, ca=ca)
        except ConnectError as error:
            last = error
    raise last if last is not None else ArgumentError("a transaction needs a server at least")
