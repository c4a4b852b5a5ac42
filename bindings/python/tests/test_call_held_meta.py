"""Arrays at servers that a metaserver has chosen. Skipped where the commands were not built."""

from __future__ import annotations

import gc
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_call import call_command, library
from test_call_meta import end, start

from kumi import call

A = np.arange(9.0).reshape(3, 3)
B = np.eye(3) * 2


class Cluster:
    """A metaserver with its state in a file, and two servers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._meta, self.address = start(folder, *self._options)
        offer = ("--library", "./libroutines.so", "routines.json", "--meta", self.address)
        members = [start(folder, "serve", *offer) for _ in range(2)]
        self.servers = {address: process for process, address in members}
        self.connection = call.connect(self.address)
        try:
            self.until(lambda: len(self.homes()) == 2)
        except BaseException:
            self.end()
            raise

    _options = ("meta", "--policy", "round-robin", "--state", "meta.db")

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(600):
            if is_so():
                return
            time.sleep(0.1)
        raise AssertionError("it does not come")

    def held(self) -> call.Held:
        made = self.connection.call("dmmul", A, B, out=call.KEEP)
        assert isinstance(made, call.Held)
        return made

    def homes(self) -> set[str | None]:
        """The servers of calls in turn; empty: there is none yet."""
        try:
            return {self.held().address for _ in range(2)}
        except (call.NoServerError, call.RoutineNotFound):
            return set()

    def kill_server_of(self, held: call.Held) -> str:
        """Kills the server of an array; its address."""
        address = held.address
        assert address is not None
        _kill(self.servers.pop(address))
        return address

    def kill_metaserver_and_start_it_again(self) -> None:
        _kill(self._meta)
        self._meta, address = start(self.folder, *self._options, listen=self.address)
        assert address == self.address

    def end(self) -> None:
        self.connection.close()
        for process in (*self.servers.values(), self._meta):
            end(process)


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    call_command()
    library(tmp_path)
    made = Cluster(tmp_path)
    yield made
    made.end()


def test_calls_run_where_their_arrays_are(cluster: Cluster) -> None:
    server = cluster.connection
    one, other = cluster.held(), cluster.held()
    assert one.address != other.address and one.server == other.server and not one.lost
    assert np.array_equal(one.fetch(), A @ B)
    for _ in range(4):
        # Without its array each second call would run at the other server.
        chained = server.call("dmmul", one, A, out=call.KEEP)
        assert chained.address == one.address
        assert np.array_equal(chained.fetch(), A @ B @ A)
    assert np.array_equal(server.call_async("dmmul", A, other).result(60), A @ A @ B)
    assert list(server.map("dmmul", [one, one], [A, B])) != []
    with call.Executor(server) as pool:
        kept = pool.submit("dmmul", one, B, out=call.KEEP).result(60)
    assert kept.address == one.address and np.array_equal(kept.fetch(), A @ B @ B)
    with pytest.raises(call.HeldElsewhereError, match="a call has arrays of one server; fetch one of them"):
        server.call("dmmul", one, other)
    assert np.array_equal(server.call("dmmul", one, other.fetch()), A @ B @ A @ B)
    with call.connect(cluster.address) as stranger, pytest.raises(call.HeldElsewhereError, match="another connection"):
        stranger.call("dmmul", one, A)
    with pytest.raises(call.ArgumentError, match="a metaserver chooses servers for calls only"):
        server.hold(A)
    one.free()
    with pytest.raises(call.HeldLostError, match="`dmmul`: `A` is an array that is not at its server any more: it was freed"):
        server.call("dmmul", one, A)
    del other
    gc.collect()


def test_a_call_whose_server_was_killed_fails_and_runs_nowhere_else(cluster: Cluster) -> None:
    server = cluster.connection
    one, other = cluster.held(), cluster.held()
    address = cluster.kill_server_of(one)
    for _ in range(2):
        with pytest.raises(call.HeldLostError) as raised:
            server.call("dmmul", one, A)
        assert "`dmmul`: `A` is" in str(raised.value) and address in str(raised.value)
    cluster.until(lambda: one.lost)
    with pytest.raises(call.HeldLostError, match=f"its connection was lost .to .* at {address}"):
        server.call("dmmul", A, one)
    with pytest.raises(call.HeldLostError):
        one.fetch()
    # The other one is still there, and calls without arrays are, too.
    assert np.array_equal(server.call("dmmul", other, A), A @ B @ A)
    assert np.array_equal(server.call("dmmul", A, B), A @ B)


def test_references_outlive_a_metaserver_that_was_killed(cluster: Cluster) -> None:
    server = cluster.connection
    one, other = cluster.held(), cluster.held()
    cluster.kill_metaserver_and_start_it_again()
    # It knows no routine before a server is back.
    cluster.until(lambda: "dmmul" in server.names(""))
    for held in (one, other, one, other):
        chained = server.call("dmmul", held, A, out=call.KEEP)
        assert chained.address == held.address
        assert np.array_equal(chained.fetch(), A @ B @ A)
