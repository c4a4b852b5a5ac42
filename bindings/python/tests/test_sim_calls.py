"""The simulator of calls. What needs the command ``kumi`` is skipped where it was not built."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_sim import command as command
from test_sim import pretend

from kumi import sim


def small(**others: Any) -> dict[str, Any]:
    return {"policy": "least-load", "clients": 4, "routine": "exp:2e8", "time": 2000, "replications": 3, **others}


def test_figures_are_those_of_the_command(command: Path) -> None:
    result = sim.calls(**small(bandwidth=1e6, latency="1ms", seed=5))
    assert (result.policy, result.replications, result.seed) == ("least-load", 3, 5)
    assert result.time_s == 2000 and result.warm_up_s == 200 and 1900 < result.end_s.mean <= 2000
    assert [row["site"] for row in result.rows] == ["site1"] and result.rows[0]["calls"] > 0
    assert [one["name"] for one in result.servers] == ["server1"] and len(result.links) == 1
    assert result == sim.calls(**small(bandwidth=1e6, latency="1ms", seed=5))


def test_tables(command: Path) -> None:
    pytest.importorskip("pandas")
    result = sim.calls(**small(servers=2))
    row = result.flat()[0]
    assert {"policy", "site", "routine", "calls", "calls_per_s", "calls_per_s_half_width"} <= row.keys()
    assert row["response_s_mean"] > 0 and row["response_s_mean_half_width"] >= 0
    assert len(result.table()) == 1 and result.table("arrow").num_rows == 1
    assert result.table(of="servers")["name"].tolist() == ["server1", "server2"]
    with pytest.raises(sim.BadArgumentError, match="there is no table 'jobs'"):
        result.flat("jobs")


def test_sweeps(command: Path) -> None:
    pytest.importorskip("pandas")
    told: list[tuple[int, int]] = []
    grid = small(policy=["round-robin", "least-load"], clients=[1, 8])
    runs = sim.calls_sweep(grid, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)] and len(runs) == 4
    table = runs.table()
    assert table["case"].tolist() == [0, 1, 2, 3] and table["clients"].tolist() == [1, 8, 1, 8]
    assert table["policy"].tolist() == ["round-robin"] * 2 + ["least-load"] * 2
    assert runs[1].rows[0]["calls"] > runs[0].rows[0]["calls"] and len(runs[1:3]) == 2


def test_models(command: Path, tmp_path: Path) -> None:
    written = tmp_path / "model.json"
    subprocess.run(
        [str(command), "sim", "calls", "--policy=least-load", "--time=10s", f"--write-model={written}"],
        check=True,
        capture_output=True,
    )
    model = json.loads(written.read_text())
    by_file = sim.calls(model=written, time=100.0, replications=2)
    assert by_file == sim.calls(model=model, time=100.0, replications=2)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"policy": None}, sim.BadTypeError, "needs a policy or a model"),
        ({"clients": 1.5}, sim.BadTypeError, "give an integer"),
        ({"bandwidth": "much"}, sim.BadTypeError, "give a number"),
        ({"policy": "a,b"}, sim.BadArgumentError, "calls_sweep"),
        ({"policy": 3}, sim.BadTypeError, "give a text"),
        ({"routine": [1]}, sim.BadTypeError, "a text or a list"),
        ({"model": {"a": {1}}}, sim.BadTypeError, "cannot be written as JSON"),
        ({"time": -1}, sim.BadArgumentError, "give 0 to"),
    ],
)
def test_arguments_that_cannot_be_told(wrong: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        sim.calls(**small(**wrong))


def test_refusals(command: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(sim.SimError, match="nowhere") as refused:
        sim.calls(**small(policy="nowhere"))
    assert refused.value.exit_code == 64
    with pytest.raises(sim.SimError) as of_case:
        sim.calls_sweep([small(), small(routine="nothing:1")])
    assert of_case.value.__notes__[0].startswith("in case 1: ")
    pretend(monkeypatch, tmp_path, "echo '{\"schema\": 2}'")
    with pytest.raises(sim.SimError, match="figures of shape 2"):
        sim.calls(**small())
    pretend(monkeypatch, tmp_path, "echo '{\"schema\": 1}'")
    with pytest.raises(sim.SimError, match="not complete"):
        sim.calls(**small())
