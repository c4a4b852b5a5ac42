"""Ends of requests for event loops of asyncio."""

from __future__ import annotations

import asyncio

from . import _native


class _Waiting:
    """The requests that tasks of one loop wait for.

    The library makes a descriptor readable when a request ends, in whichever thread that happens. The loop watches it
    while somebody waits. Several loops, of several threads, may watch it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: dict[_native.NativeRequest, asyncio.Future[None]] = {}
        self._descriptor = -1

    def future(self, request: _native.NativeRequest) -> asyncio.Future[None]:
        """A future that is done when the request has ended."""
        future = self._futures.get(request)
        if future is None or future.done():
            future = self._loop.create_future()
            if not self._futures:
                self._descriptor = _native.ends_descriptor()
                self._loop.add_reader(self._descriptor, self._look)
                _WAITING[self._loop] = self
            self._futures[request] = future
            if request.over():
                # Another thread has just learnt of it, and has not seen that this loop waits.
                self.notice()
        return future

    def notice(self) -> None:
        """Has the loop look soon; may be called in any thread."""
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(self._look)
            return
        try:
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            # It has just been closed: nobody waits in it any more.
            _WAITING.pop(self._loop, None)

    def _look(self) -> None:
        failure: Exception | None = None
        try:
            found = _native.collect_ends()
        except Exception as error:
            # The job has ended, or the channel broke: nobody waits in vain.
            failure, found = error, True
        if found:
            noticed(besides=self)
        for request, future in list(self._futures.items()):
            try:
                if failure is None and not request.over():
                    continue
                if not future.done():
                    _finish(future, failure)
            except Exception as error:
                # Somebody else has taken the result.
                _finish(future, error)
            del self._futures[request]
        # A look that was called for before may come when another one has taken the place of this.
        if not self._futures and _WAITING.get(self._loop) is self:
            del _WAITING[self._loop]
            self._loop.remove_reader(self._descriptor)


def _finish(future: asyncio.Future[None], failure: Exception | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


#: The loops in which somebody waits.
_WAITING: dict[asyncio.AbstractEventLoop, _Waiting] = {}


def noticed(besides: _Waiting | None = None) -> None:
    """Tells the loops that a call outside of them may have learnt of ends: the descriptor does not tell these again."""
    for loop, waiting in list(_WAITING.items()):
        if loop.is_closed():
            _WAITING.pop(loop, None)
        elif waiting is not besides:
            waiting.notice()


async def ended(request: _native.NativeRequest) -> None:
    """Waits in the running event loop until the request has ended."""
    loop = asyncio.get_running_loop()
    waiting = _WAITING.get(loop) or _Waiting(loop)
    # Several tasks may wait for one request, and one of them may be cancelled.
    await asyncio.shield(waiting.future(request))
