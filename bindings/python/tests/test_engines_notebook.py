"""The cell magic, in a shell of IPython."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from cluster import Cluster
from IPython.core.interactiveshell import InteractiveShell

import kumi


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """A shell with the magic and a pool of two ranks, on a cluster of its own."""
    cluster = Cluster(tmp_path_factory.mktemp("notebook"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**cluster.environment, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython"))}.items():
            patch.setenv(name, value)
        shell: Any = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "kumi")
        shell.push({"kumi": kumi})
        run(shell, "engines = kumi.Engines(2, nodes=2)")
        yield shell
        run(shell, "engines.close()")
        shell.history_manager.end_session()
    InteractiveShell.clear_instance()
    cluster.down()


def result_of(shell: InteractiveShell, cell: str) -> Any:
    """Runs a cell."""
    return cast(Any, shell).run_cell(cell)


def run(shell: InteractiveShell, cell: str) -> None:
    """Runs a cell, which must succeed."""
    result_of(shell, cell).raise_error()


def test_cells_run_at_the_ranks(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, "%%kumi\nimport kumi\nimport numpy as np\nx = np.full(3, 1.0 + kumi.rank())\nx.sum()")
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] np.float64(3.0)", "[1] np.float64(6.0)"]
    # Variables stay, and functions of the notebook see them.
    run(shell, "%%kumi -r 1\nprint(kumi.rank(), x[0])\nx = None")
    assert capsys.readouterr().out == "[1] 1 2.0\n"
    run(shell, "found = engines.run(lambda: x is None)")
    assert shell.user_ns["found"] == [False, True]
    run(shell, "%%kumi engines\ny = kumi.allreduce(np.array([1]))")
    assert [int(y[0]) for y in shell.user_ns["engines"].pull("y")] == [2, 2]


def test_exceptions_of_cells_show_their_lines(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(shell, "%%kumi\na = 1\nb = a / 0 if kumi.rank() else 2")
    error = result.error_in_exec
    assert isinstance(error, kumi.EnginesError) and set(error.by_rank) == {1}
    assert "b = a / 0 if kumi.rank() else 2" in error.tracebacks[1]
    assert "<kumi cell" in error.tracebacks[1] and "line 2" in error.tracebacks[1]
    # IPython has shown it.
    assert "ZeroDivisionError" in capsys.readouterr().err
    result = result_of(shell, "%%kumi\nthis is no Python")
    assert isinstance(result.error_in_exec, kumi.EnginesError)
    assert isinstance(result.error_in_exec.by_rank[0], SyntaxError)


def test_classes_of_cells_and_of_the_notebook(shell: InteractiveShell) -> None:
    run(shell, "%%kumi\nclass Point:\n    def __init__(self, x): self.x = x\np = Point(kumi.rank())")
    run(shell, "class Here(list): pass\nback = engines.run(lambda: Here([kumi.rank()]))")
    assert all(type(each) is shell.user_ns["Here"] for each in shell.user_ns["back"])
    run(shell, "points = engines.pull('p')")
    assert [point.x for point in shell.user_ns["points"]] == [0, 1]


def test_what_is_wrong_with_the_line_is_said(shell: InteractiveShell) -> None:
    for line, says in [
        ("-r x", "'x' are no ranks, as 0,2,4-6 are"),
        ("nothing", "nothing is no pool of ranks"),
        ("-r 7", "rank 7 does not exist in a pool of 2 ranks"),
        ("--what", "unrecognized arguments"),
    ]:
        error = result_of(shell, f"%%kumi {line}\npass").error_in_exec
        assert isinstance(error, kumi.PoolError) and says in str(error), error


def test_without_a_pool_the_magic_says_how_to_make_one(shell: InteractiveShell) -> None:
    from kumi.engines import _engines

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_engines, "_latest", None)
        error = result_of(shell, "%%kumi\npass").error_in_exec
    assert isinstance(error, kumi.PoolError) and "make one first" in str(error)
