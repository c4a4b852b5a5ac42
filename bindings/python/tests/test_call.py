"""Calls of routines on a server of this machine. Skipped where the commands were not built."""

import json
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_sim import built

import kumi
from kumi import call

SOURCE = """
#include <stdlib.h>
#include <unistd.h>
void dmmul(int n, const double *a, const double *b, double *c)
{ for (int i = 0; i < n * n; i++) { c[i] = 0; for (int k = 0; k < n; k++) c[i] += a[i / n * n + k] * b[k * n + i % n]; } }
/* Solves a diagonal system by columns; info is the first zero on the diagonal. */
void solve_(const int *n, const int *m, double *a, double *b, int *info)
{ for (int j = 0; j < *m; j++) for (int i = 0; i < *n; i++) {
    if (a[i + i * *n] == 0) { *info = i + 1; return; } b[i + j * *n] /= a[i + i * *n]; } *info = 0; a[0] = -1; }
double total(int n, const float *x) { double s = 0; while (n--) s += *x++; return s; }
void crash(void) { abort(); }
void nap(int ms) { usleep(ms * 1000); }
void noop(void) {}
int count(int n, const int *x) { int s = 0; while (n--) s += *x++; return s; }
void report(int status, int *info, int *twice) { *info = status; *twice = 2 * status; }
"""


def _param(name: str, mode: str, kind: str, *sizes: int, **more: Any) -> dict[str, Any]:
    dims = {"dims": [{"size": {"param": size}} for size in sizes]} if sizes else {}
    return {"name": name, "mode": mode, "type": {"number": kind}, **dims, **more}


def _routine(name: str, *params: dict[str, Any], **more: Any) -> dict[str, Any]:
    passed = [{"param": at} for at in range(len(params) - ("result" in more))]
    target = {"language": more.pop("language", "c"), "symbol": name, "arguments": passed}
    if "result" in more:
        target["result"] = more.pop("result")
    return {"version": 1, "name": name, "params": list(params), **more, "target": target}


ROUTINES = [
    _routine(
        "dmmul",
        _param("n", "in", "i32"),
        _param("A", "in", "f64", 0, 0),
        _param("B", "in", "f64", 0, 0),
        _param("C", "out", "f64", 0, 0),
    ),
    _routine(
        "solve",
        _param("n", "in", "i32"),
        _param("m", "in", "i32"),
        _param("a", "inout", "f64", 0, 0, order="column"),
        _param("b", "inout", "f64", 0, 1, order="column"),
        _param("info", "out", "i32"),
        language="fortran",
        status=4,
    ),
    _routine(
        "total", _param("n", "in", "i32"), _param("x", "in", "f32", 0), _param("s", "out", "f64"), result=2
    ),
    _routine("crash"),
    _routine("nap", _param("ms", "in", "i32")),
    _routine("noop"),
    _routine(
        "count", _param("n", "in", "i32"), _param("x", "in", "i32", 0), _param("s", "out", "i32"), result=2
    ),
    _routine(
        "report",
        _param("status", "in", "i32"),
        _param("info", "out", "i32"),
        _param("twice", "out", "i32"),
        status=1,
    ),
]


def call_command() -> Path:
    """The command, if it was built with what it needs to serve; otherwise the test is skipped."""
    command = built()
    if command is None or not command.with_name("kumi-call-slot").is_file():
        pytest.skip("there is no kumi in KUMI_BIN_DIR; run `cargo build` first")
    return command


def library(folder: Path) -> None:
    """The routines, built in a folder, and their descriptions."""
    (folder / "routines.c").write_text(SOURCE)
    (folder / "routines.json").write_text(json.dumps(ROUTINES))
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-fPIC", "-shared", "-o", "libroutines.so", "routines.c"],
        cwd=folder,
        check=True,
    )


