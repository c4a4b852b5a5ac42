"""Heat in a square plate, by explicit steps, and checked against one rank's solution.

The plate's rows are shared out in blocks. Each rank keeps its block in a window, between two rows
that belong to its neighbours. In every step it puts its outermost rows into the neighbours' windows
and waits until theirs have come: nobody asks, and nobody receives. There are two copies of the
block, for the steps with even and with odd numbers: a neighbour can be one step ahead, not two,
since for the second it needs a row from here.
"""

import argparse
import sys
from typing import NoReturn

import numpy as np
import numpy.typing as npt

import kumi

Plate = npt.NDArray[np.float64]

#: Heat that goes to each neighbour in a step; up to 1/4 is stable.
FLOW = 0.2
#: Notification counters: a row has come from the rank with the rows above, or below.
FROM_ABOVE, FROM_BELOW = 0, 1


class Arguments(argparse.ArgumentParser):
    """Ends with code 64 for wrong arguments, as all examples do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def rows_of(rank: int, ranks: int, rows: int) -> range:
    """The rows of a rank, numbered through the inside of the plate."""
    return range(rank * rows // ranks, (rank + 1) * rows // ranks)


def start(rows: range, width: int) -> Plate:
    """The plate's rows before the first step, and one more on each side: a warm spot in a cold
    frame."""
    down = np.arange(rows.start, rows.stop + 2) / (width + 1)
    across = np.arange(width + 2) / (width + 1)
    plate = np.exp(-40.0 * ((down[:, None] - 0.3) ** 2 + (across[None, :] - 0.6) ** 2))
    plate[:, 0] = plate[:, -1] = 0.0
    return plate


def step(old: Plate, new: Plate) -> None:
    """One step for all rows but the first and the last, which are others'."""
    inner = old[1:-1, 1:-1]
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = inner + FLOW * (around - 4.0 * inner)


def cool_frame(plate: Plate, rows: range, size: int) -> None:
    """The frame of the whole plate is cold, above and below too."""
    if rows.start == 0:
        plate[0] = 0.0
    if rows.stop == size:
        plate[-1] = 0.0


def parallel(window: kumi.Window, size: int, steps: int) -> int:
    """All steps; returns which of the two copies has the result."""
    me, ranks = kumi.rank(), kumi.size()
    copies: Plate = window.array
    width = size + 2
    above, below = me - 1, me + 1
    for number in range(steps):
        now = number % 2
        plate = copies[now]
        if above >= 0:
            # My first row is the one behind the last of the rank above.
            height = len(rows_of(above, ranks, size)) + 2
            window.put(above, plate[1], ((now + 1) * height - 1) * width, notify=FROM_BELOW)
        if below < ranks:
            height = len(rows_of(below, ranks, size)) + 2
            window.put(below, plate[-2], now * height * width, notify=FROM_ABOVE)
        if above >= 0:
            window.wait_notify(FROM_ABOVE, number + 1)
        if below < ranks:
            window.wait_notify(FROM_BELOW, number + 1)
        step(plate, copies[1 - now])
    return steps % 2


def serial(size: int, steps: int) -> Plate:
    """The same by one rank, without its neighbours."""
    whole = range(size)
    old = start(whole, size)
    cool_frame(old, whole, size)
    new = old.copy()
    for _ in range(steps):
        step(old, new)
        old, new = new, old
    return old


def collect(window: kumi.Window, size: int, copy: int) -> Plate:
    """The whole plate, read from all windows by the rank that calls it."""
    width = size + 2
    plate = np.zeros((size + 2, width))
    for rank in range(kumi.size()):
        rows = rows_of(rank, kumi.size(), size)
        offset = (copy * (len(rows) + 2) + 1) * width
        block = window.get(rank, offset, len(rows) * width)
        plate[rows.start + 1 : rows.stop + 1] = block.reshape(len(rows), width)
    return plate


def main() -> int:
    parser = Arguments(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=256, help="rows and columns (256)")
    parser.add_argument("--steps", type=int, default=200, help="steps (200)")
    arguments = parser.parse_args()
    size, steps = arguments.size, arguments.steps
    with kumi.init():
        ranks = kumi.size()
        if size < ranks or steps < 0:
            parser.error(f"--size must be at least {ranks}, a row a rank, and --steps at least 0")
        rows = rows_of(kumi.rank(), ranks, size)
        window = kumi.window((2, len(rows) + 2, size + 2))
        block = start(rows, size)
        cool_frame(block, rows, size)
        window.array[:] = block
        kumi.barrier()  # All have filled theirs before anybody puts a row into it.
        begin = kumi.time()
        copy = parallel(window, size, steps)
        seconds = kumi.time() - begin
        heat = kumi.allreduce(np.array([window.array[copy, 1:-1].sum()]))[0]
        slowest = kumi.allreduce(np.array([seconds]), kumi.Op.MAX)[0]
        failed = np.zeros(1, np.uint8)
        if kumi.rank() == 0:
            # The reads need nobody's help: the others wait in the broadcast.
            same = np.array_equal(collect(window, size, copy), serial(size, steps))
            failed[0] = not same
            print(f"heat in the plate after {steps} steps: {heat:.6f}")
            print(
                f"RESULT name=heat class=- verified={'yes' if same else 'no'} seconds={slowest:.6f} "
                f"mops={size * size * steps / max(slowest, 1e-9) / 1e6:.2f} ranks={ranks} repeat=1",
                flush=True,
            )
        kumi.broadcast(failed)
    return int(failed[0])


if __name__ == "__main__":
    sys.exit(main())
