"""Requests: operations that go on after their call has returned."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from . import _native
from ._arrays import owner
from ._errors import BadArgumentError, BadTypeError, RequestListedError
from ._event_loop import ended, noticed
from ._messages import Status

_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


class Request(Generic[_Result_co]):
    """An operation that was started: a put, a get, an atomic operation, a send, a receive or a collective.

    It goes on by itself, also while the program computes. Its result is taken once: by :meth:`wait`, by
    ``await request`` in a coroutine, or by :func:`kumi.wait_all` and its like. Taken again, it raises
    :class:`kumi.StaleRequestError`.

    While it is under way the request holds the memory of its array: numpy and ``bytearray`` refuse to resize it,
    and a window on it refuses to be freed (:class:`kumi.BufferLentError`). The program must not change what is sent.
    A request that is dropped gives the memory back at once: what is not sent yet is copied and sent, the answer of a
    get is dropped, the message of a receive stays for the next one, and a collective is given up.
    """

    __slots__ = ("__weakref__", "_finish", "_native")

    def __init__(
        self, native: _native.NativeRequest, finish: Callable[[Any], _Result_co]
    ) -> None:
        self._native = native
        self._finish = finish

    def done(self) -> bool:
        """Whether it has ended, without waiting. Then :meth:`wait` returns at once."""
        try:
            return self._native.poll()
        finally:
            noticed()

    def wait(self) -> _Result_co:
        """Waits for the end and returns the result: of a get the array, of a receive a
        :class:`kumi.Status`, of an atomic operation the value before, of a collective what that returns, otherwise
        None.

        Raises the error of the operation, and :class:`kumi.RequestCancelledError` after a cancel. Other threads of
        the program run meanwhile.
        """
        _until(self._native.wait)
        return self._take()

    def __await__(self) -> Generator[Any, None, _Result_co]:
        """As :meth:`wait`, while other tasks of the event loop run.

        The loop runs in a thread that may call the package. If the task is cancelled the request goes on, and can be
        awaited again.
        """
        if not self.done():
            yield from ended(self._native).__await__()
        return self._take()

    def cancel(self) -> bool:
        """Stops a receive without a message yet, or an operation of which nothing has left; whether it did.

        Then the result is :class:`kumi.RequestCancelledError`; otherwise the request goes on.
        """
        return self._native.cancel()

    def release(self) -> None:
        """Gives the memory back now, whatever state the request is in, and forgets it. Does not wait."""
        self._native.release()

    def _take(self) -> _Result_co:
        return self._finish(self._native.take())


def wait_all(requests: Iterable[Request[_Result]]) -> list[_Result]:
    """Waits for the ends of all requests; returns their results in order.

    Raises the error of the first one that failed; all have ended then, too.
    """
    listed = _listed(requests)
    for request in listed:
        _until(request._native.wait)
    results: list[_Result] = []
    failure: Exception | None = None
    for request in listed:
        try:
            results.append(request._take())
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def wait_any(requests: Iterable[Request[Any]]) -> int:
    """Waits until one of the requests has ended; returns its index. Then its :meth:`Request.wait` returns at once.

    Take that one out of the list for the next call.
    """
    return wait_some(requests)[0]


def wait_some(requests: Iterable[Request[Any]]) -> list[int]:
    """Waits until at least one of the requests has ended; returns the indices of all that have."""
    listed = _listed(requests)
    if not listed:
        raise BadArgumentError("there is no request to wait for")
    natives = [request._native for request in listed]
    _until(lambda: _native.wait_any(natives))
    try:
        return [index for index, native in enumerate(natives) if native.poll()]
    finally:
        noticed()


def isend(to: int, data: Any, tag: int = 0) -> Request[None]:
    """Starts :func:`kumi.send` and returns at once. It ends when ``data`` may change."""
    return Request(_native.start_send(to, data, tag, guard(data)), nothing)


def irecv(buffer: Any, source: int | None = None, tag: int | None = None) -> Request[Status]:
    """Starts :func:`kumi.recv_into` and returns at once. The result is the :class:`kumi.Status`.

    Of receives that a message fits, the one that was started first gets it.
    """
    native = _native.start_receive(buffer, source, tag, guard(buffer))
    return Request(native, lambda told: Status(*told))


def _until(wait: Callable[[], bool]) -> None:
    """Waits until ``wait`` says that it was enough. Loops are told of ends that it learns of before that, or before it
    fails."""
    enough = False
    while not enough:
        try:
            enough = wait()
        finally:
            noticed()


def nothing(_: Any) -> None:
    """The result of requests that have none."""


def guard(memory: Any) -> Any:
    """What keeps an object from moving its memory while a request uses it."""
    # numpy does not move an array's memory while a weak reference to it exists, even on request.
    return weakref.ref(owner(memory)) if isinstance(memory, np.ndarray) else None


def _listed(requests: Iterable[Request[_Result]]) -> Sequence[Request[_Result]]:
    listed = list(requests)
    for request in listed:
        if not isinstance(request, Request):
            raise BadTypeError(f"a list of requests has a {type(request).__name__}")
    if len({id(request) for request in listed}) < len(listed):
        raise RequestListedError("the list has a request twice")
    return listed
