"""Completions."""

from __future__ import annotations

from . import _native


class Completion:
    """Counts puts of this rank that are in place at their targets.

    A put counts if it was begun with this completion. A wait orders later operations behind these puts,
    whatever their targets, and behind no others (:func:`kumi.flush` waits for all puts).

    .. code-block:: python

        done = kumi.Completion()
        for rank in range(kumi.size()):
            window.put(rank, array, completion=done)
        done.wait()                        # the array is in place at all ranks
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self) -> None:
        self._native = _native.NativeCompletion()

    def done(self) -> int:
        """Returns how many puts are in place, without waiting.

        Raises :class:`kumi.RefusedError` once for each rank that has refused puts since the last report;
        refused puts never count. :meth:`wait` does the same.
        """
        return self._native.done()

    def wait(self, at_least: int | None = None) -> int:
        """Waits until this many puts are in place, or all that were begun. Returns how many are in place since
        the completion was made.

        Raises :class:`kumi.NeverDoneError` if there are fewer.
        """
        return self._native.wait(at_least)
