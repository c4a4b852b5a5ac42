"""Kumi: memory-based communication between the ranks of a parallel job.

.. code-block:: python

    import numpy as np
    import kumi

    with kumi.init():
        window = kumi.window(8)                         # eight float64 at each rank
        right = (kumi.rank() + 1) % kumi.size()
        window.put(right, np.full(8, float(kumi.rank())), notify=0)
        window.wait_notify(0, 1)                        # the left neighbour's data is in place
        print(window.array, kumi.allreduce(window.array))

Start it with ``kumi run -n 4 python3 program.py``, or by hand with ``KUMI_SINGLETON=1`` as a job of one rank.
Only the thread that called :func:`init` may call the functions, unless it asked for ``threads=True``. While a
call waits, other threads of the program run; they must not change the arrays of the call. Ctrl-C
(``KeyboardInterrupt``) ends a waiting call of the main thread, and so does every other signal whose handler
raises an exception. Afterwards the program can go on communicating only if the call was a receive, or a wait for
a notification, a completion or a record. Otherwise it gets :class:`FaultError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext kumi`` does in IPython and Jupyter: adds the cell magic ``%%kumi``."""
    import_module("kumi.engines._magic").load(shell)


# Functions for ranks need numpy and the library; `kumi.sim` needs neither. So they are loaded when one of
# them is first used.
if TYPE_CHECKING:
    from . import call as call
    from . import engines as engines
    from . import sim as sim
    from ._all import *
    from ._all import __all__ as __all__
    from .engines import (
        Engines as Engines,
        EnginesError as EnginesError,
        NotSendableError as NotSendableError,
        PoolEndedError as PoolEndedError,
        PoolError as PoolError,
        PoolStartError as PoolStartError,
        RankError as RankError,
    )
else:
    _OF_POOLS = (
        "Engines",
        "EnginesError",
        "NotSendableError",
        "PoolEndedError",
        "PoolError",
        "PoolStartError",
        "RankError",
    )

    def __getattr__(name):
        if name in ("call", "engines", "sim"):
            return import_module(f"kumi.{name}")
        if name in _OF_POOLS:
            return getattr(import_module("kumi.engines"), name)
        # Attributes that tools ask of any module load nothing.
        if name == "__all__" or not name.startswith("__"):
            everything = import_module("kumi._all")
            globals().update({each: getattr(everything, each) for each in everything.__all__})
            globals()["__all__"] = everything.__all__
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__"), "call", "engines", "sim", *_OF_POOLS})
