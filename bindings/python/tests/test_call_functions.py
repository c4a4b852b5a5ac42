"""Functions of the program and files as arguments of calls. Skipped where the commands were not built."""

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call import call_command

from kumi import call

SOURCE = """
#include <stdio.h>
void integrate(int n, void (*f)(double, double *), double *sum)
{ *sum = 0; for (int i = 0; i < n; i++) { double y; f((i + 0.5) / n, &y); *sum += y / n; } }
void grow(int n, void (*f)(int, const char *, double *, double *), double *x)
{ double turned[2 * n]; for (int i = 0; i < 2 * n; i++) turned[i] = i; f(n, "text", x, turned);
  for (int i = 0; i < n; i++) x[i] += turned[i] + turned[n + i]; }
void capitals(const char *from, const char *to, int *length)
{ FILE *in = fopen(from, "rb"), *out = fopen(to, "wb"); int c; *length = 0;
  while ((c = getc(in)) != EOF) { putc(c >= 'a' && c <= 'z' ? c - 32 : c, out); ++*length; } fclose(in); fclose(out); }
void twice(int n, const double *x, double *y, double *z) { for (int i = 0; i < n; i++) { y[i] = 2 * x[i]; z[i] += x[i]; } }
void append(const char *path) { FILE *file = fopen(path, "ab"); fputs("end", file); fclose(file); }
"""

DESCRIPTIONS = """
Define integrate(mode_in int n, f(mode_in double x, mode_out double y), mode_out double sum)
Calls "C" integrate(n, f, sum);
Define grow(mode_in int n,
    f(mode_in int k, mode_in string text, mode_inout double x[k], mode_inout double a[k][2] @order(F)),
    mode_inout double x[n])
Calls "C" grow(n, f, x);
Define capitals(mode_in filename from, mode_out filename to, mode_out int length) Calls "C" capitals(from, to, length);
Define twice(mode_in int n, mode_in double x[n], mode_out double y[n], mode_inout double z[n]) Calls "C" twice(n, x, y, z);
Define append(mode_inout filename path) Calls "C" append(path);
"""


BODIES = """
Define halves(mode_in int n, f(mode_in int i, mode_inout double x[i], mode_out string word[9]), mode_out int8 word[9], mode_inout double x[n])
{
    for (int i = 1; i <= n; i++)
        f(i, x, (char *)word);
}
Define lines(mode_in filename from, mode_out filename to)
{
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    int count = 0;
    for (int c; (c = getc(in)) != EOF;)
        count += c == '\\n';
    fprintf(out, "%d lines", count);
    fclose(in);
    fclose(out);
}
"""


def executables(kumi_command: Path, folder: Path) -> list[Path]:
    """The routines as executables; their manifests."""
    if not kumi_command.with_name("libkumi_slot.a").is_file():
        pytest.skip("there is no libkumi_slot.a; run `cargo build` first")
    own = [f'Required "routines.c" {line}' if line.startswith("Calls") else line for line in DESCRIPTIONS.splitlines()]
    text = "\n".join(own).replace(") Calls", ') Required "routines.c" Calls')
    (folder / "built.idl").write_text("Globals {\n#include <stdio.h>\n}\n" + text + BODIES)
    subprocess.run([kumi_command, "call", "build", "-o", folder / "out", folder / "built.idl"], check=True)
    return sorted((folder / "out").glob("*.routine"))


@pytest.fixture(scope="module", params=["library", "executables"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[call.Connection]:
    """A connection to a server with the routines."""
    kumi_command = call_command()
    folder = tmp_path_factory.mktemp("functions")
    (folder / "routines.c").write_text(SOURCE)
    (folder / "routines.idl").write_text(DESCRIPTIONS)
    command: list[str | Path] = [kumi_command, "call", "serve", "--listen", "127.0.0.1:0"]
    command += ["--scratch", folder / "scratch"]
    if request.param == "library":
        library = folder / "libroutines.so"
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, folder / "routines.c"], check=True)
        command += ["--library", library, folder / "routines.idl"]
    else:
        command += executables(kumi_command, folder)
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert serving.stderr is not None
        line = serving.stderr.readline()
        assert f"serves {5 if request.param == 'library' else 7} routines at " in line, line
        yield call.connect(line.split()[-1])
    finally:
        serving.terminate()
        serving.communicate(timeout=30)


