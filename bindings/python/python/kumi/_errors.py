"""Exceptions. All are :class:`KumiError`; each says what happened and what to do."""

from __future__ import annotations

import inspect


class KumiError(Exception):
    """Base class of all exceptions of this package.

    Details are attributes, which the subclasses list; an unknown number is -1.
    """

    def __init__(self, message: str, /, **details: int) -> None:
        super().__init__(message)
        for kind in type(self).__mro__:
            for name in inspect.get_annotations(kind):
                setattr(self, name, -1)
        for name, value in details.items():
            setattr(self, name, value)


class BadArgumentError(KumiError, ValueError):
    """An argument that makes no sense, or that does not fit the others."""


class BadTypeError(KumiError, TypeError):
    """An argument of the wrong type, or an array of the wrong dtype, shape or layout."""


class NotInitialisedError(KumiError):
    """:func:`kumi.init` has not been called, or :func:`kumi.finalize` has."""


class AlreadyInitialisedError(KumiError):
    """:func:`kumi.init` was called twice."""


class WrongThreadError(KumiError):
    """Called by another thread than the one that called :func:`kumi.init` without ``threads=True``, or by the handler of
    a signal port."""


class BusyError(KumiError):
    """:func:`kumi.finalize` was called while other threads are in calls, or inside of another call."""


class ForkedError(KumiError):
    """Called in a fork of a rank; only the rank itself can communicate."""


class FreedWindowError(KumiError, ValueError):
    """The window was freed."""


class FreedFifoError(KumiError, ValueError):
    """The FIFO was freed, or its window was."""


class FreedCompletionError(KumiError, ValueError):
    """The completion belongs to a job that :func:`kumi.finalize` has ended."""


class FreedGroupError(KumiError, ValueError):
    """The group was freed, or belongs to a job that :func:`kumi.finalize` has ended."""


class BadGroupError(KumiError, ValueError):
    """A group cannot be made so: members' lists differ or are wrong, or there are too many groups."""


class GroupDisagreesError(KumiError):
    """Another member of a group has called another collective, or one with another root."""

    rank: int


class StaleRequestError(KumiError, ValueError):
    """The result of the request was taken already, or it was released."""


class StaleClaimError(KumiError, ValueError):
    """The message was received or released already, or :func:`kumi.finalize` has ended its job."""


class ForeignRequestError(KumiError, ValueError):
    """The request belongs to a job that :func:`kumi.finalize` has ended."""


class RequestListedError(KumiError, ValueError):
    """A list of requests has one of them twice."""


class RequestCancelledError(KumiError):
    """The request was cancelled before anything had happened."""


class BufferLentError(KumiError, BufferError):
    """A request still uses the memory."""


class OverlapError(KumiError, ValueError):
    """Two arrays of one call share memory."""


class NotLaunchedError(KumiError):
    """The program was not started by ``kumi run``, nor with ``KUMI_SINGLETON=1``."""


class AttachError(KumiError):
    """The job's channel cannot be joined."""


class BadRankError(KumiError, ValueError):
    """There is no such rank."""

    rank: int
    ranks: int


class BadTagError(KumiError, ValueError):
    """Tags are 0 to 2,147,483,647."""

    tag: int


class OutOfBoundsError(KumiError, IndexError):
    """The range is outside of the target's piece of the window. Memory is untouched. Numbers are bytes."""

    rank: int
    offset: int
    length: int
    size: int


class TruncatedError(KumiError, ValueError):
    """The message is longer than the buffer. The buffer has its beginning, and the message is consumed."""

    needed: int


class NoRightError(KumiError, PermissionError):
    """The window does not grant the right to this operation. Memory is untouched."""

    rank: int


class BadWindowError(KumiError):
    """The target does not have this window any more."""

    rank: int


class BadNotifyError(KumiError, ValueError):
    """Notification counters are 0 to 63."""

    notify: int


class BadAlignmentError(KumiError, ValueError):
    """The bytes of an atomic operation are not aligned for it."""

    offset: int
    width: int


class BadOperationError(KumiError, TypeError):
    """This element type does not support the operation: bit operations need integers."""


class BadLengthError(KumiError, ValueError):
    """Lengths do not match, here or at another rank. In bytes or elements."""

    given: int
    needed: int


class OutOfMemoryError(KumiError, MemoryError):
    """There is no room for a window or a message."""

    bytes: int


class WindowRefusedError(KumiError):
    """A rank could not make its part of a window, so no rank has the window."""

    rank: int


class BadFifoError(KumiError, ValueError):
    """A FIFO or signal port cannot be made at this place or with this capacity."""


class NoFifoError(KumiError):
    """There is no FIFO (or, for a signal, no port) at this offset of the rank's piece."""

    rank: int
    offset: int


class FifoFullError(KumiError):
    """This rank's own FIFO is full: nobody would empty it while this call waits."""

    rank: int
    offset: int


class RecordTooLongError(KumiError, ValueError):
    """The record is longer than :func:`kumi.max_record`, or than the FIFO's capacity."""

    length: int


class FifoDamagedError(KumiError):
    """Other data overwrote the memory of a FIFO."""

    rank: int
    offset: int


class HandlerError(KumiError):
    """A handler of the signal port at ``offset`` raised an exception, which is the ``__cause__``. The call that
    raises this has done nothing."""

    offset: int
    count: int


class NeverDoneError(KumiError, ValueError):
    """The wait is for more puts than were begun with the completion."""

    begun: int
    at_least: int


class RefusedError(KumiError):
    """This rank has refused earlier puts. They have not changed its memory."""

    rank: int
    count: int


class UnreadError(KumiError):
    """A message to this rank itself, which no receive takes, is too large to keep."""

    bytes: int


class SharedMemoryError(KumiError):
    """Shared memory cannot be had here or has ended, or the ranks do not use it alike."""


class FaultError(KumiError):
    """Communication broke, for example because a rank has ended."""


class IoError(KumiError):
    """The kernel refused a request."""

    errno: int


# Users know them by the package's name only.
for _class in (KumiError, *KumiError.__subclasses__()):
    _class.__module__ = "kumi"
