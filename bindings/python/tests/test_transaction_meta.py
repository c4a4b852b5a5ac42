"""Transactions whose calls a metaserver places. Skipped where the commands were not built."""

import json
import time
from collections.abc import Iterator

import numpy as np
import pytest
from test_call import call_command, library
from test_call_meta import start

from kumi import call


@pytest.fixture(scope="module")
def metaserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a metaserver with two servers."""
    call_command()
    folder = tmp_path_factory.mktemp("placed")
    library(folder)
    meta, address = start(folder, "meta", "--policy", "round-robin")
    offer = ("--library", "./libroutines.so", "routines.json", "--meta", address)
    members = [start(folder, "serve", *offer)[0] for _ in range(2)]
    yield address
    for process in (*members, meta):
        process.terminate()
        assert process.stderr is not None
        process.stderr.read()
        process.stderr.close()
        assert process.wait() == 0


def _ready(address: str) -> call.Connection:
    """A connection, when a server has registered: it may after it has said where it listens."""
    connection = call.connect(address)
    for _ in range(600):
        if "dmmul" in connection.names(""):
            return connection
        time.sleep(0.1)
    raise AssertionError("no server has registered")


@pytest.mark.parametrize("how", ["address", "connection", "environment"])
def test_a_metaserver_places_the_calls(
    metaserver: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = _ready(metaserver)
    rng = np.random.default_rng(1)
    a, b = rng.random((30, 30)), rng.random((30, 30))
    if how == "environment":
        monkeypatch.setenv("KUMI_CALL_META", metaserver)
        begun = call.transaction(priority=3)
    else:
        begun = call.transaction(meta=metaserver if how == "address" else connection)
    with begun as t:
        c = t.call("dmmul", a, b)
        d = t.call("dmmul", b, a)
        e = t.call("dmmul", c, d)
    np.testing.assert_allclose(e.result(), a @ b @ b @ a)
    report = t.report
    assert report is not None
    size = a.nbytes
    assert (report.moved.sent, report.moved.received) == (4 * size, size)
    assert report.moved.between + report.moved.stayed == 2 * size
    assert all(step.attempts == 1 and step.server for step in report.steps)
    # The connection is as good as before.
    assert connection.names("dmmul") == ["dmmul"]


def test_what_is_no_metaserver_is_told(
    metaserver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUMI_CALL_META", raising=False)
    with pytest.raises(call.ArgumentError, match="KUMI_CALL_META"):
        call.transaction()
    with pytest.raises(call.ArgumentError, match="name one of both"):
        call.transaction(["127.0.0.1:1"], meta=metaserver)
    for options, says in [
        ({"meta": metaserver, "policy": "round-robin"}, "are for servers that are named"),
        ({"meta": metaserver, "priority": 10}, "there are 0 to 9"),
        ({"servers": ["127.0.0.1:1"], "priority": 1}, "through a metaserver"),
        ({"meta": call.connect(metaserver), "token": "t"}, "those of the connection"),
    ]:
        with pytest.raises(call.ArgumentError, match=says):
            call.transaction(**options)  # type: ignore[arg-type]
    _ready(metaserver)
    with call.transaction(meta=metaserver) as t:
        t.call("dmmul", np.eye(2), np.eye(2))
    assert t.report is not None
    server = t.report.steps[0].server
    assert server is not None
    with pytest.raises(call.ArgumentError, match="is a server, not a metaserver"):
        call.transaction(meta=server)
