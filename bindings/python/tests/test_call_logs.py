"""Logs of calls. Skipped where the commands were not built."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_call import call_command
from test_call_context import PARENT, TRACE, serving

from kumi import call
from kumi.call import _logs

FUNCTIONS = '''
from kumi import call
from kumi.call import Text


@call.routine
def talk(lines: int) -> int:
    for line in range(lines):
        print(f"line {line}")
    return lines


@call.routine
def fails() -> int:
    raise ValueError("no reason")


@call.routine
class Made:
    def __init__(self) -> None:
        self.parent = call.traceparent() or ""

    def where(self) -> Text[80]:
        return self.parent
'''


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("logs") / "functions.py"
    file.write_text(FUNCTIONS)
    return file


@pytest.fixture(scope="module")
def server(functions: Path) -> Iterator[call.Connection]:
    with pytest.MonkeyPatch.context() as environment:
        # Nobody reads the log of the server while it runs, which has a place for some lines only.
        environment.setenv("KUMI_LOG", "warn,kumi_call::routine=off")
        with serving("--interpreter", sys.executable, "--python", functions) as connection:
            yield connection


def test_a_call_has_its_lines_and_its_end(server: call.Connection) -> None:
    assert server.call("talk", 3) == 3
    latest = server.logs(1)[0]
    assert (latest.routine, latest.outcome, latest.lines) == ("talk", "completed", ())
    log = server.log(latest.call)
    assert [line.text for line in log.lines] == ["line 0", "line 1", "line 2"]
    assert {line.source for line in log.lines} == {"routine"}
    assert log.began is not None and log.ended is not None and log.ran is not None
    assert log.came <= log.began <= log.ended and log.reason == "" and log.placed is None
    with pytest.raises(call.RaisedError):
        server.call("fails")
    failed = server.logs(1)[0]
    assert failed.outcome == "raised" and "no reason" in failed.reason and failed.ran is None


def test_a_long_log_comes_whole(server: call.Connection) -> None:
    server.call("talk", 20_000)
    log = server.log(server.logs(1)[0].call)
    assert log.dropped > 0 and log.dropped + len(log.lines) == 20_000
    assert [line.text for line in log.lines] == [f"line {line}" for line in range(log.dropped, 20_000)]


def test_calls_and_objects_are_found_by_their_trace(server: call.Connection) -> None:
    trace = TRACE[3:35]
    with call.traced(PARENT):
        server.call("talk", 1)
        made = server.object("Made")
    logs = server.logs(trace=trace)
    assert [(log.routine, log.is_object) for log in logs] == [("Made", True), ("talk", False)]
    assert all(log.trace == trace for log in logs)
    parent = made.where()
    assert parent.startswith(TRACE) and parent != PARENT
    with server.object("Made") as other:
        assert other.where() == ""


def test_wrong_questions_are_refused(server: call.Connection) -> None:
    for last in (0, 1001, True, 1.5):
        with pytest.raises(call.ArgumentError):
            server.logs(last)  # type: ignore[arg-type]
    with pytest.raises(call.ArgumentError, match="hexadecimal"):
        server.logs(trace="12")
    with pytest.raises(call.ArgumentError):
        server.log(-1)
    with pytest.raises(call.CallError, match="no log of call 1000000"):
        server.log(1_000_000)


class _WrongServer:
    """Answers a question for lines as a server that counts wrongly, or does not say what it should."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def __call__(self, line: int) -> str:
        self.asked.append(line)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _answer(first: int, texts: list[str], count: int) -> str:
    lines = [{"at_ms": 1, "source": "routine", "text": text} for text in texts]
    return json.dumps({"calls": [{"first": first, "count": count, "lines": lines}]})


def test_a_server_that_counts_wrongly_is_not_asked_for_ever() -> None:
    again = _WrongServer(_answer(0, ["x"], 2))
    with pytest.raises(call.CallError, match="a has sent a wrong log"):
        _logs._lines("a", 7, again)
    assert again.asked == [0, 1]
    for wrong in (_answer(0, [], 2), _answer(0, ["x", "y"], 1), "", "[]", '{"calls": 3}'):
        with pytest.raises(call.CallError):
            _logs._lines("a", 7, _WrongServer(wrong))

    class Endless:
        asked = 0

        def __call__(self, line: int) -> str:
            self.asked += 1
            return _answer(line, ["x"], 2**64 - 1)

    endless = Endless()
    with pytest.raises(call.CallError, match="it has no end"):
        _logs._lines("a", 7, endless)
    assert endless.asked == _logs._MOST_ANSWERS


def test_a_log_that_grows_is_read_as_far_as_it_was() -> None:
    grows = _WrongServer(_answer(0, ["x"], 2), _answer(1, ["y"], 3))
    _, lines = _logs._lines("a", 7, grows)
    assert [line["text"] for line in lines] == ["x", "y"] and grows.asked == [0, 1]


def test_a_metaserver_leads_to_the_logs_of_its_servers(functions: Path) -> None:
    command = str(call_command())
    words = [command, "call", "meta", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = next(word for word in line.split() if word.startswith("127.0.0.1:"))
        member = ("--meta", address, "--interpreter", sys.executable, "--python", functions)
        with serving(*member) as server, call.connect(address) as meta:
            while "talk" not in meta.names():
                pass
            assert meta.call("talk", 2) == 2
            latest = meta.logs()[0]
            assert latest.server == server.server and latest.placed is not None and latest.attempt == 1
            lines = ["line 0", "line 1"]
            assert [line.text for line in meta.log(latest.placed).lines] == lines
            assert [line.text for line in meta.log(latest.call, server=latest.server).lines] == lines
            with pytest.raises(call.CallError, match="no log of call"):
                meta.log(latest.placed, server="elsewhere")
    finally:
        process.terminate()
        process.communicate(timeout=30)
