"""Groups of one rank: handles, shapes and what is refused. Results are tested on a cluster."""

from collections.abc import Callable

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_groups_are_made_and_freed() -> None:
    everyone = kumi.group()
    assert (everyone.member, everyone.members, everyone.freed) == (0, 1, False)
    assert (everyone.rank_of(0), everyone.member_of(0)) == (0, 0)
    with everyone.split(3, -1) or pytest.fail("no group") as part:
        assert part.members == 1 and repr(part) == "<kumi.Group member 0 of 1>"
        part.barrier()
        assert part.split(None) is None
        assert part.subset([]) is None
        inner = part.subset([np.int64(0)])
        assert inner is not None
        copy = inner.duplicate()
        inner.free()
        inner.free()
        copy.barrier()
    assert part.freed and repr(part) == "<kumi.Group, freed>"
    for call in (part.barrier, lambda: part.split(0), lambda: part.member):
        with pytest.raises(kumi.FreedGroupError):
            call()
    with pytest.raises(kumi.BadGroupError, match="stays"):
        everyone.free()


def test_wrong_members_and_colours() -> None:
    everyone = kumi.group()
    for members in ([0, 0], [1], [-1]):
        with pytest.raises(kumi.BadGroupError):
            everyone.subset(members)
    with pytest.raises(TypeError):
        everyone.subset(["0"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="beyond"):
        everyone.split(-1)
    with pytest.raises(TypeError):
        everyone.split("red")  # type: ignore[arg-type]
    part = everyone.duplicate()
    for call in (lambda: part.rank_of(1), lambda: part.broadcast(np.zeros(1), 1)):
        with pytest.raises(kumi.BadRankError) as caught:
            call()
        assert (caught.value.rank, caught.value.ranks) == (1, 1)
    with pytest.raises(kumi.BadRankError):
        part.member_of(1)


def test_a_group_ends_with_its_job() -> None:
    part = kumi.group().duplicate()
    kumi.finalize()
    with pytest.raises(kumi.NotInitialisedError):
        part.barrier()


def test_every_collective() -> None:
    part = kumi.group().duplicate()
    array = np.arange(6.0).reshape(3, 2)
    part.broadcast(array)
    for result in (
        part.allreduce(array),
        part.reduce(array),
        part.scan(array, kumi.Op.MAX),
        part.alltoall(array),
        part.alltoallv(array, [3], [3]),
        part.allgatherv(array, [3]),
        part.gatherv(array, [3]),
        part.reduce_scatter(array),
        part.reduce_scatter(array, counts=[3]),
        part.scatterv(array, np.zeros((3, 2)), [3]),
    ):
        assert result is not None and np.array_equal(result, array)
    for result in (part.gather(array), part.allgather(array)):
        assert result is not None and np.array_equal(result, array[np.newaxis])
    assert part.exclusive_scan(array) is None
    out = np.zeros((3, 2))
    assert part.scatter(array[np.newaxis], out) is out and np.array_equal(out, array)
    assert part.reduce_scatter(array, out=out) is out
    assert np.array_equal(array, np.arange(6.0).reshape(3, 2)), "left as it was"


def test_what_does_not_fit_is_refused() -> None:
    part, array = kumi.group(), np.arange(4.0)
    values: tuple[Callable[[], object], ...] = (
        lambda: part.allgatherv(array, [3]),
        lambda: part.allgatherv(array, [2, 2]),
        lambda: part.allgatherv(array, [-4]),
        lambda: part.gatherv(array, [5]),
        lambda: part.scatterv(array, np.zeros(3), [4]),
        lambda: part.reduce_scatter(array, counts=[3]),
        lambda: part.reduce_scatter(np.float64(1)),  # type: ignore[arg-type]
    )
    for call in values:
        with pytest.raises(ValueError):
            call()
    types: tuple[Callable[[], object], ...] = (
        lambda: part.scatter(array, np.zeros(4)),
        lambda: part.scatter(None, np.zeros(4)),
        lambda: part.scatterv(array, np.zeros(4, np.float32), [4]),
        lambda: part.gather(array, out=np.zeros(4)),
    )
    for call in types:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(kumi.OverlapError):
        part.allgather(array, out=array[np.newaxis])
