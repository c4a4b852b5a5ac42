"""The main loop of a rank of a pool: takes commands, runs functions, answers."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import cloudpickle

from .. import _all as kumi
from .. import _native
from . import _frames as frames
from . import _names, _streams
from ._control import FRONT, Control, filler
from ._errors import NotSendableError
from ._payload import LIMIT, Bytes, dump, load, size
from ._streams import Streams


#: Pause between two signals for one interrupt, in seconds.
_INSISTENCE = 0.05
#: Frames of these files at the beginning of a traceback are no concern of the program's.
_HERE = os.path.dirname(__file__) + os.sep


class Raised(NamedTuple):
    """What a rank tells of an exception."""

    #: A pickle of it; None if it cannot be sent.
    pickled: bytes | None
    #: The name of its class, and what it says.
    kind: str
    message: str
    #: Its traceback, as text.
    trace: str


class PlainBytes:
    """A result whose bytes go into memory that the notebook has ready."""

    def __init__(self, data: Bytes) -> None:
        self.data = data


class Interrupts:
    """Ends functions of the program by ``KeyboardInterrupt``, and nothing else.

    The port's thread decides under a lock whether the call is the one that runs. The main thread leaves the call under the
    same lock, so no interrupt comes later than that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._running: int | None = None
        #: An interrupt of the call that runs has not been taken yet.
        self._pending = False
        #: Calls that were interrupted before they began.
        self._early: set[int] = set()
        self._last = 0
        signal.signal(signal.SIGINT, self._handle)

    def interrupt(self, call: int) -> None:
        """Interrupts a call, also one that has not begun."""
        with self._lock:
            if self._running != call:
                if call > self._last:
                    self._early.add(call)
                return
            self._pending = True
        threading.Thread(target=self._insist, args=(call,), name="kumi-interrupt", daemon=True).start()

    def _insist(self, call: int) -> None:
        """Sends the signal until the main thread has taken it: one that comes just before a system call does not end that."""
        while True:
            with self._lock:
                if self._running != call or not self._pending:
                    return
                signal.pthread_kill(self._main, signal.SIGINT)
            time.sleep(_INSISTENCE)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._running is not None:
            self._pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def during(self, call: int) -> Iterator[None]:
        """While this lasts the call can be interrupted."""
        try:
            with self._lock:
                self._running, self._last, self._pending = call, call, False
                early = call in self._early
                self._early = {each for each in self._early if each > call}
            if early:
                raise KeyboardInterrupt
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._running is not None:
            # An interrupt may come at any step of this, too; the call is over all the same.
            with contextlib.suppress(KeyboardInterrupt), self._lock:
                self._running = None


class Rank:
    """A rank of a pool."""

    def __init__(self, control: Control, streams: Streams) -> None:
        self._control = control
        self._streams = streams
        self._interrupts = Interrupts()
        control.on_interrupt(self._interrupts.interrupt)

    def serve(self) -> None:
        """Carries out commands until the pool ends."""
        while True:
            command = self._control.commands.whole.get()
            if isinstance(command, BaseException):
                raise command
            kind, call, payload = command
            del command
            if kind == frames.Command.END:
                self._answer(call, frames.Status.ENDED, 0, [])
                continue
            if kind == frames.Command.LEAVE:
                return
            status, body = self._run(call, payload)
            del payload
            self._answer(call, status, self._streams.mark(call), body)
            del body

    def _answer(self, call: int, status: int, marks: int, body: list[Bytes]) -> None:
        total, fill = filler([frames.OUTCOME.pack(status, marks), *body])
        self._control.answer.send([FRONT], 0, call, total, fill)

    def _run(self, call: int, payload: memoryview) -> tuple[int, list[Bytes]]:
        try:
            with self._interrupts.during(call):
                function, args, keywords = load(payload)
                _names.give(function)
                value = function(*args, **keywords)
                if isinstance(value, PlainBytes):
                    return frames.Status.BYTES, [value.data]
                return frames.Status.RETURNED, _dumped(value)
        except BaseException as error:
            return frames.Status.RAISED, dump(told(error))


def _dumped(value: object) -> list[Bytes]:
    try:
        pieces = dump(value)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        kind = type(value).__name__
        raise NotSendableError(f"the result, of type {kind}, cannot be sent: {error}") from error
    if size(pieces) > LIMIT:
        raise NotSendableError(f"the result has {size(pieces)} bytes; at most {LIMIT} are sent")
    return pieces


def told(error: BaseException) -> Raised:
    """What the notebook is told of an exception."""
    trace = _trace(error)
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be made)"
    pickled: bytes | None = None
    if isinstance(error, Exception):
        try:
            pickled = cloudpickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            # Its class asks for arguments of its own, or refers to what cannot be sent.
            pickled = None
    return Raised(pickled, type(error).__name__, message, trace)


def _trace(error: BaseException) -> str:
    """The traceback from the program's function on."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_HERE):
        step = step.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, step))
    except Exception as other:
        return f"{type(error).__name__} (its traceback cannot be made: {other})\n"


def setup(paths: list[str], nonce: str) -> None:
    """What a rank has of the notebook: its search path for modules, and what begins its marks."""
    for path in paths:
        if path not in sys.path and os.path.exists(path):
            sys.path.append(path)
    _streams.nonce = nonce.encode()


def begin(front: Callable[[Control, Streams], Callable[[], None]]) -> None:
    """Joins the job and serves. ``front`` begins what rank 0 has beside that, and returns what ends it."""
    _names.become_main()
    kumi.init(threads=True)
    # The notebook has all ranks get in step again after exceptions and interrupts.
    _native.will_renew_collectives()
    control = Control()
    streams = Streams()
    rank = Rank(control, streams)
    control.begin()
    end = front(control, streams) if control.rank == FRONT else None
    try:
        rank.serve()
    except BaseException:
        # Other threads of rank 0 are in calls, so nothing is left in order. A rank that fails ends its job.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    if end is not None:
        end()
    kumi.finalize()


@functools.lru_cache(maxsize=8)
def loaded(body: bytes) -> Any:
    """A payload that comes again and again, as the function of :meth:`kumi.Engines.map` does."""
    function, args, keywords = load(body)
    _names.give(function)
    return function, args, keywords
