"""Servers of functions and classes, which the command ``kumi`` runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from .._scope import Block
from ..sim._command import find
from ._decorator import served
from ._errors import ArgumentError, CallError, DescriptionError

Functions = Callable[..., Any] | str | os.PathLike[str] | Sequence[Callable[..., Any]]

# How long a server that was told to end may take before it is killed, in seconds.
_GRACE = 10.0
_SERVES = " routine"


class Server(Block):
    """A server of functions and classes. It runs until :meth:`stop` or the end of the ``with``.

    .. code-block:: python

        with kumi.call.Server([scale, total], slots=4) as server:
            kumi.call.connect(server.address).call("scale", a)

    Each call runs in another process, which imports the modules of the functions. A program that serves its own functions
    therefore does so below ``if __name__ == "__main__":``.

    Args:
        functions: Functions and classes with the decorator :func:`kumi.call.routine`. A module's name or a file's path stands for
            all of its decorated functions and classes.
        listen: ``host:port`` (port 0: any free port) or ``unix:path``.
        through: The cluster that runs the functions, ``dask:ADDRESS`` or ``ray:ADDRESS``; see :mod:`kumi.call.adapters`.
        arguments: Further arguments of the command.
        options: Further options of ``kumi call serve``, with ``_`` for ``-``: ``slots=4``, ``tokens="users.toml"``,
            ``sandbox=True``, ``meta="host:7071"``, ``call_time=60`` (seconds).

    Raises:
        CallError: The server does not start; the message is that of the command.
        CommandMissingError: The command ``kumi`` is missing.
        DescriptionError: A function has no decorator, or another process could not import it.
    """

    def __init__(
        self,
        functions: Functions,
        *,
        listen: str = "127.0.0.1:0",
        through: str | None = None,
        arguments: Sequence[str] = (),
        **options: Any,
    ) -> None:
        command = [find(), "call", "serve", f"--listen={listen}"]
        command += [f"--python={source}" for source in _sources(functions)]
        for name, value in {"interpreter": sys.executable, **options}.items():
            command += _option(name, value)
        command += arguments
        environment = {"KUMI_CALL_THROUGH": through} if through else {}
        if options.get("interpreter", sys.executable) == sys.executable:
            environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
        )
        try:
            #: The address for :func:`kumi.call.connect`.
            self.address: str = self._began()
        except BaseException:
            self.stop()
            raise
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _lines(self) -> IO[str]:
        assert self._process.stderr is not None
        return self._process.stderr

    def _began(self) -> str:
        said: list[str] = []
        for line in self._lines():
            text = line.removeprefix("kumi: ").strip()
            if text.startswith("serves ") and _SERVES in text:
                for each in said:
                    print(each, file=sys.stderr)
                return text.split(" at ", 1)[1]
            said.append(text)
        code = self._process.wait()
        raise CallError("\n".join(said) or f"the command kumi ended with code {code} and said nothing")

    def _pass_on(self) -> None:
        """Copies the output of the functions and the server to standard error."""
        for line in self._lines():
            # There may be nobody left to read it.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)

    def wait(self) -> int:
        """Waits for the end of the server, and returns its exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """Stops the server and its running calls."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if reader := getattr(self, "_reader", None):
            reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _leave(self, error: BaseException | None) -> None:
        self.stop()


def serve(functions: Functions, *, listen: str = "127.0.0.1:7070", **options: Any) -> None:
    """Serves functions until Ctrl-C, SIGTERM or the server's end; arguments and errors are those of :class:`Server`."""
    with _terminable(), Server(functions, listen=listen, **options) as server:
        print(f"kumi: serves at {server.address}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            code = server.wait()
            if code:
                raise CallError(f"the server ended with code {code}")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Makes SIGTERM end this program in order, so that the processes it started end too. Only in the main
    thread, and only if the program has no handler of its own."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _sources(functions: Functions) -> list[str]:
    """The argument of ``kumi call serve --python``: modules or files, with the names of routines."""
    if isinstance(functions, str | os.PathLike):
        return [os.fspath(functions)]
    names: dict[str, list[str]] = {}
    for function in functions if isinstance(functions, Sequence) else [functions]:
        one = served(function)
        if one is None:
            raise DescriptionError(f"{function!r} lacks the decorator kumi.call.routine")
        names.setdefault(_source(one.origin), []).append(one.name)
    if not names:
        raise ArgumentError("no functions to serve")
    return [f"{source}:{','.join(each)}" for source, each in names.items()]


def _source(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module != "__main__":
        return module
    file: str | None = getattr(sys.modules["__main__"], "__file__", None)
    if file is None or Path(file).suffix != ".py":
        raise DescriptionError(
            f"{function.__qualname__} is in no file, in which other processes would find it; put it into a module"
        )
    return os.path.abspath(file)


def _option(name: str, value: Any) -> list[str]:
    """An option of the command."""
    if value is None or value is False:
        return []
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if isinstance(value, list | tuple):
        return [word for each in value for word in _option(name, each)]
    if name.endswith("_time") and not isinstance(value, str):
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
        value = f"{round(seconds * 1e9)}ns"
    return [f"{option}={value}"]