@contextmanager
def serving(command: Path, folder: Path, *options: str) -> Iterator[str]:
    """A server with the routines of a folder; its address."""
    server = subprocess.Popen(
        [str(command), "call", "serve", "--listen", "127.0.0.1:0", "--slots", "2"]
        + [*options, "--library", "./libroutines.so", "routines.json"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    said = server.stderr.readline()
    assert f"serves {len(ROUTINES)} routines at" in said, said
    yield said.split()[-1]
    server.terminate()
    server.stderr.read()
    server.stderr.close()
    assert server.wait() == 0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the routines."""
    command, folder = call_command(), tmp_path_factory.mktemp("call")
    library(folder)
    with serving(command, folder, "--call-memory", "64") as at:
        yield at


@pytest.fixture
def server(address: str) -> call.Connection:
    """A connection."""
    return call.connect(address)


def test_results_are_right(server: call.Connection) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((37, 37)), rng.random((37, 37))
    for args in [(a, b), (37, a, b), (np.asfortranarray(a), b.tolist())]:
        np.testing.assert_allclose(server.call("dmmul", *args), a @ b)
    np.testing.assert_allclose(server.call("dmmul", B=b, A=a), a @ b)
    assert server.call("total", [1, 2, 3.5]) == 6.5
    assert server.call("noop") is None
    assert server.names("m") == ["dmmul"]
    assert str(server.routine("dmmul")).startswith("dmmul(n: int32, A: float64[][],")


def test_columns_and_status(server: call.Connection) -> None:
    a, b = np.diag([2.0, 4.0]), np.array([2.0, 2.0])
    before = a.copy()
    solved = server.call("solve", a, b)
    changed, x = solved
    assert solved.b is x and solved["a"] is changed and {"a", "b"} <= set(dir(solved))
    assert repr(solved).startswith("(a=array(")
    copied = pickle.loads(pickle.dumps(solved))
    assert type(copied) is call.Results and np.array_equal(copied.b, x)
    with pytest.raises(AttributeError, match="no result `X`; there are a, b"):
        _ = solved.X
    with pytest.raises(KeyError, match="no result `X`; there are a, b"):
        _ = solved["X"]
    assert x.tolist() == [1.0, 0.5] and changed[0, 0] == -1
    assert (a == before).all() and b.tolist() == [2.0, 2.0], "what is sent is not changed"
    many = np.arange(6.0).reshape(2, 3)
    _, x = server.call("solve", a, many)
    assert (x == many / [[2], [4]]).all()
    with pytest.raises(call.StatusError, match="info is 2") as raised:
        server.call("solve", np.diag([2.0, 0.0]), b)
    assert raised.value.status == 2 and raised.value.results[1][0] == 1.0


def test_arguments_are_checked(server: call.Connection) -> None:
    a = np.ones((2, 2))
    for args, said in [
        ((a,), r"takes 3 arguments \(n, A, B\), or 2 \(A, B\): n can be left out; 1 were given"),
        ((a, np.ones((3, 3))), r"`B` has the shape \(3, 3\), the routine wants \(2, 2\)"),
        ((2, a.astype(complex), a), "elements of complex128, the routine wants float64"),
        ((np.ones((2, 2, 2)), a), "has 3 dimensions, the routine wants 2"),
        (("x", a, a), r"`n` is a scalar"),
        ((2**40, a, a), "cannot hold"),
    ]:
        with pytest.raises(call.ArgumentError, match=said):
            server.call("dmmul", *args)
    with pytest.raises(call.ArgumentError, match="takes no `D`"):
        server.call("dmmul", a, D=a)
    with pytest.raises(call.RoutineNotFound, match="did you mean dmmul"):
        server.call("dmul", a, a)
    with pytest.raises(call.ConnectError):
        call.connect("127.0.0.1:1")


def test_nothing_is_lost_without_a_word(server: call.Connection) -> None:
    assert server.call("count", [1, 2, True]) == 4
    assert server.call("count", []) == 0
    for wrong in ([1.5], [1.0], [1j], [2**40], [-(2**31) - 1], [2**70], ["1"], [[1], [2, 3]], [None]):
        with pytest.raises(call.ArgumentError, match="`x`"):
            server.call("count", wrong)
    assert server.call("total", [0.1, 2**24]) == pytest.approx(2**24 + 0.1, abs=1)
    for wrong in ([1e300], [2**24 + 1], [1j]):
        with pytest.raises(call.ArgumentError, match="`x`"):
            server.call("total", wrong)
    for wide in (2**64, -(2**63) - 1, 2**9999):
        with pytest.raises(call.ArgumentError, match="bits"):
            server.call("nap", wide)
    with pytest.raises(call.TooLargeError):
        server.call("total", np.zeros(17 << 20, np.float32))
    with pytest.raises(call.StatusError) as raised:
        server.call("report", 5)
    assert raised.value.status == 5 and raised.value.results == 10


def test_waits_of_several_threads(server: call.Connection) -> None:
    handle = server.call_async("nap", 60_000)
    said: list[str] = []

    def wait() -> None:
        try:
            handle.result()
        except call.CancelledError:
            said.append("cancelled")

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert not handle.wait(0.01)
    with pytest.raises(call.ArgumentError):
        handle.wait(-1)
    handle.cancel()
    for thread in threads:
        thread.join()
    assert said == ["cancelled"] * 4


def test_handles_go_while_signals_come(server: call.Connection) -> None:
    """Who drops a handle, with the interpreter's lock, does not wait for who waits for that lock."""
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: came.append(number))
    long = server.call_async("nap", 60_000)

    def drop() -> None:
        for _ in range(100):
            server.call_async("noop")
        long.cancel()

    thread = threading.Thread(target=drop)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        thread.start()
        with pytest.raises(call.CancelledError):
            long.result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    thread.join()
    assert came


def test_failures_are_typed(server: call.Connection) -> None:
    with pytest.raises(call.CrashedError) as raised:
        server.call("crash")
    assert raised.value.detail == signal.SIGABRT
    with pytest.raises(call.TimedOutError):
        server.call("nap", 60_000, timeout=0.05)
    handle = server.call_async("nap", 60_000)
    assert not handle.done() and not handle.wait(0.01)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    handle.cancel()
    with pytest.raises(call.CancelledError):
        handle.result()
    assert server.call("noop") is None


def test_many_in_flight(server: call.Connection) -> None:
    handles = [server.call_async("dmmul", np.full((9, 9), float(at)), np.eye(9)) for at in range(16)]
    first = call.wait_any(handles)
    assert first is not None and handles[first].done()
    for at, result in enumerate(call.wait_all(handles)):
        assert (result == at).all()


def test_any_is_waited_for_beside_others(server: call.Connection) -> None:
    long = server.call_async("nap", 60_000)
    other = threading.Thread(target=long.wait)
    other.start()
    for at in range(20):
        product = server.call_async("dmmul", np.full((3, 3), float(at)), np.eye(3))
        # Others wait on the same connection, for the same call too.
        seen: list[int | None] = []
        also = threading.Thread(target=lambda: seen.append(call.wait_any([product, long])))
        also.start()
        assert call.wait_any([long, product]) == 1
        also.join()
        assert seen == [0] and (product.result() == at).all()
    assert call.wait_any([long], timeout=0.01) is None and not long.done()
    long.cancel()
    assert call.wait_any([long]) == 0
    other.join()
    with pytest.raises(call.CancelledError):
        long.result()


def test_threads_and_the_usual_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_CALL_SERVER", address)
    wrong: list[object] = []
    # A module that can be called is more than type checkers know of.
    usual = kumi.call.call

    def work(at: int) -> None:
        for _ in range(10):
            if not (usual("dmmul", np.full((5, 5), float(at)), np.eye(5)) == at).all():
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ctrl_c_ends_the_wait(server: call.Connection) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        server.call("nap", 60_000)
    timer.join()
    assert server.call("noop") is None


def test_ctrl_c_ends_the_wait_for_any(server: call.Connection) -> None:
    handles = [server.call_async("nap", 60_000) for _ in range(2)]
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        call.wait_any(handles)
    timer.join()
    assert not any(handle.done() for handle in handles)
    for handle in handles:
        handle.cancel()
        assert handle.wait()
    assert server.call("noop") is None


def test_paths_are_not_mistaken(tmp_path: Path) -> None:
    with pytest.raises(call.ArgumentError):
        call.connect("here")
    with pytest.raises(call.ConnectError):
        call.connect(f"unix:{tmp_path / 'nothing'}")
