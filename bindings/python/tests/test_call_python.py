"""Functions of Python as routines. What needs a server is skipped where the commands were not built."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numpy import complex64, float32, float64, int32
from test_call import call_command
from test_call_functions import shared_memories

from kumi import call
from kumi.call import Array, FortranArray, InOut, Out, Text

FUNCTIONS = '''
import os
import signal
import time

import numpy as np
from numpy import float32, float64, int32

from kumi import call
from kumi.call import Array, FortranArray, InOut, Out, Text


@call.routine(idempotent=True, order="n*m")
def scale(a: Array[float64, "n", "m"], f: float = 2.0) -> Array[float64, "n", "m"]:
    """Multiplies "a" by f.

    All of it.
    """
    return a * f


@call.routine(results=["q", "r", "text"])
def several(k: int, x: Array[int32, "n"], name: str = "") -> tuple[Array[float32, "k"], int, Text[8]]:
    return np.full(k, x.sum()), len(x), name.upper()


@call.routine
def written(a: InOut[FortranArray[float64, "n", "m"]], b: Out[Array[float64, "n"]]) -> None:
    b[:] = a.sum(axis=1)
    a *= -1


@call.routine
def looks(a: Array[float64, "n"], b: FortranArray[float64, "2", "n"]) -> Text[64]:
    return f"{a.flags.writeable} {a.flags.owndata} {b.flags.f_contiguous} {b.strides} {os.getpid()}"


@call.routine
def bad(how: str, x: Array[float64, "n"]) -> Array[float64, "n"]:
    if how == "raise":
        raise ValueError("one line\\nthe last line\\n")
    if how == "exit":
        raise SystemExit(3)
    if how == "write":
        x[0] = 1
    if how == "shape":
        return np.zeros(len(x) + 1)
    if how == "type":
        return np.zeros(len(x), complex)
    if how == "nothing":
        return None
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        open(__file__ + ".hangs", "w").close()
        time.sleep(1000)
    return x


@call.routine
def big() -> int32:
    return 2**31


if __name__ == "__main__":
    raise RuntimeError("a slot is no program")
'''


@pytest.fixture(scope="module")
def kumi_bin() -> Iterator[str]:
    command = call_command()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(command))
        yield str(command)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "functions.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.fixture(scope="module")
def address(kumi_bin: str, file: Path) -> Iterator[str]:
    with call.Server(file, slots=2) as server:
        yield server.address


@pytest.fixture
def server(address: str) -> call.Connection:
    return call.connect(address)


def test_what_clients_see(server: call.Connection) -> None:
    assert server.names() == ["bad", "big", "looks", "scale", "several", "written"]
    assert str(server.routine("scale")) == (
        "scale(n: int64, m: int64, a: float64[][], f: float64) -> (result: float64[][])\n"
        'Multiplies "a" by f.\n\nAll of it.'
    )


def test_results_are_right(server: call.Connection) -> None:
    a = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(server.call("scale", a), a * 2)
    np.testing.assert_array_equal(server.call("scale", a, 3.0), a * 3)
    np.testing.assert_array_equal(server.call("scale", a.T, f=-1), a.T * -1)
    assert server.call("scale", np.zeros((0, 3))).shape == (0, 3)
    q, r, text = server.call("several", 3, [1, 2, 3, 4], "größe")
    assert q.dtype == float32 and q.tolist() == [10, 10, 10] and (r, text) == (4, "GRÖSSE")
    assert server.call("several", 0, [1])[2] == ""


def test_arrays_are_written_where_they_are(server: call.Connection) -> None:
    a = np.arange(6.0).reshape(2, 3)
    back, sums = server.call("written", a)
    assert back.tolist() == (-a).tolist() and sums.tolist() == [3, 12] and a[0, 1] == 1
    assert back.flags.f_contiguous


def test_large_arrays_go_through_memory(address: str) -> None:
    connection, before = call.connect(address), shared_memories()
    a = np.arange(200_000.0).reshape(400, 500)
    for factor in (2.0, 3.0):
        np.testing.assert_array_equal(connection.call("scale", a, factor), a * factor)
    changed, sums = connection.call("written", np.asfortranarray(a))
    assert (changed == -a).all() and (sums == a.sum(axis=1)).all()
    # By rows, of which the routine's columns are made.
    changed, sums = connection.call("written", a)
    assert (changed == -a).all() and (sums == a.sum(axis=1)).all() and a[0, 1] == 1
    assert shared_memories() > before


def test_arguments_are_those_of_the_call(server: call.Connection) -> None:
    said = [server.call("looks", np.zeros(3), np.zeros((2, 3))).rsplit(" ", 1) for _ in range(3)]
    assert {words for words, _ in said} == {"False False True (8, 16)"}
    # One process, which is kept.
    assert len({process for _, process in said}) == 1


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raise", "ValueError: the last line"),
        ("exit", "SystemExit: 3"),
        ("write", "ValueError: assignment destination is read-only"),
        ("shape", r"ValueError: `result` has the shape \(3,\); the description says \(2,\)"),
        ("type", "TypeError: `result` has elements of complex128; the description says float64"),
        ("nothing", r"ValueError: `result` has the shape \(\)"),
    ],
)
def test_exceptions_are_told(server: call.Connection, how: str, says: str) -> None:
    with pytest.raises(call.RaisedError, match=f"`bad` raised {says}"):
        server.call("bad", how, [1.0, 2.0])
    assert server.call("bad", "", [1.0, 2.0]).tolist() == [1, 2]


def test_crashes_and_hangs_are_the_process_affair(server: call.Connection) -> None:
    with pytest.raises(call.CrashedError) as crashed:
        server.call("bad", "crash", [1.0])
    assert crashed.value.detail == signal.SIGSEGV
    with pytest.raises(call.TimedOutError):
        server.call("bad", "hang", [1.0], timeout=0.5)
    with pytest.raises(call.RaisedError, match="OverflowError: `result` is 2147483648"):
        server.call("big")
    assert server.call("bad", "", [1.0]).tolist() == [1]


def test_functions_of_the_file_in_other_processes(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "spread.py"
    path.write_text("""
