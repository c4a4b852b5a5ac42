"""A local cluster for tests of pools."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from test_sim import built

import pytest

T = TypeVar("T")

#: How long a test waits for what must come, however busy the machine is, in seconds.
PATIENCE = 120.0


class Cluster:
    """Two nodes on this machine, with one processor each."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = built()
        if command is None or not command.with_name("kumid").is_file():
            pytest.skip("there are no kumi and kumid in KUMI_BIN_DIR; run `cargo build` first")
        self.command = command
        self.environment = {
            "KUMI_BIN": str(command),
            "KUMI_DIR": str(folder),
            "KUMI_CLUSTER": f"p{os.getpid()}-{folder.name}",
        }
        self.kumi("cluster", "up", "--local", "2", "--cpus", "per-node", *options)

    def kumi(self, *arguments: str) -> str:
        """The output of a command."""
        return self._run(*arguments).stdout

    def logs(self, job: int) -> str:
        """What the ranks of a job have written."""
        done = self._run("logs", str(job))
        return done.stdout + done.stderr

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.command, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def job(self, number: int) -> dict[str, Any]:
        """A job, as ``kumi ps`` shows it."""
        jobs = json.loads(self.kumi("ps", "--all", "--json"))
        return next(job for job in jobs if job["job"] == number)

    def down(self) -> None:
        """Ends everything."""
        self.kumi("cluster", "destroy", "--yes")


def wait_for(what: str, look: Callable[[], T | None], pause: float = 0.02) -> T:
    """Looks until there is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(pause)
    raise AssertionError(f"waited in vain for {what}")
