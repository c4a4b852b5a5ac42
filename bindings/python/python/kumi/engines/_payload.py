"""Objects as bytes: a pickle, and beside it the memory of arrays, which is not copied.

A payload is ``count``, the lengths of ``count`` parts, and the parts, each at a multiple of 16 bytes. The first part is a
pickle of protocol 5, the others are its buffers.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, TypeAlias

import cloudpickle

#: Something whose bytes can be sent.
Bytes: TypeAlias = bytes | bytearray | memoryview

#: Most bytes of a payload.
LIMIT = 64 << 30
#: Most buffers of a payload.
_MOST_BUFFERS = 1 << 20
_ALIGNMENT = 16
_WORD = struct.Struct("<Q")
#: Classes whose objects need nothing of cloudpickle, which takes longer.
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


def dump(value: object) -> list[Bytes]:
    """The pieces of a payload, one after the other. They show the memory of the arrays in ``value``."""
    buffers: list[pickle.PickleBuffer] = []
    if type(value) in _PLAIN:
        body = pickle.dumps(value, protocol=5)
    else:
        body = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts: list[Bytes] = [body, *(buffer.raw() for buffer in buffers)]
    head = struct.pack(f"<Q{len(parts)}Q", len(parts), *(len(part) for part in parts))
    pieces: list[Bytes] = []
    for part in (head, *parts):
        pieces.append(part)
        if rest := -len(part) % _ALIGNMENT:
            pieces.append(bytes(rest))
    return pieces


def size(pieces: list[Bytes]) -> int:
    """The bytes of all pieces."""
    return sum(len(piece) for piece in pieces)


def load(payload: Bytes) -> Any:
    """The object. Its arrays show the payload's memory.

    Raises:
        ValueError: The payload is not one.
    """
    whole = memoryview(payload)
    if len(whole) < _WORD.size:
        raise ValueError("a payload is too short")
    (count,) = _WORD.unpack_from(whole)
    if not 1 <= count <= _MOST_BUFFERS + 1 or len(whole) < _WORD.size * (1 + count):
        raise ValueError("a payload has a wrong number of parts")
    lengths = struct.unpack_from(f"<{count}Q", whole, _WORD.size)
    at = _aligned(_WORD.size * (1 + count))
    parts = []
    for length in lengths:
        if length > len(whole) - at:
            raise ValueError("a payload is shorter than its parts")
        parts.append(whole[at : at + length])
        at = _aligned(at + length)
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(place: int) -> int:
    return place + -place % _ALIGNMENT
