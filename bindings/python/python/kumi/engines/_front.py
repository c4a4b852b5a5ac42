"""What rank 0 of a pool has beside its main loop: three threads that connect the ranks with the notebook."""

from __future__ import annotations

import base64
import json
import os
import platform
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol

from .. import _all as kumi
from . import _frames as frames
from . import _streams
from ._control import Control, Part
from ._credentials import peer
from ._errors import PoolError
from ._payload import LIMIT, Bytes, dump
from ._streams import Streams

P = ParamSpec("P")

#: Most bytes of answers that a pool sends through the output of its job, which the head keeps on its disk.
LINK_LIMIT = 1 << 30
#: Pieces of so many bytes in all are sent at once.
_JOINED = 16 << 10


class _Way(Protocol):
    """A connection with the notebook."""

    def fill(self, buffer: memoryview) -> bool:
        """Reads exactly so many bytes of the commands; False at their end."""

    def send(self, *pieces: Bytes) -> None:
        """Sends a piece of the answers."""

    #: Most bytes of answers, in all; None: any.
    limit: int | None


class _Socket:
    """The socket of a notebook on the same machine."""

    limit: int | None = None

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fill(self, buffer: memoryview) -> bool:
        while buffer:
            count = self._connection.recv_into(buffer)
            if count == 0:
                return False
            buffer = buffer[count:]
        return True

    def send(self, *pieces: Bytes) -> None:
        if sum(len(piece) for piece in pieces) <= _JOINED:
            pieces = (b"".join(pieces),)
        for piece in pieces:
            self._connection.sendall(piece)


class _Link:
    """The standard streams of rank 0, which the control plane carries and secures."""

    limit: int | None = LINK_LIMIT

    def __init__(self) -> None:
        self._pieces: SimpleQueue[bytes] = SimpleQueue()
        self._rest = memoryview(b"")

    def take(self, piece: bytes) -> None:
        """Takes a piece of the commands; an empty one ends them."""
        self._pieces.put(piece)

    def fill(self, buffer: memoryview) -> bool:
        while buffer:
            if not self._rest:
                self._rest = memoryview(self._pieces.get())
                if not self._rest:
                    return False
            count = min(len(buffer), len(self._rest))
            buffer[:count] = self._rest[:count]
            buffer, self._rest = buffer[count:], self._rest[count:]
        return True

    def send(self, *pieces: Bytes) -> None:
        data = b"".join(pieces)
        for start in range(0, len(data), frames.LINE_BYTES):
            text = base64.b64encode(data[start : start + frames.LINE_BYTES])
            # At most as long as the system writes at once, so other output of the rank does not come between.
            line = b"%s%s=%s%s\n" % (frames.MARK, _streams.nonce, text, frames.MARK)
            while line:
                line = line[os.write(1, line) :]


def start(control: Control, streams: Streams) -> Callable[[], None]:
    """Connects with the notebook, and begins the threads. The result waits for their end."""
    return _Front(control, streams).start()


