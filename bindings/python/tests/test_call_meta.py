"""Calls through a metaserver. Skipped where the commands were not built."""

import asyncio
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


def start(folder: Path, *arguments: str, listen: str = "127.0.0.1:0") -> tuple[subprocess.Popen[str], str]:
    """A server of the command, and its address."""
    command = built()
    assert command is not None
    process = subprocess.Popen(
        [str(command), "call", *arguments, "--listen", listen],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUMI_DIR": str(folder)},
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    assert " at 127.0.0.1:" in said, said
    return process, said.split()[-1]


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    assert process.stderr is not None
    process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0


def serve(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A server of the routines in this folder."""
    libraries = ["--library", "libc.so.6", "--library", str(folder / "libapply.so")]
    return start(folder, "serve", *libraries, "r.idl", *more)


def come(connection: call.Connection) -> list[str]:
    """The names of routines: a server may register after it has said where it listens."""
    for _ in range(600):
        if names := connection.names(""):
            return names
        time.sleep(0.1)
    raise AssertionError("no server has come")


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
    server, _ = serve(tmp_path, "--meta", address)
    yield address
    end(server)
    end(meta)


def test_calls_go_to_the_server_that_it_names(metaserver: str) -> None:
    connection = call.connect(metaserver)
    assert come(connection) == ["absolute", "apply", "blank"]
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


def test_any_of_calls_with_and_without_a_metaserver(metaserver: str, tmp_path: Path) -> None:
    process, address = serve(tmp_path)
    try:
        through, direct = call.connect(metaserver), call.connect(address)
        come(through)
        here = threading.get_ident()
        callers: set[int] = set()

        def square(x: float) -> float:
            callers.add(threading.get_ident())
            return x * x

        for _ in range(10):
            left = {x: to.call_async("apply", square, x) for x, to in ((3.0, through), (4.0, direct), (5.0, through))}
            left[-1.0] = direct.call_async("absolute", -7)
            results = {}
            while left:
                index = call.wait_any(list(left.values()), timeout=60)
                assert index is not None
                x = list(left)[index]
                results[x] = left.pop(x).result()
            assert results == {3.0: 8.0, 4.0: 15.0, 5.0: 24.0, -1.0: 7}
        assert callers == {here}
    finally:
        end(process)


def test_futures_and_coroutines(metaserver: str) -> None:
    with call.connect(metaserver) as connection:
        come(connection)
        with call.Executor(connection, in_flight=8) as pool:
            assert list(pool.map("absolute", range(-40, 0))) == list(range(40, 0, -1))  # type: ignore[arg-type]
            assert pool.submit("apply", lambda x: 3 * x, 7.0).result(60) == 20.0
            assert isinstance(pool.submit("nothing").exception(60), call.RoutineNotFound)

        async def main() -> None:
            results = await asyncio.gather(*(connection.acall("absolute", -x) for x in range(40)))
            assert results == list(range(40))

        asyncio.run(main())


def test_only_results_of_calls_stay(metaserver: str) -> None:
    with call.connect(metaserver) as connection:
        come(connection)
        kept = connection.call("blank", 2, out=call.KEEP)
        assert list(kept.fetch()) == [0, 0] and not kept.lost
        with pytest.raises(call.ArgumentError, match="a metaserver chooses servers for calls only"):
            connection.hold(kept.fetch())
