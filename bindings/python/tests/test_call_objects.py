"""Objects of classes. Skipped where the commands were not built."""

import copy
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_call import call_command
from test_call_functions import shared_memories
from test_call_meta import come, end, start

from kumi import call

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static double sum;
static char written[256];
void pid(int *p) { *p = getpid(); }
void add(int n, const double *x, double *total)
{ for (int i = 0; i < n; i++) sum += x[i]; *total = sum; }
void turn(int n, int m, const double *a, double *b, double *low, double *high)
{ *low = *high = a[0]; for (int i = 0; i < n * m; i++) { b[i] = -a[i]; if (a[i] < *low) *low = a[i]; if (a[i] > *high) *high = a[i]; } }
void ask(void (*f)(double, double *), double *total) { double more; f(sum, &more); *total = sum += more; }
void keep(const char *from, const char *to)
{ FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  fread(written + strlen(written), 1, 100, in); fputs(written, out); fclose(in); fclose(out); }
void gate(const char *path)
{ char begun[4096]; snprintf(begun, sizeof begun, "%s.begun", path); fclose(fopen(begun, "wb"));
  while (access(path, F_OK)) usleep(1000); strcat(written, "g"); }
void crash(void) { abort(); }
void fail(int *info) { sum += 1; *info = 7; }
"""

DESCRIPTIONS = """
DefClass log {
    DefMethod pid(OUT int p) Calls "C" pid(p);
    DefMethod add(IN int n, IN double x[n], OUT double total) "adds up" Calls "C" add(n, x, total);
    DefMethod turn(IN int n, IN int m, IN double a[n][m], OUT double b[n][m], OUT double low, OUT double high)
        Calls "C" turn(n, m, a, b, low, high);
    DefMethod ask(f(IN double so_far, OUT double more), OUT double total) Calls "C" ask(f, total);
    DefMethod keep(IN filename from, OUT filename to) Calls "C" keep(from, to);
    DefMethod gate(IN string path) Calls "C" gate(path);
    DefMethod crash() Calls "C" crash();
    DefMethod fail(OUT int info) @status(info) Calls "C" fail(info);
    DefMethod end(OUT int p) Calls "C" pid(p);
}
DefClass broken { DefMethod nothing() Calls "C" there_is_none(); }
Define plain(OUT int p) Calls "C" pid(p);
"""


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Waits until this holds."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.005)


def alive(process: int) -> bool:
    return os.path.exists(f"/proc/{process}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the classes."""
    call_command()
    folder = tmp_path_factory.mktemp("objects")
    (folder / "log.c").write_text(SOURCE)
    (folder / "log.idl").write_text(DESCRIPTIONS)
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", "liblog.so", "log.c"], cwd=folder, check=True)
    return folder


