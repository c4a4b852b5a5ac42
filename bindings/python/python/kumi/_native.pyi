# Types of the Rust module. Offsets and lengths are in bytes. Memory has the type Any: before Python 3.12 type
# checkers do not know which classes, numpy's array among them, support buffers.
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

BUILD_COMMIT: str
BUILD_PROFILE: str
FIFO_OVERHEAD: int
FIFO_ALIGNMENT: int

__all__ = [
    "BUILD_COMMIT",
    "BUILD_PROFILE",
    "FIFO_ALIGNMENT",
    "FIFO_OVERHEAD",
    "NativeWakeEvent",
    "NativeCall",
    "NativeClaim",
    "NativeClient",
    "NativeCompletion",
    "NativeFifo",
    "NativeFunction",
    "NativeGroup",
    "NativeMemory",
    "NativeObject",
    "NativeRequest",
    "NativeSharedBytes",
    "NativeWindow",
    "append",
    "atomic",
    "await_claim",
    "barrier",
    "claim",
    "cluster_nodes",
    "collect_ends",
    "collectives_begun",
    "describe_routines",
    "ends_descriptor",
    "fence",
    "finalize",
    "flush",
    "forked",
    "get_blocks",
    "get_list",
    "initialise",
    "job",
    "max_record",
    "multicast",
    "multicast_append",
    "node",
    "node_load",
    "on_signal",
    "owned",
    "probe",
    "progress",
    "put_blocks",
    "put_list",
    "rank",
    "rank_runs",
    "reap",
    "recv",
    "recv_into",
    "remove_signal",
    "renew_collectives",
    "run_slot",
    "run_transaction",
    "same_node",
    "send",
    "sendrecv",
    "shared_bring",
    "shared_lock",
    "shared_reset",
    "shared_set",
    "shared_start",
    "shared_statistics",
    "shared_unlock",
    "shared_wait",
    "size",
    "start_atomic",
    "start_get",
    "start_put",
    "start_receive",
    "start_send",
    "time",
    "wait_any",
    "will_renew_collectives",
]

@final
class NativeClient:
    @staticmethod
    def connect(
        address: str,
        token: str | None,
        seconds: float,
        ca: str | PathLike[str] | None,
        file_bytes: int | None,
    ) -> NativeClient: ...
    def server(self) -> str: ...
    def is_lost(self) -> bool: ...
    def is_metaserver(self) -> bool: ...
    def names(self, part: str) -> list[str]: ...
    def describe(self, name: str) -> str: ...
    def fit(
        self, name: str, scalars: list[Any], shapes: list[tuple[int, ...] | None]
    ) -> tuple[list[int | None], list[list[int]]]: ...
    def start(
        self, name: str, args: list[Any], seconds: float | None, priority: int
    ) -> NativeCall: ...
    def call(
        self, name: str, args: list[Any], seconds: float | None, priority: int
    ) -> list[tuple[int, Any]]: ...
    def object(self, name: str, seconds: float | None, priority: int) -> NativeObject: ...

@final
class NativeObject:
    def server(self) -> str: ...
    def is_lost(self) -> bool: ...
    def end(self) -> None: ...
    def describe(self, name: str) -> str: ...
    def fit(
        self, name: str, scalars: list[Any], shapes: list[tuple[int, ...] | None]
    ) -> tuple[list[int | None], list[list[int]]]: ...
    def start(self, name: str, args: list[Any], seconds: float | None) -> NativeCall: ...
    def call(self, name: str, args: list[Any], seconds: float | None) -> list[tuple[int, Any]]: ...

@final
class NativeCall:
    def wait(self, seconds: float | None) -> list[tuple[int, Any]] | None: ...
    def is_over(self) -> bool: ...
    def cancel(self) -> None: ...

@final
class NativeWakeEvent:
    def __new__(cls, calls: Sequence[NativeCall]) -> NativeWakeEvent: ...
    def wait(self, seconds: float | None) -> None: ...

@final
class NativeWindow:
    def __new__(cls, bytes: int, read: bool, write: bool, atomic: bool) -> NativeWindow: ...
    @staticmethod
    def on(memory: Any, guard: Any, read: bool, write: bool, atomic: bool) -> NativeWindow: ...
    @property
    def freed(self) -> bool: ...
    def free(self) -> None: ...
    def size_at(self, rank: int) -> int: ...
    def put(self, rank: int, data: Any, offset: int, notify: int | None) -> None: ...
    def get(self, rank: int, into: Any, offset: int) -> None: ...
    def notified(self, notify: int) -> int: ...
    def wait_notify(self, notify: int, at_least: int) -> int: ...

