"""What is behind :class:`kumi.Engines`: calls, and the threads that send them and take the answers.

The threads know this object only. So an :class:`~kumi.Engines` that nobody refers to is found by Python, and ends its pool.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from . import _frames as frames
from ._calls import Answers, Call
from ._connection import Connection
from ._errors import PoolEndedError, PoolError
from ._output import Line, Listeners, show
from ._payload import Bytes

# How long a thread that waits may not notice a signal, in seconds: one that comes just before it blocks is noticed when it goes on.
_LOOK = 0.2
#: How long the last answers may take after the end of the job, in seconds.
_GRACE = 30.0
#: How long a call whose answers are there waits for the output before them, in seconds.
_OUTPUT_PATIENCE = 2.0


class Sending(NamedTuple):
    """A command on its way."""

    kind: int
    call: int
    #: None named: all.
    ranks: Sequence[int]
    pieces: Sequence[Bytes]


class Work(Protocol):
    """Something that the notebook waits for."""

    def answered(self) -> bool:
        """Whether all answers are there."""

    def shown(self) -> bool:
        """Whether the output before them is there, too."""

    def under_way(self) -> Sequence[Call]:
        """Calls to be interrupted with it."""


class OneCall:
    """A call as work."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def answered(self) -> bool:
        return self._call.answered

    def shown(self) -> bool:
        return self._call.shown

    def under_way(self) -> Sequence[Call]:
        return [self._call]


