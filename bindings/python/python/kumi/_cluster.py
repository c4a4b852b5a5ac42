"""Information that the cluster's daemons disclose, read without a system call."""

from __future__ import annotations

from typing import NamedTuple

from . import _native


class NodeLoad(NamedTuple):
    """The state of a node some seconds ago."""

    #: Ranks of all jobs that compute or could, per processor; above 1 some wait for one.
    load: float
    #: Share of its memory in use, 0 to 1.
    memory: float
    #: Bytes a second that its network interfaces send and receive.
    network: float
    #: Seconds since it was so.
    age: float


def node_load(node: int) -> NodeLoad | None:
    """The state of node 0 .. ``cluster_nodes() - 1``; None if the node does not exist or has not reported yet."""
    known = _native.node_load(node)
    return None if known is None else NodeLoad(*known)
