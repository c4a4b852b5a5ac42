"""Handles of calls in progress."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from .._native import NativeCall
from . import _waits
from ._errors import ArgumentError, CallbackError, CallError, StatusError
from ._functions import ResultFolder, Function
from ._interface import Routine
from ._output import OutputReceiver
from ._results import in_order


class Handle:
    """A call in progress. It is cancelled when nothing references its handle any more."""

    def __init__(
        self,
        routine: Routine,
        native: NativeCall,
        results: dict[int, Any],
        functions: Sequence[Function],
        folder: ResultFolder,
        wanted: Sequence[int],
        held: Sequence[Any] = (),
        output: OutputReceiver | None = None,
    ) -> None:
        # The server drops an array that nothing references.
        self._held = held
        self._output = output
        self._routine = routine
        self._wanted = wanted
        self._native = native
        self._results = results
        self._functions = functions
        self._folder = folder
        self._value: Any = None
        self._error: CallError | None = None
        self._over = False
        # Held by the thread that waits for the native call.
        self._lock = threading.Lock()
        if functions:
            _waits.add(self)

    def done(self) -> bool:
        """Whether the call is over, without waiting."""
        return self._over or self._native.is_over()

    def _serve(self) -> bool:
        """Runs pending callbacks; whether the call is over."""
        return bool(self._functions) and self._step(0.0)

    def cancel(self) -> None:
        """Asks the server to stop the call; :meth:`result` then raises :class:`CancelledError`."""
        if not self._over:
            self._native.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most ``timeout`` seconds; whether the call is over.

        Functions of all calls run meanwhile, because this call may wait for a slot that another one has.
        """
        if timeout is not None and not timeout >= 0:
            raise ArgumentError(f"a wait of {timeout} s")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._over:
            left = None if end is None else max(0.0, end - time.monotonic())
            others = _waits.serve([self])
            # Another thread may begin a call with functions, or have this one.
            if self._step(0.0 if others else _waits.LOOK if left is None else min(left, _waits.LOOK)):
                break
            if left == 0:
                return self._over
            if others:
                _waits.sleep([self, *others], left)
        return True

    def _step(self, timeout: float) -> bool:
        """Waits at most this many seconds, unless another thread does; whether the call is over."""
        if self._over or not self._lock.acquire(timeout=timeout):
            return self._over
        try:
            if not (self._over or self._wait(timeout)):
                return False
            # Once, by the thread that sees the end.
            output, self._output = self._output, None
            if output is not None:
                output.pass_on()
            return True
        finally:
            self._lock.release()

    def _wait(self, timeout: float) -> bool:
        try:
            values = self._native.wait(timeout)
        except StatusError as error:
            error.results = self._collect(error._values)
            self._error, self._over = error, True
            return True
        except CallbackError as error:
            raised = [one.error for one in self._functions if one.error is not None]
            error.__cause__ = raised[0] if raised else None
            self._error, self._over = error, True
            if raised and not isinstance(raised[0], Exception):
                # KeyboardInterrupt and the like are no failures of the call.
                raise raised[0] from None
            return True
        except CallError as error:
            self._error, self._over = error, True
            return True
        if values is None:
            return False
        self._value, self._over = self._collect(values), True
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the result: None, one value, or :class:`Results`, a tuple in the order of the parameters.

        Raises:
            CallError: The call failed.
            TimeoutError: The call is not over after ``timeout`` seconds. It goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"`{self._routine.name}` is not over after {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        """Waits in a coroutine: ``await handle`` gives what :meth:`result` does, and the event loop goes on meanwhile.

        If the task is cancelled, the call is. Functions of the call run in a thread of the package.
        """
        # The future refers to this module.
        from ._futures import following

        return asyncio.wrap_future(following(self)).__await__()

    def _collect(self, values: list[tuple[int, Any]]) -> Any:
        return collected(self._routine, self._results, values, self._folder, self._wanted)


def collected(
    routine: Routine,
    results: dict[int, Any],
    values: list[tuple[int, Any]],
    folder: ResultFolder,
    wanted: Sequence[int],
) -> Any:
    """The wanted results of a call: arrays, scalars, texts and files."""
    if not wanted:
        return None
    if values:
        results = results | dict(values)
    if folder.back:
        results |= folder.results()
    return in_order(routine, results, wanted)


def wait_any(handles: Sequence[Handle], timeout: float | None = None) -> int | None:
    """Waits until one of the calls is over, and returns its index; None after ``timeout`` seconds.

    Functions of all calls run meanwhile.
    """
    if not handles:
        raise ArgumentError("no calls to wait for")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        others = _waits.serve(handles)
        for index, handle in enumerate(handles):
            if handle.done() or handle._serve():
                return index
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return None
        _waits.sleep([*handles, *others], left)


def wait_all(handles: Sequence[Handle]) -> list[Any]:
    """Waits for all calls and returns their results. If calls failed, it raises the first failure when all are over.

    Functions of all calls run meanwhile, whichever is waited for first.
    """
    for handle in handles:
        handle.wait()
    return [handle.result() for handle in handles]


def as_completed(handles: Iterable[Handle], timeout: float | None = None) -> Iterator[Handle]:
    """Gives each call when it is over, the first ones first. Functions of all calls run meanwhile.

    Raises:
        TimeoutError: Not all are over ``timeout`` seconds after the first was asked for. The calls go on.
    """
    left = list(handles)
    count = len(left)
    end = None if timeout is None else time.monotonic() + timeout
    while left:
        at = wait_any(left, None if end is None else end - time.monotonic())
        if at is None:
            raise TimeoutError(f"{len(left)} of {count} calls are not over after {timeout} s")
        yield left.pop(at)


def in_turn(begin: Callable[..., Handle], inputs: Iterable[tuple[Any, ...]], in_flight: int) -> Iterator[Any]:
    """The results of calls in the order of their arguments, which are taken as the calls begin.

    When the iterator ends early, the calls that are under way are cancelled.
    """
    under_way: deque[Handle] = deque()
    try:
        for args in inputs:
            under_way.append(begin(*args))
            # Before the next input is taken.
            if len(under_way) == in_flight:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for handle in under_way:
            # With its connection a call has ended.
            with suppress(CallError):
                handle.cancel()
