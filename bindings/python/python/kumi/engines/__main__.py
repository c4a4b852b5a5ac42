"""A rank of a pool: ``kumi run -n N python -m kumi.engines``, which :class:`kumi.Engines` runs."""

from kumi.engines import _front, _rank

if __name__ == "__main__":
    _rank.begin(_front.start)
