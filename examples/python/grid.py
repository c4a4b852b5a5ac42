"""A product of a matrix and a vector on a grid of ranks: each row and each column of the grid is a group.

A rank has a block of the matrix. The vector's parts go down the columns, and the rows sum up what their blocks give.
"""

import math

import numpy as np

import kumi

#: Rows and columns of a block.
BLOCK = 50


def main() -> None:
    with kumi.init():
        me, ranks = kumi.rank(), kumi.size()
        height = next(number for number in range(math.isqrt(ranks), 0, -1) if ranks % number == 0)
        width = ranks // height
        row = kumi.group().split(me // width)
        column = kumi.group().split(me % width)
        assert row is not None and column is not None

        # Every number of the matrix follows from its place, so that each rank can check its part of the result.
        i = np.arange(BLOCK) + column.member * BLOCK
        j = np.arange(BLOCK) + row.member * BLOCK
        block = np.cos(np.outer(i, j) * 1e-3)

        # The first row of the grid has the vector, a part in each column.
        part = np.sin(j.astype(float)) if column.member == 0 else np.zeros(BLOCK)
        column.broadcast(part)
        product = row.allreduce(block @ part)

        every = np.arange(width * BLOCK)
        wanted = np.cos(np.outer(i, every) * 1e-3) @ np.sin(every)
        worst = kumi.allreduce(np.array([np.abs(product - wanted).max()]), kumi.Op.MAX)[0]
        if me == 0:
            print(f"RESULT name=grid verified={'yes' if worst < 1e-9 else 'no'} height={height} width={width}")
        if worst >= 1e-9:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
