"""Round trips of a notebook's cell: a pool of Kumi, ipyparallel and mpi4py.futures beside one another.

    python measure.py --ranks 8 --rounds 20 [--peers ipyparallel,mpi4py]

A cell calls a function that does nothing at all ranks, and ends when all results are there. The systems take turns in rounds
of a few cells, so the noise of the machine hits all alike. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Cells of a system in one turn.
TURN = 10


def nothing(*_: object) -> None:
    """The cell."""


@contextlib.contextmanager
def kumi_pool(ranks: int) -> Iterator[Callable[[], None]]:
    """Kumi: the same function at all ranks."""
    import kumi

    with kumi.Engines(ranks) as engines:

        def cell() -> None:
            assert engines.run(nothing) == [None] * ranks

        yield cell


@contextlib.contextmanager
def ipyparallel_pool(ranks: int) -> Iterator[Callable[[], None]]:
    """ipyparallel: a blocking call of a direct view of all engines."""
    import ipyparallel

    with ipyparallel.Cluster(n=ranks, log_level=40) as client:
        client.wait_for_engines(ranks, timeout=120)
        view = client[:]

        def cell() -> None:
            assert view.apply_sync(nothing) == [None] * ranks

        yield cell


@contextlib.contextmanager
def mpi4py_pool(ranks: int) -> Iterator[Callable[[], None]]:
    """mpi4py.futures: a map of so many calls; which worker gets which is its own choice."""
    # Its library starts workers by the launcher that is installed with it.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor(max_workers=ranks) as executor:
        executor.bootup(wait=True)

        def cell() -> None:
            assert list(executor.map(nothing, range(ranks))) == [None] * ranks

        yield cell


POOLS = {"kumi": kumi_pool, "ipyparallel": ipyparallel_pool, "mpi4py": mpi4py_pool}


def version(name: str) -> str:
    """The version of an installed package."""
    return importlib.metadata.version(name)


def figures(seconds: list[float]) -> dict[str, Any]:
    """Percentiles in milliseconds, and the median of each turn."""
    ordered = sorted(seconds)
    turns = [seconds[start : start + TURN] for start in range(0, len(seconds), TURN)]
    return {
        "turns_ms": [1000 * statistics.median(turn) for turn in turns],
        "p50_ms": 1000 * statistics.median(ordered),
        "p90_ms": 1000 * ordered[int(0.9 * (len(ordered) - 1))],
        "p99_ms": 1000 * ordered[int(0.99 * (len(ordered) - 1))],
    }


def compared(ranks: int, rounds: int, peer: str) -> dict[str, Any]:
    """Kumi and a peer in turn. Only these two are there meanwhile, since idle workers of some systems use processors."""
    names = ["kumi", peer]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        cells = {name: stack.enter_context(POOLS[name](ranks)) for name in names}
        for turn in range(rounds + 1):
            for name in names if turn % 2 else reversed(names):
                for _ in range(TURN):
                    begin = time.perf_counter()
                    cells[name]()
                    # The first turn warms up.
                    if turn:
                        seconds[name].append(time.perf_counter() - begin)
    return {name: figures(taken) for name, taken in seconds.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20, help=f"turns of {TURN} cells")
    parser.add_argument("--peers", default="ipyparallel,mpi4py")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    for peer in options.peers.split(","):
        try:
            found = {"version": version(peer), **compared(options.ranks, options.rounds, peer)}
        except (ImportError, OSError) as error:
            # ImportError is also that of a package without its metadata, or a library.
            found = {"absent": f"{type(error).__name__}: {error}"}
        result[peer] = found
    json.dump({"ranks": options.ranks, "peers": result}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
