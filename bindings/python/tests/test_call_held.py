"""Arrays that stay at a server between calls. Skipped where the commands were not built."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call import call_command, library, serving

from kumi import call

A = np.arange(9.0).reshape(3, 3)
B = np.eye(3) * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("routines")
    call_command()
    library(path)
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(call_command(), folder) as address:
        yield address


@pytest.fixture
def server(address: str) -> Iterator[call.Connection]:
    with call.connect(address) as connection:
        yield connection


def held(server: call.Connection) -> call.Held:
    made = server.call("dmmul", A, B, out=call.KEEP)
    assert isinstance(made, call.Held)
    return made


def test_a_result_stays_and_is_an_argument(server: call.Connection) -> None:
    ab = held(server)
    assert ab.shape == (3, 3) and ab.dtype == np.dtype(np.float64) and ab.order == "C" and not ab.lost
    # Its size follows from the reference.
    assert np.array_equal(server.call("dmmul", ab, A), A @ B @ A)
    assert np.array_equal(server.call("dmmul", A, ab), A @ A @ B)
    assert np.array_equal(ab.fetch(), A @ B)
    into = np.empty((3, 3))
    assert ab.fetch(into) is into and np.array_equal(into, A @ B)
    assert repr(ab) == "<kumi.call.Held array of float64, shape (3, 3)>"


def test_a_chain_of_calls_stays_at_the_server(server: call.Connection) -> None:
    power = held(server)
    for _ in range(3):
        power = server.call("dmmul", power, B, out={"C": call.KEEP})
    assert np.array_equal(power.fetch(), A @ B @ B @ B @ B)


def test_an_array_is_sent_once_for_many_calls(server: call.Connection) -> None:
    with server.hold(A) as a:
        assert a.shape == (3, 3) and a.dtype == np.dtype(np.float64) and a.order == "C"
        assert np.array_equal(server.call("dmmul", a, B), A @ B)
        assert np.array_equal(server.call("dmmul", B, a), B @ A)
        assert np.array_equal(a.fetch(), A)
    with pytest.raises(call.HeldLostError, match="it was freed"):
        server.call("dmmul", a, B)


def test_arrays_keep_their_order(server: call.Connection) -> None:
    right = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    with server.hold(right) as b:
        assert b.order == "F" and np.array_equal(b.fetch(), right)
    # Neither order: a copy is sent by rows.
    with server.hold(np.arange(18.0).reshape(3, 6)[:, ::2]) as a:
        assert a.order == "C" and np.array_equal(server.call("dmmul", a, B), np.arange(18.0).reshape(3, 6)[:, ::2] @ B)
    with server.hold(np.empty((0, 4))) as nothing:
        assert nothing.fetch().shape == (0, 4)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array(1.0), np.array([None])])
def test_only_arrays_of_numbers_are_held(server: call.Connection, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(call.ArgumentError, match="only arrays of numbers"):
        server.hold(array)


def test_handles_and_futures_give_references(server: call.Connection) -> None:
    ab = server.call_async("dmmul", A, B, out=call.KEEP).result(60)
    with call.Executor(server) as pool:
        aba = pool.submit("dmmul", ab, A, out=call.KEEP).result(60)
    assert np.array_equal(aba.fetch(), A @ B @ A)


def test_an_argument_in_column_order(server: call.Connection) -> None:
    diagonal, right = np.diag([1.0, 2.0, 4.0]), np.arange(6.0).reshape(3, 2)
    a, b = server.call("solve", diagonal, right, out={"a": None, "b": call.KEEP}), None
    assert isinstance(a, call.Held) and a.order == "F" and b is None
    assert np.array_equal(a.fetch(), right / [[1], [2], [4]])
    # Read at the server, and the result comes here.
    again = server.call("solve", diagonal, a, out={"a": None})
    assert np.array_equal(again, right / [[1], [4], [16]])


def test_what_was_freed_is_lost(server: call.Connection) -> None:
    with held(server) as ab:
        pass
    ab.free()
    assert ab.lost
    for use in (ab.fetch, lambda: server.call("dmmul", ab, A)):
        with pytest.raises(call.HeldLostError, match="it was freed"):
            use()


def test_what_the_server_dropped_is_lost(server: call.Connection) -> None:
    ab = held(server)
    # As at the end of its time.
    ab._native.free()
    assert not ab.lost
    for use in (ab.fetch, lambda: server.call("dmmul", ab, A)):
        with pytest.raises(call.HeldLostError, match="no array of this name is held"):
            use()


def test_a_call_keeps_what_it_was_given(server: call.Connection) -> None:
    ab = held(server)
    handle = server.call_async("dmmul", ab, A)
    del ab
    gc.collect()
    assert np.array_equal(handle.result(60), A @ B @ A)


def test_a_reference_of_another_connection_is_refused(server: call.Connection, address: str) -> None:
    ab = held(server)
    with call.connect(address) as other, pytest.raises(call.HeldElsewhereError, match="another connection"):
        other.call("dmmul", ab, A)


def test_a_reference_ends_with_its_server(folder: Path) -> None:
    with serving(call_command(), folder) as address:
        server = call.connect(address)
        ab = held(server)
    # The server has gone; the connection notices it with its next use.
    with pytest.raises(call.CallError):
        server.call("noop")
    assert ab.lost
    with pytest.raises(call.HeldLostError, match="its connection was lost"):
        ab.fetch()


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("total", (), "has elements of float64, the routine wants float32"),
        ("dmmul", (np.ones((2, 2)),), "has the shape"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(
    server: call.Connection, name: str, args: tuple[object, ...], text: str
) -> None:
    with held(server) as ab, pytest.raises(call.ArgumentError, match=text):
        server.call(name, ab, *args)


def test_only_arrays_stay(server: call.Connection) -> None:
    with pytest.raises(call.ArgumentError):
        server.call("total", np.ones(3, np.float32), out={"s": call.KEEP})
    with held(server) as ab, pytest.raises(call.ArgumentError, match="out="):
        ab.fetch(np.empty(3))


def test_ctrl_c_ends_the_wait_for_an_array(folder: Path) -> None:
    words = [str(call_command()), "call", "serve", "--listen", "127.0.0.1:0", "--library", "./libroutines.so", "routines.json"]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        server = call.connect(process.stderr.readline().split()[-1])
        ab = held(server)
        # It does not answer.
        process.send_signal(signal.SIGSTOP)
        try:
            for use in (ab.fetch, lambda: server.hold(np.zeros(10_000_000))):
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                with pytest.raises(KeyboardInterrupt):
                    timer.start()
                    use()
                timer.join()
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
