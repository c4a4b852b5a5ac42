"""The simulator, without a job. What needs the command ``kumi`` is skipped where it was not built."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import kumi
from kumi import sim


def built() -> Path | None:
    """The command of the build that the package is of."""
    folder = os.environ.get("KUMI_BIN_DIR") or Path(sys.prefix).parents[1] / "debug"
    path = Path(folder) / "kumi"
    return path if path.is_file() else None


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command that was built."""
    path = built()
    if path is None:
        pytest.skip("there is no kumi in KUMI_BIN_DIR; run `cargo build` first")
    monkeypatch.setenv("KUMI_BIN", str(path))
    return path


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No test leaves a temporary file."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield
    # What others leave there is theirs.
    assert list(folder.glob("kumi-*")) == []


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Path:
    """A command that does what `script` says."""
    path = folder / "kumi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("KUMI_BIN", str(path))
    return path


def small(**others: Any) -> dict[str, Any]:
    return {"policy": "easy", "procs": 64, "load": 0.7, "units": 20_000, **others}


def test_import_loads_nothing_else() -> None:
    script = (
        "import sys; sys.modules['numpy'] = sys.modules['pandas'] = sys.modules['pyarrow'] = None\n"
        "import kumi.sim; assert 'kumi._native' not in sys.modules; print(kumi.sim.jobs.__name__)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "jobs\n"


def test_all_that_ranks_call_is_there() -> None:
    assert set(kumi.__all__) < set(dir(kumi))
    assert all(getattr(kumi, name) is not None for name in kumi.__all__)
    assert not hasattr(kumi, "nothing_of_this_name")
    assert not hasattr(kumi, "__nothing__")


def test_figures_are_those_of_the_command(command: Path) -> None:
    result = sim.jobs(**small(seed=3, switch_cost="1ms"))
    arguments = ["--policy=easy", "--procs=64", "--load=0.7", "--units=20000", "--seed=3"]
    told = subprocess.run(
        [command, "sim", "jobs", *arguments, "--switch-cost=1ms", "--json=-"],
        capture_output=True,
        check=True,
    )
    figures = json.loads(told.stdout)
    # Only here a time line was asked for.
    figures["options"]["sample_ns"] = 20_000_000_000
    assert result.data == figures
    assert (result.policy, result.seed, result.load, result.procs) == ("easy", 3, 0.7, 64)
    assert result.options["switch_ns"] == 1_000_000
    assert result.jobs_submitted == figures["jobs"] == sum(row.jobs for row in result.sizes)
    assert result.wait_s.p50 <= result.wait_s.p90 <= result.wait_s.p99 <= result.max_wait_s
    assert result == sim.jobs(**small(seed=3, switch_cost=0.001))
    assert result.figures()["wait_s_p95"] == result.wait_s.p95


def test_tables(command: Path, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    parquet = pytest.importorskip("pyarrow.parquet")
    result = sim.jobs(**small(sample=100))
    jobs = result.jobs()
    assert isinstance(jobs, pd.DataFrame)
    assert len(jobs) == result.jobs_submitted
    assert jobs["end_s"].count() == result.jobs_ended
    assert jobs["wait_s"].mean() == pytest.approx(result.mean_wait_s)
    assert jobs["size"].dtype == "int64"
    line = result.timeline("arrow")
    assert line.column("time_s").to_pylist()[:2] == [100.0, 200.0]
    # Time is not shared.
    assert line.column("max_tqlb").null_count == len(line)
    path = tmp_path / "jobs.parquet"
    result.to_parquet(path)
    back = parquet.read_table(path)
    assert back.equals(result.jobs("arrow"))
    assert json.loads(back.schema.metadata[b"kumi.sim"]) == result.data
    result.to_parquet(tmp_path / "line.parquet", "timeline")
    assert parquet.read_table(tmp_path / "line.parquet").equals(line)
    with pytest.raises(sim.BadArgumentError, match="pandas and arrow"):
        result.jobs("polars")  # type: ignore[call-overload]
    with pytest.raises(sim.BadArgumentError, match="jobs and timeline"):
        result.to_parquet(path, "slots")  # type: ignore[arg-type]


def test_tables_that_were_not_kept(command: Path) -> None:
    result = sim.jobs(**small(tables=False, sample=100))
    with pytest.raises(sim.SimError, match="tables=True"):
        result.jobs("arrow")


def test_tables_say_what_is_missing(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = sim.jobs(**small())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(sim.MissingExtraError, match=r"pip install kumi\[sim\]"):
        result.timeline()


def test_jobs_of_files(command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["; MaxProcs: 8", *(f"{n} {n * 10} 0 5 4 -1 -1 4 9 -1 1 7 1 1 1 1 -1 -1" for n in (1, 2)), "x"]
    trace = tmp_path / "trace.swf"
    trace.write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    result = sim.jobs("fcfs", swf="trace.swf")
    assert (result.procs, result.jobs_submitted, result.load, result.seed) == (8, 2, None, None)
    assert any("malformed" in note for note in result.notes)
    with pytest.raises(sim.SimError, match="line 4") as caught:
        sim.jobs("fcfs", swf=trace, strict=True)
    assert caught.value.exit_code == 65
    ran = {"uid": 0, "ranks": 2, "nodes": [0, 1], "submitted_ms": 0, "started_ms": 5, "ended_ms": 2005}
    result = sim.jobs("fcfs", procs=4, history=[{"job": 1, **ran}, {"job": 2, **ran}])
    assert (result.jobs_ended, result.workload["kind"]) == (2, "history")


def test_refusals_of_the_command(command: Path) -> None:
    with pytest.raises(sim.SimError, match='no scheduling policy is called "eazy"') as caught:
        sim.jobs(**small(policy="eazy"))
    assert caught.value.exit_code == 64
    assert caught.value.text == str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.text, again.exit_code) == (sim.SimError, caught.value.text, 64)
    assert isinstance(again, sim.KumiError)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"polcy": "easy"}, sim.BadTypeError, "no polcy"),
        ({"policy": None}, sim.BadTypeError, "needs a policy"),
        ({"policy": "fcfs,easy"}, sim.BadArgumentError, "sweep"),
        ({"policy": 7}, sim.BadTypeError, "policy is 7"),
        ({"gradient": True}, sim.BadTypeError, "one of load, gradient"),
        ({"load": None}, sim.BadTypeError, "one of load, gradient"),
        ({"procs": None}, sim.BadTypeError, "procs"),
        ({"procs": 6.5}, sim.BadTypeError, "procs is 6.5"),
        ({"load": "high"}, sim.BadTypeError, "load is 'high'"),
        ({"slice": -1}, sim.BadArgumentError, "slice"),
        ({"slice": float("nan")}, sim.BadArgumentError, "slice"),
        ({"load": None, "swf": 7}, sim.BadTypeError, "swf is 7"),
        ({"load": None, "history": [object()]}, sim.BadTypeError, "list of records"),
    ],
)
def test_arguments_that_cannot_be_told(wrong: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says) as caught:
        sim.sweep([small(), small(**wrong)])
    assert caught.value.__notes__[0].startswith("in case 1: ")


