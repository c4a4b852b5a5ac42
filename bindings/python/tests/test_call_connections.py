"""Connections that are lost, closed, or used by a function of the module; declined results; names of parameters. Skipped
where the commands were not built."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call import call_command, library, serving

from kumi import call

ASKS = """
import os

from kumi import call


@call.routine
def threads(more: int = 0, threads: int = 0) -> int:
    return int(os.environ["OMP_NUM_THREADS"]) + more + threads


@call.routine
class Holder:
    @call.routine
    def threads(self, threads: int = 0) -> int:
        return int(os.environ["OMP_NUM_THREADS"]) + threads
"""

NAMES = """
from kumi import call


@call.routine
def named(out: int, timeout: int, priority: int, lambda_: int = 4) -> int:
    return ((out * 10 + timeout) * 10 + priority) * 10 + lambda_
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections")
    library(folder)
    return folder


class Restarting:
    """A server that is started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder / 'restarting'}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        options = ["--listen", self.address, "--library", "./libroutines.so", "routines.json"]
        self.process = subprocess.Popen(
            [str(call_command()), "call", "serve", *options], cwd=self.folder, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None and "serves" in self.process.stderr.readline()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None and self.process.stderr is not None
        self.process.send_signal(how)
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def restarting(folder: Path) -> Iterator[Restarting]:
    server = Restarting(folder)
    server.start()
    yield server
    server.end()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_connection_is_made_again(restarting: Restarting, how: signal.Signals) -> None:
    connection = call.connect(restarting.address)
    assert connection.call("count", [1, 2]) == 3
    restarting.end(how)
    restarting.start()
    assert connection.call("count", [1, 2, 3]) == 6
    restarting.end(how)
    restarting.start()
    assert connection.names("count") == ["count"]
    restarting.end(how)
    restarting.start()
    assert connection.call_async("total", [1, 2, 3.5]).result(60) == 6.5
    under_way = connection.call_async("nap", 60_000)
    restarting.end()
    # The one that was under way may have run; it is not run again.
    with pytest.raises(call.ConnectionLostError):
        under_way.result(60)
    with pytest.raises(call.ConnectError):
        connection.call("noop")
    restarting.start()
    connection.call("noop")


def test_a_connection_ends_with_its_block(folder: Path) -> None:
    with serving(call_command(), folder) as address:
        with call.connect(address) as connection:
            assert connection.call("count", [1]) == 1
            under_way = connection.call_async("count", [1, 2])
        assert under_way.result(60) == 3
        for use in (lambda: connection.call("noop"), lambda: connection.names(), lambda: connection.server):
            with pytest.raises(call.ConnectError, match="was closed"):
                use()
        connection.close()
        before = set(os.listdir("/proc/self/fd"))
        other = call.connect(address)
        assert set(os.listdir("/proc/self/fd")) > before
        other.close()
        assert set(os.listdir("/proc/self/fd")) == before


def test_results_are_declined(folder: Path) -> None:
    a, b = np.diag([2.0, 4.0]), np.array([2.0, 2.0])
    with serving(call_command(), folder) as address, call.connect(address) as server:
        x = server.call("solve", a, b, out={"a": None})
        assert isinstance(x, np.ndarray) and x.tolist() == [1.0, 0.5]
        assert server.call("solve", a, b, out={"a": None, "b": None}) is None
        into = np.empty(2)
        assert server.call_async("solve", a, b, out={"a": None, "b": into}).result(60) is into
        assert into.tolist() == [1.0, 0.5]
        # A scalar, too; the status is no result.
        assert server.call("report", 0, out={"twice": None}) is None
        for name in ("info", "other", "n"):
            with pytest.raises(call.ArgumentError, match=f"no result `{name}`"):
                server.call("solve", a, b, out={name: None})


class Counting:
    """Between one client and a server: counts the bytes that the server sends."""

    def __init__(self, server: str) -> None:
        self.bytes = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        host, port = server.rsplit(":", 1)
        self.server = socket.create_connection((host, int(port)))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def join(self) -> None:
        """Waits until both ends have closed."""
        self.thread.join()

    def _run(self) -> None:
        client, _ = self.listener.accept()
        there = threading.Thread(target=self._pass, args=(client, self.server, False), daemon=True)
        there.start()
        self._pass(self.server, client, True)
        there.join()
        for one in (client, self.server, self.listener):
            one.close()

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        while piece := source.recv(1 << 16):
            self.bytes += len(piece) if counts else 0
            sink.sendall(piece)
        # An end that has closed is no longer connected.
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_declined_results_do_not_travel(folder: Path) -> None:
    n = 100
    a, b = np.diag(np.full(n, 2.0)), np.full(n, 2.0)
    with serving(call_command(), folder) as address:
        between = Counting(address)
        with call.connect(between.address) as server:
            server.call("solve", a, b)
            before = between.bytes
            assert server.call("solve", a, b, out={"a": None}).tolist() == [1.0] * n
            one = between.bytes - before
            assert 8 * n <= one < 8 * n * n, one
            assert server.call("solve", a, b, out={"a": None, "b": None}) is None
            assert between.bytes - before - one < 8 * n
        between.join()


TALKS = """
import sys

from kumi import call


@call.routine
def talk(lines: int) -> int:
    for line in range(lines):
        print("line", line)
    print("to stderr", file=sys.stderr)
    return lines


@call.routine
def fail() -> int:
    print("before")
    raise ValueError("no")


