"""What ends a pool, and what does not."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import PATIENCE, Cluster, wait_for

import kumi
from kumi.engines import _frames as frames


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests here."""
    cluster = Cluster(tmp_path_factory.mktemp("ends"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster
    cluster.down()


@pytest.fixture(params=["socket", "link"])
def channel(request: pytest.FixtureRequest) -> str:
    """How the notebook and rank 0 talk."""
    return str(request.param)


def over(cluster: Cluster, job: int) -> None:
    """Waits until a job is over."""
    wait_for(f"the end of job {job}", lambda: cluster.job(job)["state"] == "ended" or None)


class Began:
    """Ranks that have begun, as files: also seen while they compute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def here(self) -> None:
        """This rank has begun."""
        (self.folder / f"rank{kumi.rank()}").touch()

    def interrupt_after(self, ranks: int) -> threading.Thread:
        """Sends Ctrl-C to this process once so many have."""

        def work() -> None:
            wait_for("the ranks", lambda: len(list(self.folder.iterdir())) >= ranks or None)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=work)
        thread.start()
        return thread


def test_ctrl_c_interrupts_the_ranks_and_the_pool_goes_on(
    cluster: Cluster, channel: str, tmp_path: Path
) -> None:
    began = Began(tmp_path)

    def sleep() -> None:
        kumi.engines._names.namespace["ended"] = ""
        began.here()
        try:
            time.sleep(3600)
        except KeyboardInterrupt:
            kumi.engines._names.namespace["ended"] = "interrupted"
            raise

    with kumi.Engines(4, nodes=2, channel=channel) as engines:
        thread = began.interrupt_after(4)
        with pytest.raises(KeyboardInterrupt):
            engines.run(sleep)
        thread.join()
        assert engines.pull("ended") == ["interrupted"] * 4
        assert engines.run(kumi.rank) == [0, 1, 2, 3]


def test_ctrl_c_reaches_calls_that_wait_for_messages_and_computation(
    cluster: Cluster, tmp_path: Path
) -> None:
    began = Began(tmp_path)

    def work() -> None:
        began.here()
        if kumi.rank() == 0:
            kumi.recv()
        while True:
            np.zeros(1000).sum()

    with kumi.Engines(2, nodes=2) as engines:
        thread = began.interrupt_after(2)
        with pytest.raises(KeyboardInterrupt):
            engines.run(work)
        thread.join()
        assert engines.run(lambda: kumi.allreduce(np.array([1]))[0]) == [2, 2]


def in_step(engines: kumi.Engines) -> None:
    """Collectives of all ranks work, with much data too, and so do new windows."""

    def work() -> tuple[float, float]:
        window = kumi.window(4)
        window.array[:] = kumi.rank()
        kumi.barrier()
        there = window.get((kumi.rank() + 1) % kumi.size(), 0, 1)[0]
        kumi.barrier()
        window.free()
        return kumi.allreduce(np.ones(40_000)).sum(), there

    n = engines.n
    assert engines.run(work) == [(40_000.0 * n, (rank + 1) % n) for rank in range(n)]


@pytest.mark.parametrize("call", ["barrier", "allreduce", "much", "window"])
def test_ctrl_c_ends_collectives_that_not_all_ranks_call(
    cluster: Cluster, tmp_path: Path, call: str
) -> None:
    def work() -> None:
        began.here()
        if kumi.rank() == 1:
            time.sleep(3600)
        if call == "barrier":
            kumi.barrier()
        elif call == "window":
            kumi.window(100)
        else:
            kumi.allreduce(np.ones(3 if call == "allreduce" else 50_000))

    with kumi.Engines(4, nodes=2) as engines:
        in_step(engines)
        for turn in range(3):
            folder = tmp_path / str(turn)
            folder.mkdir()
            began = Began(folder)
            thread = began.interrupt_after(4)
            with pytest.raises(KeyboardInterrupt):
                engines.run(work)
            thread.join()
            in_step(engines)
        assert not engines.closed


def test_ranks_are_in_step_after_an_exception(cluster: Cluster) -> None:
    def uneven() -> None:
        if kumi.rank() == 1:
            raise ValueError
        # The root waits for nobody, and its message to rank 1 is never received.
        kumi.broadcast(np.ones(3), 0)

    with kumi.Engines(3, nodes=2) as engines:
        for _ in range(3):
            with pytest.raises(kumi.EnginesError):
                engines.run(uneven)
            in_step(engines)


def test_an_interrupt_concerns_what_runs_and_what_waits_and_nothing_later(cluster: Cluster, tmp_path: Path) -> None:
    began = Began(tmp_path)

    def sleep() -> None:
        began.here()
        time.sleep(3600)

    with kumi.Engines(1) as engines:
        running: Future[Any] = engines.submit(sleep)
        waiting: Future[Any] = engines.submit(time.sleep, 3600)
        wait_for("the rank", lambda: list(tmp_path.iterdir()) or None)
        engines.interrupt()
        later = engines.submit(kumi.rank)
        for future in (running, waiting):
            with pytest.raises(kumi.EnginesError, match="KeyboardInterrupt") as caught:
                future.result(PATIENCE)
            assert isinstance(caught.value.by_rank[0], kumi.RankError)
        assert later.result(PATIENCE) == 0
        for _ in range(200):
            short: Future[Any] = engines.submit(kumi.rank)
            engines.interrupt()
            short.exception(PATIENCE)
            assert engines.run(kumi.rank) == [0]


@pytest.mark.parametrize("ranks", [1, 3])
def test_interrupts_while_the_ranks_leave_change_nothing(cluster: Cluster, ranks: int) -> None:
    with kumi.Engines(ranks) as engines:
        assert engines.run(kumi.rank) == list(range(ranks))
        connection = engines._pool.connection

        def interrupt() -> None:
            while connection.process.poll() is None:
                connection.interrupt(frames.GREETING)

        thread = threading.Thread(target=interrupt)
        thread.start()
    thread.join()


def test_the_second_ctrl_c_leaves_ranks_that_do_not_listen(cluster: Cluster, tmp_path: Path) -> None:
    began, go = Began(tmp_path), tmp_path / "go"

    def deaf() -> None:
        began.here()
        while not go.exists():
            try:
                time.sleep(0.05)
            except KeyboardInterrupt:
                (began.folder / "heard").touch()

    with kumi.Engines(1) as engines:
        first, second = began.interrupt_after(1), began.interrupt_after(2)
        with pytest.raises(KeyboardInterrupt):
            engines.run(deaf)
        first.join()
        second.join()
        go.touch()
        assert engines.run(kumi.rank) == [0]


def test_a_rank_that_ends_ends_the_pool(cluster: Cluster, channel: str) -> None:
    engines = kumi.Engines(4, nodes=2, channel=channel)
    job = engines.job
    waiting = engines.submit(time.sleep, 3600, rank=1)
    with pytest.raises(kumi.PoolEndedError, match="rank 2 on node1 exited with code 3") as caught:
        engines.run(os._exit, 3, ranks=[2])
    assert caught.value.exit_code == 3
    with pytest.raises(kumi.PoolEndedError, match="rank 2 on node1 exited with code 3"):
        waiting.result(PATIENCE)
    assert engines.closed and repr(engines) == f"<kumi.Engines: 4 ranks, job {job}, ended>"
    for use in (lambda: engines.run(kumi.rank), lambda: engines.submit(kumi.rank), lambda: engines.map(str, [1])):
        with pytest.raises(kumi.PoolEndedError, match="rank 2 on node1 exited with code 3"):
            use()
    engines.close()
    over(cluster, job)


def test_a_killed_rank_and_a_killed_job(cluster: Cluster) -> None:
    with pytest.raises(kumi.PoolEndedError, match="killed by signal 9"), kumi.Engines(2) as engines:
        engines.run(lambda: os.kill(os.getpid(), signal.SIGKILL), ranks=[1])
    with pytest.raises(kumi.PoolEndedError, match="it was killed"), kumi.Engines(2) as engines:
        future = engines.submit(time.sleep, 3600)
        cluster.kumi("kill", str(engines.job))
        future.result(PATIENCE)


def test_the_end_of_the_block_waits_for_what_was_called(cluster: Cluster, channel: str) -> None:
    def later(k: int) -> int:
        time.sleep(0.1)
        return k

    with kumi.Engines(2, channel=channel) as engines:
        futures = [engines.submit(later, k) for k in range(6)]
    assert [future.result(0) for future in futures] == list(range(6))
    assert cluster.job(engines.job)["outcome"]["kind"] == "success"
    for use in (lambda: engines.run(kumi.rank), lambda: engines.submit(kumi.rank)):
        with pytest.raises(kumi.PoolEndedError, match="was closed"):
            use()
    engines.close()


def test_an_exception_ends_the_pool_at_once(cluster: Cluster) -> None:
    with pytest.raises(ZeroDivisionError), kumi.Engines(2) as engines:
        future = engines.submit(time.sleep, 3600)
        raise ZeroDivisionError
    over(cluster, engines.job)
    with pytest.raises(kumi.PoolEndedError):
        future.result(PATIENCE)


def test_a_pool_that_nobody_has_ends(cluster: Cluster) -> None:
    engines = kumi.Engines(1)
    job = engines.job
    del engines
    gc.collect()
    over(cluster, job)


NOTEBOOK = """
import sys, time
import kumi
engines = kumi.Engines(4, nodes=2, channel=sys.argv[1])
print(engines.job, flush=True)
engines.run(time.sleep if sys.argv[2] == "busy" else kumi.rank, *[3600] * (sys.argv[2] == "busy"))
print("idle", flush=True)
sys.exit() if sys.argv[2] == "exit" else time.sleep(3600)
"""


def notebook(channel: str, how: str, folder: Path) -> subprocess.Popen[str]:
    """A process with a pool; its temporary files are in the folder."""
    return subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK, channel, how],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.mark.parametrize("how", ["busy", "idle"])
def test_a_notebook_that_is_killed_takes_its_job_along(
    cluster: Cluster, channel: str, how: str, tmp_path: Path
) -> None:
    with notebook(channel, how, tmp_path) as process:
        assert process.stdout is not None
        job = int(process.stdout.readline())
        if how == "idle":
            assert process.stdout.readline() == "idle\n"
        process.kill()
        over(cluster, job)
        # Its end of the pipe closes when kumi run has gone, too.
        process.stdout.read()
    assert list(tmp_path.iterdir()) == []
    assert "the notebook has gone" in cluster.logs(job)


def test_a_notebook_that_ends_takes_its_job_along(cluster: Cluster, tmp_path: Path) -> None:
    with notebook("socket", "exit", tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    over(cluster, int(out.split()[0]))
    assert list(tmp_path.iterdir()) == []


def test_kumi_run_that_is_killed_takes_its_job_along(cluster: Cluster, channel: str) -> None:
    engines = kumi.Engines(2, channel=channel)
    future = engines.submit(time.sleep, 3600)
    engines._pool.connection.process.kill()
    with pytest.raises(kumi.PoolEndedError, match="kumi run ended with code -9"):
        future.result(PATIENCE)
    engines.close()
    over(cluster, engines.job)


def test_a_pool_that_cannot_start_says_why(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(kumi.PoolStartError, match="nodes") as caught:
        kumi.Engines(4, nodes=3)
    assert caught.value.exit_code > 0
    with pytest.raises(kumi.PoolStartError, match="rank 0 on node0 exited with code 1"):
        kumi.Engines(1, python="/bin/false")
    with pytest.raises(kumi.PoolStartError, match="'weather'|--weather"):
        kumi.Engines(1, options=["--weather", "fine"])
    with pytest.raises(kumi.PoolStartError, match="nowhere"):
        kumi.Engines(1, cluster="nowhere")
    with pytest.raises(kumi.PoolError, match="channel is 'socket' or 'link', not 'post'"):
        kumi.Engines(1, channel="post")
    monkeypatch.setenv("KUMI_BIN", "/nowhere")
    with pytest.raises(FileNotFoundError, match="KUMI_BIN is /nowhere"):
        kumi.Engines(1)


def test_nothing_is_left(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        with kumi.Engines(1) as engines:
            assert list(tmp_path.iterdir()) == []
            engines.run(kumi.rank)
    with pytest.raises(kumi.PoolStartError):
        kumi.Engines(1, python="/bin/false")
    gc.collect()
    wait_for("the threads", lambda: threading.active_count() <= threads or None)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_the_module_says_what_it_is_for(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kumi.engines"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1 and "is started by kumi.Engines" in done.stderr
