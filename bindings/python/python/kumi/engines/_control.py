"""How ranks of a pool reach one another: a window that is theirs alone.

Each rank has in its piece signal ports for commands and for interrupts, and slots. Rank 0 has a port for answers, too. A
message that fits into a record is one. Of a longer one the sender puts a part into a slot and sends a record that says so;
the receivers get it, and tell by a notification that they have. What the program's functions do with messages, windows and
collectives does not touch any of this.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _all as kumi
from . import _frames as frames
from ._payload import LIMIT, Bytes

#: Bytes of a port for messages.
_CAPACITY = 256 << 10
#: Bytes of the port for interrupts.
_SIGNALS = 4 << 10
#: Bytes of a slot, and the slots of a sender: one is filled while the other is read.
_SLOT = 256 << 10
_SLOTS = 2
#: The rank that talks with the notebook.
FRONT: Final = 0
#: Notifications: of slots of answers, and of those of commands.
_ANSWERS_TAKEN = 0
_COMMANDS_TAKEN = _ANSWERS_TAKEN + _SLOTS
#: A place in the sender's piece, and the length there.
_PLACE = struct.Struct("<QQ")
_NOTHING = np.zeros(0, np.uint8)
#: How long a rank waits for room in its own port before it looks again, in seconds. Only another thread of it makes room.
_PAUSE = 0.002


class Part(NamedTuple):
    """The next part of a message."""

    kind: int
    call: int
    #: Bytes of the whole message.
    total: int
    data: memoryview


class Sender:
    """One thread's way of sending messages."""

    def __init__(self, window: kumi.Window, place: int, counter: int, port: int) -> None:
        self._window = window
        self._place = place
        self._counter = counter
        self._port = port
        self._inline = kumi.max_record() - frames.RECORD.size
        self._me = kumi.rank()
        self._all = range(kumi.size())
        # How often each slot was to be taken until now.
        self._lent = [0] * _SLOTS
        self._next = 0

    def send(
        self,
        ranks: Sequence[int] | None,
        kind: int,
        call: int,
        total: int,
        fill: Callable[[memoryview], bool],
    ) -> bool:
        """Sends a message to some ranks, or to all. ``fill`` makes its parts, one after the other; once it returns False the
        rest is not sent, and so does this."""
        if total <= self._inline:
            record = bytearray(frames.RECORD.size + total)
            frames.RECORD.pack_into(record, 0, kind, 0, call, total)
            if not fill(memoryview(record)[frames.RECORD.size :]):
                return False
            self._signal(ranks, record)
            return True
        left = total
        while left:
            slot, self._next = self._next, (self._next + 1) % _SLOTS
            self._window.wait_notify(self._counter + slot, self._lent[slot])
            place, length = self._place + slot * _SLOT, min(left, _SLOT)
            if not fill(self._window.array[place : place + length].data):
                return False
            head = frames.RECORD.pack(kind, 1, call, total) + _PLACE.pack(place, length)
            self._signal(ranks, head)
            self._lent[slot] += len(self._all if ranks is None else ranks)
            left -= length
        return True

    def _signal(self, ranks: Sequence[int] | None, record: Bytes) -> None:
        chosen = self._all if ranks is None else ranks
        if self._me in chosen:
            # The library does not wait for room in a port that only this rank empties.
            while not self._window.try_signal(self._me, self._port, record):
                time.sleep(_PAUSE)
            chosen = [rank for rank in chosen if rank != self._me]
        if len(chosen) > 1:
            self._window.multicast_signal(chosen, self._port, record)
        elif chosen:
            self._window.signal(chosen[0], self._port, record)


