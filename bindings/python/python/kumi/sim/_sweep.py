"""Many simulations: on all cores of this machine, or on a cluster of Dask or Ray."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from numbers import Real
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from .._errors import BadArgumentError, BadTypeError
from . import _tables
from ._command import MissingExtraError, Running, SimError, find, next_of
from ._result import Result
from ._run import Case, run

if TYPE_CHECKING:
    import pandas
    import pyarrow

Progress = Callable[[int, int], object]

# Each process of the sweep has a core to itself.
_ONE_CORE = {"RAYON_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case of a sweep: a result or an error."""

    case: dict[str, Any]
    """Its parameters."""
    result: Result | None
    error: Exception | None
    """A :class:`SimError`, or an exception of Dask or Ray when a worker is lost."""


class Sweep(Sequence[Outcome]):
    """The outcome of a sweep: an :class:`Outcome` for each case, in their order."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes = tuple(outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> Sweep: ...
    def __getitem__(self, index: int | slice) -> Outcome | Sweep:
        if isinstance(index, slice):
            return Sweep(self._outcomes[index])
        return self._outcomes[index]

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} cases, {len(self.errors)} failed>"

    @property
    def errors(self) -> dict[int, Exception]:
        """The errors, by the number of their case from 0."""
        return {i: each.error for i, each in enumerate(self._outcomes) if each.error is not None}

    def results(self) -> list[Result]:
        """The results, in the order of the cases.

        Raises:
            ExceptionGroup: Cases failed; it holds all their errors.
        """
        if errors := self.errors:
            many = f"{len(errors)} of {len(self)} simulations failed, the first is case {min(errors)}"
            raise ExceptionGroup(many, list(errors.values()))
        return [each.result for each in self._outcomes if each.result is not None]

    @overload
    def table(self, kind: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def table(self, kind: Literal["arrow"]) -> pyarrow.Table: ...
    def table(self, kind: _tables.Kind = "pandas") -> pandas.DataFrame | pyarrow.Table:
        """A row for each case: its number, its parameters, its figures, and ``error``, which is missing if the
        case succeeded.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
        """
        return _tables.as_kind(self._figures(), kind)

    @overload
    def jobs(self, kind: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def jobs(self, kind: Literal["arrow"]) -> pyarrow.Table: ...
    def jobs(self, kind: _tables.Kind = "pandas") -> pandas.DataFrame | pyarrow.Table:
        """The jobs of all cases that have a result, with a column ``case``; needs a sweep with ``tables=True``.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
            SimError: The tables were not kept, or no case has a result.
        """
        done = [(i, each.result) for i, each in enumerate(self._outcomes) if each.result is not None]
        if not done:
            raise SimError("no case of this sweep has a result; errors says why")
        tables = [result.jobs("arrow") for _, result in done]
        return _tables.as_kind(_tables.joined(tables, [number for number, _ in done]), kind)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes :meth:`table` to a Parquet file.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
            OSError: The file cannot be written.
        """
        _tables.write(self._figures(), path)

    def _figures(self) -> pyarrow.Table:
        rows = []
        for number, each in enumerate(self._outcomes):
            # If a parameter and a figure have one name they are equal, but the figure is always present.
            row = {"case": number, **{k: _cell(v) for k, v in each.case.items()}}
            row |= each.result.figures() if each.result is not None else {}
            rows.append(row | {"error": None if each.error is None else str(each.error)})
        return _tables.rows(rows)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, Real | str) else str(value)


