"""A histogram of random numbers that all ranks draw in rounds, checked at the end.

The histograms of a round are added up by a collective that goes on while the ranks draw the numbers of the next round:
`start_allreduce` returns at once, and its result is taken a round later. From time to time rank 0 tells how far it is, by
messages of any length that the other ranks look at before they receive them.
"""

import argparse
import sys
from typing import NoReturn

import numpy as np

import kumi

BINS = 64
#: The tag of what rank 0 tells.
NEWS = 1


class Arguments(argparse.ArgumentParser):
    """Ends with code 64 for wrong arguments, as all examples do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def draw(number: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The histogram of this rank's numbers of a round."""
    drawn = np.random.default_rng([number, kumi.rank()]).random(count)
    return np.bincount((drawn * BINS).astype(np.int64), minlength=BINS).astype(np.int64)


def tell(number: int, total: int) -> None:
    """Rank 0 tells the others."""
    for rank in range(1, kumi.size()):
        kumi.send(rank, f"{total} numbers after round {number}".encode(), NEWS)


def hear() -> int:
    """Receives what rank 0 has told so far; how many messages that were."""
    heard = 0
    while (message := kumi.claim(0, NEWS)) is not None:
        # Nobody else gets it between the look and the receive.
        text = bytearray(message.status.length)
        message.receive_into(text)
        heard += 1
    return heard


def main() -> int:
    parser = Arguments(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=50, help="rounds (50)")
    parser.add_argument("--count", type=int, default=100_000, help="numbers of a rank in a round (100000)")
    arguments = parser.parse_args()
    rounds, count = arguments.rounds, arguments.count
    if rounds < 1 or count < 1:
        parser.error("--rounds and --count must be at least 1")
    with kumi.init():
        kumi.barrier()
        begin = kumi.time()
        total, mine, heard = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64), 0
        under_way: kumi.Request[np.ndarray[tuple[int], np.dtype[np.int64]]] | None = None
        for number in range(1, rounds + 1):
            own = draw(number, count)
            mine += own
            if under_way is not None:
                total += under_way.wait()
            under_way = kumi.start_allreduce(own)
            if number % 10 == 0 and kumi.rank() == 0:
                tell(number, int(total.sum()))
            heard += hear()
        assert under_way is not None
        total += under_way.wait()
        # What rank 0 has told has arrived before anybody passes the barrier.
        kumi.flush()
        kumi.barrier()
        heard += hear()
        seconds = kumi.time() - begin
        numbers = rounds * count * kumi.size()
        expected = numbers / BINS
        spread = float(np.sum((total - expected) ** 2) / expected)
        good = np.array_equal(total, kumi.allreduce(mine)) and int(total.sum()) == numbers
        good = good and spread < 3 * BINS and heard == (rounds // 10 if kumi.rank() > 0 else 0)
        failed = kumi.allreduce(np.array([not good], np.uint8), kumi.Op.MAX)
        if kumi.rank() == 0:
            print(f"{numbers} numbers in {BINS} bins, chi-square {spread:.1f}")
            print(
                f"RESULT name=draws class=- verified={'no' if failed[0] else 'yes'} "
                f"seconds={seconds:.6f} mops={numbers / 1e6 / max(seconds, 1e-9):.2f} "
                f"ranks={kumi.size()} repeat=1",
                flush=True,
            )
    return int(failed[0])


if __name__ == "__main__":
    sys.exit(main())
