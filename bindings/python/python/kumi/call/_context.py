"""The call in which a routine or a function runs, and the trace in which calls are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from .. import _native

T = TypeVar("T")

#: The place in a trace that the program has set for its calls. Each task of an event loop has its own.
_traced: ContextVar[str | None] = ContextVar("kumi.call.traced", default=None)


def remaining() -> float | None:
    """The seconds that are left of the call for which this process runs a routine, or this thread a function of the client.

    0 when they are over, ``None`` where there is no call or no limit. Calls that this thread makes end within that time.
    """
    return _native.call_remaining()


def traceparent() -> str | None:
    """The place of calls in a trace, as OpenTelemetry writes it: that of :func:`traced`, or else the
    ``TRACEPARENT`` with which the program was started. In a routine that is the place of its call."""
    return _traced.get() or _native.call_traceparent()


@contextmanager
def traced(traceparent: str | None, /) -> Iterator[None]:
    """Puts the calls that begin in the ``with`` block into a trace.

    .. code-block:: python

        carrier = {}
        opentelemetry.propagate.inject(carrier)     # {"traceparent": "00-…"}
        with kumi.call.traced(carrier.get("traceparent")):
            c = server.call("dmmul", a, b)

    Args:
        traceparent: The place in the trace, ``00-TRACE-SPAN-FLAGS``. ``None``: the ``TRACEPARENT`` with which
            the program was started.

    Raises:
        ArgumentError: The text is no ``traceparent``.
    """
    # Checks the text.
    _native.set_call_traceparent(_native.set_call_traceparent(traceparent))
    token = _traced.set(traceparent)
    try:
        yield
    finally:
        _traced.reset(token)


def in_trace(begin: Callable[[], T]) -> T:
    """Lets calls begin in the trace of this task or thread."""
    text = _traced.get()
    if text is None:
        return begin()
    before = _native.set_call_traceparent(text)
    try:
        return begin()
    finally:
        _native.set_call_traceparent(before)
