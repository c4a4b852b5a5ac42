"""What comes of a simulation."""

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

# Shape of the figures that is understood here; more figures than are known are no harm.
_SCHEMA = 1


@dataclass(frozen=True)
class Percentiles:
    """The values below which 50, 90, 95 and 99 of a hundred lie."""

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
    """Those that ended."""
    mean_wait_s: float
    mean_bounded_slowdown: float
    mean_retr: float


_Row = TypeVar("_Row", Percentiles, BySize)


@dataclass(frozen=True)
class Result:
    """The figures of one simulation, called as in the JSON of ``kumi sim jobs``; but the number of
    jobs submitted is ``jobs_submitted``, because :meth:`jobs` is their table.

    Means, maxima and percentiles are over the jobs that ended in the time simulated.
    """

    policy: str
    seed: int | None
    """Where random numbers began; None where there were none."""
    load: float | None
    """The load that was aimed at; None for traces and histories."""
    procs: int
    workload: dict[str, Any]
    """Where the jobs came from."""
    options: dict[str, Any]
    """The machine's parameters."""
    time_s: float
    """How long was simulated."""
    jobs_submitted: int
    jobs_ended: int
    actual_load: float
    """What the jobs submitted ask for, over processors times time."""
    utilisation: float
    """Share of processor time in which a job had its turn."""
    overhead: float
    """Share that went into switches, launches and moves; part of ``utilisation``."""
    internal_fragmentation: float | None
    """Share of the time given that went to processors which no job asked for."""
    mean_wait_s: float
    """Time from submission to the first turn."""
    max_wait_s: float
    wait_s: Percentiles
    mean_response_s: float
    """Time from submission to the end."""
    mean_bounded_slowdown: float
    """Response over service, which counts as 10 s at least."""
    bounded_slowdown: Percentiles
    mean_retr: float
    """RETR: time from submission to the end, over service."""
    max_retr: float
    retr: Percentiles
    correlation_log2_size_retr: float | None
    """None if all jobs are of one size."""
    max_tqlb: int | None
    """Most jobs that a processor held at once; None where time is not shared."""
    slots: int
    switches: int
    migrations: int
    sizes: tuple[BySize, ...]
    """By size, ascending."""
    notes: tuple[str, ...] = ()
    """What the command remarked, for example on malformed lines of a trace."""
    data: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON as it is."""
    _kept: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(
        cls, data: Any, kept: tuple[bytes, ...], notes: tuple[str, ...]
    ) -> Self:
        """The result that the command told as ``data``, with its tables."""
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
        """All figures that are one number or text, percentiles as ``wait_s_p50`` and so on: a row of
        a table."""
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
        """A row for each job that was submitted; what did not come to pass is missing.

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