@final
class NativeFifo:
    def __new__(
        cls, window: NativeWindow, offset: int, capacity: int, notify: int
    ) -> NativeFifo: ...
    @property
    def freed(self) -> bool: ...
    def free(self) -> None: ...
    def pop(self) -> tuple[int, bytes]: ...
    def try_pop(self) -> tuple[int, bytes] | None: ...

@final
class NativeCompletion:
    def __new__(cls) -> NativeCompletion: ...
    def done(self) -> int: ...
    def wait(self, at_least: int | None) -> int: ...

def append(
    window: NativeWindow, rank: int, offset: int, data: Any, signal: bool, wait: bool
) -> bool: ...
def atomic(
    window: NativeWindow,
    operation: str,
    rank: int,
    offset: int,
    numbers: Sequence[int],
    width: int,
) -> int: ...
def put_blocks(
    window: NativeWindow,
    rank: int,
    data: Any,
    blocks: tuple[int, int, int, int],
    notify: int | None,
    completion: NativeCompletion | None,
) -> None: ...
def get_blocks(
    window: NativeWindow, rank: int, into: Any, blocks: tuple[int, int, int, int]
) -> None: ...
def put_list(
    window: NativeWindow,
    rank: int,
    pieces: Any,
    data: list[Any],
    notify: int | None,
    completion: NativeCompletion | None,
) -> None: ...
def get_list(window: NativeWindow, rank: int, pieces: Any, into: list[Any]) -> None: ...
def multicast(
    window: NativeWindow, ranks: Sequence[int], data: Any, offset: int, notify: int | None
) -> None: ...
def multicast_append(
    window: NativeWindow, ranks: Sequence[int], offset: int, data: Any, signal: bool, wait: bool
) -> list[int]: ...
def on_signal(
    window: NativeWindow, offset: int, capacity: int, handler: Callable[[int, bytes], object]
) -> None: ...
def remove_signal(window: NativeWindow, offset: int) -> None: ...
def max_record() -> int:
    """Bytes of the longest record of FIFOs and signals in this job, for all ranks."""

def initialise(threads: bool) -> None: ...
def finalize(wait: bool) -> None: ...
def forked() -> None: ...
def owned() -> bool | None: ...
def rank() -> int:
    """This rank's number, from 0."""

def size() -> int:
    """The number of ranks in the job."""

def node() -> int:
    """The number of the node this rank runs on, as the cluster counts them."""

def job() -> int:
    """The job's number, 0 for a job of one rank without a cluster."""

@final
class NativeSharedBytes:
    def __new__(cls, bytes: int, home: str, rank: int, update: bool) -> NativeSharedBytes: ...

def shared_start(number: int) -> None: ...
def shared_lock(number: int) -> None: ...
def shared_unlock(number: int) -> None: ...
def shared_set(number: int) -> None: ...
def shared_reset(number: int) -> None: ...
def shared_wait(number: int) -> None: ...
def shared_bring(start: int, bytes: int, write: bool) -> None: ...
def shared_statistics() -> list[tuple[str, int]]: ...
@final
class NativeFunction:
    def call(self, given: list[Any]) -> list[tuple[int, Any]]: ...

@final
class NativeMemory:
    def __buffer__(self, flags: int, /) -> memoryview: ...

def describe_routines(text: str, count: int) -> list[str]: ...
def run_slot(load: Callable[[str], Callable[[NativeMemory, list[Any]], str | None]]) -> None: ...
def run_transaction(
    servers: Sequence[str],
    meta: tuple[NativeClient, int] | None,
    how: tuple[str | None, str | PathLike[str] | None, int, int, str, float | None],
    arrays: Sequence[tuple[Any, bool, str, Sequence[int] | None, bool]],
    calls: Sequence[tuple[str, list[Any]]],
) -> dict[str, Any]: ...
def same_node(rank: int) -> bool:
    """Whether a rank runs on the same node, so that both share memory."""

def time() -> float:
    """Seconds on a monotonic clock, the same for all ranks of a machine."""

def will_renew_collectives() -> None:
    """Says that the program calls :func:`renew_collectives` after collectives that were interrupted: other calls go on."""

def collectives_begun() -> int:
    """How many collectives of the job's group this rank has begun."""

