"""Elements that are dealt out to ranks as these become free."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from . import _rank_calls
from ._calling import dumped
from ._calls import Call
from ._errors import EnginesError
from ._output import Line
from ._pool import Pool

#: Calls under way at each rank: one runs, one waits, so that the rank waits for nobody.
_AHEAD = 2


class MapWork:
    """The elements, and what became of them."""

    def __init__(self, pool: Pool, ranks: int, function: bytes, items: list[Any], chunk: int) -> None:
        self._pool = pool
        self._ranks = ranks
        self._function = function
        self._parts = [items[start : start + chunk] for start in range(0, len(items), chunk)]
        self._results: list[list[Any]] = [[] for _ in self._parts]
        self._errors: list[Exception] = []
        #: Parts that were dealt out, and those of them whose results are there.
        self._dealt = 0
        self._done = 0
        self._calls: list[Call] = []
        self._stopped = False
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Line | None] = SimpleQueue()

    def run(self) -> list[Any]:
        """Deals the elements out, and waits."""
        self._queue = self._pool.listeners.join()
        try:
            for _ in range(_AHEAD):
                for rank in range(self._ranks):
                    self._deal(rank)
            self._pool.wait(self, self._queue)
        finally:
            self._stopped = True
            self._pool.listeners.leave(self._queue)
            for call in self._calls:
                self._pool.forget(call)
        if self._errors:
            raise self._error()
        return [result for part in self._results for result in part]

    def _error(self) -> Exception:
        traces: dict[int, str] = {}
        found: list[Exception] = []
        for error in self._errors:
            if not isinstance(error, EnginesError):
                return error
            found += error.exceptions
            traces |= error.tracebacks
        first = self._errors[0]
        if len(self._errors) == 1:
            return first
        return EnginesError(f"{len(found)} calls failed; the first: {first.args[0]}", found, traces)

    def _deal(self, rank: int) -> None:
        """Gives a rank the next part."""
        with self._lock:
            if self._stopped or self._dealt == len(self._parts):
                return
            place = self._dealt
            self._dealt += 1
        try:
            pieces = dumped(_rank_calls.call_each, (self._function, self._parts[place]), {})
            future: Future[Any] = Future()
            call = self._pool.call([rank], self._tell, lambda call: setattr(call, "future", future))
        except Exception as error:
            self._fail(error)
            return
        with self._lock:
            self._calls.append(call)
        future.add_done_callback(lambda future: self._take(rank, place, call, future))
        self._pool.send(call, pieces, [rank])

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._done += 1
            self._stopped = True
            self._errors.append(error)
        self._tell()

    def _take(self, rank: int, place: int, call: Call, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, Exception):
            self._fail(error)
            return
        self._results[place] = future.result()
        call.values.clear()
        self._deal(rank)
        with self._lock:
            self._done += 1
        self._tell()

    def _tell(self) -> None:
        self._queue.put(None)

    # ---- as work ----

    def answered(self) -> bool:
        with self._lock:
            return self._done == self._dealt and (self._stopped or self._dealt == len(self._parts))

    def shown(self) -> bool:
        with self._lock:
            return all(call.shown for call in self._calls)

    def under_way(self) -> Sequence[Call]:
        with self._lock:
            self._stopped = True
            return [call for call in self._calls if not call.answered]
