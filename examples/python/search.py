"""A search that stops everywhere when one rank has found something.

Wanted is the smallest number whose SHA-256 begins with some zero bits. Each rank tries every n-th
number. Who finds one that fits signals it to the others, whose handlers note it while they compute:
whoever has come beyond it stops. Nobody looks for messages in between, and nobody waits until all
have come as far as the last.
"""

import argparse
import hashlib
import sys
from typing import NoReturn

import numpy as np

import kumi

#: Bytes of the signal port: room for some signals that are not handled yet.
CAPACITY = 1024


class Arguments(argparse.ArgumentParser):
    """Ends with code 64 for wrong arguments, as all examples do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def fits(number: int, bits: int) -> bool:
    """Whether the number's hash begins with so many zero bits."""
    digest = hashlib.sha256(number.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - bits) == 0


class Bound:
    """The smallest number found so far, at any rank as far as this one knows."""

    def __init__(self) -> None:
        self.number = sys.maxsize

    def signalled(self, source: int, data: bytes) -> None:
        """Runs for each signal, on the thread of the port, which alone changes the number."""
        self.number = min(self.number, int.from_bytes(data, "little"))


def search(bound: Bound, bits: int) -> tuple[int, int]:
    """This rank's smallest number below the bound, or what is none; and how many it tried."""
    number, tried = kumi.rank(), 0
    while number < bound.number:
        tried += 1
        if fits(number, bits):
            return number, tried
        number += kumi.size()
    return sys.maxsize, tried


def main() -> int:
    parser = Arguments(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bits", type=int, default=14, help="zero bits, 1 to 40 (14)")
    bits: int = parser.parse_args().bits
    if not 1 <= bits <= 40:
        parser.error("--bits takes 1 to 40")
    with kumi.init():
        bound = Bound()
        window = kumi.window(kumi.FIFO_OVERHEAD + CAPACITY, np.uint8)
        window.on_signal(0, CAPACITY, bound.signalled)
        kumi.barrier()  # All have their ports before anybody signals.
        begin = kumi.time()
        found, tried = search(bound, bits)
        if found != sys.maxsize:
            for rank in range(kumi.size()):
                if rank != kumi.rank():
                    window.signal(rank, 0, found.to_bytes(8, "little"))
        smallest = int(kumi.allreduce(np.array([found]), kumi.Op.MIN)[0])
        seconds = kumi.allreduce(np.array([kumi.time() - begin]), kumi.Op.MAX)[0]
        total = int(kumi.allreduce(np.array([tried]))[0])
        # Shared out: no smaller number fits.
        mine = range(kumi.rank(), smallest, kumi.size())
        missed = np.array([sum(fits(number, bits) for number in mine)])
        verified = fits(smallest, bits) and int(kumi.allreduce(missed)[0]) == 0
        if kumi.rank() == 0:
            print(f"{smallest} is the smallest number with {bits} zero bits; {total} were tried")
            print(
                f"RESULT name=search class=- verified={'yes' if verified else 'no'} "
                f"seconds={seconds:.6f} mops={total / max(seconds, 1e-9) / 1e6:.2f} "
                f"ranks={kumi.size()} repeat=1",
                flush=True,
            )
        kumi.barrier()
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
