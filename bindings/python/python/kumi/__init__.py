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
A call that waits is ended by Ctrl-C (``KeyboardInterrupt``), and by every other signal whose handler
raises an exception. After that only a program that was in a receive, or in a wait for a
notification, a completion or a record, can go on communicating; others get :class:`FaultError`.
"""

from ._cluster import NodeLoad, node_load
from ._collectives import Op, allreduce, alltoall, alltoallv, broadcast, gather, reduce
from ._completion import Completion
from ._errors import (
    AlreadyInitialisedError,
    AttachError,
    BadAlignmentError,
    BadArgumentError,
    BadFifoError,
    BadLengthError,
    BadNotifyError,
    BadOperationError,
    BadRankError,
    BadTagError,
    BadTypeError,
    BadWindowError,
    FaultError,
    FifoDamagedError,
    FifoFullError,
    ForkedError,
    FreedCompletionError,
    FreedFifoError,
    FreedWindowError,
    HandlerError,
    IoError,
    KumiError,
    NeverDoneError,
    NoFifoError,
    NoRightError,
    NotInitialisedError,
    NotLaunchedError,
    OutOfBoundsError,
    OutOfMemoryError,
    OverlapError,
    RecordTooLongError,
    RefusedError,
    TruncatedError,
    UnreadError,
    WindowRefusedError,
    WrongThreadError,
)
from ._fifo import FIFO_ALIGNMENT, FIFO_OVERHEAD, Fifo, Record
from ._job import Job, finalize, init
from ._messages import Message, Status, probe, recv, recv_into, send, sendrecv
from ._native import (
    barrier,
    cluster_nodes,
    flush,
    job,
    max_record,
    node,
    progress,
    rank,
    rank_runs,
    same_node,
    size,
    time,
)
from ._regions import Region, region
from ._window import Window, window, window_on

__all__ = [
    "FIFO_ALIGNMENT",
    "FIFO_OVERHEAD",
    "AlreadyInitialisedError",
    "AttachError",
    "BadAlignmentError",
    "BadArgumentError",
    "BadFifoError",
    "BadLengthError",
    "BadNotifyError",
    "BadOperationError",
    "BadRankError",
    "BadTagError",
    "BadTypeError",
    "BadWindowError",
    "Completion",
    "FaultError",
    "Fifo",
    "FifoDamagedError",
    "FifoFullError",
    "ForkedError",
    "FreedCompletionError",
    "FreedFifoError",
    "FreedWindowError",
    "HandlerError",
    "IoError",
    "Job",
    "KumiError",
    "Message",
    "NeverDoneError",
    "NoFifoError",
    "NoRightError",
    "NodeLoad",
    "NotInitialisedError",
    "NotLaunchedError",
    "Op",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "OverlapError",
    "Record",
    "RecordTooLongError",
    "RefusedError",
    "Region",
    "Status",
    "TruncatedError",
    "UnreadError",
    "Window",
    "WindowRefusedError",
    "WrongThreadError",
    "allreduce",
    "alltoall",
    "alltoallv",
    "barrier",
    "broadcast",
    "cluster_nodes",
    "finalize",
    "flush",
    "gather",
    "init",
    "job",
    "max_record",
    "node",
    "node_load",
    "probe",
    "progress",
    "rank",
    "rank_runs",
    "recv",
    "recv_into",
    "reduce",
    "region",
    "same_node",
    "send",
    "sendrecv",
    "size",
    "time",
    "window",
    "window_on",
]
