"""Programs whose ranks wait for each other for ever, one of each kind.

``kumi run -n 2 python3 deadlock.py KIND``; ``kumi debug waits JOB`` says why.
"""

import argparse

import kumi

TAG = 7


def crossed() -> None:
    """Each rank receives from its neighbour before it sends."""
    neighbour = (kumi.rank() + 1) % kumi.size()
    kumi.recv(neighbour, TAG)
    kumi.send(neighbour, b"", TAG)


def left() -> None:
    """Rank 1 ends, and rank 0 waits for its message."""
    if kumi.rank() == 0:
        kumi.recv(1, TAG)


def notification() -> None:
    """Rank 1 never writes what rank 0 waits for."""
    window = kumi.window(8)
    if kumi.rank() == 0:
        window.wait_notify(3, 1)
    else:
        kumi.recv(0, TAG)


def locks() -> None:
    """Two ranks take two locks of shared memory, each the other one first."""
    mine, other = kumi.lock(kumi.rank()), kumi.lock((kumi.rank() + 1) % kumi.size())
    mine.acquire()
    kumi.barrier()
    other.acquire()


KINDS = {kind.__name__: kind for kind in (crossed, left, notification, locks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    kind = KINDS[parser.parse_args().kind]
    with kumi.init():
        kind()


if __name__ == "__main__":
    main()
