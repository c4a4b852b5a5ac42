"""What the notebook and the ranks send to each other. ``docs/design/engines.md`` has the picture.

Integers are little-endian. All lengths are checked against limits before memory is made for them.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final


class Input(IntEnum):
    """Kinds of frames on the standard input of rank 0."""

    #: JSON: how the pool begins. The first frame.
    HELLO = 1
    #: A piece of the stream of commands, where there is no socket.
    COMMANDS = 2
    #: The number of a call, which is to be interrupted.
    INTERRUPT = 3


class Command(IntEnum):
    """Kinds of commands."""

    #: The payload is a function with its arguments.
    CALL = 1
    #: The pool ends when what was called before is done.
    END = 2
    #: All ranks have ended: each leaves the job. The front rank sends it.
    LEAVE = 3


class Status(IntEnum):
    """How a call at a rank ended. The body of the answer depends on it."""

    #: The payload of what the function returned.
    RETURNED = 0
    #: The payload of a :class:`Raised`.
    RAISED = 1
    #: Plain bytes, which go into memory that the notebook has ready.
    BYTES = 2
    #: The rank carries out nothing more; no body.
    ENDED = 3


#: A frame on standard input: its kind, and the length of its contents.
INPUT: Final = struct.Struct("<BI")
#: Most bytes of such a frame.
INPUT_LIMIT: Final = 1 << 20
#: The number of a call.
CALL: Final = struct.Struct("<Q")
#: The number of the first answer, which greets.
GREETING: Final = 0
#: The number that the end of the pool has.
NO_CALL: Final = 2**64 - 1
#: A command: its kind, the number of ranks that get it (0: all), the call, and the payload's length. The ranks follow, then
#: the payload.
COMMAND: Final = struct.Struct("<BxxxIQQ")
#: A rank in a command.
RANK: Final = struct.Struct("<I")
#: A record of a FIFO: kind, whether the data is in a slot, call, and the length of the whole message. The data follows.
RECORD: Final = struct.Struct("<BBxxxxxxQQ")
#: A part of an answer on the way to the notebook: the rank, the part's length, the call, the length of the whole answer.
ANSWER: Final = struct.Struct("<IIQQ")
#: The beginning of an answer: its status, and on which streams the rank has written (1: standard output, 2: error).
OUTCOME: Final = struct.Struct("<BB14x")

#: Begins and ends what is not output of a program, in the ranks' output.
MARK: Final = b"\x1e"
#: Bytes of a piece of the answers in a line of the output. With its mark a line is written at once.
LINE_BYTES: Final = 2880
