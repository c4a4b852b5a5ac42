"""One simulation: its parameters, and the run of the command."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from .._errors import BadArgumentError, BadTypeError
from ._command import Running, SimError
from ._result import Result

Duration = float | str | timedelta
"""Seconds, a text such as ``"10ms"``, or a timedelta."""

History = str | os.PathLike[str] | Sequence[Mapping[str, Any]]
"""A file with the output of ``kumi ps --all --json``, or its records."""


def jobs(
    policy: str,
    *,
    procs: int | None = None,
    load: float | None = None,
    gradient: bool = False,
    swf: str | os.PathLike[str] | None = None,
    history: History | None = None,
    units: int | None = None,
    arrivals: int | None = None,
    drain: bool = False,
    sizes: Literal["uniform", "proportional", "inverse"] | None = None,
    max_size: int | None = None,
    service: str | None = None,
    peak: float | None = None,
    seed: int | None = None,
    slice: Duration | None = None,
    switch_cost: Duration | None = None,
    launch_cost: Duration | None = None,
    migration_cost: Duration | None = None,
    instant: Literal["batched", "single"] | None = None,
    strict: bool = False,
    sample: int | None = None,
    tables: bool = True,
) -> Result:
    """Runs a scheduling policy over a list of jobs, in virtual time.

    The jobs come from one of ``load``, ``gradient``, ``swf`` and ``history``. For None, the defaults of
    ``kumi sim jobs --help`` apply. Equal arguments give equal results.

    Args:
        policy: Its name; the error for a wrong name lists the valid ones.
        procs: Processors of the machine. May be left out for a trace whose header names them.
        load: Poisson arrivals at this share of the machine's power.
        gradient: Load that rises in 20 steps to ``peak``.
        swf: A trace in the Standard Workload Format, plain or compressed (``.gz``).
        history: The jobs of a cluster, as ``kumi ps --all --json`` prints them: a file or records.
        units: Time to simulate, in units of one second.
        arrivals: Time in which jobs arrive, in units.
        drain: Simulate until the last job ends, instead of for a number of units.
        sizes: How likely the sizes are, powers of two up to ``max_size``.
        max_size: The largest size.
        service: ``"exp:MEAN"`` or ``"uniform:LOW:HIGH"``, in units.
        peak: Load of the last step of ``gradient``.
        seed: Seed of the random numbers.
        slice: Length of a slice, where the policy shares time.
        switch_cost: What it costs a job to get its processors back.
        launch_cost: What it costs to start a job.
        migration_cost: What it costs to move a job.
        instant: Ask the policy after all events of an instant, or after each.
        strict: Stop at the first malformed line of a trace or record of a history instead of
            skipping them.
        sample: Interval of the time line, in seconds.
        tables: Keep the tables that :meth:`Result.jobs` and :meth:`Result.timeline` give.

    Raises:
        CommandMissingError: There is no command ``kumi``.
        SimError: The command refused; the error has the reason and the exit code.
        BadTypeError, BadArgumentError: The command has no form for these arguments.
    """
    given = {name: value for name, value in locals().items() if name != "tables"}
    return run(Case.of(given), tables, Running())


# Parameters that the command takes as flags, as times, and as other values.
_SWITCHES = ("gradient", "drain", "strict")
_TIMES = ("slice", "switch_cost", "launch_cost", "migration_cost")
_WHOLE = ("procs", "units", "arrivals", "max_size", "seed", "sample")
_NUMBERS = ("load", "peak")
_TEXTS = ("policy", "sizes", "service", "instant")
_SOURCES = ("load", "gradient", "swf", "history")
NAMES = frozenset((*_SWITCHES, *_TIMES, *_WHOLE, *_NUMBERS, *_TEXTS, *_SOURCES))


@dataclass(frozen=True)
class Case:
    """One simulation with the command's arguments; can be sent to other processes."""

    arguments: tuple[str, ...]
    # Records, as the file into which they are written.
    history: str | None

    @staticmethod
    def of(given: Mapping[str, Any]) -> Case:
        """The case with these parameters of :func:`jobs`."""
        if unknown := sorted(set(given) - NAMES):
            known = ", ".join(sorted(NAMES))
            raise BadTypeError(f"a simulation has no {', '.join(unknown)}; it has {known}")
        told = {name: value for name, value in given.items() if value is not None and value is not False}
        if "policy" not in told:
            raise BadTypeError("a simulation needs a policy")
        if len([name for name in _SOURCES if name in told]) != 1:
            raise BadTypeError("give one of load, gradient, swf and history")
        if not told.keys() & {"procs", "swf"}:
            raise BadTypeError("give the machine's processors with procs")
        arguments: list[str] = []
        history = None
        for name, value in told.items():
            if name == "history" and not isinstance(value, str | os.PathLike):
                history = _records(value)
                continue
            option = f"--{name.replace('_', '-')}"
            arguments.append(option if name in _SWITCHES else f"{option}={_text(name, value)}")
        return Case(tuple(arguments), history)


def _records(value: Any) -> str:
    try:
        return json.dumps(list(value))
    except (TypeError, ValueError) as error:
        raise BadTypeError(f"history is no file and no list of records: {error}") from None


def _text(name: str, value: Any) -> str:
    if name in _TIMES:
        return _duration(name, value)
    if name in _WHOLE:
        # Accepts any kind of integer, and nothing that would need rounding.
        try:
            return str(value.__index__())
        except AttributeError:
            raise BadTypeError(f"{name} is {value!r}; give an integer") from None
    if name in _NUMBERS:
        return repr(_number(name, value))
    if name in _TEXTS:
        if not isinstance(value, str):
            raise BadTypeError(f"{name} is {value!r}; give a text")
        if "," in value:
            raise BadArgumentError(f"{name} is {value!r}; several are for kumi.sim.sweep()")
        return value
    if not isinstance(value, str | os.PathLike):
        raise BadTypeError(f"{name} is {value!r}; give a path")
    # Tasks may run in other folders.
    return os.path.abspath(os.fspath(value))


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadTypeError(f"{name} is {value!r}; give a number") from None


def _duration(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else _number(name, value)
    if not 0 <= seconds <= 1e6:
        raise BadArgumentError(f"{name} is {seconds} s; give 0 to 1000000 s")
    return f"{round(seconds * 1e9)}ns"


def run(
    case: Case, tables: bool, running: Running, environment: Mapping[str, str] | None = None
) -> Result:
    """Runs a case here."""
    with tempfile.TemporaryDirectory(prefix="kumi-sim-") as name:
        folder = Path(name)
        # Without tables the command prints everything to standard output, which is small.
        arguments = ["sim", "jobs", "--json=-"]
        # The command refuses an interval of samples without a time line.
        arguments += [a for a in case.arguments if tables or not a.startswith("--sample=")]
        if tables:
            arguments += [f"--jobs-csv={folder / 'jobs'}", f"--timeline-csv={folder / 'timeline'}"]
        if case.history is not None:
            (folder / "history").write_text(case.history, encoding="utf-8")
            arguments.append(f"--history={folder / 'history'}")
        answer = running.run(arguments, environment)
        try:
            data = json.loads(answer.out)
            kept = tuple((folder / each).read_bytes() for each in ("jobs", "timeline") if tables)
        except (ValueError, OSError) as error:
            raise SimError(f"the command kumi gave no figures: {error}") from error
    return Result.of(data, kept, answer.notes)