def test_no_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUMI_BIN", str(tmp_path))
    with pytest.raises(sim.CommandMissingError, match="KUMI_BIN is") as caught:
        sim.jobs(**small())
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.delenv("KUMI_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sim.CommandMissingError, match="KUMI_BIN to its path"):
        sim.sweep([small()])
    path = pretend(monkeypatch, tmp_path, "exit 3")
    monkeypatch.delenv("KUMI_BIN")
    with pytest.raises(sim.SimError, match="ended with code 3") as ended:
        sim.jobs(**small())
    assert (path.name, ended.value.exit_code) == ("kumi", 3)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo '{\"schema\": 2}'", "shape 2"),
        ("echo '{\"schema\": 1}'", "not complete"),
        ("echo '[]'", "shape None"),
        ("echo nonsense", "no figures"),
        ("kill -9 $$", "signal 9"),
    ],
)
def test_answers_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str
) -> None:
    pretend(monkeypatch, tmp_path, script)
    with pytest.raises(sim.SimError, match=says):
        sim.jobs(**small(tables=False))


def test_a_command_of_another_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = pretend(monkeypatch, tmp_path, "")
    path.write_bytes(b"\x7fELF, but no more")
    with pytest.raises(sim.SimError, match="cannot run"):
        sim.jobs(**small())


