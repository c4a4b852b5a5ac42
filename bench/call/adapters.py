"""What a call costs through a Kumi server whose routines run on a cluster of Dask or Ray, beside the same call of the
cluster itself. Both alternate, in one run with one worker of one thread; medians.

    adapters.py [--systems dask,ray] [--sizes 600,1000,1400] [--times 9] [--json FILE]

The paper's adapter to a foreign system cost 4 to 20 % of a call (its section on that system).
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import numpy as np  # noqa: E402: after the number of threads is said

sys.path.insert(0, str(Path(__file__).parent))
import adapted  # noqa: E402

from kumi import call  # noqa: E402
from kumi.call.adapters._far import alone, by_value  # noqa: E402


@contextmanager
def on_dask():
    """Starts a cluster. Returns a function that runs functions on it, and the cluster's name for a server."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(function, *args):
            placed = [client.scatter(arg, hash=False) if np.ndim(arg) else arg for arg in args]
            return client.submit(function, *placed, pure=False).result()

        yield run, f"dask:{cluster.scheduler_address}"


@contextmanager
def on_ray():
    """The same for Ray; see on_dask()."""
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    tasks = {}

    def run(function, *args):
        if function not in tasks:
            tasks[function] = ray.remote(function)
        return ray.get(tasks[function].remote(*args))

    try:
        yield run, f"ray:{ray.get_runtime_context().gcs_address}"
    finally:
        ray.shutdown()


SYSTEMS = {"dask": on_dask, "ray": on_ray}


def version(system):
    return importlib.metadata.version({"dask": "distributed"}.get(system, system))


def took(run):
    """Milliseconds."""
    begin = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - begin)


def compare(name, args, straight, connection, times):
    """Milliseconds of both, in pairs."""
    function = alone(getattr(adapted, name))
    here = np.asarray(straight(function, *args))
    there = np.asarray(connection.call(name, *args))
    np.testing.assert_array_equal(here, there)
    pairs = []
    for turn in range(times):
        ways = [
            lambda: straight(function, *args),
            lambda: connection.call(name, *args),
        ]
        # The order alternates, so that neither side profits from caches that the other has filled.
        order = (0, 1) if turn % 2 else (1, 0)
        measured = {way: took(ways[way]) for way in order}
        pairs.append((measured[0], measured[1]))
    direct, through = (list(column) for column in zip(*pairs, strict=True))
    return {"direct_ms": direct, "through_ms": through}


def measure(system, sizes, times):
    """Rows of one system."""
    rng = np.random.default_rng(1)
    rows = []
    with SYSTEMS[system]() as (straight, at), call.Server(adapted.__file__, slots=1, through=at) as server:
        by_value(adapted)
        connection = call.connect(server.address)
        cases = [("noop", 0, (1.5,))]
        for n in sizes:
            a = rng.random((n, n)) + n * np.eye(n)
            cases += [("product", n, (a, a.T.copy())), ("solve", n, (a, rng.random(n)))]
        for name, n, args in cases:
            row = {"system": system, "version": version(system), "routine": name, "n": n}
            rows.append(row | compare(name, args, straight, connection, times))
            tell(rows[-1])
    return rows


def tell(row):
    direct, through = statistics.median(row["direct_ms"]), statistics.median(row["through_ms"])
    print(
        f"{row['system']:5} {row['routine']:8} n={row['n']:<5} straight {direct:9.2f} ms   "
        f"through Kumi {through:9.2f} ms   {100 * (through / direct - 1):+7.1f} %",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="dask,ray")
    parser.add_argument("--sizes", default="600,1000,1400")
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    rows = [row for system in args.systems.split(",") for row in measure(system, sizes, args.times)]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
