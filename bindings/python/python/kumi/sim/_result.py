"""Results of simulations of jobs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from .._errors import BadArgumentError
from . import _tables
from ._command import SimError

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Version of the JSON that this module reads; unknown further figures do no harm.
_SCHEMA = 1


@dataclass(frozen=True)
class Percentiles:
    """The values below which 50, 90, 95 and 99 per cent lie."""

    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True)
class BySize:
    """The jobs of one size."""

    size: int
    """Processors."""
    jobs: int
    """Jobs submitted."""
    ended: int
    """Jobs that ended."""
    mean_wait_s: float
    mean_bounded_slowdown: float
    mean_retr: float


_Row = TypeVar("_Row", Percentiles, BySize)


@dataclass(frozen=True)
class Result:
    """The figures of one simulation, with the names of the JSON of ``kumi sim jobs``. Only the number of jobs
    submitted is called ``jobs_submitted``, because :meth:`jobs` is their table.

    Means, maxima and percentiles are over the jobs that ended in the time simulated.
    """

    policy: str
    seed: int | None
    """The seed; None where there were no random numbers."""
    load: float | None
    """The target load; None for traces and histories."""
    procs: int
    workload: dict[str, Any]
    """The source of the jobs."""
    options: dict[str, Any]
    """The machine's parameters."""
    time_s: float
    """How long was simulated."""
    jobs_submitted: int
    jobs_ended: int
    actual_load: float
    """Processor time that the submitted jobs ask for, as a share of all processor time."""
    utilisation: float
    """Share of processor time in which a job had its turn."""
    overhead: float
    """Share of processor time that switches, launches and moves took; part of ``utilisation``."""
    internal_fragmentation: float | None
    """Share of the allocated time on processors that no job asked for."""
    mean_wait_s: float
    """Time from submission to the first turn."""
    max_wait_s: float
    wait_s: Percentiles
    mean_response_s: float
    """Time from submission to the end."""
    mean_bounded_slowdown: float
    """Response over service, where service counts as at least 10 s."""
    bounded_slowdown: Percentiles
    mean_retr: float
    """RETR: time from submission to the end, over service."""
    max_retr: float
    retr: Percentiles
    correlation_log2_size_retr: float | None
    """Correlation of size and RETR; None if all jobs have one size."""
    max_tqlb: int | None
    """Most jobs that a processor held at once; None where time is not shared."""
    slots: int
    switches: int
    migrations: int
    sizes: tuple[BySize, ...]
    """By size, ascending."""
    notes: tuple[str, ...] = ()
    """Remarks of the command, for example on malformed lines of a trace."""
    data: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON unchanged."""
    _kept: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(
        cls, data: Any, kept: tuple[bytes, ...], notes: tuple[str, ...]
    ) -> Self:
        """Converts the command's output ``data`` into a result with its tables."""
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != _SCHEMA:
            raise SimError(
                f"the command kumi gives figures of shape {schema}, this package knows {_SCHEMA}; "
                "install both of one version"
            )
        given = {"notes": notes, "data": data, "_kept": kept}
        try:
            given["load"] = data["workload"].get("load")
            given["jobs_submitted"] = data["jobs"]
            given["sizes"] = tuple(_known(BySize, row) for row in data["sizes"])
            for name in ("wait_s", "bounded_slowdown", "retr"):
                given[name] = _known(Percentiles, data[name])
            for each in fields(cls):
                if each.name not in given:
                    given[each.name] = data[each.name]
        except (KeyError, TypeError, AttributeError) as error:
            raise SimError(
                f"the figures of the command kumi are not complete ({error}); "
                "install command and package of one version"
            ) from error
        return cls(**given)

    def figures(self) -> dict[str, Any]:
        """All figures that are one number or text, as a row of a table; percentiles are ``wait_s_p50`` and so
        on."""
        row: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Percentiles):
                row |= {f"{each.name}_{p.name}": getattr(value, p.name) for p in fields(value)}
            elif value is None or isinstance(value, int | float | str):
                row[each.name] = value
        return row

    @overload
    def jobs(self, kind: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def jobs(self, kind: Literal["arrow"]) -> pyarrow.Table: ...
    def jobs(self, kind: _tables.Kind = "pandas") -> pandas.DataFrame | pyarrow.Table:
        """A row for each submitted job; values that never came about are missing.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
            SimError: The tables were not kept.
        """
        return _tables.as_kind(self._arrow("jobs"), kind)

    @overload
    def timeline(self, kind: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def timeline(self, kind: Literal["arrow"]) -> pyarrow.Table: ...
    def timeline(self, kind: _tables.Kind = "pandas") -> pandas.DataFrame | pyarrow.Table:
        """A row for each sample: utilisation, jobs placed and queued, jobs per processor.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
            SimError: The tables were not kept.
        """
        return _tables.as_kind(self._arrow("timeline"), kind)

    def to_parquet(
        self, path: str | os.PathLike[str], table: Literal["jobs", "timeline"] = "jobs"
    ) -> None:
        """Writes a table to a Parquet file, with the figures as ``kumi.sim`` in its metadata.

        Raises:
            MissingExtraError: ``pip install kumi[sim]``.
            SimError: The tables were not kept.
            OSError: The file cannot be written.
        """
        described = {"kumi.sim": json.dumps(self.data)}
        _tables.write(self._arrow(table).replace_schema_metadata(described), path)

    def _arrow(self, table: Literal["jobs", "timeline"]) -> pyarrow.Table:
        if table not in ("jobs", "timeline"):
            raise BadArgumentError(f"there is no table {table!r}; there are jobs and timeline")
        if not self._kept:
            raise SimError("the tables of this simulation were not kept; run it with tables=True")
        return _tables.read(self._kept[0 if table == "jobs" else 1])


def _known(kind: type[_Row], row: dict[str, Any]) -> _Row:
    return kind(**{each.name: row[each.name] for each in fields(kind)})
