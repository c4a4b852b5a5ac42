"""The command ``kumi``: its path, its runs, and its messages when it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from .._errors import KumiError

# How long a command that was told to end may take before it is killed, in seconds.
_GRACE = 5.0
# How long a thread that waits may not notice a signal, in seconds.
_LOOK = 0.2

T = TypeVar("T")


class SimError(KumiError):
    """A simulation has no result.

    Attributes:
        exit_code: Exit code of the command, as ``docs/reference/errors.md`` lists it; negative: the signal
            that killed it; None if it did not run or its answer cannot be used.
        text: Message of the command.
    """

    exit_code: int | None
    text: str

    def __init__(self, text: str, /, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class CommandMissingError(SimError, FileNotFoundError):
    """The command ``kumi`` is not on this machine, or not where ``KUMI_BIN`` says."""

    # Both base classes define __str__; this one shows the message.
    __str__ = KumiError.__str__


class MissingExtraError(KumiError, ImportError):
    """pandas or pyarrow is needed and not installed: ``pip install kumi[sim]``."""


def next_of(queue: SimpleQueue[T]) -> T:
    """Waits for the next entry, or for an interrupt.

    A signal that comes just before a thread blocks is noticed when it goes on. So it never blocks for long.
    """
    while True:
        try:
            return queue.get(timeout=_LOOK)
        except Empty:
            continue


class Answer(NamedTuple):
    """Output of a command that succeeded."""

    out: bytes
    notes: tuple[str, ...]


def find() -> str:
    """The path of the command."""
    said = os.environ.get("KUMI_BIN")
    if said:
        path = Path(said) / "kumi" if Path(said).is_dir() else Path(said)
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        raise CommandMissingError(
            f"KUMI_BIN is {said}, where there is no program; set it to the path of the command kumi"
        )
    beside = os.pathsep.join([str(Path(__file__).parents[1] / "bin"), sysconfig.get_path("scripts")])
    found = shutil.which("kumi", path=beside) or shutil.which("kumi")
    if found is None:
        raise CommandMissingError(
            "the command kumi is not found; install it, put its folder on PATH, "
            "or set KUMI_BIN to its path"
        )
    return found


class Running:
    """Running commands, so that all of them can be ended. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
        """Runs ``kumi`` with ``arguments`` and waits for its end.

        Raises:
            SimError: The command is missing or failed, or :meth:`end` was called.
        """
        command = [find(), *arguments]
        told: SimpleQueue[Answer | BaseException] = SimpleQueue()

        def work() -> None:
            try:
                told.put(self._run(command, environment))
            except BaseException as error:
                told.put(error)

        # Interrupts come to the main thread. There one could come between the start of the command and its note, and leave
        # it running. This thread waits with a lock that is written in C.
        try:
            threading.Thread(target=work, daemon=True).start()
            answer = next_of(told)
        except BaseException:
            self.end()
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None) -> Answer:
        with self._lock:
            if self._ended:
                raise SimError("interrupted; nothing was simulated")
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **(environment or {})},
                )
            except (OSError, ValueError) as error:
                raise SimError(f"cannot run {command[0]}: {error}") from error
            self._processes.add(process)
        try:
            out, err = process.communicate()
        except BaseException:
            _end(process)
            raise
        finally:
            with self._lock:
                self._processes.discard(process)
        lines = err.decode(errors="replace").splitlines()
        told = [line.removeprefix("kumi: ") for line in lines if line.strip()]
        if process.returncode != 0:
            raise SimError("\n".join(told) or _silent(process.returncode), process.returncode)
        return Answer(out, tuple(told))

    def end(self) -> None:
        """Ends all running commands, and starts no more."""
        with self._lock:
            self._ended = True
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        # Another thread reads its output.
        for process in processes:
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_GRACE)
    except BaseException:
        # It does not end in time, or the user interrupts again.
        process.kill()
        process.communicate()


def _silent(code: int) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the command kumi {how} and said nothing"
