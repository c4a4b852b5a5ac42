"""Calls of routines over networks, in virtual time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from .._errors import BadArgumentError, BadTypeError
from . import _tables
from ._command import Running, SimError
from ._run import Duration, _duration, _number
from ._sweep import _grid

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Version of the JSON that this module reads; unknown further figures do no harm.
_SCHEMA = 1


@dataclass(frozen=True)
class Estimate:
    """A mean over the replications, and half the length of its 95 % interval."""

    mean: float
    half_width: float


@dataclass(frozen=True)
class CallsResult:
    """The figures of one simulation, with the names of the JSON of ``kumi sim calls``."""

    policy: str
    time_s: float | None
    """Seconds simulated; None: the simulation ended with the last call."""
    warm_up_s: float
    """Seconds at the beginning that were not measured."""
    replications: int
    seed: int
    """Seed of the first replication."""
    end_s: Estimate
    """When the last call was over, or the simulation ended."""
    rows: tuple[dict[str, Any], ...]
    """By site and routine: ``calls_per_s``, ``response_s`` and so on, each with its estimates."""
    servers: tuple[dict[str, Any], ...]
    """By server: ``calls_per_s``, ``utilisation``, ``load``."""
    links: tuple[dict[str, Any], ...]
    """By path: the share of time in which it is busy, there and back."""
    data: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON unchanged."""

    @classmethod
    def of(cls, data: Any) -> CallsResult:
        """Converts the command's output ``data`` into a result."""
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != _SCHEMA:
            raise SimError(
                f"the command kumi gives figures of shape {schema}, this package knows {_SCHEMA}; "
                "install both of one version"
            )
        try:
            given = {each.name: data[each.name] for each in fields(cls) if each.name != "data"}
            given["end_s"] = Estimate(**given["end_s"])
            for name in ("rows", "servers", "links"):
                given[name] = tuple(given[name])
            return cls(**given, data=data)
        except (KeyError, TypeError) as error:
            raise SimError(
                f"the figures of the command kumi are not complete ({error}); "
                "install command and package of one version"
            ) from error

    @overload
    def table(
        self, kind: Literal["pandas"] = "pandas", of: Literal["rows", "servers", "links"] = "rows"
    ) -> pandas.DataFrame: ...
    @overload
    def table(
        self, kind: Literal["arrow"], of: Literal["rows", "servers", "links"] = "rows"
    ) -> pyarrow.Table: ...
    def table(
        self, kind: _tables.Kind = "pandas", of: Literal["rows", "servers", "links"] = "rows"
    ) -> pandas.DataFrame | pyarrow.Table:
        """A row for each site and routine, for each server, or for each path. An estimate has two columns, such
        as ``response_s_mean`` and ``response_s_mean_half_width``.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
        """
        return _tables.as_kind(_tables.rows(self.flat(of)), kind)

    def flat(self, of: str = "rows") -> list[dict[str, Any]]:
        """The rows of :meth:`table`, without pandas or pyarrow."""
        if of not in ("rows", "servers", "links"):
            raise BadArgumentError(f"there is no table {of!r}; there are rows, servers and links")
        return [{"policy": self.policy, **_flat(row)} for row in getattr(self, of)]


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value.keys() == {"mean", "half_width"}:
            flat |= {prefix + name: value["mean"], f"{prefix}{name}_half_width": value["half_width"]}
        elif isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat


_TIMES = ("step", "think", "latency", "metaserver", "overhead", "time", "warm_up")
_WHOLE = ("sites", "clients", "servers", "processors", "limit", "most_waiting", "replications", "seed")
_NUMBERS = ("probability", "rate", "bandwidth", "background", "background_bytes", "speed")
_TEXTS = ("policy", "network", "discipline")
NAMES = frozenset((*_TIMES, *_WHOLE, *_NUMBERS, *_TEXTS, "routine", "model"))


def calls(
    policy: str | None = None,
    *,
    routine: str | Sequence[str] | None = None,
    sites: int | None = None,
    clients: int | None = None,
    step: Duration | None = None,
    probability: float | None = None,
    think: Duration | None = None,
    rate: float | None = None,
    bandwidth: float | None = None,
    latency: Duration | None = None,
    network: Literal["ps", "fcfs"] | None = None,
    background: float | None = None,
    background_bytes: float | None = None,
    servers: int | None = None,
    processors: int | None = None,
    speed: float | None = None,
    discipline: Literal["ps", "fcfs"] | None = None,
    limit: int | None = None,
    overhead: Duration | None = None,
    metaserver: Duration | None = None,
    most_waiting: int | None = None,
    model: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    time: Duration | None = None,
    warm_up: Duration | None = None,
    replications: int | None = None,
    seed: int | None = None,
) -> CallsResult:
    """Simulates calls of routines, from clients to servers over networks, in virtual time.

    The options describe sites that are alike and servers that are alike; use a ``model`` for anything else.
    For None, the defaults of ``kumi sim calls --help`` apply. Equal arguments give equal results.

    Args:
        policy: How the metaserver chooses servers; optional if the model names one.
        routine: Routines to call: ``"linpack:N"``, ``"ep:M"``, ``"const:OPERATIONS"`` or
        ``"exp:OPERATIONS"``, or several of these.
        sites: Sites of clients, each with a path of its own.
        clients: Clients at each site.
        step: A client without a call in progress calls at each step of this length, with ``probability``.
        think: Instead, a client thinks after each call, for an exponential time with this mean.
        rate: Instead, each client's calls are a Poisson stream of this rate a second.
        bandwidth: Bytes per second of each site's path, each way; with ``latency``, ``network`` and others on it.
        servers: How many, with ``processors`` of ``speed`` operations per second, which are shared (``discipline="ps"``)
            or taken in turn (``"fcfs"``).
        limit: Most calls that the metaserver gives a server at a time.
        overhead: Processor time that each call costs besides; ``metaserver``: what it costs there.
        model: A model as ``kumi sim calls --write-model`` has it: a file or its content.
        time: How long is simulated, ``warm_up`` of it without being measured.
        replications: Independent repetitions, from which intervals are made.
        seed: Where random numbers begin.

    Raises:
        CommandMissingError: There is no command ``kumi``.
        SimError: It refused, with the reason and its exit code.
        BadTypeError, BadArgumentError: Arguments that cannot be told to it.
    """
    return _run(dict(locals()), Running())


