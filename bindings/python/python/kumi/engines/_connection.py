"""The job of a pool, and the connection with its rank 0."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import _frames as frames
from ._errors import PoolEndedError, PoolError, PoolStartError
from ._output import Listeners, Reader
from ._payload import Bytes

#: How long the end of a job may take before the notebook kills what is left of it, in seconds.
_GRACE = 30.0
#: Interval at which a pool that starts looks whether its job still does, in seconds.
_LOOK = 0.1
_Ended = TypeVar("_Ended", PoolStartError, PoolEndedError)

#: Bytes of answers that are read at once.
_AHEAD = 32 << 10
#: Most bytes of a command that is sent at once.
_AT_ONCE = 4 << 10
#: Bytes of a secret.
_SECRET = 32


class Connection:
    """The process ``kumi run``, and the stream of commands and answers.

    Commands and answers go over a Unix socket if rank 0 is on this machine, otherwise over the standard streams of the job.
    Interrupts, and the end of the notebook, always come to rank 0 by its standard input.
    """

    def __init__(
        self,
        kumi: Sequence[str],
        arguments: Sequence[str],
        *,
        channel: str | None,
        listeners: Listeners,
        marked: Callable[[int, int, bool], None],
    ) -> None:
        #: Begins the marks in the ranks' output.
        self.nonce = secrets.token_hex(8)
        self._kumi = kumi
        self._killed = False
        self._input_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._socket: socket.socket | None = None
        # Answers over the link come out of the reader of the output here.
        self._inner, self._outer = socket.socketpair()
        #: What was read ahead of the answers.
        self._ahead = memoryview(bytearray(_AHEAD))
        self._rest = self._ahead[:0]
        #: What the first answer says, when it has come.
        self.greeting: dict[str, Any] = {}
        self._greeted = threading.Event()
        # It gets no signals of this terminal or notebook. With its standard input it learns of the notebook's end.
        self.process = subprocess.Popen(
            [*kumi, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        nonce = self.nonce.encode()
        self._readers = [
            Reader(stream, error, nonce, listeners=listeners, marked=marked, answer=self._inner.sendall)
            for stream, error in ((self.process.stdout, False), (self.process.stderr, True))
        ]
        try:
            self._meet(channel)
        except BaseException:
            self.kill()
            raise

    # ---- the beginning ----

    def _meet(self, channel: str | None) -> None:
        """Returns when rank 0 has come by the socket, or says by its output that it cannot."""
        secret = secrets.token_bytes(_SECRET)
        with contextlib.ExitStack() as stack:
            listener: socket.socket | None = None
            path = ""
            if channel != "link":
                # Nobody else can reach a socket in this folder, which is gone as soon as rank 0 has come.
                folder = tempfile.mkdtemp(prefix="kumi-engines-")
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                path = str(Path(folder) / "socket")
                listener.bind(path)
                listener.listen(4)
                listener.settimeout(_LOOK)
            hello = {"nonce": self.nonce, "socket": path, "secret": secret.hex()}
            with contextlib.suppress(BrokenPipeError):
                self._input(frames.Input.HELLO, json.dumps(hello).encode())
            self._outer.settimeout(_LOOK if listener is None else 0.0)
            while not self._met(listener, secret):
                if self.process.poll() is not None:
                    raise self.ended(PoolStartError)
        self._outer.settimeout(None)
        if channel == "socket" and self._socket is None:
            raise PoolError("rank 0 is on another machine, so the pool cannot use a socket; leave out channel=")

    def _met(self, listener: socket.socket | None, secret: bytes) -> bool:
        if listener is not None:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                if _is_ours(connection, secret):
                    self._socket = connection
                    return True
                connection.close()
        try:
            return bool(self._outer.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, TimeoutError):
            return False

    # ---- streams ----

    def _input(self, kind: int, contents: Bytes) -> None:
        assert self.process.stdin is not None
        with self._input_lock:
            _write(self.process.stdin.fileno(), frames.INPUT.pack(kind, len(contents)), contents)

    def interrupt(self, call: int) -> None:
        """Asks the ranks to interrupt a call."""
        with contextlib.suppress(BrokenPipeError):
            self._input(frames.Input.INTERRUPT, frames.CALL.pack(call))

    def send(self, kind: int, call: int, ranks: Sequence[int], pieces: Sequence[Bytes]) -> None:
        """Sends a command to some ranks, or to all if none are named.

        Raises:
            OSError: The connection is lost.
        """
        total = sum(len(piece) for piece in pieces)
        head = frames.COMMAND.pack(kind, len(ranks), call, total)
        whole = [head, b"".join(frames.RANK.pack(rank) for rank in ranks), *pieces]
        with self._send_lock:
            if self._socket is not None:
                _send_all(self._socket, whole)
                return
            for piece in whole:
                view = memoryview(piece).cast("B")
                for start in range(0, len(view), frames.INPUT_LIMIT):
                    self._input(frames.Input.COMMANDS, view[start : start + frames.INPUT_LIMIT])

    def send_at_once(self, kind: int, call: int, ranks: Sequence[int], pieces: Sequence[Bytes]) -> bool:
        """Sends a short command by the socket, all of it or nothing: the kernel takes so few bytes as one, so an interrupt does
        not cut them. False if it has to go another way."""
        length = sum(len(piece) for piece in pieces)
        if self._socket is None or length + frames.RANK.size * len(ranks) > _AT_ONCE:
            return False
        head = frames.COMMAND.pack(kind, len(ranks), call, length)
        whole = b"".join([head, *(frames.RANK.pack(rank) for rank in ranks), *pieces])
        try:
            return self._socket.send(whole) == len(whole)
        except OSError:
            return False

    def fill(self, buffer: memoryview) -> bool:
        """Reads exactly so many bytes of the answers; False at their end."""
        source = self._socket or self._outer
        while buffer:
            if not self._rest and len(buffer) < len(self._ahead):
                count = _received(source, self._ahead)
                self._rest = self._ahead[:count]
            if self._rest:
                count = min(len(buffer), len(self._rest))
                buffer[:count] = self._rest[:count]
                self._rest = self._rest[count:]
            else:
                # Much goes straight to its place.
                count = _received(source, buffer)
            if count == 0:
                return False
            buffer = buffer[count:]
        return True

    def greet(self, greeting: bytes) -> None:
        """Takes the first answer."""
        self.greeting = json.loads(greeting)
        self._greeted.set()

    def await_greeting(self) -> None:
        """Waits for the first answer.

        Raises:
            PoolStartError: The job has ended.
        """
        while not self._greeted.wait(_LOOK):
            if self.process.poll() is not None:
                raise self.ended(PoolStartError)

    # ---- the end ----

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """The threads that read the output."""
        return [reader.thread for reader in self._readers]

    def end_answers(self) -> None:
        """Lets the stream of answers end after what is in it: ``kumi run`` has ended."""
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_WR)
        if self.process.wait() < 0 and not self._killed:
            # It was killed, and its job would go on.
            self._killed = True
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
            if job := self.greeting.get("job"):
                subprocess.run(
                    [*self._kumi, "kill", str(job)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                    check=False,
                )

    def wait(self) -> int:
        """Waits for the end of the job and of its output; its exit code."""
        code = self.process.wait()
        for reader in self._readers:
            reader.join()
        self._inner.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        return code

    def ended(self, kind: type[_Ended]) -> _Ended:
        """An exception with what ``kumi run`` said at its end."""
        code = self.process.wait()
        for reader in self._readers:
            reader.join(_GRACE)
        last = list(self._readers[1].last)
        said = [line.removeprefix("kumi: ") for line in last if line.startswith("kumi: ")]
        # Without a word of its own, the last of the ranks tell most.
        text = "\n".join(said or last) or f"kumi run ended with code {code} and said nothing"
        return kind(text, exit_code=code)

    def kill(self) -> None:
        """Ends the job, whatever it does, and waits until it is gone."""
        for reader in self._readers:
            reader.quiet = True
        if self.process.poll() is None:
            # With --kill the first signal kills the job on all nodes.
            self.process.terminate()
            try:
                self.process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.end_answers()
        self.wait()
        self.close()

    def close(self) -> None:
        """Closes the sockets, once nobody uses them."""
        for each in (self._socket, self._inner, self._outer):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


def _received(source: socket.socket, buffer: memoryview) -> int:
    """So many bytes have come; 0 at the end, or if the connection is lost."""
    try:
        return source.recv_into(buffer)
    except OSError:
        return 0


def _is_ours(connection: socket.socket, secret: bytes) -> bool:
    """Whether rank 0 of this pool is at the other end: a process of this user that knows the secret."""
    from ._credentials import peer, secret_is

    connection.settimeout(5.0)
    given = b""
    try:
        while len(given) < len(secret) and (part := connection.recv(len(secret) - len(given))):
            given += part
        ours = peer(connection) == os.getuid() and secret_is(given, secret)
    except OSError:
        return False
    connection.settimeout(None)
    return ours


def _environment() -> Mapping[str, str]:
    """What ``kumi run`` and its ranks get: a pool of a rank of another job is not that job."""
    ours = ("KUMI_JOB", "KUMI_RANK", "KUMI_RANKS", "KUMI_NODE", "KUMI_FDS", "KUMI_SINGLETON")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _write(descriptor: int, *pieces: Bytes) -> None:
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while view:
            view = view[os.write(descriptor, view) :]


def _send_all(connection: socket.socket, pieces: Sequence[Bytes]) -> None:
    """Sends pieces one after the other without putting them together."""
    left = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while left:
        count = connection.sendmsg(left[:512])
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if left:
            left[0] = left[0][count:]
