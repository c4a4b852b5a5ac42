"""A cluster of Dask as a server of routines, and a server as a resource of Dask's workers.

.. code-block:: sh

    python -m kumi.call.adapters.dask --scheduler tcp://head:8786 --functions solvers.py --listen 0.0.0.0:7070 …

serves the functions of ``solvers.py`` (with the decorator :func:`kumi.call.routine`); they run on the cluster. The other
way round,

.. code-block:: python

    kumi_server = kumi.call.adapters.dask.Resource(client, "server:7070", resources={"kumi": 1})
    x = kumi_server.submit("dgesv", a, b)           # a future of Dask, which other tasks may take
    y = client.submit(numpy.linalg.norm, x)

lets tasks of the cluster call routines of a server. A worker started with ``--resources kumi=4`` makes at
most four such calls at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from ._remote import RemoteRunner, call_here, main

# Arrays of more bytes go straight to a worker, and not through the scheduler with the task.
_LARGE = 64 << 10


def remote_runner(address: str) -> RemoteRunner:
    """Runs functions on the cluster of this scheduler."""
    client = import_module("distributed").Client(address, set_as_default=False)

    def place(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.nbytes > _LARGE:
            return client.scatter(value, hash=False)
        if isinstance(value, dict):
            return {name: place(each) for name, each in value.items()}
        return value

    def run(function: Callable[..., Any], given: list[Any]) -> Any:
        # Not pure: results may differ from call to call.
        return client.submit(function, *map(place, given), pure=False).result()

    return run


class Resource:
    """A server whose routines tasks of a Dask cluster can call.

    Args:
        client: A ``dask.distributed.Client``.
        server: The address of a server or metaserver, as the workers know it. They need the package kumi.
        token: As :func:`kumi.call.connect` takes it.
        resources: Resources of a worker that each call takes, such as ``{"kumi": 1}``. Default: none.
    """

    def __init__(
        self,
        client: Any,
        server: str,
        *,
        token: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self._client = client
        self._server = server
        self._token = token
        self._resources = dict(resources) if resources else None

    def submit(self, name: str, /, *args: Any, **named: Any) -> Any:
        """Begins a call on a worker, and returns a Dask future. Arguments may be futures too."""
        task = (call_here, self._server, self._token, name, list(args), named)
        return self._client.submit(*task, resources=self._resources, pure=False)

    def delayed(self, name: str, /, *args: Any, **named: Any) -> Any:
        """A call as a part of a graph of ``dask.delayed``."""
        dask = import_module("dask")
        task = dask.delayed(call_here, pure=False)
        if self._resources is None:
            return task(self._server, self._token, name, list(args), named)
        with dask.annotate(resources=self._resources):
            return task(self._server, self._token, name, list(args), named)


if __name__ == "__main__":
    main("dask", "the address of the cluster's scheduler")
