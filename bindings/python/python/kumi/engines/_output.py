"""Output of the ranks, on its way from ``kumi run`` to the notebook.

``kumi run`` puts the rank before each line. Lines go to whoever waits for the ranks, so that a notebook shows them under the
cell that waits. Marks, and answers that come this way, are taken out.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import IO, NamedTuple

from . import _frames as frames

_LABEL = re.compile(rb"^\[ *(\d+)\] ")
#: Lines of the ranks and of ``kumi run`` on standard error that are kept for messages.
_KEPT = 20


class Line(NamedTuple):
    """A line for the user."""

    #: On standard error.
    error: bool
    text: str


def show(line: Line) -> None:
    """Writes a line where the program's own output goes."""
    stream = sys.stderr if line.error else sys.stdout
    stream.write(line.text)
    stream.flush()


class Listeners:
    """Who waits, and gets the output meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: list[SimpleQueue[Line | None]] = []

    def tell(self, line: Line) -> None:
        """Gives a line to the one that waits, or shows it if nobody does."""
        with self._lock:
            if self._queues:
                self._queues[-1].put(line)
                return
        show(line)

    def join(self) -> SimpleQueue[Line | None]:
        """A queue for the lines; None in it means that there is something to look at."""
        queue: SimpleQueue[Line | None] = SimpleQueue()
        with self._lock:
            self._queues.append(queue)
        return queue

    def leave(self, queue: SimpleQueue[Line | None]) -> None:
        """Ends that, and shows what is left."""
        with self._lock:
            if queue in self._queues:
                self._queues.remove(queue)
        drain(queue)


def drain(queue: SimpleQueue[Line | None]) -> None:
    """Shows all lines of a queue."""
    while True:
        try:
            line = queue.get_nowait()
        except Empty:
            return
        if line is not None:
            show(line)


class Reader:
    """Reads one stream of ``kumi run`` in a thread."""

    def __init__(
        self,
        stream: IO[bytes],
        error: bool,
        nonce: bytes,
        *,
        listeners: Listeners,
        marked: Callable[[int, int, bool], None],
        answer: Callable[[bytes], None],
    ) -> None:
        self._stream = stream
        self._error = error
        self._mark = re.compile(
            b"%s%s(?:=([A-Za-z0-9+/=]*)|:(\\d+))%s" % (frames.MARK, re.escape(nonce), frames.MARK)
        )
        self._listeners = listeners
        self._marked = marked
        self._answer = answer
        #: Words of ``kumi run`` itself about an end that was asked for are not shown.
        self.quiet = False
        #: The last lines.
        self.last: deque[str] = deque(maxlen=_KEPT)
        self.thread = threading.Thread(target=self._read, name="kumi-output", daemon=True)
        self.thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the stream's end."""
        self.thread.join(timeout)

    def _read(self) -> None:
        for line in self._stream:
            try:
                self._take(line)
            except Exception as failure:
                # The rest must be read, or the ranks would wait for room.
                self._listeners.tell(Line(True, f"kumi: a line of the ranks is lost: {failure}\n"))
        self._stream.close()

    def _take(self, line: bytes) -> None:
        if frames.MARK in line and (found := self._mark.search(line)) is not None:
            label = _LABEL.match(line)
            if found[1] is not None:
                self._give(found[1])
            elif label is not None:
                self._marked(int(label[1]), int(found[2]), self._error)
            before = line[: found.start()]
            line = line[: found.start()] + line[found.end() :]
            if label is None or before == label[0]:
                return
        text = line.decode(errors="backslashreplace")
        self.last.append(text.rstrip("\n"))
        if self.quiet and text.startswith("kumi: "):
            return
        self._listeners.tell(Line(self._error, text))

    def _give(self, text: bytes) -> None:
        try:
            self._answer(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError(f"an answer was damaged: {error}") from error
