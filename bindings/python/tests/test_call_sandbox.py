"""Functions of Python that a server runs in a sandbox. What needs a server is skipped where the commands were not built."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from skips import impossible
from test_call import call_command

from kumi import call

BESIDE = "FACTOR = 3\n"
FUNCTIONS = """
import os
from pathlib import Path

from kumi import call
from kumi.call import Out


@call.routine
def times(x: float) -> float:
    from beside import FACTOR

    return FACTOR * x


@call.routine
def writes(where: str) -> int:
    return int(os.access(where, os.W_OK))


@call.routine
def capitals(source: Path, other: Out[Path]) -> bytes:
    other.write_text(f"{source.stat().st_size} bytes")
    return source.read_bytes().upper()


@call.routine
def beside_it() -> int:
    return len(os.listdir(Path(__file__).parent.parent))
"""


def fits_a_sandbox() -> None:
    """Skips where the sandbox's user cannot read the interpreter: root's routines are nobody's there."""
    if os.geteuid() != 0:
        return
    nobody = pwd.getpwnam("nobody")
    try:
        subprocess.run(
            [sys.executable, "-c", "import numpy, kumi.call"],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=True,
        )
    except (PermissionError, subprocess.CalledProcessError):
        impossible(f"nobody cannot run {sys.executable}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder right below /tmp, for everybody to read."""
    made = Path(tempfile.mkdtemp(prefix="kumi-sandbox-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def kumi_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMI_BIN", str(call_command()))


def works(connection: call.Connection) -> bool:
    """Whether there are sandboxes here; what else goes wrong is raised."""
    try:
        assert connection.call("times", 2.0) == 6
    except call.NotRunnableError as error:
        if "there can be no sandbox" not in str(error):
            raise
        return False
    return True


def test_a_file_below_tmp(folder: Path) -> None:
    fits_a_sandbox()
    (folder / "own").mkdir()
    (folder / "other").mkdir()
    (folder / "own" / "beside.py").write_text(BESIDE)
    (folder / "own" / "served.py").write_text(FUNCTIONS)
    with call.Server(folder / "own" / "served.py", sandbox=True) as server:
        connection = call.connect(server.address)
        if not works(connection):
            pytest.skip("there can be no sandbox here")
        assert connection.call("writes", "/tmp")
        assert not connection.call("writes", str(folder / "own"))
        assert not connection.call("writes", str(folder / "own" / "beside.py"))
        # Nothing but its own folder of what else is there.
        assert connection.call("beside_it") == 1
        source = folder / "source"
        source.write_bytes(b"some text")
        assert connection.call("capitals", source) == (b"9 bytes", b"SOME TEXT")
        assert connection.call("capitals", b"") == (b"0 bytes", b"")


def test_a_file_in_tmp_itself_is_refused() -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="kumi_", dir="/tmp") as file:
        file.write(FUNCTIONS)
        file.flush()
        with pytest.raises(call.CallError, match="put its files into a folder of its own"):
            call.Server(file.name, sandbox=True)
        with call.Server(file.name) as server:
            assert "times" in call.connect(server.address).names()