def _run(given: Mapping[str, Any], running: Running) -> CallsResult:
    told = {name: value for name, value in given.items() if value is not None}
    if unknown := sorted(set(told) - NAMES):
        raise BadTypeError(f"a simulation has no {', '.join(unknown)}; it has {', '.join(sorted(NAMES))}")
    model = told.pop("model", None)
    if model is None and "policy" not in told:
        raise BadTypeError("a simulation needs a policy or a model")
    arguments = ["sim", "calls", "--json=-"]
    arguments += [f"--{name.replace('_', '-')}={_text(name, value)}" for name, value in told.items()]
    with tempfile.TemporaryDirectory(prefix="kumi-sim-") as folder:
        if isinstance(model, Mapping):
            path = Path(folder) / "model"
            try:
                path.write_text(json.dumps(dict(model)), encoding="utf-8")
            except (TypeError, ValueError) as error:
                raise BadTypeError(f"the model cannot be written as JSON: {error}") from None
            model = path
        if model is not None:
            arguments.append(f"--model={os.fspath(model)}")
        answer = running.run(arguments)
    try:
        return CallsResult.of(json.loads(answer.out))
    except ValueError as error:
        raise SimError(f"the command kumi gave no figures: {error}") from error


def _whole(name: str, value: Any) -> str:
    try:
        return str(value.__index__())
    except AttributeError:
        raise BadTypeError(f"{name} is {value!r}; give an integer") from None


def _text(name: str, value: Any) -> str:
    if name in _TIMES:
        return _duration(name, value)
    if name in _WHOLE:
        return _whole(name, value)
    if name in _NUMBERS:
        return repr(_number(name, value))
    several = [value] if isinstance(value, str) else value
    if name != "routine" and not isinstance(value, str):
        raise BadTypeError(f"{name} is {value!r}; give a text")
    if not isinstance(several, list | tuple) or not all(isinstance(each, str) for each in several):
        raise BadTypeError(f"{name} is {value!r}; give a text or a list of them")
    if any("," in each for each in several):
        raise BadArgumentError(f"{name} is {value!r}; several policies are for kumi.sim.calls_sweep()")
    return ",".join(several)


class CallsSweep(Sequence[CallsResult]):
    """What came of a sweep: a result for each case, in their order."""

    def __init__(self, cases: Sequence[Mapping[str, Any]], results: Sequence[CallsResult]) -> None:
        self.cases = tuple(cases)
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> CallsResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CallsResult, ...]: ...
    def __getitem__(self, index: int | slice) -> CallsResult | tuple[CallsResult, ...]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[CallsResult]:
        return iter(self._results)

    @overload
    def table(self, kind: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def table(self, kind: Literal["arrow"]) -> pyarrow.Table: ...
    def table(self, kind: _tables.Kind = "pandas") -> pandas.DataFrame | pyarrow.Table:
        """The rows of all cases, each with the number and the parameters of its case.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
        """
        rows = []
        for at, (case, result) in enumerate(zip(self.cases, self._results, strict=True)):
            told = {
                name: value if isinstance(value, int | float | str) else str(value)
                for name, value in case.items()
                if name != "model"
            }
            # Of a parameter and a figure of one name the figure stays.
            rows += [{"case": at, **told, **row} for row in result.flat()]
        return _tables.as_kind(_tables.rows(rows), kind)


def calls_sweep(
    cases: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    progress: Callable[[int, int], object] | None = None,
) -> CallsSweep:
    """Runs many simulations, one after the other; the replications of each are spread over the cores.

    Args:
        cases: A list of cases, each a dict of the parameters of :func:`calls`; or a grid: one dict, in which a list, tuple,
            range or array stands for each of its values, and the cases are all combinations, the last parameter changing
            first. Several routines of one case are a tuple in a list.
        progress: Called as ``progress(done, cases)`` after each case.

    Raises:
        SimError, BadTypeError, BadArgumentError: As :func:`calls`; a note says which case.
    """
    given = _grid(cases) if isinstance(cases, Mapping) else [dict(each) for each in cases]
    running = Running()
    results = []
    for at, case in enumerate(given):
        try:
            results.append(_run(case, running))
        except Exception as error:
            error.add_note(f"in case {at}: {case}")
            raise
        if progress is not None:
            progress(at + 1, len(given))
    return CallsSweep(given, results)
