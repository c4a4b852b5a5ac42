"""Files, and functions of the client, that routines in Python are given. Skipped where the commands were not built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call import call_command
from test_call_functions import integrates

from kumi import call
from kumi.call import Out

FUNCTIONS = '''
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy import float32, float64, int32

from kumi import call
from kumi.call import Array, FortranArray, InOut, Out, Text

kept = []


@call.routine
def integrate(n: int, f: Callable[[float], float]) -> float:
    return sum(f((i + 0.5) / n) for i in range(n)) / n


@call.routine
def visit(
    x: Array[float64, "n"],
    f: Callable[[str, complex, Array[float32, "k"], FortranArray[int32, "k", 2]], tuple[Array[float64, "2*k"], Text[8], int]],
    g: Callable[[], None],
) -> tuple[Array[float64, "2*n"], Text[8], int]:
    g()
    turned = np.arange(2 * len(x), dtype=int32).reshape((len(x), 2), order="F")
    return f("größe", 1 + 2j, x, turned)


@call.routine
def threads(n: int, f: Callable[[int], int]) -> int:
    found = []
    each = [threading.Thread(target=lambda i=i: found.append(f(i))) for i in range(n)]
    for one in each:
        one.start()
    for one in each:
        one.join()
    return sum(found)


@call.routine
def wrong(how: str, f: Callable[[Array[float64, "n"], Array[float64, "n"]], int32]) -> int:
    if how == "keep":
        kept.append(f)
        return 0
    if how == "kept":
        return kept[0](np.zeros(1), np.zeros(1))
    if how == "count":
        return f(1)
    if how == "type":
        return f(np.zeros(2, complex), np.zeros(2))
    if how == "sizes":
        return f(np.zeros(2), np.zeros(3))
    return f(np.zeros(2), np.zeros(2))


@call.routine
def capitals(text: bytes) -> bytes:
    return text.upper()


@call.routine
def copied(source: Path, other: Out[Path], changed: InOut[Path]) -> Path:
    other.write_text(f"{source.stat().st_size} bytes")
    with changed.open("a") as file:
        file.write("end")
    return source


@call.routine
def no_bytes() -> bytes:
    return "text"
'''


@pytest.fixture(scope="module")
def kumi_bin() -> Iterator[str]:
    command = call_command()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUMI_BIN", str(command))
        yield str(command)


@pytest.fixture(scope="module")
def server(kumi_bin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[call.Connection]:
    path = tmp_path_factory.mktemp("served") / "functions.py"
    path.write_text(FUNCTIONS)
    with call.Server(path, slots=1) as server:
        yield call.connect(server.address)


def test_functions_of_the_client_are_called(server: call.Connection) -> None:
    assert "f: (given1: float64) -> (back1: float64)" in str(server.routine("integrate"))
    integrates(server)
    # One call after the other, whichever thread calls.
    inside = threading.Lock()

    def alone(i: int) -> int:
        assert inside.acquire(blocking=False)
        inside.release()
        return i * i

    assert server.call("threads", 20, alone) == sum(i * i for i in range(20))


def test_what_goes_to_functions_and_back(server: call.Connection) -> None:
    called: list[str] = []

    def f(k: int, text: str, z: complex, x: Any, turned: Any) -> Any:
        assert (k, text, z, x.dtype, x.tolist()) == (3, "größe", 1 + 2j, np.float32, [1, 2, 3])
        assert turned.flags.f_contiguous and turned[:, 1].tolist() == [3, 4, 5]
        return np.arange(2.0 * k), "süß", 7

    y, text, number = server.call("visit", [1.0, 2.0, 3.0], f, lambda: called.append("g"))
    assert (y.tolist(), text, number, called) == ([0, 1, 2, 3, 4, 5], "süß", 7, ["g"])


def test_wrong_calls_of_functions_are_exceptions(server: call.Connection) -> None:
    calls: list[int] = []

    def f(n: int, x: Any, y: Any) -> int:
        calls.append(n)
        return 2**31 - 1

    for how, what in (
        ("count", "takes 2 arguments"),
        ("type", "has elements of complex128"),
        ("sizes", r"has the shape \[3\], and \[2\] is wanted"),
    ):
        with pytest.raises(call.RaisedError, match=what):
            server.call("wrong", how, f)
    assert not calls
    assert server.call("wrong", "keep", f) == 0
    with pytest.raises(call.RaisedError, match="the call that it belongs to is over"):
        server.call("wrong", "kept", f)
    assert server.call("wrong", "", f) == 2**31 - 1 and calls == [2]
    with pytest.raises(call.CallbackError, match="back1"):
        server.call("wrong", "", lambda n, x, y: 2**31)

    def fails(n: int, x: Any, y: Any) -> int:
        raise KeyError(n)

    with pytest.raises(call.CallbackError) as caught:
        server.call("wrong", "", fails)
    assert isinstance(caught.value.__cause__, KeyError)
    assert server.call("wrong", "", f) == 2**31 - 1


def test_files(server: call.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"some text")
    assert server.call("capitals", source) == b"SOME TEXT"
    assert server.call("capitals", b"other") == b"OTHER"
    assert server.call("copied", source, b"the ") == (b"9 bytes", b"the end", b"some text")
    back = server.call("copied", source, b"", out={"changed": target})
    assert back == (b"9 bytes", target, b"some text") and target.read_bytes() == b"end"
    with pytest.raises(call.RaisedError, match="described as bytes"):
        server.call("no_bytes")
    limited = call.connect(server.address, file_bytes=8)
    with pytest.raises(call.FileError, match="a file of 9 bytes would come back, which is more than the 8"):
        limited.call("capitals", source, out={"result": target})
    assert target.read_bytes() == b"end" and len(list(tmp_path.iterdir())) == 2
    assert limited.call("capitals", b"8 bytes.") == b"8 BYTES."
    monkeypatch.setenv("KUMI_CALL_FILE_BYTES", "8")
    with pytest.raises(call.FileError, match="more than the 8"):
        call.connect(server.address).call("capitals", source)
    assert call.connect(server.address, file_bytes=9).call("capitals", source) == b"SOME TEXT"
    monkeypatch.setenv("KUMI_CALL_FILE_BYTES", "16 GiB")
    with pytest.raises(call.ArgumentError, match="KUMI_CALL_FILE_BYTES is a number of bytes, not `16 GiB`"):
        call.connect(server.address)


def described(function: Any) -> None:
    call.routine(function)


def test_annotations_that_mean_nothing() -> None:
    def bare(f: Callable) -> None: ...  # type: ignore[type-arg]

    def any_number(f: Callable[..., int]) -> None: ...

    def nested(f: Callable[[Callable[[], None]], None]) -> None: ...

    def given_file(f: Callable[[Path], None]) -> None: ...

    def text(f: Callable[[], str]) -> None: ...

    def given_back() -> Callable[[], None]:
        raise NotImplementedError

    def content(f: Out[bytes]) -> None: ...  # type: ignore[valid-type]

    def default(f: bytes = b"") -> None: ...

    for function, what in (
        (bare, "what it takes and gives is needed"),
        (any_number, "what it takes and gives is needed"),
        (nested, "takes and gives numbers, texts and arrays"),
        (given_file, "takes and gives numbers, texts and arrays"),
        (text, "a largest size"),
        (given_back, "cannot be given back"),
        (content, "only arrays and files"),
        (default, "a file, which has no default"),
    ):
        function.__qualname__ = function.__name__
        with pytest.raises(call.DescriptionError, match=what):
            described(function)


def test_files_and_functions_do_not_go_to_clusters(kumi_bin: str, tmp_path: Path) -> None:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    with call.Server(path, slots=1, through="dask:127.0.0.1:1") as server:
        connection = call.connect(server.address)
        with pytest.raises(call.NotRunnableError, match="a file, which does not go on to a cluster"):
            connection.call("capitals", b"text")