def renew_collectives(begun: int) -> None:
    """Gets in step with the other ranks, none of which has begun more collectives. All ranks call it, when nothing is under
    way between them."""

def barrier() -> None:
    """Returns when all ranks have called it. What they wrote to shared memory before (:func:`kumi.shared_array`) is visible
    then."""

def fence(rank: int | None = None) -> None:
    """Keeps the order of operations on windows at a rank, or at each rank: those that follow take effect there after
    all earlier ones. Waits only where it must; cheaper than :func:`flush`."""

def flush(rank: int | None = None) -> None:
    """Waits until all own puts to a rank have been applied and all messages to it delivered."""

def progress() -> None:
    """Takes what has arrived and sends what is due, without waiting."""

def send(to: int, data: Any, tag: int) -> None: ...
def reap() -> None: ...
def recv(source: int | None, tag: int | None) -> tuple[int, int, bytes]: ...
def recv_into(
    buffer: Any, source: int | None, tag: int | None
) -> tuple[int, int, int]: ...
def probe(source: int | None, tag: int | None) -> tuple[int, int, int] | None: ...
@final
class NativeClaim:
    @property
    def status(self) -> tuple[int, int, int]: ...
    def receive(self) -> tuple[int, int, bytes]: ...
    def receive_into(self, buffer: Any) -> tuple[int, int, int]: ...
    def release(self) -> None: ...

def claim(source: int | None, tag: int | None) -> NativeClaim | None: ...
def await_claim(source: int | None, tag: int | None) -> NativeClaim: ...
def sendrecv(
    to: int, data: Any, tag: int, buffer: Any, source: int | None, recv_tag: int | None
) -> tuple[int, int, int]: ...
def cluster_nodes() -> int: ...
def node_load(node: int) -> tuple[float, float, float, float] | None: ...
def rank_runs(rank: int) -> bool: ...

@final
class NativeGroup:
    @staticmethod
    def job() -> NativeGroup: ...
    @property
    def freed(self) -> bool: ...
    @property
    def member(self) -> int: ...
    @property
    def members(self) -> int: ...
    def split(self, colour: int | None, key: int) -> NativeGroup | None: ...
    def subset(self, members: list[int]) -> NativeGroup | None: ...
    def duplicate(self) -> NativeGroup: ...
    def free(self) -> None: ...
    def rank_of(self, member: int) -> int: ...
    def member_of(self, rank: int) -> int | None: ...
    def barrier(self) -> None: ...
    def start(
        self,
        kind: str,
        root: int,
        send: Any,
        receive: Any,
        reduced: tuple[str, int] | None,
        guard: Any,
    ) -> NativeRequest: ...
    def broadcast(self, root: int, data: Any) -> None: ...
    def reduce(self, how: str, root: int, data: Any, code: str, op: int) -> None: ...
    def reduce_scatter(
        self, data: Any, lengths: list[int], block: Any, code: str, op: int
    ) -> None: ...
    def gather(self, root: int, send: Any, lengths: list[int] | None, recv: Any) -> None: ...
    def scatter(self, root: int, send: Any, lengths: list[int] | None, recv: Any) -> None: ...
    def allgather(self, send: Any, lengths: list[int] | None, recv: Any) -> None: ...
    def alltoall(
        self, send: Any, lengths: tuple[list[int], list[int]] | None, recv: Any
    ) -> None: ...

@final
class NativeRequest:
    def poll(self) -> bool: ...
    def over(self) -> bool: ...
    def wait(self) -> bool: ...
    def take(self) -> Any: ...
    def cancel(self) -> bool: ...
    def release(self) -> None: ...

def start_put(
    window: NativeWindow,
    rank: int,
    data: Any,
    offset: int,
    notify: int | None,
    sent: bool,
    guard: Any,
) -> NativeRequest: ...
def start_get(
    window: NativeWindow, rank: int, into: Any, offset: int, guard: Any
) -> NativeRequest: ...
def start_atomic(
    window: NativeWindow,
    operation: str,
    rank: int,
    offset: int,
    numbers: Sequence[int],
    width: int,
) -> NativeRequest: ...
def start_send(to: int, data: Any, tag: int, guard: Any) -> NativeRequest: ...
def start_receive(
    buffer: Any, source: int | None, tag: int | None, guard: Any
) -> NativeRequest: ...
def wait_any(requests: list[NativeRequest]) -> bool: ...
def collect_ends() -> bool: ...
def ends_descriptor() -> int: ...