class Receiver:
    """A signal port for messages. Its records are kept in their order until somebody takes them.

    Nobody waits in the library meanwhile, so functions of the program have the channel to themselves.
    """

    def __init__(self, window: kumi.Window, port: int, counter: int) -> None:
        self._window = window
        self._counter = counter
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        #: Records that have come.
        self._come: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        window.on_signal(port, _CAPACITY, self._take)

    def _take(self, source: int, data: bytes) -> None:
        self._come.put((source, data))

    def next(self, into: Callable[[int, int, int], memoryview | None]) -> tuple[int, Part]:
        """Waits for a part; the rank that sent it, and the part.

        ``into`` gets the rank, and the lengths of the message and of the part if that is in a slot. It returns memory for it,
        or None: then it is in memory of this object's until the next call.
        """
        source, data = self._come.get()
        kind, in_slot, call, total = frames.RECORD.unpack_from(data)
        body = memoryview(data)[frames.RECORD.size :]
        if not in_slot:
            return source, Part(kind, call, total, body)
        place, length = _PLACE.unpack(body)
        if length > _SLOT or length > total:
            raise ValueError(f"a part of {length} bytes from rank {source}")
        memory = into(source, total, length)
        if memory is None:
            if not len(self._buffer):
                self._buffer = np.empty(_SLOT, np.uint8)
            memory = self._buffer[:length].data
        self._window.get(source, place, out=np.frombuffer(memory, np.uint8))
        slot = (place // _SLOT) % _SLOTS
        self._window.put(source, _NOTHING, 0, self._counter + slot)
        return source, Part(kind, call, total, memory)


class Ordered(Receiver):
    """A port whose short messages go on at once, in the thread of the port. Another thread gets those that are in slots, and what
    comes behind them."""

    def __init__(self, window: kumi.Window, port: int, counter: int) -> None:
        self._lock = threading.Lock()
        #: Records that the other thread has not done with.
        self._behind = 0
        super().__init__(window, port, counter)

    def _take(self, source: int, data: bytes) -> None:
        kind, in_slot, call, total = frames.RECORD.unpack_from(data)
        with self._lock:
            direct = not in_slot and not self._behind
            self._behind += not direct
        if direct:
            self._whole(source, Part(kind, call, total, memoryview(data)[frames.RECORD.size :]))
        else:
            super()._take(source, data)

    def _done(self) -> None:
        """The other thread has done with a record. Only now may the next one take the other way."""
        with self._lock:
            self._behind -= 1

    def _whole(self, source: int, part: Part) -> None:
        raise NotImplementedError


class Command(NamedTuple):
    """A whole command."""

    kind: int
    call: int
    payload: memoryview


class Commands(Ordered):
    """The port for commands, which are all of one sender. They are taken also while a function of the program runs: so a rank
    that computes holds up no other."""

    def __init__(self, window: kumi.Window, port: int, counter: int) -> None:
        #: Whole commands, in order; or why there will be no more.
        self.whole: SimpleQueue[Command | BaseException] = SimpleQueue()
        super().__init__(window, port, counter)
        threading.Thread(target=self._get, name="kumi-commands", daemon=True).start()

    def _whole(self, source: int, part: Part) -> None:
        self.whole.put(Command(part.kind, part.call, _writable(part.data)))

    def _get(self) -> None:
        try:
            while True:
                self._next()
        except BaseException as error:
            self.whole.put(error)

    def _next(self) -> None:
        filled, payload = 0, memoryview(b"")

        def into(_source: int, total: int, length: int) -> memoryview:
            nonlocal payload
            if filled == 0:
                if total > LIMIT:
                    raise ValueError(f"a command of {total} bytes; at most {LIMIT} are taken")
                payload = np.empty(total, np.uint8).data
            return payload[filled : filled + length]

        while True:
            _, part = self.next(into)
            filled += len(part.data)
            if filled >= part.total:
                self.whole.put(Command(part.kind, part.call, payload or _writable(part.data)))
                self._done()
                return
            self._done()


class Answers(Ordered):
    """The port of the front rank for what all ranks answer. ``give`` gets each part, one at a time."""

    def __init__(self, window: kumi.Window, port: int, counter: int) -> None:
        self.give: Callable[[int, Part], None] = lambda *_: None
        self._giving = threading.Lock()
        super().__init__(window, port, counter)

    def serve(self) -> None:
        """Gives the parts that are in slots, and what comes behind them; without end."""
        while True:
            source, part = self.next(lambda *_: None)
            self._whole(source, part)
            self._done()

    def _whole(self, source: int, part: Part) -> None:
        with self._giving:
            self.give(source, part)


def _writable(data: memoryview) -> memoryview:
    """A copy: arrays of the program show the payload, and may be written."""
    return memoryview(bytearray(data))


class Control:
    """The window. All ranks make it together."""

    def __init__(self) -> None:
        self.rank = kumi.rank()
        self.ranks = kumi.size()
        #: Held while ranks are interrupted, which they can be until they are told to leave.
        self._interrupting = threading.Lock()
        self._left = False
        port = _CAPACITY + kumi.FIFO_OVERHEAD
        slots = _SLOT * _SLOTS
        # Slots come first, so that their places tell their numbers.
        answers = _aligned(2 * slots)
        commands = _aligned(answers + port)
        self._interrupts = _aligned(commands + port)
        self._window = kumi.window(self._interrupts + _SIGNALS + kumi.FIFO_OVERHEAD, np.uint8)
        #: What this rank is told, and what it answers.
        self.commands = Commands(self._window, commands, _COMMANDS_TAKEN)
        self.answer = Sender(self._window, 0, _ANSWERS_TAKEN, answers)
        if self.rank == FRONT:
            #: What the front rank tells all, and what they answer.
            self.answers = Answers(self._window, answers, _ANSWERS_TAKEN)
            self.command = Sender(self._window, slots, _COMMANDS_TAKEN, commands)

    def on_interrupt(self, handler: Callable[[int], None]) -> None:
        """Calls ``handler`` with the number of each call that is to be interrupted, on a thread of its own."""

        def handle(_source: int, data: bytes) -> None:
            if len(data) == frames.CALL.size:
                handler(*frames.CALL.unpack(data))

        self._window.on_signal(self._interrupts, _SIGNALS, handle)

    def interrupt(self, call: int) -> None:
        """Has all ranks interrupt a call. It does nothing once they leave."""
        with self._interrupting:
            if not self._left:
                self._window.multicast_signal(range(self.ranks), self._interrupts, frames.CALL.pack(call))

    def leave(self) -> None:
        """Has all ranks leave the job, once all have ended. From then on nobody listens to interrupts."""
        with self._interrupting:
            self._left = True
        self.command.send(None, frames.Command.LEAVE, frames.NO_CALL, 0, lambda _: True)

    def begin(self) -> None:
        """Returns when all ranks can be reached."""
        kumi.barrier()


def _aligned(place: int) -> int:
    return place + -place % kumi.FIFO_ALIGNMENT


def filler(pieces: Iterable[Bytes]) -> tuple[int, Callable[[memoryview], bool]]:
    """The bytes of all pieces, and what fills buffers with them, one after the other."""
    rest = [memoryview(piece).cast("B") for piece in pieces]
    total = sum(len(piece) for piece in rest)
    rest.reverse()

    def fill(buffer: memoryview) -> bool:
        while buffer:
            piece = rest.pop()
            count = min(len(piece), len(buffer))
            buffer[:count] = piece[:count]
            buffer = buffer[count:]
            if count < len(piece):
                rest.append(piece[count:])
        return True

    return total, fill