def integrates(server: call.Connection) -> None:
    """A routine calls a function at each point that it should."""
    seen: list[float] = []

    def square(x: float) -> float:
        seen.append(x)
        return x * x

    assert server.call("integrate", 4, square) == pytest.approx(0.328125)
    assert seen == [0.125, 0.375, 0.625, 0.875]


def test_functions_are_called(server: call.Connection) -> None:
    integrates(server)
    handles = [server.call_async("integrate", 3, lambda x: x) for _ in range(3)]
    index = call.wait_any(handles, timeout=60)
    assert index is not None
    assert [handle.result(60) for handle in handles] == pytest.approx([0.5] * 3)
    assert "f: (x: float64) -> (y: float64)" in str(server.routine("integrate"))
    # A function calls routines itself, over the same connection.
    nested = server.call("integrate", 2, lambda x: server.call("integrate", 1, lambda y: x + y))
    assert nested == pytest.approx(1.0)


def shared_memories() -> int:
    """How many memories of calls this process maps."""
    return Path("/proc/self/maps").read_text().count("memfd:kumi-call")


def test_large_arrays_go_through_memory(server: call.Connection) -> None:
    connection, before = call.connect(server.address), shared_memories()
    x, z = np.arange(200_000.0), np.ones(200_000)
    for _ in range(3):
        y, sums = connection.call("twice", x, z)
        assert (y == 2 * x).all() and (sums == x + 1).all() and (z == 1).all()
    assert shared_memories() > before
    # Of several at once each has its own.
    handles = [connection.call_async("twice", x + shift, z) for shift in range(4)]
    for shift, handle in enumerate(handles):
        assert (handle.result(60)[0] == 2 * (x + shift)).all()


def test_arrays_go_there_and_back(server: call.Connection) -> None:
    def change(k: int, text: str, x: Any, a: Any) -> Any:
        assert (k, text, a.shape, a.flags.f_contiguous) == (3, "text", (3, 2), True)
        assert a[:, 0].tolist() == [0, 1, 2] and a[:, 1].tolist() == [3, 4, 5]
        a[:, 1] = 10
        return x * 2, a

    result = server.call("grow", 3, change, np.array([1.0, 2.0, 3.0]))
    assert result.tolist() == [12.0, 15.0, 18.0]


def test_failures_of_functions(server: call.Connection) -> None:
    def fails(x: float) -> float:
        raise KeyError(x)

    with pytest.raises(call.CallbackError, match="`f` failed") as caught:
        server.call("integrate", 4, fails)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(call.CallbackError, match="gave 2 values"):
        server.call("integrate", 4, lambda x: (x, x))
    with pytest.raises(call.CallbackError, match="shape"):
        server.call("grow", 3, lambda k, text, x, a: (x, a[:2]), np.zeros(3))

    def interrupts(x: float) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.call("integrate", 4, interrupts)
    with pytest.raises(call.ArgumentError, match="is a function"):
        server.call("integrate", 4, 5)
    assert server.call("integrate", 1, lambda x: x) == 0.5


def test_files(server: call.Connection, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"some text")
    for given in (source, str(source), b"some text", bytearray(b"some text"), io.BytesIO(b"some text")):
        assert server.call("capitals", given) == (b"SOME TEXT", 9)
    target = tmp_path / "target"
    assert server.call("capitals", source, out={"to": target}) == (target, 9)
    assert target.read_bytes() == b"SOME TEXT"
    assert server.call("append", b"the ") == b"the end"
    assert server.call("append", target, out={"path": target}) == target
    assert target.read_bytes() == b"SOME TEXTend"
    with pytest.raises(call.FileError):
        server.call("capitals", tmp_path / "missing")
    with pytest.raises(call.ArgumentError, match="give a path, bytes"):
        server.call("capitals", 5)
    with pytest.raises(call.ArgumentError, match="gives no array and no file `other`"):
        server.call("capitals", source, out={"other": target})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


@pytest.mark.parametrize("server", ["executables"], indirect=True)
def test_bodies_call_functions_and_read_files(server: call.Connection) -> None:
    seen: list[int] = []

    def halve(i: int, x: Any) -> Any:
        seen.append(i)
        return x / 2, f"word {i}"

    word, x = server.call("halves", halve, [8.0, 8.0, 8.0])
    assert (bytes(word)[:7], x.tolist(), seen) == (b"word 3\0", [1, 2, 4], [1, 2, 3])
    assert server.call("lines", b"one\ntwo\n") == b"2 lines"
