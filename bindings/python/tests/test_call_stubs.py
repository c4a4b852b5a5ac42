"""Stubs of ``kumi call stubs``: compiled, type-checked and run. Skipped where the commands or a compiler were not built."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_call import call_command

from kumi import call

HERE = Path(__file__).resolve().parent
BINDINGS = HERE.parents[1]
GRPC = BINDINGS / "grpc"

DESCRIPTION = """
Define scale(mode_in int n, mode_in double a[n], mode_in double by = 2, mode_out double b[n], mode_out double sum)
"multiplies by a number"
Calls "C" scale(n, a, by, b, sum);

Define fold(mode_in int n, f(mode_in double x, mode_in int k, mode_out double y), mode_inout double total)
Calls "C" fold(n, f, total);

Define shout(mode_in string text, mode_out string answer[16])
Calls "C" shout(text, answer);
"""

SOURCE = """
#include <ctype.h>
void scale(int n, const double *a, double by, double *b, double *sum)
{ *sum = 0; for (int i = 0; i < n; i++) { b[i] = by * a[i]; *sum += b[i]; } }
void fold(int n, void (*f)(double, int, double *), double *total)
{ for (int k = 0; k < n; k++) f(*total, k, total); }
void shout(const char *text, char *answer)
{ while ((*answer++ = (char)toupper((unsigned char)*text++))) ; }
"""

C_PROGRAM = """
#include <stdio.h>
#include "maths_stubs.h"
static void add(double x, int32_t k, double *y) { *y = x + k; }
int main(void)
{
    grpc_function_handle_t handle, folds, shouts;
    grpc_sessionid_t session;
    double a[3] = {1, 2, 3}, b[3], sum, total = 100;
    char answer[16];
    if (grpc_initialize(NULL) || call_scale_handle(&handle) || call_fold_handle(&folds) || call_shout_handle(&shouts))
        return 1;
    /* Each integer is converted to the type of the parameter. */
    if (call_scale(&handle, 3, a, 4, b, &sum) || call_fold(&folds, 4, add, &total) || call_shout(&shouts, "hello", answer))
        return 2;
    printf("%g %g %g %s\\n", b[2], sum, total, answer);
    if (call_scale_async(&handle, &session, 3, a, 0.5, b, &sum) || grpc_wait(session))
        return 3;
    printf("%g\\n", sum);
    return grpc_finalize();
}
"""

FORTRAN_PROGRAM = """
module adding
  use, intrinsic :: iso_c_binding
contains
  subroutine add(x, k, y) bind(c)
    real(c_double), value :: x
    integer(c_int32_t), value :: k
    real(c_double), intent(inout) :: y

    y = x + k
  end subroutine add
end module adding

program main
  use, intrinsic :: iso_c_binding
  use kumi_grpc
  use maths_stubs
  use adding
  type(grpc_function_handle) :: handle, folds, shouts
  real(c_double) :: b(3), total, sum
  character(len=16) :: answer

  call grpc_initialize()
  call call_scale_handle(handle)
  call call_fold_handle(folds)
  call call_shout_handle(shouts)
  call call_scale(handle, 3, [1d0, 2d0, 3d0], 4d0, b, sum)
  total = 100
  call call_fold(folds, 4, add, total)
  call call_shout(shouts, 'hello', answer)
  write (*, '(i0, 1x, i0, 1x, i0, 1x, a)') nint(b(3)), nint(sum), nint(total), trim(answer)
  call grpc_finalize()
end program main
"""

PYTHON_PROGRAM = """
import asyncio
import os

import numpy as np
import maths_stubs as maths
from kumi import call

with call.connect(os.environ["KUMI_CALL_SERVER"]) as server:
    scaled = maths.scale(server, [1, 2, 3], by=4)
    b: np.typing.NDArray[np.float64] = scaled.b
    total: float = maths.fold(server, 4, lambda x, k: x + k, 100)
    print(f"{b[2]:g} {scaled.sum:g} {total:g} {maths.shout(server, 'hello')}")
    print(f"{asyncio.run(maths.scale_async(server, [1, 2, 3], by=0.5)).sum:g}")
"""

WRONG_PYTHON = """
import maths_stubs as maths
from kumi import call

