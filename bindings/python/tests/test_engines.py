"""Pools of ranks, as a notebook uses them."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import PATIENCE, Cluster, wait_for

import kumi

RANKS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests here."""
    cluster = Cluster(tmp_path_factory.mktemp("engines"), "--idle-after", "200ms")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster
    cluster.down()


@pytest.fixture(scope="module", params=["socket", "link"])
def engines(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[kumi.Engines]:
    """A pool of eight ranks on two nodes, once by each way."""
    with kumi.Engines(RANKS, nodes=2, channel=request.param) as engines:
        assert engines.channel == request.param
        yield engines


def test_ranks_are_those_of_a_job(engines: kumi.Engines, cluster: Cluster) -> None:
    assert engines.n == RANKS and not engines.closed
    assert engines.run(kumi.rank) == list(range(RANKS))
    assert engines.run(kumi.node) == [0] * 4 + [1] * 4
    job = cluster.job(engines.job)
    assert (job["name"], job["ranks"], job["nodes"]) == ("engines", RANKS, [0, 1]), job
    assert repr(engines) == f"<kumi.Engines: 8 ranks, job {engines.job}>"


def test_functions_of_the_notebook_are_sent_with_their_arguments(engines: kumi.Engines) -> None:
    factor = 3

    def scaled(x: int, *, more: int = 0) -> int:
        return kumi.rank() * factor + x + more

    assert engines.run(scaled, 1, more=10) == [11 + 3 * rank for rank in range(RANKS)]
    assert engines.run(scaled, 1, ranks=[5, 2]) == [16, 7]
    assert engines.run(lambda: None) == [None] * RANKS


def test_ranks_communicate(engines: kumi.Engines) -> None:
    def ring() -> tuple[float, bytes]:
        right, left = (kumi.rank() + 1) % kumi.size(), (kumi.rank() - 1) % kumi.size()
        kumi.send(right, str(kumi.rank()).encode())
        return kumi.allreduce(np.array([1.0 + kumi.rank()]))[0], kumi.recv(left).data

    for rank, (total, data) in enumerate(engines.run(ring)):
        assert total == 36 and data == str((rank - 1) % RANKS).encode()


@pytest.mark.parametrize("length", [0, 1, 1000, 70_000, 3_000_001])
def test_messages_of_any_length(engines: kumi.Engines, length: int) -> None:
    if engines.channel == "link":
        # Several slots all the same.
        length = min(length, 800_000)
    random = np.random.default_rng(length)
    data = random.integers(0, 256, length, np.uint8)

    def back(data: Any) -> Any:
        data[:1] += kumi.rank()
        return data, data.tobytes()

    for rank, (array, copy) in enumerate(engines.run(back, data, ranks=[0, 1, 7])):
        wanted = data.copy()
        wanted[:1] += [0, 1, 7][rank]
        assert np.array_equal(array, wanted) and copy == wanted.tobytes()
        assert array.flags.writeable


def test_futures(engines: kumi.Engines) -> None:
    futures: list[Future[Any]] = [engines.submit(pow, 2, k) for k in range(40)]
    assert [future.result(PATIENCE) for future in futures] == [2**k for k in range(40)]
    where = [engines.submit(kumi.rank) for _ in range(RANKS)]
    wait(where, PATIENCE)
    assert engines.submit(kumi.rank, rank=5).result(PATIENCE) == 5
    failed = engines.submit(divmod, 1, 0, rank=3)
    with pytest.raises(kumi.EnginesError, match="rank 3 raised ZeroDivisionError") as caught:
        failed.result(PATIENCE)
    assert set(caught.value.by_rank) == {3}


def test_futures_go_to_ranks_that_are_free(engines: kumi.Engines, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def work() -> int:
        import time

        while not go.exists():
            time.sleep(0.01)
        return kumi.rank()

    futures = [engines.submit(work) for _ in range(RANKS)]
    go.touch()
    assert sorted(future.result(PATIENCE) for future in futures) == list(range(RANKS))


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
def test_map(engines: kumi.Engines, chunk: int | None) -> None:
    assert engines.map(lambda x: x * x, range(100), chunk=chunk) == [x * x for x in range(100)]
    assert engines.map(str, [], chunk=chunk) == []


def test_map_fails_as_its_function_does(engines: kumi.Engines) -> None:
    with pytest.raises(kumi.EnginesError, match="ZeroDivisionError"):
        engines.map(lambda x: 1 // (x - 50), range(100))
    with pytest.raises(kumi.PoolError, match="chunk is 1 or more, not 0"):
        engines.map(str, [1], chunk=0)
    assert engines.map(str, [1]) == ["1"]


def test_variables(engines: kumi.Engines) -> None:
    engines.push({"a": 1}, b=[2])
    assert engines.pull("a") == [1] * RANKS
    engines.push(a=5, ranks=[3])
    assert engines.pull("a", ranks=[2, 3]) == [1, 5]
    assert engines.run(lambda x, y: x + y[0], engines["a"], engines["b"], ranks=[3]) == [7]
    with pytest.raises(kumi.EnginesError, match="no variable 'nothing'"):
        engines.pull("nothing")


ARRAYS = [
    ("f8", (100,)), ("i4", (7, 3)), ("u1", (3,)), ("c16", (64, 2, 2)), ("M8[s]", (20,)), ("S5", (11,)),
    ("f4", (0, 4)), ("f8", (40_000, 3)), ([("a", "i2"), ("b", "f8")], (19,)),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape"), ARRAYS)
def test_arrays_are_scattered_and_gathered(
    engines: kumi.Engines, dtype: Any, shape: tuple[int, ...]
) -> None:
    random = np.random.default_rng(len(shape))
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = np.frombuffer(random.bytes(size), dtype).reshape(shape)
    engines.scatter("part", array)
    parts = engines.pull("part")
    for part, wanted in zip(parts, np.array_split(array, RANKS), strict=True):
        assert part.dtype == array.dtype and part.shape == wanted.shape
        assert part.tobytes() == wanted.tobytes()
    whole = engines.gather("part")
    assert whole.dtype == array.dtype and whole.shape == shape
    assert whole.tobytes() == array.tobytes() and whole.flags.writeable


def test_parts_are_changed_where_they_are(engines: kumi.Engines) -> None:
    array = np.random.default_rng(1).random((30, 4))
    engines.scatter("part", array[::-1])
    engines.cell("part *= 2\npart = part[:, ::2]")
    assert np.array_equal(engines.gather("part"), 2 * array[::-1, ::2])


def test_arrays_that_cannot_be_gathered(engines: kumi.Engines) -> None:
    with pytest.raises(kumi.PoolError, match="at least one axis"):
        engines.scatter("part", 3.0)
    with pytest.raises(kumi.PoolError, match="no Python objects"):
        engines.scatter("part", np.array([object()]))
    engines.cell("import numpy as np, kumi\npart = np.zeros((2, 1 + kumi.rank() % 2))")
    with pytest.raises(kumi.PoolError, match="part of rank 1 is float64 of shape"):
        engines.gather("part")
    engines.push(part="text", ranks=[6])
    with pytest.raises(kumi.EnginesError, match="no array that can be gathered, but str") as caught:
        engines.gather("part")
    assert set(caught.value.by_rank) == {6}


def test_exceptions_of_ranks_are_one_group(engines: kumi.Engines) -> None:
    def fail_somewhere() -> int:
        if kumi.rank() % 2:
            raise ValueError(f"odd {kumi.rank()}")
        if kumi.rank() == 6:
            raise KeyError("six")
        return kumi.rank()

    with pytest.raises(kumi.EnginesError) as caught:
        engines.run(fail_somewhere)
    error = caught.value
    assert str(error).startswith("5 of 8 ranks raised exceptions; rank 1: ValueError: odd 1")
    assert sorted(error.by_rank) == [1, 3, 5, 6, 7] and error.results == {0: 0, 2: 2, 4: 4}
    assert isinstance(error.by_rank[6], KeyError) and error.by_rank[6].args == ("six",)
    assert [getattr(each, "rank") for each in error.exceptions] == [1, 3, 5, 6, 7]  # noqa: B009
    assert "in fail_somewhere" in error.tracebacks[3] and "ValueError: odd 3" in error.tracebacks[3]
    assert "kumi/engines" not in error.tracebacks[3]
    assert error.by_rank[3].__notes__[0].startswith("rank 3:\nTraceback")
    found: list[Exception] = []
    try:
        engines.run(fail_somewhere)
    except* ValueError as group:
        found += group.exceptions
    except* KeyError:
        pass
    assert len(found) == 4


def test_exceptions_that_cannot_be_sent_are_told(engines: kumi.Engines) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def fail(how: str) -> None:
        if how == "odd":
            raise Odd(1, 2)
        sys.exit(7)

    for how, says in [("odd", "Odd: 1 and 2"), ("exit", "SystemExit: 7")]:
        with pytest.raises(kumi.EnginesError, match=says) as caught:
            engines.run(fail, how, ranks=[4])
        assert isinstance(caught.value.by_rank[4], kumi.RankError)
    assert engines.run(kumi.rank, ranks=[4]) == [4]


def test_what_cannot_be_sent_is_refused_in_one_sentence(engines: kumi.Engines) -> None:
    import threading

    lock = threading.Lock()

    def locked() -> None:
        with lock:
            pass

    wrong: Any = locked
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: engines.run(locked), "the function .*locked cannot be sent to the ranks: "),
        (lambda: engines.run(str, lock), "an argument of str cannot be sent to the ranks: "),
        (lambda: engines.submit(locked), "the function .*locked cannot be sent"),
        (lambda: engines.map(wrong, [1]), "the function .*locked cannot be sent"),
        (lambda: engines.run(3), "a function is needed, not int"),  # type: ignore[arg-type]
    ]
    for call, says in calls:
        with pytest.raises(kumi.NotSendableError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(kumi.EnginesError, match="the result, of type .*lock, cannot be sent"):
        engines.run(threading.Lock, ranks=[1])
    with pytest.raises(kumi.PoolError, match="rank 8 does not exist in a pool of 8 ranks"):
        engines.run(kumi.rank, ranks=[8])
    with pytest.raises(kumi.PoolError, match="at least one rank, and each once"):
        engines.run(kumi.rank, ranks=[1, 1])
    assert engines.run(kumi.rank) == list(range(RANKS))


def test_output_is_labelled_and_comes_before_the_result(
    engines: kumi.Engines, capsys: pytest.CaptureFixture[str]
) -> None:
    def speak() -> None:
        # In one piece: of a line that comes in two the first may be shown by itself.
        sys.stdout.write(f"first\nsecond {kumi.rank()}\n")
        print("unfinished", end="")
        print("complaint", file=sys.stderr)

    for _ in range(5):
        engines.run(speak)
        out, err = capsys.readouterr()
        for rank in range(RANKS):
            own = [line for line in out.splitlines() if line.startswith(f"[{rank}] ")]
            assert own == [f"[{rank}] first", f"[{rank}] second {rank}", f"[{rank}] unfinished"]
        assert sorted(err.splitlines()) == [f"[{rank}] complaint" for rank in range(RANKS)]


def test_output_comes_while_ranks_run(engines: kumi.Engines, tmp_path: Path) -> None:
    go = tmp_path / "go"

    class Watching:
        """Standard output that lets the rank go on once it has said something."""

        def write(self, text: str) -> None:
            if "ready" in text:
                go.touch()

        def flush(self) -> None:
            pass

    def work() -> None:
        import time

        print("ready")
        while not go.exists():
            time.sleep(0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", Watching())
        engines.run(work, ranks=[3])


def test_standard_input_of_ranks_is_empty(engines: kumi.Engines) -> None:
    assert engines.run(lambda: sys.stdin.read()) == [""] * RANKS
    assert engines.run(kumi.rank) == list(range(RANKS))


def test_a_pool_is_idle_between_cells(engines: kumi.Engines, cluster: Cluster) -> None:
    engines.run(kumi.barrier)
    # The looks themselves keep a small machine busy.
    wait_for("an idle job", lambda: cluster.job(engines.job)["idle"] or None, pause=1.0)
    # Another job has the processors meanwhile, and the ranks wake at once.
    assert cluster.kumi("run", "-n", "2", "--nodes", "2", "echo", "here") == "here\nhere\n"
    assert engines.run(kumi.rank) == list(range(RANKS))


def test_modules_beside_the_notebook_are_found(
    engines: kumi.Engines, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside.py").write_text("def value():\n    return 17\n")
    monkeypatch.syspath_prepend(tmp_path)
    with kumi.Engines(1, channel=engines.channel) as pool:
        from beside import value  # type: ignore[import-not-found]

        assert pool.run(value) == [17]
    # A pool that was made before does not know the folder.
    with pytest.raises(kumi.EnginesError, match="No module named 'beside'"):
        engines.run(value, ranks=[0])


def test_pools_live_side_by_side(engines: kumi.Engines) -> None:
    with kumi.Engines(2) as other:
        assert other.job != engines.job
        assert other.run(os.getpid) != engines.run(os.getpid, ranks=[0, 1])
        assert other.run(kumi.size) == [2, 2] and engines.run(kumi.size, ranks=[0]) == [RANKS]
    assert other.closed and engines.run(kumi.rank, ranks=[1]) == [1]
