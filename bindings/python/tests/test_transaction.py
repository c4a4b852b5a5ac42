"""Transactions over two servers of this machine. Skipped where the commands were not built."""

from collections.abc import Iterator

import numpy as np
import pytest
from test_call import call_command, library, serving

from kumi import call


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Addresses of two servers with the routines."""
    command, folder = call_command(), tmp_path_factory.mktemp("transaction")
    library(folder)
    fetch = ("--peer", "any")
    with serving(command, folder, *fetch) as one, serving(command, folder, *fetch) as two:
        yield [one, two]


def test_intermediate_arrays_stay_at_the_servers(servers: list[str]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((30, 30)), rng.random((30, 30))
    with call.transaction(servers, policy="round-robin") as t:
        c = t.call("dmmul", a, b)
        d = t.call("dmmul", b, a)
        e = t.call("dmmul", c, d)
    np.testing.assert_allclose(e.result(), a @ b @ b @ a)
    assert np.asarray(e).shape == (30, 30)
    report = t.report
    assert report is not None
    size = a.nbytes
    assert (report.moved.sent, report.moved.received) == (4 * size, size)
    assert report.moved.between + report.moved.stayed == 2 * size
    assert report.moved.between >= size, "they were made at two servers"
    assert all(step.helped is None for step in report.steps), "they went straight"
    assert t.svg().count("<rect") == 3 and servers[0] in t.svg()
    with pytest.raises(call.CallError, match="call its wanted"):
        c.result()


def test_what_is_wanted_comes_and_is_not_changed(servers: list[str]) -> None:
    a = np.diag([2.0, 4.0])
    right = np.array([2.0, 2.0])
    with call.transaction(servers) as t:
        product = t.call("dmmul", a, a).wanted()
        # By columns, and solved in place: what was sent stays as it is.
        changed, x = t.call("solve", product, right)
        later = t.call("solve", a, x)
        again, y = later
        assert isinstance(later, call.Results) and later["b"] is y
        _, z = t.call("solve", product, x)
    assert product.result().tolist() == [[4.0, 0.0], [0.0, 16.0]]
    assert changed.result()[0, 0] == -1 and again.result()[0, 0] == -1
    assert a[0, 0] == 2.0
    with pytest.raises(call.CallError, match="stayed at the servers"):
        x.result()
    np.testing.assert_allclose(y.result().ravel(), [0.25, 0.03125])
    np.testing.assert_allclose(z.result().ravel(), [0.125, 0.0078125])


def test_scalars_come_back(servers: list[str]) -> None:
    with call.transaction(servers) as t:
        sums = [t.call("total", np.arange(n, dtype="float32")) for n in range(4)]
        assert t.call("noop") is None
        with pytest.raises(call.ArgumentError, match="known only when"):
            t.call("nap", sums[0])
        with pytest.raises(call.CallError, match="has not run yet"):
            sums[0].result()
    assert [later.result() for later in sums] == [0.0, 0.0, 1.0, 3.0]


def test_failures_say_what_did_not_run(servers: list[str]) -> None:
    singular = np.diag([1.0, 0.0])
    right = np.ones((2, 1))
    t = call.transaction(servers)
    _, bad = t.call("solve", singular, right)
    _, behind = t.call("solve", np.eye(2), bad)
    fine = t.call("dmmul", singular, singular)
    with pytest.raises(call.TransactionError) as raised:
        t.run()
    text = str(raised.value)
    assert "1 of 3 calls have run" in text and "info is 2" in text
    assert "call 1 (solve) did not run, because of 0 (solve) -> 1 (solve)" in text
    assert [step.attempts for step in raised.value.report.steps] == [1, 0, 1]
    assert fine.result()[0, 0] == 1.0
    with pytest.raises(call.TransactionError, match="did not run, because of"):
        behind.result()


def test_nothing_runs_with_wrong_arguments(servers: list[str]) -> None:
    a = np.ones((2, 2))
    with call.transaction(servers) as t:
        c = t.call("dmmul", a, a)
        with pytest.raises(call.ArgumentError, match="wants float32"):
            t.call("total", c)
        with pytest.raises(call.RoutineNotFound, match="dmmul"):
            t.call("dmul", a, a)
        with pytest.raises(call.ArgumentError, match="another transaction"):
            call.transaction(servers).call("dmmul", c, c)
    assert c.result().tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with pytest.raises(call.ArgumentError, match="begin another"):
        t.call("noop")
    with pytest.raises(call.ArgumentError, match="no policy"):
        call.transaction(servers, policy="best").run()
    with pytest.raises(call.ConnectError):
        call.transaction(["127.0.0.1:1"])
    with pytest.raises(RuntimeError, match="mine"), call.transaction(servers) as t:
        t.call("noop")
        raise RuntimeError("mine")
    assert not t.ran
