"""Functions that the notebook calls at the ranks for the pool's own purposes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from . import _names


def setup(paths: list[str], nonce: str) -> None:
    """Tells a rank about the notebook."""
    from ._rank import setup as begin

    begin(paths, nonce)


def come_to_rest() -> int:
    """Waits until everything that this rank sent has arrived; how many collectives it has begun."""
    _native.flush()
    return _native.collectives_begun()


def get_in_step(begun: int) -> None:
    """Forgets collectives that some ranks have not ended. All ranks do it when all have come to rest."""
    _native.renew_collectives(begun)


def _array(name: str) -> np.ndarray[Any, Any]:
    value = _names.value_of(name)
    if not isinstance(value, np.ndarray) or value.ndim == 0 or value.dtype.hasobject:
        kind = type(value).__name__
        raise TypeError(
            f"{name} is no array that can be gathered, but {kind}: it needs an axis, and no Python objects as elements"
        )
    return value


def describe(name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of a variable."""
    array = _array(name)
    return array.dtype, array.shape


def contents(name: str, told: list[tuple[np.dtype[Any], tuple[int, ...]]]) -> Any:
    """The bytes of a variable, which is as the rank told before."""
    from ._rank import PlainBytes

    array = _array(name)
    if (array.dtype, array.shape) != told[_native.rank()]:
        raise ValueError(f"{name} has changed while it was gathered")
    return PlainBytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def call_each(body: bytes, items: list[Any]) -> list[Any]:
    """Calls a function with each of some elements."""
    from ._rank import loaded

    function, _, _ = loaded(body)
    return [function(item) for item in items]
