"""Kumi: memory-based communication between the ranks of a parallel job.

.. code-block:: python

    import numpy as np
    import kumi

    with kumi.init():
        window = kumi.window(8)                         # eight float64 at each rank
        right = (kumi.rank() + 1) % kumi.size()
        window.put(right, np.full(8, float(kumi.rank())), notify=0)
        window.wait_notify(0, 1)                        # mine has come
        print(window.array, kumi.allreduce(window.array))

Start it with ``kumi run -n 4 python3 program.py``, or by hand with ``KUMI_SINGLETON=1`` as a job
of one rank. All functions are called by the thread that called :func:`init`. While a call waits,
other threads of the program run; they must not change the arrays that the call was given.
Ctrl-C takes effect when the call returns; a second Ctrl-C at ``kumi run`` kills the job.
"""

from ._collectives import Op, allreduce, alltoall, broadcast, gather, reduce
from ._errors import (
    AlreadyInitialisedError,
    AttachError,
    BadAlignmentError,
    BadLengthError,
    BadNotifyError,
    BadOperationError,
    BadRankError,
    BadTagError,
    BadWindowError,
    FaultError,
    ForkedError,
    FreedWindowError,
    IoError,
    KumiError,
    NoRightError,
    NotInitialisedError,
    NotLaunchedError,
    OutOfBoundsError,
    OutOfMemoryError,
    OverlapError,
    RefusedError,
    TruncatedError,
    UnreadError,
    WindowRefusedError,
    WrongThreadError,
)
from ._job import Job, finalize, init
from ._messages import Message, Status, probe, recv, recv_into, send
from ._native import barrier, flush, job, node, progress, rank, same_node, size, time
from ._window import Window, window

__all__ = [
    "AlreadyInitialisedError",
    "AttachError",
    "BadAlignmentError",
    "BadLengthError",
    "BadNotifyError",
    "BadOperationError",
    "BadRankError",
    "BadTagError",
    "BadWindowError",
    "FaultError",
    "ForkedError",
    "FreedWindowError",
    "IoError",
    "Job",
    "KumiError",
    "Message",
    "NoRightError",
    "NotInitialisedError",
    "NotLaunchedError",
    "Op",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "OverlapError",
    "RefusedError",
    "Status",
    "TruncatedError",
    "UnreadError",
    "Window",
    "WindowRefusedError",
    "WrongThreadError",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "finalize",
    "flush",
    "gather",
    "init",
    "job",
    "node",
    "probe",
    "progress",
    "rank",
    "recv",
    "recv_into",
    "reduce",
    "same_node",
    "send",
    "size",
    "time",
    "window",
]
