"""Scheduling policies in virtual time: the simulator of ``kumi sim jobs`` for Python.

.. code-block:: python

    from kumi import sim

    result = sim.jobs("easy", procs=256, load=0.8, units=100_000)
    print(result.utilisation, result.mean_bounded_slowdown)
    result.jobs().groupby("size")["wait_s"].mean()      # pandas; or result.jobs("arrow")

    runs = sim.sweep({"policy": ["fcfs", "easy"], "procs": 256, "load": [0.5, 0.7, 0.9],
                      "seed": range(1, 11), "units": 100_000})
    runs.table().groupby(["policy", "load"])["mean_wait_s"].mean()

    sim.calls("least-load", routine="linpack:1000", clients=16, bandwidth=1e6).table()   # as ``kumi sim calls``

It needs no job and no cluster, only the command ``kumi``: at ``KUMI_BIN``, with the package, or on
``PATH``. Tables need ``pip install kumi[sim]``. Times are seconds of virtual time, which are also the
units of synthetic jobs.
"""

from .._errors import BadArgumentError, BadTypeError, KumiError
from ._calls import CallsResult, CallsSweep, Estimate, calls, calls_sweep
from ._command import CommandMissingError, MissingExtraError, SimError
from ._result import BySize, Percentiles, Result
from ._run import Duration, History, jobs
from ._sweep import Outcome, Sweep, sweep

__all__ = [
    "BadArgumentError",
    "BadTypeError",
    "BySize",
    "CallsResult",
    "CallsSweep",
    "CommandMissingError",
    "Duration",
    "Estimate",
    "History",
    "KumiError",
    "MissingExtraError",
    "Outcome",
    "Percentiles",
    "Result",
    "SimError",
    "Sweep",
    "calls",
    "calls_sweep",
    "jobs",
    "sweep",
]