def sweep(
    cases: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    on: Any = None,
    *,
    tables: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Runs many simulations.

    A case that fails does not stop the others: its outcome is its error. Ctrl-C ends running cases and
    cancels waiting ones; tasks that already run on a worker of Dask end there by themselves.

    Args:
        cases: A list of cases, each a dict of the parameters of :func:`jobs`; or a grid: one dict,
            in which a list, tuple, range or array stands for each of its values, and the cases are all
            combinations, the last parameter changing first.
        on: None for all cores of this machine; a ``dask.distributed.Client``; the module ``ray``
            or ``"ray"``, initialised. The workers need this package and the command ``kumi``
            (``KUMI_BIN`` of their environment), and traces at the same paths.
        tables: Keep the tables of jobs and the time lines; they travel with the results.
        progress: Called as ``progress(done, cases)`` after each case.

    Raises:
        CommandMissingError: The cases run here, and this machine has no command ``kumi``.
        BadTypeError, BadArgumentError: The command has no form for a case, or ``on`` is something else.
    """
    given = _grid(cases) if isinstance(cases, Mapping) else [dict(each) for each in cases]
    made = []
    for number, each in enumerate(given):
        try:
            made.append(Case.of(each))
        except (BadTypeError, BadArgumentError) as error:
            error.add_note(f"in case {number}: {each}")
            raise
    spread = _runner(on)
    told = progress or (lambda done, cases: None)
    ends = spread(made, tables, lambda done: told(done, len(made)))
    pairs = zip(given, ends, strict=True)
    return Sweep([Outcome(case, *_sorted_out(end)) for case, end in pairs])


def _grid(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    # Arrays and Series are lists too.
    plain = [v.tolist() if hasattr(v, "tolist") else v for v in grid.values()]
    axes = [v if isinstance(v, list | tuple | range) else [v] for v in plain]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*axes)]


End = Result | Exception
Spread = Callable[[Sequence[Case], bool, Callable[[int], object]], list[End]]


def _sorted_out(end: End) -> tuple[Result | None, Exception | None]:
    return (None, end) if isinstance(end, Exception) else (end, None)


def attempt(case: Case, tables: bool) -> End:
    """Runs a case anywhere. A failed simulation is an answer, not a failure of the worker: Dask or Ray would log
    that and run the task again."""
    try:
        return run(case, tables, Running(), _ONE_CORE)
    except SimError as error:
        return error


def _runner(on: Any) -> Spread:
    if on is None:
        return _here
    if on == "ray":
        try:
            on = import_module("ray")
        except ImportError as error:
            raise MissingExtraError(f"ray is needed ({error}): pip install ray") from error
    if all(hasattr(on, name) for name in ("remote", "get", "wait", "cancel", "is_initialized")):
        if not on.is_initialized():
            raise BadArgumentError("ray is not initialised; call ray.init() with your cluster first")
        return lambda cases, tables, told: _ray(on, cases, tables, told)
    if all(hasattr(on, name) for name in ("submit", "cancel", "scheduler_info")):
        if getattr(on, "asynchronous", False):
            raise BadArgumentError("the client of Dask is asynchronous; give one that is not")
        return lambda cases, tables, told: _dask(on, cases, tables, told)
    raise BadTypeError(
        f"cannot run on {on!r}; give None, a dask.distributed.Client, the module ray or 'ray'"
    )


def _here(cases: Sequence[Case], tables: bool, told: Callable[[int], object]) -> list[End]:
    find()
    running = Running()

    def one(case: Case) -> End:
        try:
            return run(case, tables, running, _ONE_CORE)
        except (SimError, OSError) as error:
            return error

    news: SimpleQueue[int | list[End] | BaseException] = SimpleQueue()

    def all_of_them() -> None:
        try:
            with ThreadPoolExecutor(max(1, min(len(cases), len(os.sched_getaffinity(0))))) as pool:
                futures = [pool.submit(one, case) for case in cases]
                for done, _ in enumerate(as_completed(futures), 1):
                    news.put(done)
                news.put([future.result() for future in futures])
        except BaseException as error:
            news.put(error)

    # Interrupts come to the main thread. Between two steps of a lock of threading or of the pool, an
    # interrupt leaves the lock locked for ever. So another thread owns the pool, and this thread waits with a
    # lock that is written in C.
    try:
        threading.Thread(target=all_of_them, daemon=True).start()
        while isinstance(new := next_of(news), int):
            told(new)
    except BaseException:
        running.end()
        raise
    if isinstance(new, BaseException):
        raise new
    return new


def _taken(take: Callable[[], Any]) -> End:
    """The outcome of a task on a cluster."""
    try:
        return cast(End, take())
    except Exception as error:
        return error


def _dask(client: Any, cases: Sequence[Case], tables: bool, told: Callable[[int], object]) -> list[End]:
    futures: list[Any] = []
    ends: list[End] = []
    try:
        # Not pure: a trace may have changed since an earlier simulation with the same arguments.
        futures += (client.submit(attempt, case, tables, pure=False) for case in cases)
        for future in futures:
            ends.append(_taken(future.result))
            told(len(ends))
    except BaseException:
        client.cancel(futures)
        raise
    return ends


def _ray(ray: Any, cases: Sequence[Case], tables: bool, told: Callable[[int], object]) -> list[End]:
    task = ray.remote(attempt)
    references: list[Any] = []
    ends: list[End] = []
    try:
        references += (task.remote(case, tables) for case in cases)
        for reference in references:
            ends.append(_taken(partial(ray.get, reference)))
            told(len(ends))
    except BaseException:
        for reference in references[len(ends) :]:
            ray.cancel(reference)
        raise
    return ends