import multiprocessing

from kumi import call


def twice(x: int) -> int:
    return 2 * x


@call.routine
def doubled(x: int) -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(twice, (x,))
""")
    with call.Server(path) as server:
        assert call.connect(server.address).call("doubled", 21) == 42
    # The names of other modules are theirs.
    for name in ("colorsys", "a-b"):
        (tmp_path / f"{name}.py").write_text(path.read_text().replace("doubled", "same").replace("pool.apply(twice, (x,))", "x"))
        with call.Server(tmp_path / f"{name}.py") as server:
            assert call.connect(server.address).call("same", 3) == 3


def test_some_functions_of_a_file(kumi_bin: str, file: Path) -> None:
    with call.Server(f"{file}:scale,big") as server:
        assert call.connect(server.address).names() == ["big", "scale"]
    with pytest.raises(call.CallError, match="has no routine `nothing`; it has scale, several"):
        call.Server(f"{file}:nothing")


def test_a_module_that_is_imported(
    kumi_bin: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served_module.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    import served_module  # type: ignore[import-not-found]

    with call.Server([served_module.scale]) as server:
        assert call.connect(server.address).call("scale", np.ones((1, 1))).tolist() == [[2]]
    # It is a function still.
    assert served_module.scale(np.ones((1, 1)), 4.0).tolist() == [[4]]


def test_a_file_that_has_changed(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("from kumi import call\n@call.routine\ndef f(x: float) -> float:\n    return x\n")
    with call.Server(path) as server:
        path.write_text("from kumi import call\n@call.routine\ndef f(y: float) -> float:\n    return y\n")
        with pytest.raises(call.NotRunnableError, match="has changed .* restart the server"):
            call.connect(server.address).call("f", 1.0)


def test_a_program_that_serves_itself(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from kumi import call\n"
        "@call.routine\ndef twice(x: float) -> float:\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with call.Server(twice) as server:\n"
        "        print(call.connect(server.address).call('twice', 4.0))\n"
    )
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("8.0\n", 0), ran.stderr


def test_sources_that_have_nothing(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("print('not to be taken for the answer')\n")
    twice = tmp_path / "same-names.py"
    decorated = "@call.routine(name='same')\ndef {}(x: float) -> float:\n    return x\n"
    twice.write_text("from kumi import call\n" + decorated.format("f") + decorated.format("g"))
    sources: list[tuple[str | Path, str]] = [
        (twice, "two routines are called `same`"),
        (path, "has no function and no class with the decorator"),
        (tmp_path / "gone.py", "there is no file"),
        ("no_such_module", "there is no module no_such_module"),
    ]
    for source, says in sources:
        with pytest.raises(call.CallError, match=says):
            call.Server(source)
    with pytest.raises(call.DescriptionError, match="lacks the decorator"):
        call.Server(len)
    with pytest.raises(call.CallError, match="has no package kumi|cannot be run"):
        call.Server(path, interpreter="/bin/false-python")


def _annotated(annotations: dict[str, Any], **defaults: Any) -> Any:
    def function(a: Any = None) -> Any:
        return a

    function.__annotations__ = annotations
    function.__qualname__ = "function"
    function.__defaults__ = (defaults["a"],) if defaults else None
    return function


@pytest.mark.parametrize(
    ("annotations", "defaults", "says"),
    [
        ({"return": None}, {}, "`a` has no annotation"),
        ({"a": float}, {}, "what it gives has no annotation"),
        ({"a": np.float16, "return": None}, {}, "routines have no numbers of float16"),
        ({"a": bool, "return": None}, {}, "no bool"),
        ({"a": np.ndarray, "return": None}, {}, "also the sizes are needed"),
        ({"a": float, "return": Array[float64, "k"]}, {}, "`k` is the size of no array that is sent"),
        ({"a": Array[float64, "n"], "return": str}, {}, r"Text\[256\]"),
        ({"a": Array[float64, "n"], "return": None}, {"a": 1}, "which has no default"),
        ({"a": float, "return": None}, {"a": float("nan")}, "cannot have the default nan"),
        ({"a": Array[float64, "n +"], "return": None}, {}, "`n` is the size of no array|expected"),
        ({"a": dict, "return": None}, {}, "routines have no numbers of object"),
    ],
)
def test_what_cannot_be_described(annotations: dict[str, Any], defaults: dict[str, Any], says: str) -> None:
    with pytest.raises(call.DescriptionError, match=says):
        call.routine(_annotated(annotations, **defaults))


def test_sizes_cannot_be_anything() -> None:
    for wrong in [(float64,), (float64, 1.5), (float64, ""), (np.float16, "n"), ("f16", "n")]:
        with pytest.raises(call.DescriptionError):
            Array[wrong]
    with pytest.raises(call.DescriptionError, match="only arrays"):
        Out[float]
    with pytest.raises(call.DescriptionError, match="only arrays"):
        InOut[Text[8]]
    with pytest.raises(call.DescriptionError, match="no name by which another process would find it"):
        call.routine(lambda: None)


def test_annotations_that_type_checkers_take() -> None:
    def function(
        a: Annotated[np.ndarray[Any, Any], Array[complex64, "n", 3]], b: Annotated[float, "mm"]
    ) -> Any:
        return a

    function.__qualname__ = "function"
    function.__annotations__["return"] = FortranArray[int32, "n", "min(n, 3)"]
    call.routine(name="my/name", order="2*n^3")(function)
    description = getattr(function, "__kumi_routine__").description  # noqa: B009
    assert '"name":"my/name"' in description and '"calc_order"' in description
    assert '"order":"column"' in description and Text[8].sizes == ("8 + 1",)


def test_it_ends_with_its_processes(kumi_bin: str, file: Path) -> None:
    hangs = Path(f"{file}.hangs")
    hangs.unlink(missing_ok=True)
    with call.Server(file, slots=1) as server:
        connection = call.connect(server.address)
        process = int(connection.call("looks", np.zeros(1), np.zeros((2, 1))).rsplit(" ", 1)[1])
        failed: list[BaseException] = []

        def hang() -> None:
            try:
                connection.call("bad", "hang", [1.0])
            except call.CallError as error:
                failed.append(error)

        thread = threading.Thread(target=hang)
        thread.start()
        until = time.monotonic() + 30
        while not hangs.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
    thread.join(30)
    assert len(failed) == 1
    deadline = time.monotonic() + 30
    while _lives(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # What nobody has waited for yet.
    return state != "Z"


def test_received_into_arrays_of_the_program(server: call.Connection) -> None:
    a = np.arange(6.0).reshape(2, 3)
    into = np.empty((2, 3))
    assert server.call("scale", a, out=into) is into and into.tolist() == (a * 2).tolist()
    assert server.call("scale", a, f=3, out={"result": into}) is into and into[1, 2] == 15
    columns, sums = np.empty((2, 3), order="F"), np.empty(2)
    back = server.call("written", a, out={"a": columns, "b": sums})
    assert back[0] is columns and back[1] is sums and columns.tolist() == (-a).tolist()
    handle = server.call_async("several", 2, [1, 2], out=np.zeros(2, float32))
    assert handle.result()[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ([0.0], "give an array of numpy"),
        (np.empty((2, 3), float32), "has elements of float32, the routine gives float64"),
        (np.empty((2, 3), ">f8"), "has elements of >f8"),
        (np.empty((3, 2)), r"has the shape \(3, 2\), the routine gives \(2, 3\)"),
        (np.empty((2, 6))[:, ::2], "is not contiguous in C's order"),
        (np.empty((2, 3), order="F"), "is not contiguous in C's order"),
        (np.broadcast_to(np.float64(1), (2, 3)), "is read-only"),
        ({"c": np.empty((2, 3))}, "gives no array and no file `c`"),
    ],
)
def test_arrays_that_cannot_be_received_into(server: call.Connection, out: Any, says: str) -> None:
    with pytest.raises(call.ArgumentError, match=says):
        server.call("scale", np.zeros((2, 3)), out=out)


def test_arrays_that_are_sent_cannot_be_received_into(server: call.Connection) -> None:
    a = np.zeros((2, 3))
    with pytest.raises(call.ArgumentError, match="shares memory with another array"):
        server.call("scale", a, out=a)
    with pytest.raises(call.ArgumentError, match="gives 2 arrays; name those"):
        server.call("written", a, out=a.copy())


def test_two_results_cannot_be_received_into_one_array(server: call.Connection) -> None:
    memory = np.empty(6)
    out = {"a": memory.reshape((2, 3), order="F"), "b": memory[:2]}
    with pytest.raises(call.ArgumentError, match="shares memory with another array"):
        server.call("written", np.zeros((2, 3)), out=out)


def test_arrays_of_all_kinds_are_sent(server: call.Connection) -> None:
    a = np.arange(6.0).reshape(2, 3)
    frozen = a.copy()
    frozen.flags.writeable = False
    for given in [a.astype(">f8"), np.asfortranarray(a), frozen, np.stack([a, a], 2)[..., 0], a.astype("i4")]:
        assert server.call("scale", given, np.array(2.0)).tolist() == (2 * a).tolist()
    assert server.call("scale", np.float64(3)).tolist() == [[6]]
    for wrong in [a.astype(complex), np.array([["x"]]), np.array([[object()]]), a.astype(np.longdouble)]:
        with pytest.raises(call.ArgumentError, match="has elements of|no array"):
            server.call("scale", wrong)
    with pytest.raises(call.ArgumentError, match="has elements of float16"):
        server.call("several", 1, np.zeros(2, np.float16))


def _said_of(source: str, folder: Path) -> tuple[int, str]:
    """How the interpreter ends that is to describe a source, and what it says."""
    command = [sys.executable, "-P", "-m", "kumi._slot", "--describe", source]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


def test_a_source_that_is_not_there_is_told_in_a_line(tmp_path: Path) -> None:
    assert _said_of("nofile.py", tmp_path) == (66, "there is no file nofile.py\n")
    assert _said_of("nomodule", tmp_path) == (66, "there is no module nomodule\n")
    (tmp_path / "none.py").write_text("x = 1\n")
    code, said = _said_of("none.py", tmp_path)
    assert code == 1
    assert len(said.splitlines()) == 1
    assert "none.py has no function and no class with the decorator" in said


def test_a_wrong_source_is_told_with_its_own_places_only(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("import kumi\n\n@kumi.call.routine\ndef f(a):\n    return a\n")
    code, said = _said_of("bad.py", tmp_path)
    assert code == 1
    assert "`f`: `a` has no annotation" in said.splitlines()[-1]
    assert [line for line in said.splitlines() if line.startswith("  File ")] == [
        f'  File "{source}", line 3, in <module>'
    ]
    # A module that the source needs is not the source.
    source.write_text("import nomodule\n")
    code, said = _said_of("bad.py", tmp_path)
    assert code == 1
    assert said.splitlines()[-1] == "ModuleNotFoundError: No module named 'nomodule'"
