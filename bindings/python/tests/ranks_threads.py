"""What needs several ranks of several threads: run as :mod:`ranks` is."""

import asyncio
import faulthandler
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import numpy as np

import kumi

THREADS = 3
#: Longer than anything here takes on any machine.
LONG = 120


def exchange(me: int) -> None:
    """Messages with all ranks, each thread with tags of its own."""
    ranks = kumi.size()
    for number in range(60):
        data = np.full(500, 1000 * kumi.rank() + number)
        buffers = [np.zeros(500, np.int64) for _ in range(ranks)]
        receives = [kumi.irecv(buffers[rank], rank, me) for rank in range(ranks)]
        if number % 2:
            kumi.wait_all([kumi.isend(rank, data, me) for rank in range(ranks)])
        else:
            for rank in range(ranks):
                kumi.send(rank, data, me)
        left = dict(enumerate(receives))
        while left:
            among = list(left)
            rank = among[kumi.wait_any(left.values())]
            assert left.pop(rank).wait() == (rank, me, data.nbytes)
            assert (buffers[rank] == 1000 * rank + number).all()


def reduce(group: kumi.Group) -> None:
    """Collectives of a group of its own, some of which are requests."""
    ranks = kumi.size()
    for number in range(60):
        started = group.start_allreduce(np.array([number + group.member]))
        assert group.allgather(np.array([number])).ravel().tolist() == [number] * ranks
        assert started.wait()[0] == ranks * number + ranks * (ranks - 1) // 2


async def count(window: kumi.Window) -> None:
    """Atomic operations in a loop of this thread."""

    async def task() -> None:
        for rank in range(kumi.size()):
            for _ in range(20):
                await window.ifetch_add(rank, 0, 1)

    await asyncio.gather(task(), task())


def start_behind_puts() -> None:
    """A put that is started waits for earlier puts if it notifies. Its thread lets others go on meanwhile."""
    me = kumi.rank()
    direct = kumi.window(1, np.int64)
    by_frames = kumi.window_on(np.zeros(1, np.int64))
    near = [rank for rank in range(kumi.size()) if kumi.same_node(rank)]
    place = near.index(me)
    partner = near[place ^ 1] if place ^ 1 < len(near) else me
    if partner > me:
        # The thread waits so long that it looks for signals, too.
        other = threading.Thread(target=kumi.recv, args=[partner, 51])
        other.start()
        kumi.recv(partner, 50)
        time.sleep(0.1)
        by_frames.put(partner, np.array([1]))
        # If the threads wait for each other, nobody but this can end the process.
        faulthandler.dump_traceback_later(LONG, exit=True)
        put = direct.iput(partner, np.array([7]), notify=3)
        faulthandler.cancel_dump_traceback_later()
        put.wait()
        kumi.send(partner, b"", 52)
        other.join()
    elif partner < me:
        # Nothing is answered while this process is stopped.
        wake = f"while sleep 0.4; do kill -CONT {os.getpid()}; done"
        with subprocess.Popen(["sh", "-c", wake]) as waker:
            kumi.send(partner, b"", 50)
            os.kill(os.getpid(), signal.SIGSTOP)
            direct.wait_notify(3, 1)
            assert by_frames.array[0] == 1 and direct.array[0] == 7
            kumi.recv(partner, 52)
            kumi.send(partner, b"", 51)
            waker.kill()
    kumi.barrier()


def main() -> None:
    with kumi.init(threads=True):
        window = kumi.window(1, np.int64)
        groups = [kumi.group().duplicate() for _ in range(THREADS)]
        bodies: list[Callable[[], None]] = []
        for me in range(THREADS):
            bodies += [
                lambda me=me: exchange(me),  # type: ignore[misc]
                lambda me=me: reduce(groups[me]),  # type: ignore[misc]
                lambda: asyncio.run(count(window)),
            ]
        ended: list[int] = []

        def run(index: int) -> None:
            bodies[index]()
            ended.append(index)

        threads = [threading.Thread(target=run, args=[index]) for index in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ended) == list(range(len(bodies)))
        kumi.barrier()
        assert window.array[0] == kumi.size() * THREADS * 2 * 20
        start_behind_puts()
        print("passed threads", flush=True)


if __name__ == "__main__":
    main()
