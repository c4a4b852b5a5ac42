"""Who is at the other end of a socket."""

from __future__ import annotations

import hmac
import socket
import struct

_CREDENTIALS = struct.Struct("3i")


def peer(connection: socket.socket) -> int:
    """The user at the other end, as the kernel knows it."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[1])


def secret_is(given: bytes, wanted: bytes) -> bool:
    """Compares secrets without telling by the time how far they agree."""
    return hmac.compare_digest(given, wanted)
