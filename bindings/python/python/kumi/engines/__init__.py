"""Pools of ranks for notebooks: :class:`kumi.Engines`."""

from ._engines import Engines
from ._errors import (
    EnginesError,
    NotSendableError,
    PoolEndedError,
    PoolError,
    PoolStartError,
    RankError,
)
from ._names import Variable

__all__ = [
    "Engines",
    "EnginesError",
    "NotSendableError",
    "PoolEndedError",
    "PoolError",
    "PoolStartError",
    "RankError",
    "Variable",
]
