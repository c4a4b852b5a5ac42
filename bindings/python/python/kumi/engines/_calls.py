"""Calls under way, and the stream of answers."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from . import _frames as frames
from ._errors import EnginesError, PoolError, RankError
from ._payload import LIMIT, load


class Call:
    """A call under way at some ranks. Only the thread that reads answers changes it, but for marks and failures."""

    def __init__(self, number: int, ranks: Sequence[int], tell: Callable[[], None]) -> None:
        self.number = number
        self.ranks = ranks
        self.values: dict[int, Any] = {}
        self.errors: dict[int, tuple[Exception, str]] = {}
        self.interrupted: set[int] = set()
        #: Memory for the bytes of ranks, where the answer is no payload.
        self.memory: dict[int, memoryview] = {}
        self.failure: Exception | None = None
        self.future: Future[Any] | None = None
        self._missing = set(ranks)
        #: Marks that are to come, and those that came before the answer said so.
        self._marks: set[tuple[int, bool]] = set()
        self._seen: set[tuple[int, bool]] = set()
        self._lock = threading.Lock()
        self._tell = tell

    @property
    def answered(self) -> bool:
        """All ranks have answered, or will not."""
        return not self._missing or self.failure is not None

    @property
    def shown(self) -> bool:
        """All output has come, too."""
        return not self._marks or self.failure is not None

    def answer(self, rank: int, status: int, marks: int, body: memoryview) -> None:
        """Takes the answer of a rank."""
        try:
            self._take(rank, status, body)
        except Exception as error:
            error.add_note("This is about the result of the rank, which the notebook cannot take in.")
            self._failed(rank, error, "")
        with self._lock:
            wanted = {(rank, error) for bit, error in ((1, False), (2, True)) if marks & bit}
            self._marks |= wanted - self._seen
            self._missing.discard(rank)
        self._done()

    def _take(self, rank: int, status: int, body: memoryview) -> None:
        if status == frames.Status.RETURNED:
            self.values[rank] = load(body)
        elif status == frames.Status.BYTES:
            self.values[rank] = len(body)
        elif status == frames.Status.RAISED:
            pickled, kind, message, trace = load(body)
            if kind == "KeyboardInterrupt":
                self.interrupted.add(rank)
            error = None if pickled is None else _loaded(pickled)
            self._failed(rank, error or RankError(f"{kind}: {message}" if message else kind, kind), trace)
        else:
            raise PoolError(f"rank {rank} answered with status {status}")

    def _failed(self, rank: int, error: Exception, trace: str) -> None:
        error.rank = rank  # type: ignore[attr-defined]
        if trace:
            error.add_note(f"rank {rank}:\n{trace.rstrip()}")
        self.errors[rank] = (error, trace)

    def marked(self, rank: int, error: bool) -> None:
        """The output of a rank up to its answer has come."""
        with self._lock:
            self._seen.add((rank, error))
            self._marks.discard((rank, error))
        self._tell()

    def fail(self, failure: Exception) -> None:
        """The ranks will not answer any more."""
        with self._lock:
            if not self._missing:
                return
            self.failure = failure
        self._done()

    def _done(self) -> None:
        if self.answered and self.future is not None and not self.future.done():
            error = self.error()
            if error is None:
                self.future.set_result(self.values[self.ranks[0]])
            else:
                self.future.set_exception(error)
        if self.answered:
            self._tell()

    def error(self) -> Exception | None:
        """What the call raises."""
        if self.failure is not None:
            return self.failure
        if not self.errors:
            return None
        errors = [self.errors[rank][0] for rank in sorted(self.errors)]
        error = EnginesError(_summary(errors, len(self.ranks)), errors, {r: t for r, (_, t) in self.errors.items()})
        error.results = dict(self.values)
        return error


def _loaded(pickled: bytes) -> Exception | None:
    """The exception; None if its class cannot be had here."""
    try:
        error = pickle.loads(pickled)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def _summary(errors: Sequence[Exception], ranks: int) -> str:
    first = errors[0]
    rank = getattr(first, "rank", -1)
    said = f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
    if ranks == 1:
        return f"rank {rank} raised {said}"
    return f"{len(errors)} of {ranks} ranks raised exceptions; rank {rank}: {said}"


class Answers:
    """Puts the parts of answers together, as they come."""

    def __init__(self, call_of: Callable[[int], Call | None], ready: Callable[[bytes], None]) -> None:
        self._call_of = call_of
        self._ready = ready
        #: Unfinished answers by rank: the memory, and how much is there.
        self._parts: dict[int, tuple[bytearray, int]] = {}

    def read(self, fill: Callable[[memoryview], bool]) -> None:
        """Reads to the end of the stream."""
        head = memoryview(bytearray(frames.ANSWER.size))
        while fill(head):
            rank, length, number, total = frames.ANSWER.unpack(head)
            if total > LIMIT + frames.OUTCOME.size or length > total:
                raise PoolError(f"an answer of {total} bytes from rank {rank}")
            if not self._part(fill, rank, length, number, total):
                return

    def _part(
        self, fill: Callable[[memoryview], bool], rank: int, length: int, number: int, total: int
    ) -> bool:
        call = self._call_of(number)
        memory, there = self._parts.pop(rank, (bytearray(), 0))
        ready = call.memory.get(rank) if call is not None else None
        if ready is not None and total == len(ready) + frames.OUTCOME.size:
            # The answer goes where the notebook wants it; its beginning does not.
            return self._into(fill, rank, length, total, call, (memory, there), ready)
        if there == 0:
            memory = bytearray(total)
        if length > total - there:
            raise PoolError(f"an answer of rank {rank} is longer than it says")
        if not fill(memoryview(memory)[there : there + length]):
            return False
        self._parts[rank] = (memory, there + length)
        if there + length == total:
            del self._parts[rank]
            self._whole(rank, number, call, memoryview(memory))
        return True

    def _into(
        self,
        fill: Callable[[memoryview], bool],
        rank: int,
        length: int,
        total: int,
        call: Call | None,
        begun: tuple[bytearray, int],
        ready: memoryview,
    ) -> bool:
        outcome, there = begun
        if there == 0:
            outcome = bytearray(frames.OUTCOME.size)
            if length < len(outcome) or not fill(memoryview(outcome)):
                return False
            there, length = len(outcome), length - len(outcome)
        at = there - len(outcome)
        if length > len(ready) - at or not fill(ready[at : at + length]):
            return False
        there += length
        if there < total:
            self._parts[rank] = (outcome, there)
            return True
        status, marks = frames.OUTCOME.unpack(outcome)
        if call is not None:
            call.answer(rank, status, marks, ready)
        return True

    def _whole(self, rank: int, number: int, call: Call | None, answer: memoryview) -> None:
        if number == frames.GREETING:
            self._ready(bytes(answer))
            return
        status, marks = frames.OUTCOME.unpack_from(answer)
        if call is not None and status != frames.Status.ENDED:
            # Answers begin at a multiple of 16 bytes, as their parts want it.
            call.answer(rank, status, marks, answer[frames.OUTCOME.size :])
