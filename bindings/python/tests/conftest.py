"""Jobs of one rank, each test its own; skips are recorded, and failures where they are forbidden."""

import signal
from collections.abc import Iterator

import pytest
from skips import Skips

import kumi


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is a rank of a job that runs the tests."""
    for name in ("KUMI_JOB", "KUMI_RANK", "KUMI_RANKS", "KUMI_NODE", "KUMI_FDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUMI_SINGLETON", "1")


@pytest.fixture
def job(alone: None) -> Iterator[kumi.Job]:
    """A job of one rank, left at the end of the test."""
    with kumi.init() as joined:
        yield joined


def pytest_configure(config: pytest.Config) -> None:
    # Whoever began the tests in the background ignores it, and so would the programs that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Skips(), "kumi-skips")
