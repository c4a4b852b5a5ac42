"""Calls with functions, which every wait of this process runs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._native import NativeWakeEvent

if TYPE_CHECKING:
    from ._handle import Handle

#: A wait that has nothing else to serve looks this often, in seconds, whether another thread has begun a call with functions.
LOOK = 0.1

_lock = threading.Lock()
_calls: weakref.WeakSet[Handle] = weakref.WeakSet()


def add(handle: Handle) -> None:
    """Adds a call with functions."""
    with _lock:
        _calls.add(handle)


def under_way() -> list[Handle]:
    """The calls with functions that are not over."""
    with _lock:
        for handle in [one for one in _calls if one._over]:
            _calls.discard(handle)
        return list(_calls)


def serve(waited: Sequence[Handle]) -> list[Handle]:
    """Runs the functions for which routines wait, of all calls but those that are waited for.

    Returns the calls to which this thread attends: a call that is waited for may be in the queue behind them.
    """
    # A function may wait for other calls: without the lock.
    own = {id(one) for one in waited}
    others = [one for one in under_way() if id(one) not in own]
    return [one for one in others if not one._serve() and not one._lock.locked()]


def sleep(handles: Sequence[Handle], seconds: float | None) -> None:
    """Waits until one of the calls may need attention, for a short time at most."""
    # To those whose locks are held other threads attend, or this one further down.
    NativeWakeEvent([one._native for one in handles if not one._lock.locked()]).wait(seconds)
