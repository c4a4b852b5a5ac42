"""Heat in a square plate that all ranks share, by explicit steps, and checked against one rank's solution.

The plate is one array in shared memory, and every rank computes a block of its rows. It reads the neighbours' rows as if
they were its own; the library fetches those pages that others have written since. There are two plates, for the steps with
even and with odd numbers, so that one barrier a step is enough: nobody writes what others still read.
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
#: From cold to warm.
SHADES = " .:-=+*#%@"
#: Rows and columns of the drawing.
DRAWN = (16, 48)
#: Guards the sum of all ranks' heat.
SUM = 0


class Arguments(argparse.ArgumentParser):
    """Ends with code 64 for wrong arguments, as all examples do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def start(size: int) -> Plate:
    """The plate before the first step: a warm spot in a cold frame."""
    across = np.arange(size + 2) / (size + 1)
    plate = np.exp(-40.0 * ((across[:, None] - 0.3) ** 2 + (across[None, :] - 0.6) ** 2))
    plate[0] = plate[-1] = plate[:, 0] = plate[:, -1] = 0.0
    return plate


def step(old: Plate, new: Plate) -> None:
    """One step for all rows but the first and the last."""
    inner = old[1:-1, 1:-1]
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = inner + FLOW * (around - 4.0 * inner)


def parallel(plates: Plate, steps: int) -> Plate:
    """All steps, of which this rank computes its rows; returns the plate with the result."""
    rows = plates.shape[1] - 2
    first, last = (rank * rows // kumi.size() for rank in (kumi.rank(), kumi.rank() + 1))
    mine = slice(first, last + 2)  # With a row of each neighbour, which is only read.
    for number in range(steps):
        step(plates[number % 2, mine], plates[1 - number % 2, mine])
        kumi.barrier()
    result: Plate = plates[steps % 2]
    return result


def serial(size: int, steps: int) -> Plate:
    """The same by one rank alone."""
    old = start(size)
    new = old.copy()
    for _ in range(steps):
        step(old, new)
        old, new = new, old
    return old


def draw(plate: Plate) -> str:
    """The plate as text; a sign shows the heat at its place."""
    down, across = (np.arange(n) * len(plate) // n for n in DRAWN)
    seen = plate[np.ix_(down, across)]
    shades = (seen / max(float(seen.max()), 1e-300) * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(SHADES[shade] for shade in row).rstrip() for row in shades)


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
        plates = kumi.shared_array((2, size + 2, size + 2))
        total = kumi.shared_array(1, home=0)
        if kumi.rank() == 0:
            plates[:] = start(size)
        kumi.barrier()
        begin = kumi.time()
        plate = parallel(plates, steps)
        seconds = kumi.time() - begin
        rows = range(kumi.rank(), size, ranks)
        with kumi.lock(SUM):
            total += plate[1:-1][rows].sum()
        kumi.barrier()
        failed = kumi.shared_array(1, np.uint8)
        if kumi.rank() == 0:
            same = np.array_equal(plate, serial(size, steps))
            same = same and bool(np.isclose(total[0], plate.sum()))
            failed[0] = not same
            print(draw(plate))
            print(f"heat in the plate after {steps} steps: {total[0]:.6f}")
            print(
                f"RESULT name=shared_heat class=- verified={'yes' if same else 'no'} "
                f"seconds={seconds:.6f} "
                f"mops={size * size * steps / max(seconds, 1e-9) / 1e6:.2f} ranks={ranks} repeat=1",
                flush=True,
            )
        kumi.barrier()
        # Shared arrays end with the job.
        code = int(failed[0])
    return code


if __name__ == "__main__":
    sys.exit(main())
