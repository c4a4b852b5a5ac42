"""Exceptions of pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from .._errors import KumiError


class PoolError(KumiError):
    """A pool cannot be made or used so."""


class PoolStartError(PoolError):
    """The pool did not start. The message is what ``kumi run`` said.

    Attributes:
        exit_code: The exit code of ``kumi run``.
    """

    exit_code: int


class PoolEndedError(PoolError):
    """The pool has ended: it was closed, or one of its ranks has ended. Make another one.

    Attributes:
        exit_code: The exit code of ``kumi run``; -1 if the pool was closed.
    """

    exit_code: int


class NotSendableError(PoolError, TypeError):
    """A function, argument or result cannot be sent."""


class RankError(KumiError):
    """What a rank raised, where that exception itself cannot be sent or is none of :class:`Exception`.

    Attributes:
        kind: The name of its class.
    """

    kind: str

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[RankError], tuple[str, str]]:
        return type(self), (str(self), self.kind)


class EnginesError(KumiError, ExceptionGroup[Exception]):
    """Functions raised exceptions at ranks. It is an :class:`ExceptionGroup`, so ``except*`` works.

    Each exception has an attribute ``rank``, and the traceback of that rank among its notes.

    Attributes:
        by_rank: The exception of each rank that raised one.
        tracebacks: Its traceback there, as text.
        results: What the other ranks returned.
    """

    by_rank: dict[int, Exception]
    tracebacks: dict[int, str]
    results: dict[int, object]

    def __new__(
        cls, message: str, exceptions: Sequence[Exception], tracebacks: Mapping[int, str] | None = None
    ) -> Self:
        return super().__new__(cls, message, exceptions)

    def __init__(
        self, message: str, exceptions: Sequence[Exception], tracebacks: Mapping[int, str] | None = None
    ) -> None:
        ExceptionGroup.__init__(self, message, exceptions)
        self.by_rank = {getattr(each, "rank", -1): each for each in exceptions}
        self.tracebacks = dict(tracebacks or {})
        self.results = {}

    def derive(self, excs: Sequence[Exception]) -> EnginesError:  # type: ignore[override]
        part = EnginesError(self.message, excs, self.tracebacks)
        part.results = self.results
        return part


for _class in (PoolError, PoolStartError, PoolEndedError, NotSendableError, RankError, EnginesError):
    _class.__module__ = "kumi"
