"""What routines print, on its way to a file of the program."""

from __future__ import annotations

from typing import Protocol

from .._native import NativeOutput
from ._errors import ArgumentError


class TextSink(Protocol):
    """A file to which texts can be written, such as ``sys.stdout`` or ``io.StringIO()``."""

    def write(self, text: str, /) -> object: ...


class OutputReceiver:
    """Receives what the routine of one call prints."""

    def __init__(self, sink: TextSink) -> None:
        if not callable(getattr(sink, "write", None)):
            raise ArgumentError("output= is a file to which texts can be written, such as sys.stdout or io.StringIO()")
        self._sink = sink
        self.native = NativeOutput()

    def pass_on(self) -> None:
        """Writes what has come."""
        printed, is_cut = self.native.take()
        if printed:
            self._sink.write(printed.decode("utf-8", "replace"))
        if is_cut:
            self._sink.write("\n[the routine has printed more]\n")
