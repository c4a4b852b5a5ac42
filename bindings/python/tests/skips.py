"""The record of skipped tests.

Each skip adds a line to the file that ``KUMI_SKIPS`` names. With ``KUMI_NO_SKIPS=1`` a run with a skip fails, unless the
test said by :func:`impossible` that no set-up of this machine permits it.
"""

import os
from typing import NoReturn

import pytest

IMPOSSIBLE = "impossible on this machine: "


def impossible(reason: str) -> NoReturn:
    """Skips a test that the machine does not permit, however it is set up."""
    pytest.skip(IMPOSSIBLE + reason)


class Skips:
    """Records the skips of a run."""

    def __init__(self) -> None:
        self.forbidden: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Records the report of a skip; ``longrepr`` is a file, a line and the reason then."""
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(IMPOSSIBLE):
            self.forbidden.append(f"{report.nodeid}: {reason}")
        if path := os.environ.get("KUMI_SKIPS"):
            with open(path, "a", encoding="utf-8") as record:
                record.write(f"SKIPPED {report.nodeid}: {reason}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.forbidden and os.environ.get("KUMI_NO_SKIPS") == "1":
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.forbidden and os.environ.get("KUMI_NO_SKIPS") == "1":
            terminalreporter.section("skips are failures (KUMI_NO_SKIPS=1)")
            for line in self.forbidden:
                terminalreporter.line(line)
