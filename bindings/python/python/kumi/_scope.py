"""What is freed at the end of a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Freed(ABC):
    """Something that is used in a ``with`` block, at the end of which it is freed."""

    __slots__ = ()

    @abstractmethod
    def free(self) -> None:
        """Frees it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()