class Pool:
    """The ranks, as seen from the notebook."""

    def __init__(self, kumi: Sequence[str], arguments: Sequence[str], channel: str | None) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._failure: PoolEndedError | None = None
        self.listeners = Listeners()
        self._sends: SimpleQueue[Sending | None] = SimpleQueue()
        #: Commands that the sender thread got, and those that it has sent.
        self._queued = 0
        self._sent = 0
        queue = self.listeners.join()
        try:
            self.connection = self._pumped(
                queue,
                lambda: Connection(
                    kumi, arguments, channel=channel, listeners=self.listeners, marked=self._marked
                ),
            )
            self._threads = [self._thread(self._read), self._thread(self._send)]
            self._pumped(queue, self.connection.await_greeting)
        except BaseException:
            if hasattr(self, "connection"):
                self.connection.kill()
            raise
        finally:
            self.listeners.leave(queue)
        self._watch = self._thread(self._await_end)
        self._own = {*self._threads, self._watch, *self.connection.threads}

    def _pumped(self, queue: SimpleQueue[Line | None], work: Callable[[], Any]) -> Any:
        """Does something that takes long in this thread, and shows what is said meanwhile from another one."""
        stop = threading.Event()

        def pump() -> None:
            while not stop.is_set():
                with contextlib.suppress(Empty):
                    if (line := queue.get(timeout=_LOOK)) is not None:
                        show(line)

        thread = threading.Thread(target=pump, name="kumi-pump", daemon=True)
        thread.start()
        try:
            return work()
        finally:
            stop.set()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"kumi{work.__name__}", daemon=True)
        thread.start()
        return thread

    # ---- threads ----

    def _send(self) -> None:
        while (sending := self._sends.get()) is not None:
            try:
                self.connection.send(*sending)
            except OSError:
                # The job has ended or ends. The thread that awaits that tells everybody.
                return
            # No array is kept longer than its sending.
            del sending
            self._sent += 1

    def _read(self) -> None:
        answers = Answers(self._calls.get, self.connection.greet)
        try:
            answers.read(self.connection.fill)
        except Exception as error:
            self._fail(PoolEndedError(f"the answers of the ranks make no sense: {error}", exit_code=-1))
            self.connection.process.terminate()

    def _await_end(self) -> None:
        ended = self.connection.ended(PoolEndedError)
        self.connection.end_answers()
        # What came before the end counts.
        self._threads[0].join(_GRACE)
        self._fail(ended)

    def _fail(self, failure: PoolEndedError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            calls = list(self._calls.values())
        for call in calls:
            call.fail(PoolEndedError(str(failure), exit_code=failure.exit_code))

    def _marked(self, rank: int, number: int, error: bool) -> None:
        if (call := self._calls.get(number)) is not None:
            call.marked(rank, error)

    # ---- calls ----

    def check(self) -> None:
        """Refuses calls of a pool that has ended.

        Raises:
            PoolEndedError: It has.
        """
        if self._failure is not None:
            raise PoolEndedError(str(self._failure), exit_code=self._failure.exit_code)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._failure is not None

    @property
    def at_rest(self) -> bool:
        """Whether it lives, and nothing is under way."""
        with self._lock:
            return self._failure is None and not self._calls

    def call(
        self,
        ranks: Sequence[int],
        tell: Callable[[], None],
        prepare: Callable[[Call], None] | None = None,
    ) -> Call:
        """A new call, which is not sent yet."""
        with self._lock:
            self.check()
            call = Call(next(self._numbers), ranks, tell)
            if prepare is not None:
                prepare(call)
            self._calls[call.number] = call
        return call

    def send(self, call: Call, pieces: Sequence[Bytes], ranks: Sequence[int] = ()) -> None:
        """Sends a call to some of its ranks, or to all of the pool if none are named. Returns at once."""
        sending = Sending(frames.Command.CALL, call.number, ranks, pieces)
        # Not before what was given to the thread.
        if self._queued == self._sent and self.connection.send_at_once(*sending):
            return
        with self._lock:
            self._queued += 1
        self._sends.put(sending)

    def forget(self, call: Call) -> None:
        """Nobody asks about a call any more."""
        with self._lock:
            self._calls.pop(call.number, None)

    def interrupt(self, calls: Sequence[Call] | None = None) -> None:
        """Interrupts some calls, or all. Returns at once."""
        with self._lock:
            chosen = list(self._calls.values() if calls is None else calls)
        numbers = [call.number for call in chosen if not call.answered]

        def work() -> None:
            for number in numbers:
                self.connection.interrupt(number)

        # The next interrupt of the notebook must not come in the middle of a frame.
        threading.Thread(target=work, name="kumi-interrupt", daemon=True).start()

    def wait(self, work: Work, queue: SimpleQueue[Line | None]) -> None:
        """Waits for work, and shows what the ranks write.

        The first Ctrl-C interrupts the ranks; the work is awaited all the same. The second leaves it.

        Raises:
            KeyboardInterrupt: Then.
        """
        interrupted = False
        while True:
            try:
                _pump(work, queue)
                break
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                self.interrupt(work.under_way())
        if interrupted:
            raise KeyboardInterrupt

    # ---- the end ----

    def close(self) -> None:
        """Ends the pool when all calls have ended.

        Raises:
            PoolEndedError: Its job failed at the end.
        """
        if self._failure is None:
            with self._lock:
                self._sends.put(Sending(frames.Command.END, frames.NO_CALL, (), ()))
                self._failure = PoolEndedError("the pool was closed", exit_code=-1)
            queue = self.listeners.join()
            try:
                while self._watch.is_alive():
                    with contextlib.suppress(Empty):
                        if (line := queue.get(timeout=_LOOK)) is not None:
                            show(line)
            except BaseException:
                self.kill()
                raise
            finally:
                self.listeners.leave(queue)
            failed = self.connection.process.returncode != 0
            self.kill()
            if failed:
                raise self.connection.ended(PoolEndedError)
        self.kill()

    def kill(self) -> None:
        """Ends the pool at once. Has no effect on one that has ended."""
        if threading.current_thread() in self._own:
            # A thread of the pool has found that nobody refers to it, and cannot wait for itself.
            threading.Thread(target=self.kill, name="kumi-kill").start()
            return
        with self._lock:
            if self._failure is None:
                self._failure = PoolEndedError("the pool was closed", exit_code=-1)
        self._sends.put(None)
        self.connection.kill()
        self._fail(self._failure)


def _pump(work: Work, queue: SimpleQueue[Line | None]) -> None:
    latest: float | None = None
    while not (work.answered() and work.shown()):
        if work.answered():
            latest = latest or time.monotonic() + _OUTPUT_PATIENCE
            if time.monotonic() > latest:
                return
        try:
            line = queue.get(timeout=_LOOK)
        except Empty:
            continue
        if line is not None:
            show(line)


def check_ranks(ranks: Sequence[int] | None, count: int) -> Sequence[int]:
    """The ranks that were asked for, as numbers in their order.

    Raises:
        PoolError: There is no such rank, or none is named.
    """
    if ranks is None:
        return range(count)
    chosen = [int(rank) for rank in ranks]
    for rank in chosen:
        if not 0 <= rank < count:
            raise PoolError(f"rank {rank} does not exist in a pool of {count} ranks")
    if not chosen or len(set(chosen)) < len(chosen):
        raise PoolError("ranks= names at least one rank, and each once")
    return chosen