class _Front:
    def __init__(self, control: Control, streams: Streams) -> None:
        self._control = control
        self._input = os.fdopen(streams.input, "rb", buffering=0)
        self._link = _Link()
        self._way: _Way = self._link
        #: Of each rank's answer: bytes that have still to come, and whether the notebook does not get it.
        self._left = [0] * control.ranks
        self._refused = [False] * control.ranks
        #: Bytes of all answers; ranks that have not ended.
        self._sent = 0
        self._serving = control.ranks
        self._over = threading.Event()

    def start(self) -> Callable[[], None]:
        hello = self._hello()
        _streams.nonce = hello["nonce"].encode()
        connection = _connect(hello)
        if connection is not None:
            self._way = _Socket(connection)
        self._ready()
        self._control.answers.give = self._guarded(self._pass_answer)
        commands = self._thread(self._pass_commands)
        self._thread(self._control.answers.serve)
        self._thread(self._read_input)

        return commands.join

    def _guarded(self, work: Callable[P, None]) -> Callable[P, None]:
        """What fails ends the pool."""

        def guarded(*args: P.args, **keywords: P.kwargs) -> None:
            try:
                work(*args, **keywords)
            except (BrokenPipeError, ConnectionResetError):
                self._gone()
            except BaseException:
                traceback.print_exc()
                os._exit(1)

        return guarded

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded(work), name=f"kumi{work.__name__}", daemon=True)
        thread.start()
        return thread

    def _gone(self) -> None:
        """The notebook has gone: without it there is nothing to do. A rank that fails ends its job."""
        if not self._over.is_set():
            os.write(2, b"kumi.engines: the notebook has gone, so the pool ends\n")
            os._exit(1)

    # ---- standard input ----

    def _frame(self) -> tuple[int, bytes] | None:
        head = self._exactly(frames.INPUT.size)
        if head is None:
            return None
        kind, length = frames.INPUT.unpack(head)
        if length > frames.INPUT_LIMIT:
            raise ValueError(f"a frame of {length} bytes on standard input")
        contents = self._exactly(length)
        return None if contents is None else (kind, contents)

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            part = self._input.read(count - len(data))
            if not part:
                return None
            data += part
        return bytes(data)

    def _hello(self) -> dict[str, Any]:
        frame = self._frame()
        if frame is None or frame[0] != frames.Input.HELLO:
            sys.exit("kumi.engines is started by kumi.Engines, which says on standard input how to reach it")
        hello = json.loads(frame[1])
        if not isinstance(hello, dict) or not isinstance(hello.get("nonce"), str):
            sys.exit("kumi.engines: the notebook's greeting makes no sense")
        return hello

    def _read_input(self) -> None:
        while (frame := self._frame()) is not None:
            kind, contents = frame
            if kind == frames.Input.INTERRUPT:
                self._control.interrupt(*frames.CALL.unpack(contents))
            elif kind == frames.Input.COMMANDS:
                self._link.take(contents)
            else:
                raise ValueError(f"a frame of kind {kind} on standard input")
        self._gone()

    # ---- commands and answers ----

    def _pass_commands(self) -> None:
        head = memoryview(bytearray(frames.COMMAND.size))
        while self._way.fill(head):
            kind, count, call, total = frames.COMMAND.unpack(head)
            if count > self._control.ranks or total > LIMIT:
                raise ValueError("a command makes no sense")
            chosen = memoryview(bytearray(count * frames.RANK.size))
            if not self._way.fill(chosen):
                break
            ranks = [rank for (rank,) in frames.RANK.iter_unpack(chosen)] or None
            if not self._control.command.send(ranks, kind, call, total, self._way.fill):
                break
            if kind == frames.Command.END:
                self._over.wait()
                self._control.leave()
                return
        self._gone()

    def _pass_answer(self, rank: int, part: Part) -> None:
        if self._left[rank] == 0:
            self._left[rank] = part.total
            ended = frames.OUTCOME.unpack_from(part.data)[0] == frames.Status.ENDED
            self._serving -= ended
            self._sent += part.total
            self._refused[rank] = self._way.limit is not None and self._sent > self._way.limit
            if self._refused[rank]:
                self._sent -= part.total
                self._refuse(rank, part.call)
        self._left[rank] -= len(part.data)
        if not self._refused[rank]:
            head = frames.ANSWER.pack(rank, len(part.data), part.call, part.total)
            self._way.send(head, part.data)
        if self._serving == 0:
            self._over.set()

    def _refuse(self, rank: int, call: int) -> None:
        from ._rank import told

        text = (
            f"the results of this pool have come to {LINK_LIMIT >> 20} MiB, and more does not go through the output "
            "of its job, because rank 0 is on another machine than the notebook; reduce them at the ranks, or write files"
        )
        body = dump(told(PoolError(text)))
        whole = b"".join([frames.OUTCOME.pack(frames.Status.RAISED, 0), *body])
        self._way.send(frames.ANSWER.pack(rank, len(whole), call, len(whole)), whole)

    def _ready(self) -> None:
        """The first answer, of call 0: who is there."""
        whole = json.dumps(
            {
                "job": kumi.job(),
                "ranks": kumi.size(),
                "python": platform.python_version(),
                "channel": "link" if self._way is self._link else "socket",
            }
        ).encode()
        self._way.send(frames.ANSWER.pack(0, len(whole), frames.GREETING, len(whole)), whole)


def _connect(hello: dict[str, Any]) -> socket.socket | None:
    """A connection to the notebook's socket; None if the notebook is on another machine."""
    path = hello.get("socket")
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        # Its folder is not here, or nobody listens: standard streams lead to the notebook from anywhere.
        connection.close()
        return None
    if peer(connection) != os.getuid():
        sys.exit("kumi.engines: the notebook's socket belongs to another user")
    connection.sendall(bytes.fromhex(hello["secret"]))
    return connection

