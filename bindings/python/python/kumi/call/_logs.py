"""Logs of calls: what servers tell a user of the calls that he has made."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._native import NativeClient, NativeLogSources
from ._errors import ArgumentError, CallError

# What the protocol can say.
_MOST_CALLS = 1000
_MOST_NUMBER = 2**64 - 1
# Answers that make up the log of a call: 1 GiB of lines. A server that counts wrongly may not have anybody ask for ever.
_MOST_ANSWERS = 4096


@dataclass(frozen=True)
class LogLine:
    """A line of a call's log."""

    #: Seconds since the epoch, by the server's clock.
    at: float
    #: ``routine``: it has printed the line; ``server``: the server says it.
    source: str
    #: The text, without control characters other than tabs.
    text: str


@dataclass(frozen=True)
class CallLog:
    """What a server tells of a call. Times are seconds since the epoch, by the server's clock."""

    #: The server's name.
    server: str
    #: The number of the call at the server.
    call: int
    #: The number of the call at the metaserver that has placed it, and which attempt this is. None: no metaserver has.
    placed: int | None
    attempt: int | None
    #: The routine, or the class of an object.
    routine: str
    is_object: bool
    #: The user; empty where users are not told apart.
    user: str
    #: The trace that the call is in.
    trace: str | None
    came: float
    #: When it began to run.
    began: float | None
    ended: float | None
    #: ``completed``, ``crashed``, ``raised``, ``timed-out``, ``cancelled`` or ``failed``. None: it goes on.
    outcome: str | None
    #: Why it failed; empty: it did not.
    reason: str
    #: Seconds that the routine ran, if it has run to its end.
    ran: float | None
    #: What the call has printed: the lines that the server still keeps. Empty in a list of calls.
    lines: tuple[LogLine, ...]
    #: How many lines before these the server keeps no more.
    dropped: int


def _log(server: str, found: dict[str, Any], lines: list[dict[str, Any]]) -> CallLog:
    """The log of a call as a server has given it."""
    end, placed, trace = (found.get(name) or {} for name in ("end", "placed", "trace"))

    def seconds(milliseconds: int | None) -> float | None:
        return None if milliseconds is None else milliseconds / 1e3

    ran = end.get("ran_ns")
    return CallLog(
        server=server,
        call=found["call"],
        placed=placed.get("call"),
        attempt=placed.get("attempt"),
        routine=found["routine"],
        is_object=found.get("is_object", False),
        user=found.get("user", ""),
        trace=trace.get("trace"),
        came=found["came_ms"] / 1e3,
        began=seconds(found.get("began_ms")),
        ended=seconds(end.get("at_ms")),
        outcome=end.get("outcome"),
        reason=end.get("reason", ""),
        ran=None if ran is None else ran / 1e9,
        lines=tuple(LogLine(line["at_ms"] / 1e3, line["source"], line["text"]) for line in lines),
        dropped=found.get("dropped", 0),
    )


def _sources(native: NativeClient) -> NativeLogSources:
    """The servers that can be asked. Of the others the program is told."""
    sources = native.log_sources()
    for server, why in sources.unreachable():
        warnings.warn(f"the calls at {server} are left out: {why}", RuntimeWarning, stacklevel=4)
    return sources


def _parsed(server: str, answer: str) -> list[dict[str, Any]]:
    """The calls in an answer, whose fields the client has checked."""
    try:
        calls: list[dict[str, Any]] = json.loads(answer)["calls"]
        if not isinstance(calls, list):
            raise TypeError("its calls are no list")
    except (ValueError, KeyError, TypeError) as error:
        raise CallError(f"{server} has sent a wrong log: {error}") from error
    return calls


def _answers(sources: NativeLogSources, ask: Callable[[int], str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The calls that servers know of: the server's index and name, and the call."""
    for index, server in enumerate(sources.servers()):
        for found in _parsed(server, ask(index)):
            yield index, server, found


def latest(native: NativeClient, last: int, trace: str | None) -> list[CallLog]:
    """The latest calls, or those of a trace, latest first."""
    if isinstance(last, bool) or not isinstance(last, int) or not 1 <= last <= _MOST_CALLS:
        raise ArgumentError(f"last={last!r}: it is a whole number from 1 to {_MOST_CALLS}")
    sources = _sources(native)

    def ask(index: int) -> str:
        if trace is None:
            return sources.latest(index, last)
        try:
            return sources.trace(index, trace)
        except ValueError as error:
            raise ArgumentError(f"trace={trace!r}: {error}") from None

    calls = [_log(server, found, []) for _, server, found in _answers(sources, ask)]
    calls.sort(key=lambda one: (one.came, one.call), reverse=True)
    return calls if trace is not None else calls[:last]


def _lines(
    server: str, call: int, lines_from: Callable[[int], str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A call as its server describes it, and its lines up to the last one that there was when they were first asked for."""
    lines: list[dict[str, Any]] = []
    following = 0
    end: int | None = None
    for _ in range(_MOST_ANSWERS):
        answer = _parsed(server, lines_from(following))
        if not answer:
            raise CallError(f"the log of call {call} is not kept any more")
        one = answer[0]
        first, count, more = one["first"], one["count"], one["lines"]
        after = first + len(more)
        if not following <= first <= after <= count or (not more and first < count):
            raise CallError(f"{server} has sent a wrong log: it was asked for the lines from {following} on")
        lines += more
        following = after
        end = count if end is None else end
        if following >= end:
            return one, lines
    raise CallError(f"{server} has sent a wrong log: it has no end")


def whole(native: NativeClient, call: int, server: str | None) -> CallLog:
    """A call with its lines; of several attempts the last."""
    if isinstance(call, bool) or not isinstance(call, int) or not 0 <= call <= _MOST_NUMBER:
        raise ArgumentError(f"{call!r} is no number of a call")
    sources = _sources(native)
    by_metaserver = native.is_metaserver() and server is None

    def ask(index: int) -> str:
        # No line has that number.
        return sources.placed(index, call) if by_metaserver else sources.call(index, call, _MOST_NUMBER)

    found = [answer for answer in _answers(sources, ask) if server in (None, answer[1])]
    if not found:
        where = "" if server is None else f" at {server}"
        why = "it was never here, is another user's, or is not kept any more"
        raise CallError(f"there is no log of call {call}{where}: {why}")
    index, name, one = max(found, key=lambda it: (it[2].get("placed") or {}).get("attempt", 0))
    number = one["call"]

    def lines_from(line: int) -> str:
        return sources.call(index, number, line)

    one, lines = _lines(name, call, lines_from)
    return _log(name, one, lines)