@call.routine
class Talker:
    def talk(self, lines: int, output: int = 0) -> int:
        for line in range(lines):
            print("line", line)
        return output
"""


def test_what_a_routine_prints_comes_to_who_asks(tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        with call.Server(tmp_path / "talks.py") as served, call.connect(served.address) as server:
            printed = io.StringIO()
            assert server.call("talk", 2, output=printed) == 2
            assert sorted(printed.getvalue().splitlines()) == ["line 0", "line 1", "to stderr"]
            later = io.StringIO()
            handle = server.call_async("talk", 1, output=later)
            assert handle.result(60) == 1 and "line 0" in later.getvalue()
            assert handle.result() == 1 and later.getvalue().count("line 0") == 1
            assert server.call("talk", 1) == 1 and later.getvalue().count("line 0") == 1
            failed = io.StringIO()
            with pytest.raises(call.RaisedError):
                server.call("fail", output=failed)
            assert "before" in failed.getvalue()
            much = io.StringIO()
            server.call("talk", 200_000, output=much)
            assert much.getvalue().endswith("[the routine has printed more]\n") and len(much.getvalue()) < (1 << 20) + 100
            with pytest.raises(call.ArgumentError, match="output="):
                server.call("talk", 1, output=3)  # type: ignore[arg-type]


def test_what_a_method_prints_comes_to_who_asks(tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        with call.Server(tmp_path / "talks.py") as served, call.connect(served.address) as server:
            with server.object("Talker") as talker:
                printed = [io.StringIO() for _ in range(4)]
                # A parameter of the name has an underscore.
                assert talker.talk(1, output=printed[0], output_=7) == 7
                talker.call("talk", 2, output=printed[1])
                talker.call_async("talk", 3, output=printed[2]).result(60)
                asyncio.run(talker.acall("talk", 4, output=printed[3]))
                # Nobody asks here.
                talker.talk(5)
                assert [text.getvalue().count("line ") for text in printed] == [1, 2, 3, 4]
                assert not talker.lost


def test_a_call_asks_for_threads_and_memory(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        with call.Server(tmp_path / "asks.py", slots=3) as served, call.connect(served.address) as server:
            assert server.call("threads") == 1
            assert server.call("threads", threads=3) == 3
            assert server.call_async("threads", threads=2).result(60) == 2
            assert asyncio.run(server.acall("threads", threads=3)) == 3
            assert server.call("threads", threads=2, output=io.StringIO()) == 2
            assert server.call("threads", 40, threads_=5, threads=2) == 47
            assert server.call("threads") == 1
            assert list(server.map("threads", [0, 10], [0, 0], threads=3)) == [3, 13]
            with call.Executor(served.address, threads=2) as pool:
                assert pool.submit("threads").result(60) == 2
                assert pool.submit("threads", threads=3).result(60) == 3
                assert list(pool.map("threads", [0, 10], [0, 0])) == [2, 12]  # type: ignore[arg-type]
            with call.transaction([served.address]) as t:
                given = [t.call("threads"), t.call("threads", threads=3), t.call("threads", 40, threads_=5, threads=2)]
            assert [one.result() for one in given] == [1, 3, 47]
            with server.object("Holder", threads=2) as holder:
                with pytest.raises(call.ArgumentError, match="those with which it was made"):
                    call.Executor(holder, threads=2)
                assert [holder.threads(), holder.threads(threads_=5)] == [2, 7]
            with pytest.raises(call.TooLargeError, match="asks for 4 threads"):
                server.call("threads", threads=4)
            with pytest.raises(call.TooLargeError, match="1024 bytes of memory.*--slot-memory"):
                server.object("Holder", memory=1024)
            for wrong in ({"threads": 0}, {"threads": True}, {"memory": -1}, {"memory": 2**64}, {"threads": 1.5}):
                asks: list[Callable[..., Any]] = [
                    partial(server.call, "threads"),
                    partial(server.map, "threads", [0]),
                    partial(call.transaction([served.address]).call, "threads"),
                    partial(call.Executor, server),
                ]
                for ask in asks:
                    with pytest.raises(call.ArgumentError, match="it is a whole number from 1 to"):
                        ask(**wrong)


def test_names_that_are_taken_get_an_underscore(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text(NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        with call.Server(tmp_path / "names.py") as served, call.connect(served.address) as server:
            assert server.call("named", out_=1, timeout_=2, priority_=3, timeout=60) == 1234
            assert server.call("named", 1, timeout_=2, priority_=3, lambda_=5) == 1235
            assert server.call_async("named", out_=1, timeout_=2, priority_=3).result(60) == 1234
            with pytest.raises(call.ArgumentError, match="takes no `other_`"):
                server.call("named", 1, 2, 3, other_=4)


def test_the_functions_of_the_module_are_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not callable(call)
    for name in ("call", "call_async"):
        own, method = (inspect.signature(getattr(of, name)) for of in (call, call.Connection))
        typed = [(one.name, one.kind, one.default) for one in own.parameters.values()]
        assert typed == [(one.name, one.kind, one.default) for one in method.parameters.values()][1:]
        assert inspect.Parameter.empty not in [one.annotation for one in own.parameters.values()]
        assert own.return_annotation == method.return_annotation
    with serving(call_command(), folder) as address:
        monkeypatch.setenv("KUMI_CALL_SERVER", address)
        assert call.call("count", [1, 2]) == 3
        assert call.call_async("count", [1, 2, 3]).result(60) == 6
