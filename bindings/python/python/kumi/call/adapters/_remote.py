"""Routines that run on a Dask or Ray cluster: the slot process hands each call to the cluster.

``KUMI_CALL_THROUGH=dask:ADDRESS`` or ``ray:ADDRESS`` in the environment of a server selects the cluster.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from .._serving import ServedFunction

#: The environment variable that names the cluster.
THROUGH = "KUMI_CALL_THROUGH"

#: Runs a function on the cluster with positional arguments, and returns its result.
RemoteRunner = Callable[[Callable[..., Any], list[Any]], Any]


def without_wrapper(function: Any) -> Any:
    """A copy of a function without its annotations and attributes, so that the cluster does not need the package kumi."""
    if not isinstance(function, types.FunctionType):
        return function
    bare = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    bare.__module__, bare.__qualname__ = function.__module__, function.__qualname__
    return bare


def run_and_return_outputs(function: Any, given: dict[str, Any], made: dict[str, Any], changed: list[str]) -> Any:
    """Calls a function that writes to its arguments. Returns its result and the written arrays. Runs on the cluster."""
    given = dict(given)
    for name, (shape, dtype, order) in made.items():
        given[name] = np.empty(shape, dtype, order=order)
    for name in changed:
        given[name] = given[name].copy(order="K")
    value = function(**given)
    return value, {name: given[name] for name in (*made, *changed)}


def remote(one: ServedFunction, through: str) -> ServedFunction:
    """The routine as one that runs on the cluster that ``through`` names."""
    kind, _, address = through.partition(":")
    if kind not in ("dask", "ray"):
        raise ValueError(f"{THROUGH} is {through!r}; dask:ADDRESS and ray:ADDRESS are known")
    for param in one.params:
        if param.kind.function is not None or param.kind.file is not None:
            what = "a function of the client" if param.kind.function is not None else "a file"
            raise ValueError(f"`{param.name}` is {what}, which does not go on to a cluster of {kind.capitalize()}")
    runs: RemoteRunner = import_module(f"kumi.call.adapters.{kind}").remote_runner(address)
    pickle_by_value(sys.modules[one.function.__module__])
    function = without_wrapper(one.function)
    writes = {p.name: p.kind for p in one.params if p.role == "argument" and p.kind.mode != "in"}
    pickle_by_value(sys.modules[__name__])
    task = without_wrapper(run_and_return_outputs)
    named = inspect.signature(one.function).parameters.values()
    needs_wrapper = writes or any(each.kind is each.KEYWORD_ONLY for each in named)

    def run(**given: Any) -> Any:
        if not needs_wrapper:
            return runs(function, list(given.values()))
        made = {
            name: (given[name].shape, given[name].dtype, kind.order)
            for name, kind in writes.items()
            if kind.mode == "out"
        }
        sent = {name: value for name, value in given.items() if name not in made}
        changed = [name for name in writes if name not in made]
        value, arrays = runs(task, [function, sent, made, changed])
        for name, array in arrays.items():
            given[name][...] = array
        return value

    there = copy.copy(one)
    there.function = run
    return there


def pickle_by_value(module: types.ModuleType) -> None:
    """Has the functions of a module pickled by value, so that the cluster does not need the module."""
    for name in ("cloudpickle", "ray.cloudpickle"):
        try:
            import_module(name).register_pickle_by_value(module)
        except ImportError:
            # The cluster uses its own copy of the module.
            continue


_connections: dict[tuple[str, str | None], Any] = {}


def call_here(server: str, token: str | None, name: str, args: Any, named: dict[str, Any]) -> Any:
    """Calls a routine of a server from a task of a cluster. Each process of the cluster keeps one connection."""
    from .. import ConnectionLostError, connect

    key = (server, token)
    if key not in _connections:
        _connections[key] = connect(server, token=token)
    try:
        return _connections[key].call(name, *args, **named)
    except ConnectionLostError:
        # The next call connects again; this one may have run.
        _connections.pop(key, None)
        raise


def main(kind: str, what: str, arguments: list[str] | None = None) -> None:
    """The command line of an adapter."""
    import argparse

    from .._server import serve

    parser = argparse.ArgumentParser(
        prog=f"python -m kumi.call.adapters.{kind}",
        description=f"A cluster of {kind.capitalize()} as a server of routines. Other options are those of kumi call serve.",
    )
    parser.add_argument("--scheduler" if kind == "dask" else "--address", dest="at", required=True, help=what)
    parser.add_argument(
        "--functions", required=True, metavar="MODULE|FILE.py", help="whose functions are served"
    )
    parser.add_argument("--listen", default="127.0.0.1:7070", metavar="ADDR")
    known, rest = parser.parse_known_args(arguments)
    serve(known.functions, listen=known.listen, through=f"{kind}:{known.at}", arguments=rest)
