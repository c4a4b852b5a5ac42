"""Start and end."""

from __future__ import annotations

import atexit
import os

from . import _native
from ._scope import Block


class Job(Block):
    """What :func:`init` returns: leaves the job at the end of a ``with`` block."""

    __slots__ = ()

    def _leave(self, error: BaseException | None) -> None:
        if _native.owned() is None:
            return  # The block has called finalize() itself.
        try:
            _native.finalize()
        except Exception as failure:
            if error is None:
                raise
            # What happened first matters more, but the other is told too.
            error.add_note(f"then kumi.finalize() failed: {failure}")


_registered = False


def init() -> Job:
    """Joins the job that ``kumi run`` started this process for.

    With ``KUMI_SINGLETON=1`` in the environment a program that was started by hand runs as a job
    of one rank. The thread that calls it is the one that may call the other functions. At the end
    of the program :func:`finalize` is called by itself.
    """
    global _registered
    _native.initialise()
    if not _registered:
        atexit.register(_at_exit)
        _registered = True
    return Job()


def finalize() -> None:
    """Leaves the job: frees the remaining windows and waits, for a bounded time, until what this
    rank sent has been received.

    Not collective: a rank that must not leave before the others calls :func:`kumi.barrier` first.
    Arrays of windows stay readable. A rank can join its job only once.
    """
    _native.finalize()


def _at_exit() -> None:
    # In a fork, and after finalize(), there is nothing to leave; what another thread of this
    # process has joined only that thread can leave, and finalize() says so.
    if _native.owned() is not None:
        _native.finalize()


os.register_at_fork(after_in_child=_native.forked)
