"""Collectives of one rank: types, shapes and what is refused. Results are tested on a cluster."""

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
@pytest.mark.parametrize("op", kumi.Op)
def test_every_type_and_operation(code: str, op: kumi.Op) -> None:
    array = np.arange(12, dtype=code).reshape(3, 4)
    if code[0] == "f" and op >= kumi.Op.BITAND:
        with pytest.raises(kumi.BadOperationError):
            kumi.allreduce(array, op)
        return
    result = kumi.allreduce(array, op)
    assert result.dtype == array.dtype and np.array_equal(result, array)
    assert not np.shares_memory(result, array)
    rooted = kumi.reduce(array, op)
    assert rooted is not None and np.array_equal(rooted, array)


def test_reductions_say_what_they_cannot_do() -> None:
    for kind in ("f2", "c16", "?", "M8[s]", ">i4", "S3"):
        with pytest.raises(TypeError, match="reduced|byte order"):
            kumi.allreduce(np.zeros(2, kind))
    with pytest.raises(TypeError, match="contiguous"):
        kumi.allreduce(np.zeros((4, 4)).T[1:])
    with pytest.raises(TypeError, match="aligned"):
        unaligned = np.zeros(17, np.uint8)[1:].view(np.float64)
        kumi.allreduce(np.zeros(2), out=unaligned)
    with pytest.raises(ValueError, match="Op"):
        kumi.allreduce(np.zeros(2), 9)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="out must be of shape"):
        kumi.allreduce(np.zeros(2), out=np.zeros(3))
    with pytest.raises(kumi.BadRankError):
        kumi.reduce(np.zeros(2), root=1)


def test_results_go_where_they_are_wanted() -> None:
    array, out = np.arange(3), np.zeros(3, int)
    assert kumi.allreduce(array, out=out) is out and out.tolist() == [0, 1, 2]
    assert kumi.allreduce(array, out=array) is array
    out[:] = 9
    assert kumi.reduce(array, out=out) is out and out.tolist() == [0, 1, 2]
    gathered = np.zeros((1, 3), int)
    assert kumi.gather(array, out=gathered) is gathered and gathered.tolist() == [[0, 1, 2]]
    out[:] = 9
    assert kumi.alltoall(array, out=out) is out and out.tolist() == [0, 1, 2]
    # A number of numpy is an array of no dimension.
    assert kumi.allreduce(np.float64(2.5)) == 2.5  # type: ignore[arg-type]


def test_two_arrays_must_be_two() -> None:
    array = np.arange(4)
    with pytest.raises(kumi.OverlapError):
        kumi.alltoall(array, out=array)
    both = np.arange(6)
    with pytest.raises(kumi.OverlapError):
        kumi.gather(both[1:3], out=both[2:4].reshape(1, 2))


def test_any_fixed_size_elements_are_moved() -> None:
    text = np.array(["ab", "c"])
    kumi.broadcast(text)
    moved = kumi.gather(text)
    assert moved is not None and moved.tolist() == [["ab", "c"]]
    assert kumi.alltoall(np.array([True, False])).tolist() == [True, False]
    for wrong in (np.array([{}]), [1], np.zeros((2, 2))[:, 0]):
        with pytest.raises(TypeError):
            kumi.broadcast(wrong)  # type: ignore[arg-type]
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    with pytest.raises(TypeError, match="read-only"):
        kumi.broadcast(fixed)
    with pytest.raises(TypeError, match="scalar"):
        kumi.broadcast(np.float64(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first axis"):
        kumi.alltoall(np.array(1))
    assert kumi.alltoall(np.zeros((0, 2))).shape == (0, 2)
