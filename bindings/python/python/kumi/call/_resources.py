"""Threads and memory that a call asks for."""

from __future__ import annotations

from ._errors import ArgumentError

# What the protocol can say.
_MOST_THREADS = 2**32 - 1
_MOST_MEMORY = 2**64 - 1


def resources(threads: int | None, memory: int | None) -> tuple[int, int]:
    """Threads and bytes of memory as the native client takes them: 0 asks for nothing."""
    return _checked("threads", threads, _MOST_THREADS), _checked("memory", memory, _MOST_MEMORY)


def _checked(name: str, number: int | None, most: int) -> int:
    if number is None:
        return 0
    # A bool is an int, and no number of anything.
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ArgumentError(f"{name}={number!r}: it is a whole number from 1 to {most}, or None")
    return number
