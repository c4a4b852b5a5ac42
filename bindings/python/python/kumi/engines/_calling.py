"""Calls as payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._errors import NotSendableError
from ._payload import LIMIT, Bytes, dump, size


def dumped(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Bytes]:
    """A call as a payload.

    Raises:
        NotSendableError: It cannot be sent.
    """
    if not callable(function):
        raise NotSendableError(f"a function is needed, not {type(function).__name__}")
    try:
        pieces = dump((function, args, keywords))
    except Exception as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise NotSendableError(f"{_culprit(function, name)} cannot be sent to the ranks: {error}") from error
    if size(pieces) > LIMIT:
        raise NotSendableError(f"a call of {size(pieces)} bytes cannot be sent; at most {LIMIT} are")
    return pieces


def _culprit(function: Callable[..., Any], name: str) -> str:
    try:
        dump(function)
    except Exception:
        return f"the function {name}"
    return f"an argument of {name}"
