"""The functions that bench/call/adapters.py calls on clusters of Dask and Ray, directly and through a server."""

from numpy import float64

from kumi import call
from kumi.call import Array


@call.routine(idempotent=True)
def noop(x: float) -> float:
    """Returns its argument."""
    return x


@call.routine(idempotent=True, order="2*n^3")
def product(a: Array[float64, "n", "n"], b: Array[float64, "n", "n"]) -> Array[float64, "n", "n"]:
    """The matrix a b."""
    return a @ b


@call.routine(idempotent=True, order="n^3")
def solve(a: Array[float64, "n", "n"], b: Array[float64, "n"]) -> Array[float64, "n"]:
    """The solution of a x = b."""
    import numpy as np

    return np.linalg.solve(a, b)
