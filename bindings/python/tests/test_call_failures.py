"""Servers that go, and servers that have no time. Skipped where the commands were not built."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_call import call_command, library
from test_call_meta import start

from kumi import call

SERVE = ["--slots", "1", "--library", "./libroutines.so", "routines.json"]


class Started:
    """Servers of a test, which do not outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        process, address = start(self.folder, *arguments)
        self.processes.append(process)
        return process, address

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            assert process.stderr is not None
            process.stderr.close()
            process.wait()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    call_command()
    library(tmp_path)
    all_of_them = Started(tmp_path)
    yield all_of_them
    all_of_them.end()


def test_a_server_that_is_killed(started: Started) -> None:
    process, address = started("serve", *SERVE)
    connection = call.connect(address)
    # One that runs, or is about to, and one behind it.
    naps = [connection.call_async("nap", 600_000) for _ in range(2)]
    os.kill(process.pid, signal.SIGKILL)
    for nap in naps:
        with pytest.raises(call.ConnectionLostError, match="the connection to the server was lost") as lost:
            nap.result()
        assert isinstance(lost.value, ConnectionError)
    with pytest.raises((call.ConnectError, call.ConnectionLostError)):
        connection.call("noop")
    # Until it is gone it may still be connected to.
    process.wait()
    with pytest.raises(call.ConnectError, match=address):
        call.connect(address)


def test_a_server_that_has_no_time(started: Started) -> None:
    _, address = started("serve", "--waiting", "1", *SERVE)
    connection = call.connect(address)
    # One runs, one waits.
    naps = [connection.call_async("nap", 600_000) for _ in range(2)]
    begins: list[Callable[[], Any]] = [
        lambda: connection.call("noop"),
        lambda: connection.call_async("noop").result(),
    ]
    for begin in begins:
        with pytest.raises(call.BusyError, match="1 calls wait already; try again later"):
            begin()
    for nap in naps:
        nap.cancel()
        with pytest.raises(call.CancelledError):
            nap.result()
    assert connection.call("noop") is None


def test_a_server_that_a_metaserver_loses(started: Started) -> None:
    _, meta = started("meta")
    process, _ = started("serve", "--meta", meta, *SERVE)
    connection = call.connect(meta)
    for _ in range(600):
        if connection.names("nap"):
            break
        time.sleep(0.1)
    naps = [connection.call_async("nap", 600_000) for _ in range(8)]
    for _ in range(600):
        if waiting(meta) > 0:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    said = set()
    for nap in naps:
        with pytest.raises(call.CallError) as failed:
            nap.result()
        said.add(type(failed.value))
    # What ran there has lost its connection; for what waited there is nobody any more, or nobody answers at the place that
    # it was given before the metaserver knew.
    assert call.NoServerError in said
    assert said <= {call.NoServerError, call.ConnectionLostError, call.ConnectError}


def waiting(meta: str) -> int:
    """How many calls wait at a metaserver."""
    state = subprocess.run(
        [str(call_command()), "call", "status", "--json", "--server", meta], capture_output=True, check=True
    )
    return int(json.loads(state.stdout)["waiting"])


def test_a_priority_is_for_metaservers(started: Started) -> None:
    _, address = started("serve", *SERVE)
    connection = call.connect(address)
    begins: list[Callable[..., Any]] = [connection.call, connection.call_async]
    for begin in begins:
        with pytest.raises(call.ArgumentError, match="a priority is for calls through a metaserver"):
            begin("noop", priority=1)
    assert connection.call("noop", priority=0) is None