def test_grids(command: Path) -> None:
    steps: list[tuple[int, int]] = []
    runs = sim.sweep(
        {**small(), "policy": ["fcfs", "easy"], "seed": range(1, 4)},
        progress=lambda done, cases: steps.append((done, cases)),
    )
    assert [(each.case["policy"], each.case["seed"]) for each in runs] == [
        (policy, seed) for policy in ("fcfs", "easy") for seed in (1, 2, 3)
    ]
    assert [(each.policy, each.seed) for each in runs.results()] == [
        (each.case["policy"], each.case["seed"]) for each in runs
    ]
    assert steps == [(done, 6) for done in range(1, 7)]
    assert runs[4].result == sim.jobs(**small(seed=2), tables=False)
    assert len(runs[1:3]) == 2
    assert list(sim.sweep([])) == []


def test_a_case_that_fails_is_told_apart(command: Path) -> None:
    runs = sim.sweep([small(seed=1), small(policy="none"), small(max_size=128), small(seed=2)])
    assert sorted(runs.errors) == [1, 2]
    assert [each.result is None for each in runs] == [False, True, True, False]
    assert all(isinstance(error, sim.SimError) for error in runs.errors.values())
    with pytest.raises(ExceptionGroup, match="2 of 4 simulations failed, the first is case 1") as all_:
        runs.results()
    assert list(all_.value.exceptions) == list(runs.errors.values())