server = call.connect("nowhere")
maths.scale(server, [1], by="two")
maths.shout(server)
length: int = maths.shout(server, "hello")
"""

JAVA_PROGRAM = """
import kumi.call.KumiClient;

public final class Main {
    public static void main(String[] arguments) {
        try (KumiClient client = KumiClient.connect(System.getenv("KUMI_CALL_SERVER"))) {
            MathsStubs maths = new MathsStubs(client);
            MathsStubs.ScaleResults scaled = maths.scale(3, new double[] {1, 2, 3}, 4.0);
            double total = maths.fold(4, it -> it.set("y", it.real("x") + it.integer("k")), 100);
            System.out.printf("%.0f %.0f %.0f %s%n", scaled.b()[2], scaled.sum(), total, maths.shout("hello"));
        }
    }
}
"""

SAID = "12 24 106 HELLO"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stubs")
    (path / "maths.idl").write_text(DESCRIPTION)
    (path / "maths.c").write_text(SOURCE)
    run("cc", "-O1", "-fPIC", "-shared", "-o", "libmaths.so", "maths.c", at=path)
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(call_command()))
        process = subprocess.Popen(
            [call_command(), "call", "serve", "--listen", "127.0.0.1:0", "--library", "./libmaths.so", "maths.idl"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "serves 3 routines at" in said, said
        yield said.split()[-1]
        process.terminate()
        process.stderr.read()
        process.stderr.close()
        process.wait()


def run(*command: str | Path, at: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=at,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def needs(program: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    return program


def stubs(folder: Path, language: str) -> list[str]:
    """Makes the stubs; the names of their files."""
    said = run(call_command(), "call", "stubs", "--language", language, "maths.idl", at=folder)
    return [Path(line).name for line in said.splitlines()]


def library() -> Path:
    """The folder of libkumi_grpc.so."""
    folder = call_command().parent
    if not (folder / "libkumi_grpc.so").is_file():
        pytest.skip("there is no libkumi_grpc.so in KUMI_BIN_DIR; run `make grpc` first")
    # The name by which programs load it; others may make it at the same time.
    with contextlib.suppress(FileExistsError):
        (folder / "libkumi_grpc.so.1").symlink_to("libkumi_grpc.so")
    return folder


def test_c(folder: Path, server: str) -> None:
    libraries = library()
    assert stubs(folder, "c") == ["maths_stubs.h"]
    (folder / "main.c").write_text(C_PROGRAM)
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
    linked = [f"-I{GRPC / 'include'}", f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    run("cc", *warnings, *linked[:1], "-o", "main", "main.c", *linked[1:], "-lkumi_grpc", at=folder)
    assert run("./main", at=folder, KUMI_CALL_SERVER=server).splitlines() == [SAID, "3"]
    (folder / "wrong.c").write_text(C_PROGRAM.replace("a, 4, b, &sum", 'a, "4", b, &sum'))
    wrong = subprocess.run(
        ["cc", *warnings, *linked[:1], "-c", "wrong.c"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert wrong.returncode != 0 and "call_scale" in wrong.stderr


def test_cpp_reads_the_header(folder: Path) -> None:
    stubs(folder, "c")
    (folder / "unit.cpp").write_text('#include "maths_stubs.h"\n')
    run(needs("c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{GRPC / 'include'}", "-c", "unit.cpp", at=folder)


def test_fortran(folder: Path, server: str) -> None:
    libraries, compiler = library(), needs("gfortran")
    assert stubs(folder, "fortran") == ["maths_stubs.f90"]
    sources = GRPC / "fortran"
    for part in ("codes", "push"):
        (folder / f"{part}.f90").write_text(run("sh", sources / "generate", part, at=folder))
    (folder / "main.f90").write_text(FORTRAN_PROGRAM)
    base, errors, transaction = (sources / f"kumi_grpc_{part}.f90" for part in ("base", "errors", "transaction"))
    module: list[str | Path] = ["codes.f90", base, errors, "push.f90", transaction, sources / "kumi_grpc.f90"]
    parts = [*module, "maths_stubs.f90", "main.f90"]
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lkumi_grpc"]
    run(compiler, "-std=f2008", "-Wall", "-Wextra", "-o", "fortran", *parts, *linked, at=folder)
    assert run("./fortran", at=folder, KUMI_CALL_SERVER=server).splitlines() == [SAID]


def test_python(folder: Path, server: str) -> None:
    assert stubs(folder, "python") == ["maths_stubs.py", "maths_stubs.pyi"]
    (folder / "main.py").write_text(PYTHON_PROGRAM)
    assert run(sys.executable, "main.py", at=folder, KUMI_CALL_SERVER=server).splitlines() == [SAID, "3"]


def test_python_is_type_checked(folder: Path) -> None:
    pytest.importorskip("mypy")
    stubs(folder, "python")
    (folder / "main.py").write_text(PYTHON_PROGRAM)
    (folder / "wrong.py").write_text(WRONG_PYTHON)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "mypy")]
    # The code by itself, and the types as callers see them.
    for checked in ("maths_stubs.py", "main.py"):
        run(*mypy, checked, at=folder)
    wrong = subprocess.run([*mypy, "wrong.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "Found 3 errors" in wrong.stdout, wrong.stdout


def test_java(folder: Path, server: str) -> None:
    compiler, java = needs("javac"), needs("java")
    jars = [*Path.home().glob(".m2/repository/com/fasterxml/jackson/core/jackson-core/*/jackson-core-*.jar")]
    if not jars:
        pytest.skip("there is no jackson-core in ~/.m2; run `make java` first")
    assert stubs(folder, "java") == ["MathsStubs.java"]
    (folder / "Main.java").write_text(JAVA_PROGRAM)
    client = [path for path in (BINDINGS / "java/src/main/java").rglob("*.java") if path.name != "module-info.java"]
    run(compiler, "-d", "client", "-cp", str(jars[-1]), *client, at=folder)
    run(compiler, "-Xlint:all", "-Werror", "-d", "classes", "-cp", "client", "MathsStubs.java", "Main.java", at=folder)
    path = os.pathsep.join(["client", "classes", str(jars[-1])])
    assert run(java, "-cp", path, "Main", at=folder, KUMI_CALL_SERVER=server).splitlines() == [SAID]


def test_classes_have_stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = call_command()
    if not command.with_name("libkumi_slot.a").is_file():
        pytest.skip("there is no libkumi_slot.a in KUMI_BIN_DIR; run `cargo build` first")
    (tmp_path / "counters.idl").write_text(
        'DefClass counter "counts"\n{\n    DefState { static long total; }\n'
        "    DefMethod add(mode_in int x = 1) { total += x; }\n"
        "    DefMethod sum(mode_out long now, mode_out int odd) { *now = total; *odd = total % 2; }\n}\n"
    )
    run(command, "call", "build", "counters.idl", at=tmp_path)
    run(command, "call", "stubs", "--language", "python", "counters.idl", at=tmp_path)
    monkeypatch.setenv("KUMI_BIN", str(command))
    monkeypatch.syspath_prepend(tmp_path)
    process = subprocess.Popen(
        [command, "call", "serve", "--listen", "127.0.0.1:0", "counter.routine"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        import counters_stubs  # type: ignore[import-not-found]

        with call.connect(said.split()[-1]) as server, counters_stubs.counter(server) as counter:
            counter.add(x=3)
            counter.add()
            assert counter.sum() == (4, 0)
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()


def test_what_has_no_stub_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.idl").write_text('Define f(mode_in uint32 n) Calls "C" f(n);\nDefine g(mode_in int n) Calls "C" g(n);\n')
    done = subprocess.run(
        [call_command(), "call", "stubs", "--language", "fortran", "odd.idl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 65, done.stderr
    assert "`f` has no stub: `n` is uint32, and Fortran has no integers without a sign" in done.stderr
    assert "1 routine has no stub" in done.stderr
    assert "call_g" in (tmp_path / "odd_stubs.f90").read_text()


def test_stubs_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    for folder, routine in ("a", "f"), ("b", "g"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "maths.idl").write_text(f'Define {routine}(mode_in int n) Calls "C" {routine}(n);\n')
    done = subprocess.run(
        [call_command(), "call", "stubs", "--language", "c", "a/maths.idl", "b/maths.idl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 65, done.stderr
    assert "the stubs of both a/maths.idl and b/maths.idl have this name" in done.stderr
    assert "call_f" in (tmp_path / "maths_stubs.h").read_text()
