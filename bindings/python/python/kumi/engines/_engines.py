"""The class :class:`Engines`."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ..sim._command import find
from . import _names, _rank_calls
from ._calling import dumped
from ._calls import Call
from ._errors import PoolError
from ._map import MapWork
from ._output import Line
from ._payload import Bytes
from ._pool import OneCall, Pool, check_ranks

P = ParamSpec("P")
R = TypeVar("R")

#: The pool that was made last, which cells without a name use.
_latest: weakref.ref[Engines] | None = None


class Engines:
    """A pool of ranks, which lives as long as a notebook.

    .. code-block:: python

        with kumi.Engines(4) as engines:
            print(engines.run(kumi.rank))

    The ranks are a job of ``kumi run`` like any other. While the notebook does not use them the job is idle, and others have
    its processors.

    Args:
        n: How many ranks.
        nodes: On how many nodes; the cluster chooses unless given.
        python: The interpreter of the ranks; this one's unless given. It needs this package in the same version.
        cluster: The cluster; ``KUMI_CLUSTER``, or ``default``, unless given.
        options: Further options of ``kumi run``, as ``["--mem-per-rank", "2G"]``.
        channel: ``"socket"`` or ``"link"``: how the notebook talks with rank 0; chosen unless given.

    Raises:
        PoolStartError: The job did not start. The message is what ``kumi run`` says.
    """

    def __init__(
        self,
        n: int = 1,
        *,
        nodes: int | None = None,
        python: str | None = None,
        cluster: str | None = None,
        options: Sequence[str] = (),
        channel: str | None = None,
    ) -> None:
        global _latest
        if channel not in (None, "socket", "link"):
            raise PoolError(f"channel is 'socket' or 'link', not {channel!r}")
        command = [find(), *(["--cluster", cluster] if cluster else [])]
        arguments = ["run", "--label", "--kill"]
        arguments += ["--ranks", str(int(n)), *(["--nodes", str(int(nodes))] if nodes else [])]
        arguments += ["--name", "engines", *options]
        arguments += [python or sys.executable, "-m", "kumi.engines"]
        self._pool = Pool(command, arguments, channel)
        self._end = weakref.finalize(self, self._pool.kill)
        greeting = self._pool.connection.greeting
        self._n: int = greeting["ranks"]
        self._job: int = greeting["job"]
        self._channel: str = greeting["channel"]
        self._cells = itertools.count(1)
        self._busy = [0] * self._n
        self._out_of_step = False
        try:
            _check_version(greeting["python"])
            paths = [path for path in sys.path if path]
            self.run(_rank_calls.setup, paths, self._pool.connection.nonce)
        except BaseException:
            self._end()
            raise
        _latest = weakref.ref(self)

    # ---- about it ----

    @property
    def n(self) -> int:
        """How many ranks there are."""
        return self._n

    @property
    def job(self) -> int:
        """The number of the job, as ``kumi ps`` shows it."""
        return self._job

    @property
    def channel(self) -> str:
        """How the notebook talks with rank 0: ``"socket"`` on one machine, ``"link"`` through the cluster."""
        return self._channel

    @property
    def closed(self) -> bool:
        """Whether the pool has ended, for whatever reason."""
        return self._pool.ended

    def __repr__(self) -> str:
        state = ", ended" if self.closed else ""
        return f"<kumi.Engines: {self._n} ranks, job {self._job}{state}>"

    # ---- functions ----

    def run(
        self,
        function: Callable[..., R],
        /,
        *args: Any,
        ranks: Sequence[int] | None = None,
        **keywords: Any,
    ) -> list[R]:
        """Calls a function at all ranks, or at some, and waits for what it returns: a list in the order of the ranks.

        Raises:
            EnginesError: Ranks raised exceptions.
            NotSendableError: The function or an argument cannot be sent.
            PoolEndedError: The pool has ended.
        """
        chosen = check_ranks(ranks, self._n)
        pieces = dumped(function, args, keywords)
        return self._run(chosen, [(() if ranks is None else chosen, pieces)])

    def submit(
        self, function: Callable[..., R], /, *args: Any, rank: int | None = None, **keywords: Any
    ) -> Future[R]:
        """Calls a function at one rank, the least busy unless named, and returns a future at once.

        Arrays among the arguments must not be changed before the future is done.
        """
        pieces = dumped(function, args, keywords)
        if rank is None:
            rank = min(range(self._n), key=self._busy.__getitem__)
        (rank,) = check_ranks([rank], self._n)
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        call = self._pool.call([rank], lambda: None, lambda call: setattr(call, "future", future))
        self._busy[rank] += 1

        def done(_: Future[R]) -> None:
            self._busy[rank] -= 1
            self._out_of_step |= bool(call.errors)
            self._pool.forget(call)

        future.add_done_callback(done)
        self._pool.send(call, pieces, [rank])
        return future

    def map(
        self, function: Callable[[Any], R], iterable: Iterable[Any], *, chunk: int | None = None
    ) -> list[R]:
        """Calls a function with each element, and returns the results in order.

        A rank that has done its elements gets the next ``chunk`` of them, a quarter of an equal share unless given.
        """
        items = list(iterable)
        length = -(-len(items) // (4 * self._n)) if chunk is None else int(chunk)
        if chunk is not None and length < 1:
            raise PoolError(f"chunk is 1 or more, not {chunk}")
        body = b"".join(dumped(function, (), {}))
        work = MapWork(self._pool, self._n, body, items, max(1, length))
        return work.run()

    def interrupt(self) -> None:
        """Interrupts everything that runs at the ranks, as Ctrl-C does: ``KeyboardInterrupt`` is raised there."""
        self._pool.interrupt()

    # ---- variables ----

    def __getitem__(self, name: str) -> _names.Variable:
        """A variable of the ranks, to be an argument: ``engines.run(np.sum, engines["x"])``."""
        return _names.Variable(name)

    def push(
        self, values: Mapping[str, Any] | None = None, /, *, ranks: Sequence[int] | None = None, **more: Any
    ) -> None:
        """Sets variables at the ranks."""
        self.run(_names.store, {**(values or {}), **more}, ranks=ranks)

    def pull(self, name: str, *, ranks: Sequence[int] | None = None) -> list[Any]:
        """The values of a variable, by rank."""
        return self.run(_names.value_of, name, ranks=ranks)

    def scatter(self, name: str, array: npt.ArrayLike) -> None:
        """Cuts an array into parts along its first axis, and makes each the variable of a rank.

        The parts are as equal as can be: those of lower ranks have one more.
        """
        whole = np.asarray(array)
        if whole.ndim == 0 or whole.dtype.hasobject:
            raise PoolError("scatter takes arrays with at least one axis, and no Python objects as elements")
        parts = np.array_split(np.ascontiguousarray(whole), self._n)
        each = [([rank], dumped(_names.store, ({name: part},), {})) for rank, part in enumerate(parts)]
        self._run(range(self._n), each)

    def gather(self, name: str) -> npt.NDArray[Any]:
        """The arrays of all ranks in one, along the first axis. They must not differ but in its length."""
        told = self.run(_rank_calls.describe, name)
        dtype, shape = told[0]
        for rank, (other, lengths) in enumerate(told):
            if other != dtype or lengths[1:] != shape[1:]:
                raise PoolError(
                    f"{name} of rank {rank} is {other} of shape {lengths}, that of rank 0 {dtype} of shape {shape}: "
                    "they must not differ but in the length of the first axis"
                )
        whole = np.empty((sum(lengths[0] for _, lengths in told), *shape[1:]), dtype)
        plain = whole.reshape(-1).view(np.uint8)
        memory, at = {}, 0
        for rank, (_, lengths) in enumerate(told):
            count = int(np.prod(lengths)) * whole.itemsize
            memory[rank] = plain[at : at + count].data
            at += count
        pieces = dumped(_rank_calls.contents, (name, told), {})
        self._run(range(self._n), [((), pieces)], memory)
        return whole

    def cell(self, text: str, *, ranks: Sequence[int] | None = None) -> None:
        """Runs the text of a cell at the ranks, with their variables. ``%%kumi`` does that."""
        self.run(_names.run_cell, text, f"<kumi cell {next(self._cells)}>", ranks=ranks)

    # ---- the end ----

    def close(self) -> None:
        """Waits for everything that was called, and ends the pool. Has no effect on one that has ended.

        Raises:
            PoolEndedError: A rank failed at its end.
        """
        self._pool.close()
        self._end.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            # What is under way may never end.
            self._end()

    def _run(
        self,
        ranks: Sequence[int],
        sendings: Sequence[tuple[Sequence[int], list[Bytes]]],
        memory: Mapping[int, memoryview] | None = None,
    ) -> list[Any]:
        self._pool.check()
        if self._out_of_step and len(ranks) == self._n:
            self._get_in_step()
        queue = self._pool.listeners.join()
        call: Call | None = None
        try:
            call = self._pool.call(
                ranks, lambda: queue.put(None), lambda call: call.memory.update(memory or {})
            )
            for to, pieces in sendings:
                self._pool.send(call, pieces, to)
            self._wait(call, queue)
        except KeyboardInterrupt:
            # Also one before or after the wait.
            if call is not None and not call.answered:
                self._pool.interrupt([call])
            raise
        finally:
            self._pool.listeners.leave(queue)
        if (error := call.error()) is not None:
            raise error
        return [call.values[rank] for rank in ranks]

    def _wait(self, call: Call, queue: SimpleQueue[Line | None]) -> None:
        try:
            self._pool.wait(OneCall(call), queue)
        finally:
            # Some ranks may have left a collective that others are still in.
            self._out_of_step |= not call.answered or bool(call.errors)
            self._pool.forget(call)
            if self._out_of_step and call.answered and self._pool.at_rest:
                self._get_in_step()

    def _get_in_step(self) -> None:
        """Has the ranks forget collectives that did not end. They wait for one another by their answers."""
        self._out_of_step = False
        try:
            begun = self.run(_rank_calls.come_to_rest)
            # Their number wraps around. It is a few apart at most.
            latest = max(begun, key=lambda number: (number - begun[0] + (1 << 31)) % (1 << 32))
            self.run(_rank_calls.get_in_step, latest)
        except BaseException:
            self._out_of_step = True
            raise


def latest() -> Engines:
    """The pool that was made last and has not ended.

    Raises:
        PoolError: There is none.
    """
    engines = _latest() if _latest is not None else None
    if engines is None or engines.closed:
        raise PoolError("there is no pool of ranks; make one first: engines = kumi.Engines(4)")
    return engines


def _check_version(version: str) -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    theirs = ".".join(version.split(".")[:2])
    if ours != theirs:
        raise PoolError(
            f"the ranks run Python {theirs} and the notebook {ours}, between which functions cannot be sent; "
            "name an interpreter of the same version with python="
        )
