"""The smallest program: every rank says who it is, in order."""

import kumi


def main() -> None:
    with kumi.init():
        turn = 0
        # Rank r waits for a message of rank r - 1 before it speaks.
        if kumi.rank() > 0:
            turn = int(kumi.recv(kumi.rank() - 1).data)
        print(
            f"hello from rank {kumi.rank()} of {kumi.size()} on node {kumi.node()}, turn {turn}",
            flush=True,
        )
        if kumi.rank() + 1 < kumi.size():
            kumi.send(kumi.rank() + 1, str(turn + 1).encode())


if __name__ == "__main__":
    main()
