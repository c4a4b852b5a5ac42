"""A cluster of Ray as a server of routines, and a server as a resource of Ray's nodes.

.. code-block:: sh

    python -m kumi.call.adapters.ray --address auto --functions solvers.py --listen 127.0.0.1:7070

serves the functions of ``solvers.py`` (with the decorator :func:`kumi.call.routine`); they run on the cluster. The other
way round,

.. code-block:: python

    server = kumi.call.adapters.ray.Resource("server:7070", resources={"kumi": 1})
    x = server.submit("dgesv", a, b)                # a reference, which other tasks may take
    y = norm.remote(x)

lets tasks of the cluster call routines of a server. A node started with ``--resources='{"kumi": 4}'`` makes
at most four such calls at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ._remote import RemoteRunner, call_here, main


def remote_runner(address: str) -> RemoteRunner:
    """Runs functions on the cluster of this address."""
    ray = import_module("ray")
    ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    tasks: dict[int, Any] = {}

    def run(function: Callable[..., Any], given: list[Any]) -> Any:
        task = tasks.get(id(function))
        if task is None:
            task = tasks[id(function)] = ray.remote(function)
        try:
            return ray.get(task.remote(*given))
        except ray.exceptions.RayTaskError as error:
            # The exception of the function, without its traceback on the cluster.
            raise error.cause if isinstance(error.cause, Exception) else error from None

    return run


def _call(server: str, token: str | None, name: str, named: dict[str, Any], *args: Any) -> Any:
    # Ray finds references only among a task's arguments, not inside of them.
    return call_here(server, token, name, args, named)


class Resource:
    """A server whose routines tasks of a Ray cluster can call; call ``ray.init`` first.

    Args:
        server: The address of a server or metaserver, as the nodes know it. They need the package kumi.
        token: As :func:`kumi.call.connect` takes it.
        resources: Resources of a node that each call takes, such as ``{"kumi": 1}``. Default: none.
    """

    def __init__(
        self, server: str, *, token: str | None = None, resources: Mapping[str, float] | None = None
    ) -> None:
        ray = import_module("ray")
        self._server = server
        self._token = token
        # The task only waits for the server, and computes nothing.
        self._task = ray.remote(num_cpus=0, resources=dict(resources or {}))(_call)

    def submit(self, name: str, /, *args: Any, **named: Any) -> Any:
        """Begins a call on a node, and returns a Ray reference. Arguments by position may be references too."""
        return self._task.remote(self._server, self._token, name, named, *args)


if __name__ == "__main__":
    main("ray", "the address of the cluster, as ray.init() takes it")
