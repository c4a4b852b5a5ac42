"""Objects that end with a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Block(ABC):
    """An object that ends at the end of its ``with`` block."""

    __slots__ = ()

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """Ends the object; ``error`` is the exception that ended the block, if any."""

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
    """An object that is freed at the end of its ``with`` block."""

    __slots__ = ()

    @abstractmethod
    def free(self) -> None:
        """Frees the object."""

    def _leave(self, error: BaseException | None) -> None:
        self.free()
