"""A matrix is factored once at a server, and solved with many times: what an object keeps need not be sent again.

By itself it serves the class and calls it; with an address it calls one that ``kumi call serve --python factored.py`` serves.
"""

import sys
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
from numpy import float64

import kumi
from kumi.call import Array

Floats = np.ndarray[Any, np.dtype[float64]]


@kumi.call.routine(name="factored")
class Factored:
    """Solves ``(a + shift I) x = b``, a symmetric."""

    def factor(self, a: Annotated[Floats, Array[float64, "n", "n"]]) -> None:
        """Takes a, in O(n^3)."""
        self._values, self._vectors = np.linalg.eigh(a)

    def solve(
        self, b: Annotated[Floats, Array[float64, "n"]], shift: float = 0.0
    ) -> Annotated[Floats, Array[float64, "n"]]:
        """Gives x, in O(n^2)."""
        x: Floats = self._vectors @ ((b @ self._vectors) / (self._values + shift))
        return x


def main(addresses: list[str]) -> None:
    n = 300
    rng = np.random.default_rng(1)
    a, b = rng.random((n, n)), rng.random(n)
    a = a @ a.T
    with ExitStack() as stack:
        address = addresses[0] if addresses else stack.enter_context(kumi.call.Server(Factored)).address
        there = stack.enter_context(kumi.call.connect(address).object("factored"))
        there.factor(a)
        for shift in (0.1, 1.0, 10.0):
            x = there.solve(b, shift)
            print(f"shift {shift}: error {np.abs(a @ x + shift * x - b).max():.0e}")


if __name__ == "__main__":
    main(sys.argv[1:])
