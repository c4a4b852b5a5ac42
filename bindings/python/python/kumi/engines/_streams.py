"""Standard streams of a rank.

Output goes where that of any job goes: through the control plane to ``kumi run``. Lines come out as they are written. At
the end of a call a rank that has written something adds a mark, so that the notebook knows when it has all of it.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from . import _frames as frames


#: Begins the marks of this pool, so that no output of a program is taken for one.
nonce = b""


class _Counting(io.FileIO):
    """A descriptor whose writes are noticed."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.written = False

    def write(self, data: Any) -> int:
        self.written = True
        return super().write(data)


class Streams:
    """Replaces ``sys.stdout`` and ``sys.stderr``, and takes the standard input for itself."""

    def __init__(self) -> None:
        #: Whatever rank 0 is told from outside. The program's standard input is empty.
        self.input = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._raw = [_Counting(1), _Counting(2)]
        made = [
            io.TextIOWrapper(
                io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
            )
            for raw in self._raw
        ]
        sys.stdout, sys.stderr = made
        self._made = made

    def mark(self, call: int) -> int:
        """Marks the end of a call on the streams that it wrote to; says on which."""
        marks = 0
        for number, (raw, stream) in enumerate(zip(self._raw, self._made, strict=True)):
            try:
                stream.flush()
            except (OSError, ValueError):
                # The program has closed it.
                continue
            if raw.written:
                raw.written = False
                os.write(raw.fileno(), b"%s%s:%d%s\n" % (frames.MARK, nonce, call, frames.MARK))
                marks |= 1 << number
        return marks
