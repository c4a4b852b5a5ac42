"""Classes of Python as those of objects. What needs a server is skipped where the commands were not built."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call_objects import Gate, alive, eventually
from test_call_python import kumi_bin

from kumi import call

__all__ = ["kumi_bin"]

CLASSES = '''
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy import float64

from kumi import call
from kumi.call import Array, InOut, Out, Text


class Based:
    def __init__(self, start: float = 1.0) -> None:
        self.total = start
        self._secret = 0

    def pid(self) -> int:
        return os.getpid()

    def add(self, x: Array[float64, "n"]) -> float:
        self.total += float(x.sum())
        return self.total


@call.routine(name="matrix")
class Matrix(Based):
    """A matrix that is inverted once."""

    KIND = "a constant is no method"
    kernel = np.exp

    def set(self, a: Array[float64, "n", "n"]) -> None:
        "Takes it."
        self._inverse = np.linalg.inv(a)

    @call.routine(order="n*m", results=["x", "rest"])
    def solve(self: "Matrix", b: Array[float64, "n", "m"]) -> tuple[Array[float64, "n", "m"], float]:
        return self._inverse @ b, 0.5

    @property
    def size(self) -> int:
        return len(self._inverse)

    @functools.cached_property
    def norm(self) -> float:
        return 1.0

    def ask(self, f: Callable[[float], float]) -> float:
        self.total += f(self.total)
        return self.total

    def file(self, text: bytes, to: Out[Path]) -> int:
        self.text = getattr(self, "text", b"") + text
        to.write_bytes(self.text)
        return len(self.text)

    def turn(self, a: InOut[Array[float64, "n"]]) -> None:
        a *= -1

    @call.routine(name="gate")
    def waits(self, path: str) -> None:
        Path(path + ".begun").touch()
        while not os.path.exists(path):
            time.sleep(0.001)

    def keep(self, a: Array[float64, "n"], how: str) -> None:
        if how == "array":
            self.kept = a
        if how == "view":
            self.kept = [a[1:]]
        if how == "garbage":
            around = [a]
            around.append(around)
        if how == "copy":
            self.kept = a.copy()
        if how == "raise":
            self.kept = a
            raise KeyError("no")

    def gets(self) -> Array[float64, 2]:
        return self.kept

    def crash(self) -> None:
        os.abort()

    def _hidden(self, what):
        pass


class Sub(Matrix):
    """Not served."""


@call.routine
class Fails:
    def __init__(self) -> None:
        raise RuntimeError("first line\\nthere is no device")

    def nothing(self) -> None:
        pass


@call.routine
def plain() -> int:
    return os.getpid()
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classes") / "classes.py"
    path.write_text(CLASSES)
    return path


@pytest.fixture(scope="module")
def address(kumi_bin: str, file: Path) -> Iterator[str]:
    with call.Server(file, slots=2) as server:
        yield server.address


@pytest.fixture
def server(address: str) -> call.Connection:
    return call.connect(address)


def test_what_clients_see(server: call.Connection) -> None:
    names = ["Fails", "Fails.nothing", "matrix", "plain"]
    methods = ["add", "ask", "crash", "file", "gate", "gets", "keep", "pid", "set", "solve", "turn"]
    assert server.names() == sorted([*names, *(f"matrix.{one}" for one in methods)])
    matrix = server.object("matrix")
    assert set(methods) <= set(dir(matrix))
    assert str(matrix.set) == "matrix.set(n: int64, a: float64[][]) -> ()\nTakes it."
    assert str(matrix.solve) == "matrix.solve(n: int64, m: int64, b: float64[][]) -> (x: float64[][], rest: float64)"


def test_an_object_keeps_its_state(server: call.Connection) -> None:
    with server.object("matrix") as one, server.object("matrix") as two:
        assert len({one.pid(), two.pid(), server.call("plain")}) == 3
        a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[3.0, 1.0], [5.0, 0.0]])
        one.set(a)
        two.set(np.eye(2) / 2)
        into = np.empty((2, 2))
        assert one.solve(b, out={"x": into}).x is into
        np.testing.assert_allclose(a @ into, b, atol=1e-12)
        np.testing.assert_array_equal(two.solve(b).x, 2 * b)
        assert [one.add([1.0]), two.add([2.0]), one.add(np.ones(100_000))] == [2, 3, 100_002]
        pids = {one.call_async("pid").result(60) for _ in range(5)}
        assert pids == {one.pid()}


def test_methods_have_functions_and_files(server: call.Connection, tmp_path: Path) -> None:
    matrix = server.object("matrix")
    assert matrix.ask(lambda total: total + 1) == 3
    assert matrix.file(b"a") == (b"a", 1)
    assert matrix.file(b"bc", out={"to": tmp_path / "to"}).result == 3
    assert (tmp_path / "to").read_bytes() == b"abc"
    assert matrix.turn([1.0, -2.0]).tolist() == [-1, 2]


def test_calls_run_one_after_the_other(server: call.Connection, tmp_path: Path) -> None:
    matrix, gate = server.object("matrix"), Gate(tmp_path)
    first = matrix.call_async("gate", gate.path)
    others = [matrix.call_async("add", [1.0]) for _ in range(5)]
    gate.begun()
    assert not any(one.done() for one in others)
    gate.open()
    assert call.wait_all([first, *others]) == [None, 2, 3, 4, 5, 6]


def test_an_exception_leaves_the_object(server: call.Connection) -> None:
    matrix = server.object("matrix")
    matrix.add([1.0])
    with pytest.raises(call.RaisedError, match=r"`matrix\.solve` raised AttributeError: .*_inverse"):
        matrix.solve(np.eye(2))
    with pytest.raises(call.RaisedError, match="LinAlgError: Singular matrix"):
        matrix.set(np.zeros((2, 2)))
    assert matrix.add([1.0]) == 3 and not matrix.lost
    with pytest.raises(call.CrashedError):
        matrix.crash()
    with pytest.raises(call.ObjectLostError):
        matrix.pid()


def test_an_object_keeps_no_memory_of_a_call(server: call.Connection) -> None:
    matrix = server.object("matrix")
    for how in ("array", "view"):
        with pytest.raises(call.RaisedError, match="`keep` keeps an array that it was given.*keep a copy"):
            matrix.keep([1.0, 2.0], how)
    with pytest.raises(call.RaisedError, match="KeyError: 'no'; `keep` keeps an array"):
        matrix.keep([1.0, 2.0], "raise")
    for how in ("garbage", "copy", "no"):
        matrix.keep([1.0, 2.0], how)
    assert matrix.gets().tolist() == [1, 2]


def test_an_instance_that_cannot_be_made(server: call.Connection) -> None:
    with pytest.raises(call.NotRunnableError, match="RuntimeError: first line\nthere is no device"):
        server.object("Fails")


def test_an_object_ends_with_its_process(server: call.Connection) -> None:
    with server.object("matrix") as matrix:
        process = matrix.pid()
        assert alive(process)
    eventually("the end of the process", lambda: not alive(process))


def test_some_classes_of_a_file(kumi_bin: str, file: Path) -> None:
    with call.Server(f"{file}:matrix") as server:
        connection = call.connect(server.address)
        assert "matrix.pid" in connection.names() and "plain" not in connection.names()
        assert connection.object("matrix").add([1.0]) == 2
    with pytest.raises(call.CallError, match="has no routine `Matrix`; it has matrix, Fails, plain"):
        call.Server(f"{file}:Matrix")


def test_a_program_that_serves_its_own_class(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from kumi import call\n"
        "@call.routine\nclass Counter:\n    total: int = 0\n"
        "    def add(self, x: int) -> int:\n        self.total += x\n        return self.total\n"
        "if __name__ == '__main__':\n"
        "    with call.Server(Counter) as server, call.connect(server.address).object('Counter') as counter:\n"
        "        print(counter.add(3), counter.add(4), Counter().add(5))\n"
    )
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("3 7 5\n", 0), ran.stderr


def test_the_example(kumi_bin: str) -> None:
    path = Path(__file__).parents[3] / "examples" / "python" / "factored.py"
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    errors = [float(line.split()[-1]) for line in ran.stdout.splitlines()]
    assert len(errors) == 3 and max(errors) < 1e-8, ran.stdout + ran.stderr


def test_a_file_that_has_changed(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    text = "from kumi import call\n@call.routine\nclass C:\n    def f(self, x: float) -> float:\n        return x\n"
    path.write_text(text)
    with call.Server(path) as server:
        for changed in (text.replace("x: float", "y: float"), text.replace("C:", "D:"), text.replace("def f", "def g")):
            path.write_text(changed)
            with pytest.raises(call.NotRunnableError, match=r"has changed and has no such `C\.f` .* restart the server"):
                call.connect(server.address).object("C")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@call.routine\nclass A:\n  def f(self) -> None: ...\n@call.routine(name='A')\ndef g() -> None: ...", "two routines are called `A`"),
        ("class A:\n  @call.routine(order='1')\n  def f(self) -> None: ...", r"`A\.f` has the decorator .*, and its class has not"),
        (
            "import dataclasses\n@dataclasses.dataclass(slots=True)\n@call.routine\nclass A:\n  x: int = 0\n  def f(self) -> None: ...",
            "`A` is another class since kumi.call.routine",
        ),
        ("class A:\n  def f(self) -> None: ...", "has no function and no class with the decorator"),
    ],
)
def test_files_that_are_refused(kumi_bin: str, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "refused.py"
    path.write_text(f"from kumi import call\n{text}\n")
    with pytest.raises(call.CallError, match=says):
        call.Server(path)


def test_objects_do_not_go_on_to_clusters(kumi_bin: str, file: Path) -> None:
    with (
        call.Server(file, through="dask:127.0.0.1:1") as server,
        pytest.raises(call.NotRunnableError, match="objects of `matrix` do not go on to a cluster"),
    ):
        call.connect(server.address).object("matrix")


def _class(**members: Any) -> type:
    made = type("Class", (), members)
    for one in [made, *members.values()]:
        getattr(one, "__func__", one).__qualname__ = "Class" if one is made else f"Class.{one.__name__}"
    return made


def _f(self: Any, x: float) -> float:
    return x


del _f.__annotations__["self"]


def _bare(self, x):  # type: ignore[no-untyped-def]
    return x


def _no_self() -> None: ...


def _required(self: Any, n: int, m: int = 2) -> None: ...


def _optional(self: Any, n: int = 1, *args: int, **more: int) -> None: ...


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "class `Class` has no method whose name begins with no underscore"),
        ({"_f": _f}, "has no method"),
        ({"f": _bare}, "class `Class`: `f`: `x` has no annotation"),
        ({"f": _no_self}, "class `Class`: `f` takes no instance"),
        ({"f": staticmethod(_f)}, "`f` is a staticmethod, and clients call methods of objects"),
        ({"f": classmethod(_f)}, "`f` is a classmethod"),
        ({"f": _f, "__init__": _required}, "`__init__` takes `n`, and objects are made without arguments"),
    ],
)
def test_classes_that_cannot_be_described(members: dict[str, Any], says: str) -> None:
    with pytest.raises(call.DescriptionError, match=says):
        call.routine(_class(**members))


def test_what_the_decorator_takes_of_classes() -> None:
    made = _class(f=_f, __init__=_optional)
    assert call.routine(made) is made and call.routine(name="other")(made) is made
    wrong: list[dict[str, Any]] = [{"order": "1"}, {"results": ["x"]}, {"idempotent": True}]
    for options in wrong:
        with pytest.raises(call.DescriptionError, match="is a class, which has name= alone"):
            call.routine(**options)(made)
    with pytest.raises(call.DescriptionError, match="are never run again"):

        class Idempotent:
            @call.routine(idempotent=True)
            def f(self) -> None: ...

    with pytest.raises(call.DescriptionError, match="no name by which another process would find it"):

        @call.routine
        class Local:
            def f(self) -> None: ...
