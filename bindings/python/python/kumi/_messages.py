"""Tagged messages: reliable, and in order between each pair of ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _native
from ._errors import StaleClaimError
from ._scope import Block


class Status(NamedTuple):
    """Source, tag and length of a message."""

    #: The rank that sent it.
    source: int
    #: The tag it was sent with, 0 or more.
    tag: int
    #: Its whole length in bytes.
    length: int


class Message(NamedTuple):
    """A received message."""

    #: The rank that sent it.
    source: int
    #: The tag it was sent with, 0 or more.
    tag: int
    #: What it says; ``numpy.frombuffer(message.data, dtype)`` for an array.
    data: bytes


def send(to: int, data: Any, tag: int = 0) -> None:
    """Sends a bytes-like object (a contiguous numpy array is one) to a rank.

    Returns when the channel has the data: then ``data`` may change. See :func:`kumi.flush`.
    """
    _native.send(to, data, tag)


def recv(source: int | None = None, tag: int | None = None) -> Message:
    """Waits for a message from ``source``, or from any rank, with ``tag``, or with any tag.

    Messages of one rank with one tag are received in the order they were sent.
    """
    return Message(*_native.recv(source, tag))


def recv_into(buffer: Any, source: int | None = None, tag: int | None = None) -> Status:
    """As :func:`recv`, into a writable bytes-like object, from its start.

    Raises :class:`kumi.TruncatedError` if the message is longer; it is consumed then.
    """
    return Status(*_native.recv_into(buffer, source, tag))


def sendrecv(
    to: int,
    data: Any,
    buffer: Any,
    source: int | None = None,
    *,
    tag: int = 0,
    recv_tag: int | None = None,
) -> Status:
    """:func:`send` of ``data`` and :func:`recv_into` of ``buffer`` at once, without deadlock when two
    ranks send to each other. The two must not share memory."""
    return Status(*_native.sendrecv(to, data, tag, buffer, source, recv_tag))


def probe(source: int | None = None, tag: int | None = None) -> Status | None:
    """Describes the next message for :func:`recv` without taking it; None if there is none."""
    found = _native.probe(source, tag)
    return None if found is None else Status(*found)


class ClaimedMessage(Block):
    """A message that only its holder receives: what :func:`claim` and :func:`await_claim` return.

    It is received once. If it is dropped before, by :meth:`release`, by the end of its ``with`` block or with its last
    reference, it is there for every receive again, at its old place in the order.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.NativeClaim) -> None:
        self._native = native

    @property
    def status(self) -> Status:
        """Its source, tag and length; known before it is received."""
        return Status(*self._native.status)

    def receive(self) -> Message:
        """Receives it. Waits if a part of it has still to come."""
        return Message(*self._native.receive())

    def receive_into(self, buffer: Any) -> Status:
        """Receives it into a writable bytes-like object, from its start.

        Raises :class:`kumi.TruncatedError` if the message is longer; it is consumed then.
        """
        return Status(*self._native.receive_into(buffer))

    def release(self) -> None:
        """Gives it back for every receive."""
        self._native.release()

    def _leave(self, error: BaseException | None) -> None:
        try:
            self.release()
        except StaleClaimError:
            pass  # The block has received it.

    def __repr__(self) -> str:
        source, tag, length = self.status
        return f"<kumi.ClaimedMessage from rank {source}, tag {tag}, {length} bytes>"


def claim(source: int | None = None, tag: int | None = None) -> ClaimedMessage | None:
    """Takes hold of the next message for :func:`recv`; None if there is none.

    Unlike after :func:`probe`, nobody else gets it meanwhile, neither another thread nor a receive that was started.
    """
    found = _native.claim(source, tag)
    return None if found is None else ClaimedMessage(found)


def await_claim(source: int | None = None, tag: int | None = None) -> ClaimedMessage:
    """As :func:`claim`, and waits for such a message."""
    return ClaimedMessage(_native.await_claim(source, tag))
