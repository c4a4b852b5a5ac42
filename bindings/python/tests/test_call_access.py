"""Who may call, over TLS: tokens, authorities and what is raised. Skipped where the commands were not built."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_call import call_command

from kumi import call


class Server:
    """A server that knows its users and encrypts, and the command in its folder."""

    def __init__(self, folder: Path, kumi: Callable[..., str], address: str) -> None:
        self.folder = folder
        self.kumi = kumi
        self.address = address
        self.ca = folder / "default" / "tls" / "ca.pem"

    def token(self, *options: str) -> str:
        return self.kumi("call", "token", "add", "ada", "--file", "users", *options).strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    command = call_command()
    folder = tmp_path_factory.mktemp("access")
    environment = {**os.environ, "KUMI_DIR": str(folder)}

    def kumi(*arguments: str) -> str:
        done = subprocess.run(
            [str(command), *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    (folder / "r.idl").write_text('Define nothing() Calls "C" getpid(); Define other() Calls "C" getppid();')
    kumi("cluster", "init", "--local", "1")
    kumi("call", "token", "add", "ada", "--file", "users", "--routines", "n*")
    process = subprocess.Popen(
        [str(command), "call", "serve", "--listen", "127.0.0.1:0", "--library", "libc.so.6", "r.idl"]
        + ["--tokens", "users", "--tls-cluster"],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "serves 2 routines at tls://127.0.0.1:" in said, said
    yield Server(folder, kumi, said.split()[-1])
    process.terminate()
    process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0


def test_who_has_a_token_calls(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    token = server.token()
    connection = call.connect(server.address, token=token, ca=server.ca)
    assert connection.names("") == ["nothing"]
    assert connection.call("nothing") is None
    with pytest.raises(call.NotPermittedError, match="may not call `other`"):
        connection.call("other")
    monkeypatch.setenv("KUMI_CALL_TOKEN", token)
    monkeypatch.setenv("KUMI_CALL_CA", str(server.ca))
    assert call.connect(server.address).names("") == ["nothing"]
    with pytest.raises(call.NotPermittedError, match="nobody has this token"):
        call.connect(server.address, token="kumi_wrong")


def test_who_has_none_is_told(server: Server) -> None:
    with pytest.raises(PermissionError, match="a token is wanted"):
        call.connect(server.address, ca=str(server.ca))
    token = server.token("--expires", "1ns")
    with pytest.raises(call.ExpiredError, match="of `ada` expired at"):
        call.connect(server.address, token=token, ca=server.ca)


def test_who_is_not_trusted_is_told_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(call.TlsError, match="--ca"):
        call.connect(server.address, token="x")
    with pytest.raises(ConnectionError, match="cannot be read"):
        call.connect(server.address, ca=tmp_path / "nothing")
    with pytest.raises(call.TlsError, match="tls://"):
        call.connect(server.address.removeprefix("tls://"), token="x")
