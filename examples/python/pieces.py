"""Pi as the sum of many pieces, which all ranks share out as they go, checked at the end.

Each rank runs some coroutines. A coroutine takes the number of the next piece from a counter in the window of rank
0, integrates that piece, and starts to put the result there. While one of them waits for an answer from rank 0, the
others of the same rank compute.
"""

import argparse
import asyncio
import math
import sys
from typing import NoReturn

import numpy as np

import kumi


class Arguments(argparse.ArgumentParser):
    """Ends with code 64 for wrong arguments, as all examples do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def integral(number: int, pieces: int) -> float:
    """The area below 4 / (1 + x * x) in one of the pieces from 0 to 1, by the rule of the midpoint."""
    points = 2_000
    x = (number + (np.arange(points) + 0.5) / points) / pieces
    return float(np.sum(4.0 / (1.0 + x * x)) / (points * pieces))


async def worker(counter: kumi.Window, areas: kumi.Window, pieces: int) -> int:
    """Takes pieces until there are none; returns how many it has done."""
    done = 0
    while True:
        number = await counter.ifetch_add(0, 0, 1)
        if number >= pieces:
            return done
        # The array belongs to the request until the result is in place.
        await areas.iput(0, np.array([integral(number, pieces)]), number)
        done += 1


async def share(counter: kumi.Window, areas: kumi.Window, pieces: int, workers: int) -> int:
    """Runs the workers of this rank beside each other; returns how many pieces they have done."""
    return sum(await asyncio.gather(*(worker(counter, areas, pieces) for _ in range(workers))))


def main() -> int:
    parser = Arguments(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pieces", type=int, default=2_000, help="pieces (2000)")
    parser.add_argument("--workers", type=int, default=8, help="coroutines of each rank (8)")
    arguments = parser.parse_args()
    pieces = arguments.pieces
    if pieces < 1 or arguments.workers < 1:
        parser.error("--pieces and --workers must be at least 1")
    with kumi.init():
        counter = kumi.window(1, np.int64)
        areas = kumi.window(pieces if kumi.rank() == 0 else 0)
        kumi.barrier()
        begin = kumi.time()
        mine = asyncio.run(share(counter, areas, pieces, arguments.workers))
        kumi.barrier()
        seconds = kumi.time() - begin
        done = kumi.allreduce(np.array([mine]))[0]
        failed = np.zeros(1, np.uint8)
        if kumi.rank() == 0:
            pi = math.fsum(areas.array)
            good = done == pieces and abs(pi - math.pi) < 1e-10
            failed[0] = not good
            print(f"pi is {pi:.12f}, of {done} pieces")
            print(
                f"RESULT name=pieces class=- verified={'yes' if good else 'no'} "
                f"seconds={seconds:.6f} mops={2e-3 * pieces / max(seconds, 1e-9):.2f} "
                f"ranks={kumi.size()} repeat=1",
                flush=True,
            )
        kumi.broadcast(failed)
    return int(failed[0])


if __name__ == "__main__":
    sys.exit(main())
