"""Completions."""

from __future__ import annotations

from . import _native


class Completion:
    """Counts the own puts that were given it and are in place at their targets.

    An elastic memory barrier: waiting for it orders what follows behind these puts, to whatever
    ranks, and behind no others (:func:`kumi.flush` waits for all).

    .. code-block:: python

        done = kumi.Completion()
        for rank in range(kumi.size()):
            window.put(rank, array, completion=done)
        done.wait()                        # all have it
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self) -> None:
        self._native = _native.NativeCompletion()

    def done(self) -> int:
        """How many puts are in place, without waiting.

        Raises :class:`kumi.RefusedError` once for each rank that has refused some since the last
        report; those never count. :meth:`wait` does, too.
        """
        return self._native.done()

    def wait(self, at_least: int | None = None) -> int:
        """Waits until so many are in place since it was made, or all that were begun; returns how
        many are.

        Raises :class:`kumi.NeverDoneError` if there are fewer.
        """
        return self._native.wait(at_least)
