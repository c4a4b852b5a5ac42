"""Functions of the client that a served Python function can call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._types import Kind

if TYPE_CHECKING:
    from .._native import NativeFunction


class ClientFunction:
    """A function of the client, until the routine returns.

    Any thread may call it, one call after the other. If it fails, the call of the routine fails too: then it does not return,
    and the process ends.
    """

    def __init__(self, name: str, kind: Kind, native: NativeFunction) -> None:
        self._name = name
        self._native = native
        self._inner = kind.inner()
        takes, self._gives = kind.function or ((), ())
        self._count = len(takes)
        #: The number of parameters that are sizes.
        self._sizes = len(self._inner) - len(takes) - len(self._gives)

    def __call__(self, *args: Any) -> Any:
        if len(args) != self._count:
            raise TypeError(f"`{self._name}` takes {self._count} arguments; the call has {len(args)}")
        arrays: list[Any] = []
        sizes: dict[str, int] = {}
        taken = self._inner[self._sizes : self._sizes + self._count]
        for (name, kind, _), value in zip(taken, args, strict=True):
            arrays.append(self._array(kind, name, value, sizes) if kind.is_array else value)
        given: list[Any] = []
        for name, _, _ in self._inner[: self._sizes]:
            if name not in sizes:
                raise TypeError(f"`{self._name}`: `{name}` is the size of no array that it is called with")
            given.append(sizes[name])
        for (_, kind, _), value in zip(taken, arrays, strict=True):
            if kind.is_array:
                # An array in column order is its transpose in row order.
                given.append((value.shape, value.T if kind.order == "F" else value))
            else:
                given.append(value.item() if isinstance(value, np.generic | np.ndarray) else value)
        given += [None] * len(self._gives)
        back = [self._result(at, value) for at, value in self._native.call(given)]
        if not back:
            return None
        return back[0] if len(back) == 1 else tuple(back)

    def _array(self, kind: Kind, name: str, value: Any, sizes: dict[str, int]) -> np.ndarray[Any, Any]:
        given = np.asarray(value)
        wanted = np.dtype(kind.dtype)
        if not np.can_cast(given.dtype, wanted, "same_kind"):
            raise TypeError(f"`{self._name}`: `{name}` has elements of {given.dtype}; the description says {wanted}")
        if given.ndim != len(kind.sizes):
            raise ValueError(f"`{self._name}`: `{name}` has {given.ndim} dimensions; the description says {len(kind.sizes)}")
        for size, meant in zip(given.shape, kind.sizes, strict=True):
            sizes.setdefault(meant.strip(), size)
        return np.asarray(given, dtype=wanted, order=kind.order)

    def _result(self, at: int, value: Any) -> Any:
        kind = self._inner[at][1]
        if not kind.is_array:
            return value
        shape, data = value
        flat = np.frombuffer(data, kind.dtype) if data else np.empty(0, kind.dtype)
        return flat.reshape(shape, order=kind.order)
