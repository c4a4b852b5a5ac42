"""Clusters of Dask and Ray as servers, and servers as their resources. Skipped where these, or the commands, are missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call_python import kumi_bin as kumi_bin

from kumi import call
from kumi.call.adapters import _remote

# What others warn of is theirs.
pytestmark = pytest.mark.filterwarnings("default")

FUNCTIONS = """
import os

import numpy as np
from numpy import float64

from kumi import call
from kumi.call import Array, InOut, Out


def helper(x):
    return 2 * x


@call.routine
def twice(a: Array[float64, "n", "m"], pure: float = 0.0) -> tuple[Array[float64, "n", "m"], int]:
    return helper(a) + pure, os.getpid()


@call.routine
def written(a: InOut[Array[float64, "n"]], b: Out[Array[float64, "2*n"]], *, k: int = 1) -> float:
    b[:] = np.concatenate([a, a])
    a *= k
    return float(a.sum())


@call.routine
def bad(x: float) -> float:
    raise ValueError(f"first\\nnot {x}")
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Nothing that the cluster could import.
    path = tmp_path_factory.mktemp("adapted") / "far_functions.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.fixture(scope="module")
def dask(kumi_bin: str) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, resources={"kumi": 1}
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def ray(kumi_bin: str) -> Iterator[Any]:
    module = pytest.importorskip("ray", reason="ray is not installed")
    module.init(num_cpus=2, include_dashboard=False, log_to_driver=False, resources={"kumi": 1})
    yield module
    module.shutdown()


def serves(file: Path, through: str) -> None:
    """Functions run on the cluster as they would here."""
    with call.Server(file, slots=1, through=through) as server:
        connection = call.connect(server.address)
        large = np.arange(40_000.0).reshape(200, 200)
        for a in (np.ones((2, 3)), large):
            doubled, process = connection.call("twice", a, pure=1)
            np.testing.assert_array_equal(doubled, 2 * a + 1)
        assert connection.call("twice", large)[1] == process
        a, b, total = connection.call("written", [1.0, 2.0], k=3)
        assert (a.tolist(), b.tolist(), total) == ([3, 6], [1, 2, 1, 2], 9)
        with pytest.raises(call.RaisedError, match=r"`bad` raised ValueError: not 4\.0"):
            connection.call("bad", 4.0)
        assert connection.call("twice", [[1.0]])[0].tolist() == [[2]]


def test_a_cluster_of_dask_is_a_server(dask: Any, file: Path) -> None:
    serves(file, f"dask:{dask.scheduler.address}")


def test_a_cluster_of_ray_is_a_server(ray: Any, file: Path) -> None:
    serves(file, f"ray:{ray.get_runtime_context().gcs_address}")


def test_a_server_is_a_resource_of_dask(dask: Any, file: Path) -> None:
    from kumi.call.adapters.dask import Resource

    with call.Server(file, slots=2) as server:
        resource = Resource(dask, server.address, resources={"kumi": 1})
        first = resource.submit("twice", np.ones((2, 2)))
        # What one call gives the next takes.
        second = resource.submit("written", dask.submit(lambda got: got[0].ravel(), first), k=2)
        assert second.result()[0].tolist() == [4, 4, 4, 4]
        made = resource.delayed("twice", [[1.0]])[0].sum()
        assert dask.compute(made, sync=True) == 2
        with pytest.raises(call.RaisedError, match="ValueError: not 1"):
            resource.submit("bad", 1.0).result()
        with pytest.raises(call.RoutineNotFound):
            resource.submit("nothing").result()


def test_a_server_is_a_resource_of_ray(ray: Any, file: Path) -> None:
    from kumi.call.adapters.ray import Resource

    with call.Server(file, slots=2) as server:
        resource = Resource(server.address, resources={"kumi": 1})
        ravel = ray.remote(lambda got: got[0].ravel())
        first = resource.submit("twice", np.ones((2, 2)))
        assert ray.get(resource.submit("written", ravel.remote(first), k=2))[0].tolist() == [4, 4, 4, 4]
        with pytest.raises(call.RaisedError, match="ValueError: not 1"):
            ray.get(resource.submit("bad", 1.0))


def test_clusters_that_are_not(kumi_bin: str, file: Path) -> None:
    with call.Server(file, slots=1, through="netsolve:there") as server:
        with pytest.raises(call.NotRunnableError, match="dask:ADDRESS and ray:ADDRESS are known"):
            call.connect(server.address).call("bad", 1.0)


def test_functions_are_sent_without_what_they_are_here() -> None:
    def function(a: int, *, b: int = 2) -> int:
        return a + b

    bare = _remote.without_wrapper(function)
    assert bare(1) == 3 and not bare.__annotations__ and _remote.without_wrapper(len) is len
