"""What ends with a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Block(ABC):
    """Something that is used in a ``with`` block and ends with it."""

    __slots__ = ()

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """Ends it; ``error`` is what ended the block, if that was one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)


class Freed(Block):
    """Something that is used in a ``with`` block, at the end of which it is freed."""

    __slots__ = ()

    @abstractmethod
    def free(self) -> None:
        """Frees it."""

    def _leave(self, error: BaseException | None) -> None:
        self.free()
