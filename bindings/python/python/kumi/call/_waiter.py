"""One thread that waits for calls in place of their callers: for futures, and for event loops."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._native import NativeCallSet
from . import _waits

if TYPE_CHECKING:
    from ._handle import Handle

#: How often the thread looks at each call although nothing has arrived, in seconds: its time may be over.
_LOOK = 1.0
#: How long the thread waits for another thread that attends to the same call, in seconds.
_OTHER = 0.01


class Waiter:
    """Waits for the ends of calls, in a thread that begins with the first call and ends with the process.

    The thread also runs the functions of the calls.
    """

    def __init__(self) -> None:
        self._set = NativeCallSet()
        self._keys = itertools.count()
        # Guards the two below.
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[Handle, Callable[[BaseException | None], None]]] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, handle: Handle, ended: Callable[[BaseException | None], None]) -> None:
        """Has ``ended`` called in the thread when the call is over, with what a function of the call raised beyond errors."""
        key = next(self._keys)
        with self._lock:
            if self._thread is None:
                # A daemon: a call that never ends does not keep the process.
                thread = threading.Thread(target=self._run, name="kumi.call waiter", daemon=True)
                # There may be no room for it. Then the next call tries again.
                thread.start()
                self._thread = thread
            self._calls[key] = handle, ended
        self._set.add(key, handle._native)

    def stop(self) -> None:
        """Ends the thread, unless it is in a function of a call."""
        with self._lock:
            self._stopped, thread = True, self._thread
        self._set.wake()
        if thread is not None:
            thread.join(_LOOK)

    def _run(self) -> None:
        while not self._stopped:
            serves = self._serve()
            try:
                news = self._set.wait(_waits.LOOK if serves else _LOOK)
            except BaseException as error:
                self._fail(error)
                return
            with self._lock:
                # Without news: the time of any of them may be over.
                keys = news or list(self._calls)
            for key in keys:
                self._attend(key, _OTHER if news else 0.0)

    def _serve(self) -> bool:
        """Runs the functions of calls that nobody waits for: such a call may have the slot for which one of these waits.

        Returns whether there are any.
        """
        with self._lock:
            watched = [handle for handle, _ in self._calls.values()]
        if not watched:
            return False
        try:
            return bool(_waits.serve(watched))
        except BaseException:
            # Of a function, beyond errors. Its call has failed with it; the calls here go on.
            return True

    def _fail(self, error: BaseException) -> None:
        """Tells all calls that they cannot be waited for. The next call begins another thread."""
        with self._lock:
            calls, self._calls, self._thread = self._calls, {}, None
        for key, (_, ended) in calls.items():
            self._set.remove(key)
            ended(error)

    def _attend(self, key: int, patience: float) -> None:
        """Runs the functions for which a call waits, and tells of its end."""
        with self._lock:
            found = self._calls.get(key)
        if found is None:
            # It was told of a failure before it was added. Its news would come again and again.
            self._set.remove(key)
            return
        handle, ended = found
        raised: BaseException | None = None
        try:
            if not handle._step(patience):
                return
        except BaseException as error:
            # Of a function: it is for whoever waits for the call.
            raised = error
        self._set.remove(key)
        with self._lock:
            del self._calls[key]
        ended(raised)


_waiter: Waiter | None = None
_making = threading.Lock()


def waiter() -> Waiter:
    """The waiter of this process."""
    global _waiter
    with _making:
        if _waiter is None:
            _waiter = Waiter()
            # The interpreter must not go while the thread is in the native module.
            atexit.register(_waiter.stop)
        return _waiter


def _forked() -> None:
    """A forked process has none of its parent's threads, nor its calls."""
    global _waiter, _making
    if _waiter is not None:
        atexit.unregister(_waiter.stop)
    _waiter, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
