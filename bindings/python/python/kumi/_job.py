"""Start and end."""

from __future__ import annotations

import atexit
import os
import sys

from . import _native
from ._scope import Block


class Job(Block):
    """The result of :func:`init`: leaves the job at the end of a ``with`` block."""

    __slots__ = ()

    def _leave(self, error: BaseException | None) -> None:
        if _native.owned() is None:
            return  # The block has called finalize() itself.
        try:
            _native.finalize(_is_good(error))
        except Exception as failure:
            if error is None:
                raise
            # The first error matters more; the message also shows the other.
            error.add_note(f"then kumi.finalize() failed: {failure}")


_registered = False


def init(*, threads: bool = False) -> Job:
    """Joins the job that ``kumi run`` started this process for.

    With ``KUMI_SINGLETON=1`` in the environment, a program started by hand runs as a job of one rank. Only
    the calling thread may call the other functions, or all threads with ``threads``. When the program ends, it calls
    :func:`finalize` automatically.
    """
    global _registered
    _native.initialise(threads)
    if not _registered:
        atexit.register(_at_exit)
        _registered = True
    return Job()


def finalize() -> None:
    """Leaves the job: frees the remaining windows, and waits for a bounded time until other ranks have received
    everything that this rank sent.

    Not collective: a rank that must not leave before the others calls :func:`kumi.barrier` first. With shared memory
    (:func:`kumi.shared_array`) it is: all ranks end that together. A rank that leaves the ``with`` block or the program
    by an exception waits for nobody.
    Arrays of windows stay readable. A rank can join its job only once. Only the thread that called :func:`init` can
    leave, when no other is in a call (otherwise: :class:`kumi.BusyError`).
    """
    _native.finalize(True)


def _is_good(error: BaseException | None) -> bool:
    """Whether a program that ends so is one that the others' programs wait for."""
    return error is None or isinstance(error, SystemExit) and error.code in (None, 0)


def _at_exit() -> None:
    # After a fork or finalize() there is nothing to leave. If another thread has joined, only that thread can
    # leave, and finalize() says so.
    if _native.owned() is not None:
        # The exception that ends the program, if one does: nobody waits for the others then.
        _native.finalize(getattr(sys, "last_value", None) is None)


os.register_at_fork(after_in_child=_native.forked)