def test_tables_of_sweeps(command: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    parquet = pytest.importorskip("pyarrow.parquet")
    cases = [small(slice=1), small(policy="none", slice="2s"), small(load=0.5)]
    runs = sim.sweep(cases, tables=True)
    table = runs.table()
    assert list(table["case"]) == [0, 1, 2]
    assert list(table["error"].isna()) == [True, False, True]
    assert list(table["policy"]) == ["easy", "none", "easy"]
    assert table["mean_wait_s"][0] == runs[0].result.mean_wait_s  # type: ignore[union-attr]
    runs.to_parquet(tmp_path / "runs.parquet")
    assert parquet.read_table(tmp_path / "runs.parquet").equals(runs.table("arrow"))
    jobs = runs.jobs()
    ended = [each.result.jobs_submitted for each in runs if each.result is not None]
    assert list(jobs.groupby("case").size()) == ended
    with pytest.raises(sim.SimError, match="no case"):
        runs[1:2].jobs()


class Dask:
    """Of a client of Dask as much as a sweep uses: tasks run when their result is asked for."""

    asynchronous = False

    def __init__(self, at: Callable[[int], None] = lambda number: None) -> None:
        self.at = at
        self.submitted: list[Task] = []
        self.cancelled: list[Task] = []

    def scheduler_info(self) -> dict[str, Any]:
        return {}

    def submit(self, function: Callable[..., Any], *arguments: Any, pure: bool) -> "Task":
        assert not pure
        sent = pickle.dumps((function, arguments))
        self.submitted.append(Task(self, len(self.submitted), sent))
        return self.submitted[-1]

    def cancel(self, tasks: list["Task"]) -> None:
        self.cancelled += tasks


class Task:
    def __init__(self, client: Dask, number: int, sent: bytes) -> None:
        self.client, self.number, self.sent = client, number, sent

    def result(self) -> Any:
        self.client.at(self.number)
        function, arguments = pickle.loads(self.sent)
        return pickle.loads(pickle.dumps(function(*arguments)))


class Ray:
    """Of the module ray as much as a sweep uses."""

    def __init__(self, at: Callable[[int], None] = lambda number: None) -> None:
        self.dask = Dask(at)
        self.initialised = True
        self.cancelled: list[Task] = []

    def is_initialized(self) -> bool:
        return self.initialised

    def remote(self, function: Callable[..., Any]) -> Any:
        class Remote:
            remote = staticmethod(lambda *arguments: self.dask.submit(function, *arguments, pure=False))

        return Remote

    def get(self, task: Task) -> Any:
        return task.result()

    def wait(self, tasks: list[Task]) -> None:
        raise NotImplementedError

    def cancel(self, task: Task) -> None:
        self.cancelled.append(task)


@pytest.mark.parametrize("cluster", [Dask, Ray])
def test_clusters(command: Path, cluster: type[Dask] | type[Ray]) -> None:
    def at(number: int) -> None:
        if number == 1:
            raise CancelledError("the worker was lost")

    steps: list[int] = []
    cases = [small(seed=1), small(seed=2), small(policy="none"), small(seed=4)]
    runs = sim.sweep(cases, on=cluster(at), tables=True, progress=lambda done, _: steps.append(done))
    here = sim.sweep(cases, tables=True)
    assert [each.result for each in runs] == [here[0].result, None, None, here[3].result]
    assert isinstance(runs.errors[1], CancelledError)
    assert str(runs.errors[2]) == str(here.errors[2])
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("cluster", [Dask, Ray])
def test_interrupted_clusters(cluster: type[Dask] | type[Ray], monkeypatch: pytest.MonkeyPatch) -> None:
    def at(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    monkeypatch.setenv("KUMI_BIN", "/nowhere")
    on = cluster(at)
    with pytest.raises(KeyboardInterrupt):
        sim.sweep([small()] * 4, on=on)
    assert {1, 2, 3} <= {task.number for task in on.cancelled}


def test_what_cannot_be_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, dask = Ray(), Dask()
    ray.initialised = False
    with pytest.raises(sim.BadArgumentError, match=r"ray\.init"):
        sim.sweep([small()], on=ray)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(sim.BadArgumentError, match=r"ray\.init"):
        sim.sweep([small()], on="ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(sim.MissingExtraError, match="pip install ray"):
        sim.sweep([small()], on="ray")
    dask.asynchronous = True
    with pytest.raises(sim.BadArgumentError, match="asynchronous"):
        sim.sweep([small()], on=dask)
    with pytest.raises(sim.BadTypeError, match="cannot run on 8"):
        sim.sweep([small()], on=8)


@pytest.mark.parametrize("call", ["sim.sweep([case] * 50)", "sim.jobs(**case)"])
def test_interrupts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str) -> None:
    # The command says that it runs, and would run for ever.
    path = pretend(monkeypatch, tmp_path, 'echo $$ >> "$0.log"; echo $$; exec sleep 1000')
    script = (
        f"from kumi import sim\nimport signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"case = {small()!r}\ntry: {call}\nexcept KeyboardInterrupt: print('interrupted')"
    )
    (tmp_path / "files").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "files")}
    user = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    log = path.with_name("kumi.log")
    while not (log.exists() and log.read_text().endswith("\n")):
        assert user.poll() is None
        threading.Event().wait(0.01)
    # Only to the interpreter, as notebooks do it.
    user.send_signal(signal.SIGINT)
    out, _ = user.communicate(timeout=60)
    assert out == b"interrupted\n"
    assert list((tmp_path / "files").iterdir()) == []
    for number in log.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


def test_a_real_cluster_of_dask(command: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        runs = sim.sweep([small(seed=1), small(policy="none")], on=client)
    assert runs[0].result == sim.jobs(**small(seed=1), tables=False)
    assert isinstance(runs.errors[1], sim.SimError)


def test_a_real_cluster_of_ray(command: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(num_cpus=1, include_dashboard=False)
    try:
        runs = sim.sweep([small(seed=1), small(policy="none")], on="ray")
    finally:
        ray.shutdown()
    assert runs[0].result == sim.jobs(**small(seed=1), tables=False)
    assert isinstance(runs.errors[1], sim.SimError)
