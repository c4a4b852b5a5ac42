"""Calls through a metaserver. Skipped where the commands were not built."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_call import call_command
from test_sim import built

from kumi import call


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server of the command, and its address."""
    command = built()
    assert command is not None
    process = subprocess.Popen(
        [str(command), "call", *arguments, "--listen", "127.0.0.1:0"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUMI_DIR": str(folder)},
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    assert " at 127.0.0.1:" in said, said
    return process, said.split()[-1]


@pytest.fixture
def metaserver(tmp_path: Path) -> Iterator[str]:
    command = call_command()
    descriptions = '''
    Define absolute(mode_in int i, mode_out int j) Calls "C" j = abs(i);
    Define blank(mode_in long n, mode_out double x[n]) Calls "C" memset(x, 0, 8 * n);
    Define apply(f(mode_in double x, mode_out double y), mode_in double x, mode_out double y) Calls "C" apply(f, x, y);
    '''
    (tmp_path / "r.idl").write_text(descriptions)
    meta, address = start(tmp_path, "meta")
    (tmp_path / "apply.c").write_text(
        "void apply(void (*f)(double, double *), double x, double *y) { f(x, y); *y -= 1; }"
    )
    subprocess.run(["cc", "-fPIC", "-shared", "-o", "libapply.so", "apply.c"], cwd=tmp_path, check=True)
    libraries = ["--library", "libc.so.6", "--library", str(tmp_path / "libapply.so")]
    server, _ = start(tmp_path, "serve", *libraries, "r.idl", "--meta", address)
    yield address
    for process in (server, meta):
        process.terminate()
        assert process.stderr is not None
        process.stderr.read()
        process.stderr.close()
        assert process.wait() == 0


def test_calls_go_to_the_server_that_it_names(metaserver: str) -> None:
    connection = call.connect(metaserver)
    # A server may register after it has said where it listens.
    for _ in range(600):
        if connection.names(""):
            break
        time.sleep(0.1)
    assert connection.names("") == ["absolute", "apply", "blank"]
    assert list(connection.call("blank", 2)) == [0, 0]
    with pytest.raises(call.TooLargeError, match="no memory for `x` of the shape"):
        connection.call("blank", 2**50)
    squares: list[tuple[float, int]] = []

    def square(x: float) -> float:
        squares.append((x, threading.get_ident()))
        return x * x

    # The routine asks for the square of 3 and takes 1 from it.
    assert connection.call("apply", square, 3.0) == 8.0
    applied = connection.call_async("apply", square, 4.0)
    assert applied.result(timeout=60) == 15.0
    assert call.wait_any([connection.call_async("apply", square, 5.0)], timeout=60) == 0
    here = threading.get_ident()
    assert squares == [(3.0, here), (4.0, here), (5.0, here)]

    def fails(x: float) -> float:
        raise ValueError(f"no {x}")

    with pytest.raises(call.CallbackError, match=r"no 3\.0") as raised:
        connection.call("apply", fails, 3.0)
    assert isinstance(raised.value.__cause__, ValueError)
    assert connection.call("absolute", -7) == 7
    handles = [connection.call_async("absolute", -i) for i in range(20)]
    assert [handle.result(timeout=60) for handle in handles] == list(range(20))
    assert connection.call("absolute", -7, priority=9) == 7
    for priority in (-1, 10):
        with pytest.raises(call.ArgumentError, match="there are 0 to 9"):
            connection.call("absolute", -7, priority=priority)
    with pytest.raises(call.RoutineNotFound, match="absolute"):
        connection.call("absolut", 1)
    with pytest.raises(call.ArgumentError):
        connection.call("absolute", "seven")
