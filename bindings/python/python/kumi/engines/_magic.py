"""The cell magic ``%%kumi`` of IPython."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from ._engines import Engines, latest
from ._errors import PoolError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PoolError(f"%%kumi: {message}; write %%kumi [-r RANKS] [NAME]")


def _ranks(text: str) -> Sequence[int]:
    """Ranks as ``0,2,4-6``."""
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            chosen += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} are no ranks, as 0,2,4-6 are") from None
    return chosen


def load(shell: Any) -> None:
    """Adds the magic to a shell of IPython."""
    parser = _Parser(prog="%%kumi", add_help=False)
    parser.add_argument("-r", "--ranks", type=_ranks)
    parser.add_argument("name", nargs="?")

    def kumi(line: str, cell: str) -> None:
        """Runs the cell at the ranks of a pool, with their variables.

        %%kumi [-r RANKS] [NAME]

        RANKS are as 0,2,4-6. NAME is the variable of the notebook that has the pool; the one made last unless given.
        """
        options = parser.parse_args(shlex.split(line))
        engines = shell.user_ns.get(options.name) if options.name else latest()
        if not isinstance(engines, Engines):
            raise PoolError(f"{options.name} is no pool of ranks, as kumi.Engines(4) makes one")
        engines.cell(shell.transform_cell(cell), ranks=options.ranks)

    shell.register_magic_function(kumi, "cell", "kumi")
