"""What goes with calls: how much time is left, and the trace. Skipped where the commands were not built."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_call import call_command

from kumi import call

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-"
PARENT = TRACE + "00f067aa0ba902b7-01"

FUNCTIONS = '''
import subprocess

from kumi import call
from kumi.call import Text


@call.routine
def left() -> float:
    seconds = call.remaining()
    return -1.0 if seconds is None else seconds


@call.routine
def traced() -> Text[80]:
    return call.traceparent() or ""


@call.routine
def printed() -> Text[80]:
    return subprocess.run(["printenv", "TRACEPARENT"], capture_output=True, text=True).stdout.strip()
'''

DESCRIPTIONS = 'Define calls(f(mode_out double x), mode_out double back) Calls "C" calls(f, back);'

SOURCE = "void calls(void (*f)(double *), double *back) { f(back); }"


@contextmanager
def serving(*words: str | Path) -> Iterator[call.Connection]:
    """A connection to a server."""
    command = [call_command(), "call", "serve", "--listen", "127.0.0.1:0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert " at 127.0.0.1:" in line, line
        yield call.connect(line.split()[-1])
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[call.Connection]:
    """A server of functions of Python."""
    file = tmp_path_factory.mktemp("context") / "functions.py"
    file.write_text(FUNCTIONS)
    with serving("--interpreter", sys.executable, "--python", file) as connection:
        yield connection


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[call.Connection]:
    """A server whose routine calls a function."""
    folder = tmp_path_factory.mktemp("calling")
    (folder / "routines.c").write_text(SOURCE)
    (folder / "routines.idl").write_text(DESCRIPTIONS)
    library = folder / "libroutines.so"
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, folder / "routines.c"], check=True)
    with serving("--library", library, folder / "routines.idl") as connection:
        yield connection


def test_a_routine_knows_how_much_time_is_left(server: call.Connection) -> None:
    for _ in range(2):
        assert server.call("left") == -1
        assert 1800 < server.call("left", timeout=3600) <= 3600
    assert call.remaining() is None


def test_a_function_and_its_calls_have_the_time_of_the_call(server: call.Connection, calling: call.Connection) -> None:
    own: list[float | None] = []

    def function() -> Any:
        own.append(call.remaining())
        return server.call("left")

    assert calling.call("calls", function) == -1
    back = calling.call("calls", function, timeout=3600)
    assert own[0] is None and own[1] is not None
    assert 1800 < back <= own[1] <= 3600
    assert call.remaining() is None


def test_a_function_that_outlasts_its_call(server: call.Connection, calling: call.Connection) -> None:
    told: list[str] = []

    def function() -> float:
        while call.remaining() != 0:
            time.sleep(0.001)
        with pytest.raises(call.TimedOutError) as raised:
            server.call("left")
        told.append(str(raised.value))
        return 0.0

    with pytest.raises(call.TimedOutError, match="it waited for `f`"):
        calling.call("calls", function, timeout=0.2)
    assert len(told) == 1 and "`left` was not begun" in told[0]


async def awaited(server: call.Connection) -> Any:
    """Each task has its own trace."""

    async def other() -> Any:
        with call.traced(PARENT.replace("4bf9", "4bf8")):
            await asyncio.sleep(0)
            return await server.acall("traced")

    own, others = await asyncio.gather(server.acall("traced"), other())
    assert others.startswith(TRACE.replace("4bf9", "4bf8"))
    return own


def test_calls_are_in_traces(server: call.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert call.traceparent() is None and server.call("traced") == "" and server.call("printed") == ""
    with call.traced(PARENT):
        assert call.traceparent() == PARENT
        found = [server.call("traced"), server.call("printed"), server.call_async("traced").result(60)]
        with call.Executor(server) as pool:
            future: Future[Any] = pool.submit("traced")
            found.append(future.result(60))
        found.append(asyncio.run(awaited(server)))
        with call.traced(None):
            assert server.call("traced") == ""
    # Each has a span of its own.
    assert all(len(text) == len(PARENT) and text.startswith(TRACE) for text in found), found
    assert len({PARENT, *found}) == 6
    assert call.traceparent() is None and server.call("traced") == ""
    # Calls do not read the environment while other threads change it.
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert call.traceparent() is None and server.call("traced") == ""


@pytest.mark.parametrize(("variable", "shown"), [(PARENT, PARENT), ("nothing", "None")])
def test_programs_are_in_the_trace_with_which_they_were_started(variable: str, shown: str) -> None:
    program = "import kumi.call; print(kumi.call.traceparent())"
    environment = dict(os.environ, TRACEPARENT=variable)
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == shown


def test_what_is_no_traceparent(server: call.Connection) -> None:
    with pytest.raises(call.ArgumentError, match="a traceparent is `00-`"), call.traced("00-1-2-3"):
        pass
    assert server.call("traced") == ""