def serve(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    return start(folder, "serve", "--library", "./liblog.so", "--slots", "2", "log.idl", *more)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    process, address = serve(folder)
    yield address
    end(process)


@pytest.fixture
def server(address: str) -> call.Connection:
    return call.connect(address)


class Gate:
    """What a call waits for."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / f"gate{time.monotonic_ns()}")

    def begun(self) -> None:
        """Waits until the call runs."""
        eventually("a call that runs", Path(f"{self.path}.begun").exists)

    def open(self) -> None:
        Path(self.path).touch()


def test_each_object_has_a_state_of_its_own(server: call.Connection) -> None:
    with server.object("log") as one, server.object("log") as two:
        assert one.pid() != two.pid()
        assert [one.add([1, 2]), two.add(x=[5.0]), one.add(np.ones(3))] == [3, 5, 6]
        assert one.call("add", [1.0]) == 7 and one.call_async("add", [1.0]).result(60) == 8
        assert one.server == server.server and not one.lost


def test_methods_are_as_routines(server: call.Connection, tmp_path: Path) -> None:
    log, before = server.object("log"), shared_memories()
    a = np.arange(300_000.0).reshape(500, 600)
    into = np.empty_like(a)
    for given in (a, np.asfortranarray(a)):
        turned = log.turn(given, out=into)
        assert turned.b is into and (into == -a).all() and (turned.low, turned.high) == (0, 299_999)
        into[:] = 0
    assert (log.turn(a, out={"b": into}).b == -a).all() and shared_memories() > before
    seen: list[float] = []
    log.add([2.0])

    def more(so_far: float) -> float:
        seen.append(so_far)
        return so_far + 1

    assert log.ask(more) == 5 and seen == [2]
    assert log.call_async("ask", lambda so_far: 1.0).result(60) == 6
    assert (log.keep(b"a"), log.keep(b"b")) == (b"a", b"ab")
    assert log.keep(b"c", out={"to": tmp_path / "to"}) == tmp_path / "to"
    assert (tmp_path / "to").read_bytes() == b"abc"
    with pytest.raises(call.StatusError) as failed:
        log.fail()
    assert failed.value.status == 7 and log.add([0.0]) == 7
    for wrong in ((), ([1j],), ([1.0], [2.0], 3)):
        with pytest.raises(call.ArgumentError, match=r"`log\.add`"):
            log.add(*wrong)


def test_what_is_known_of_an_object(server: call.Connection) -> None:
    log = server.object("log")
    assert {"add", "call", "crash", "lost", "pid", "turn"} <= set(dir(log))
    assert "plain" not in dir(log) and str(log.add) == "log.add(n: int32, x: float64[]) -> (total: float64)\nadds up"
    assert log.add.__doc__ == str(log.routine("add")) and log.add.__name__ == "add"
    assert repr(log) == f"<kumi.call.Object of log at {server.server}>"
    assert not hasattr(log, "ad") and not hasattr(log, "_repr_html_")
    with pytest.raises(AttributeError, match=r"did you mean log\.add"):
        log.ad([1.0])
    with pytest.raises(call.RoutineNotFound, match=r"did you mean log\.add"):
        log.call("ad", [1.0])
    with pytest.raises(TypeError):
        copy.deepcopy(log)
    # Its own names come first.
    assert log.call("end") == log.pid()
    log.end()
    assert log.lost and repr(log).endswith(", lost>")


def test_functions_that_fail_end_their_object(server: call.Connection) -> None:
    log = server.object("log")

    def fails(so_far: float) -> float:
        raise ValueError(f"not {so_far}")

    with pytest.raises(call.CallbackError) as failed:
        log.ask(fails)
    assert isinstance(failed.value.__cause__, ValueError)
    with pytest.raises(call.ObjectLostError):
        log.pid()


def test_calls_run_one_after_the_other(server: call.Connection, tmp_path: Path) -> None:
    log, gate = server.object("log"), Gate(tmp_path)
    handles = [log.call_async("gate", gate.path)] + [log.call_async("add", [float(i)]) for i in range(5)]
    gate.begun()
    assert not any(handle.done() for handle in handles)
    # A slot is left for others.
    assert server.call("plain") != 0
    gate.open()
    assert call.wait_any(handles[:1], timeout=60) == 0
    assert call.wait_all(handles) == [None, 0, 1, 3, 6, 10]


def test_an_object_lives_as_long_as_its_calls(server: call.Connection, tmp_path: Path) -> None:
    log, gate = server.object("log"), Gate(tmp_path)
    process = log.pid()
    handle = log.call_async("gate", gate.path)
    gate.begun()
    del log
    assert not handle.done() and alive(process)
    gate.open()
    assert handle.result(60) is None
    del handle
    eventually("the end of the process", lambda: not alive(process))


def test_a_block_ends_its_object(server: call.Connection, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with server.object("log") as log:
        process = log.pid()
        runs, waits = log.call_async("gate", gate.path), log.call_async("pid")
        gate.begun()
    assert log.lost
    with pytest.raises(call.CancelledError):
        runs.result(60)
    with pytest.raises(call.ObjectLostError, match="the object of `log` is no more"):
        waits.result(60)
    eventually("the end of the process", lambda: not alive(process))
    with pytest.raises(call.ObjectLostError):
        log.add([1.0])
    log.end()
    with pytest.raises(ZeroDivisionError), server.object("log") as log:
        raise ZeroDivisionError
    assert log.lost


def test_what_ends_a_call_ends_its_object(server: call.Connection, tmp_path: Path) -> None:
    log = server.object("log")
    with pytest.raises(call.CrashedError) as crashed:
        log.crash()
    assert crashed.value.detail == 6
    eventually("that it is told", lambda: log.lost)
    with pytest.raises(call.ObjectLostError):
        log.pid()
    log, gate = server.object("log"), Gate(tmp_path)
    handle = log.call_async("gate", gate.path)
    gate.begun()
    # One that waits is no more than itself.
    with pytest.raises(call.TimedOutError):
        log.call("pid", timeout=0.01)
    assert not log.lost
    handle.cancel()
    with pytest.raises(call.CancelledError):
        handle.result(60)
    with pytest.raises(call.ObjectLostError):
        log.pid()


def test_what_is_no_object(server: call.Connection) -> None:
    with pytest.raises(call.RoutineNotFound, match="did you mean log"):
        server.object("lug")
    with pytest.raises(call.NotRunnableError, match="there_is_none"):
        server.object("broken")
    with pytest.raises(call.ArgumentError, match="a priority is for calls through a metaserver"):
        server.object("log", priority=1)
    with pytest.raises(call.ArgumentError, match="there are 0 to 9"):
        server.object("log", priority=10)
    with pytest.raises(call.ArgumentError, match="make an object of `log`"):
        server.call("log.pid")
    with pytest.raises(call.ArgumentError, match="it is a class: make an object"):
        server.call("log")
    t = call.transaction([server.address])
    for name in ("log", "log.pid"):
        with pytest.raises(call.ArgumentError, match="transactions call routines only"):
            t.call(name)


def test_as_many_objects_as_the_server_has(folder: Path) -> None:
    process, address = serve(folder, "--objects", "2")
    server = call.connect(address)
    with server.object("log") as one, server.object("log") as two:
        with pytest.raises(call.BusyError, match="the server has 2 objects already"):
            server.object("log")
        one.end()
        eventually("room", lambda: _can_have(server))
        assert two.add([1.0]) == 1
    end(process)


def _can_have(server: call.Connection) -> bool:
    try:
        server.object("log").end()
    except call.BusyError:
        return False
    return True


def test_the_usual_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_CALL_SERVER", address)
    with call.object("log", timeout=60) as log:
        assert (log.add([1.0]), log.add([1.0])) == (1, 2)


def test_a_server_that_ends(folder: Path) -> None:
    process, address = serve(folder)
    with call.connect(address).object("log") as log:
        assert log.add([1.0]) == 1
        end(process)
        eventually("that it is told", lambda: log.lost)
        with pytest.raises(call.ConnectionLostError):
            log.add([1.0])


def test_objects_through_a_metaserver(folder: Path) -> None:
    meta, address = start(folder, "meta", "--policy", "round-robin")
    servers = [serve(folder, "--meta", address) for _ in range(2)]
    try:
        through = call.connect(address)
        eventually("a class", lambda: "log" in come(through))
        objects = [through.object("log", timeout=60, priority=index) for index in range(4)]
        assert [log.add([float(i)]) for i, log in enumerate(objects)] == [0, 1, 2, 3]
        handles = [log.call_async("add", np.ones(100_000)) for log in objects]
        assert call.wait_any(handles, timeout=60) is not None
        assert call.wait_all(handles) == [100_000, 100_001, 100_002, 100_003]
        assert objects[0].ask(lambda so_far: -so_far) == 0 and "turn" in dir(objects[0])
        with pytest.raises(call.RoutineNotFound, match="it is a routine"):
            through.object("plain")
        with pytest.raises(call.RoutineNotFound):
            through.object("lug")
        with pytest.raises(call.ArgumentError, match="make an object of `log`"):
            through.call("log.pid")
        with pytest.raises(call.ArgumentError, match="transactions call routines only"):
            call.transaction(meta=through).call("log.pid")
        for log in objects:
            log.end()
    finally:
        for process, _ in servers:
            end(process)
        end(meta)
