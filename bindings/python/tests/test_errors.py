"""What wrong arguments raise: always an exception of the package, with all its attributes."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kumi

HUGE = 1 << 70
CLASSES = [
    thing
    for thing in vars(kumi).values()
    if isinstance(thing, type) and issubclass(thing, kumi.KumiError)
]


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


@pytest.mark.parametrize("kind", CLASSES)
def test_attributes_are_always_there(kind: type[kumi.KumiError]) -> None:
    error = kind("some text")
    assert str(error) == "some text"
    for name in inspect.get_annotations(kind):
        assert getattr(error, name) == -1
        assert getattr(kind("some text", **{name: 7}), name) == 7


def test_the_new_classes_are_the_built_in_ones_too() -> None:
    assert issubclass(kumi.BadArgumentError, ValueError)
    assert issubclass(kumi.BadTypeError, TypeError)


# They are called with a window of 8 integers, and each has one argument too many, or a wrong one.
WRONG: list[tuple[type[Exception], Callable[[Any], object]]] = [
    (ValueError, lambda w: kumi.send(HUGE, b"")),
    (ValueError, lambda w: kumi.send(0, b"", HUGE)),
    (TypeError, lambda w: kumi.send("0", b"")),  # type: ignore[arg-type]
    (TypeError, lambda w: kumi.send(0, "text")),
    (TypeError, lambda w: kumi.send(0, b"", 1.5)),  # type: ignore[arg-type]
    (ValueError, lambda w: kumi.recv(-HUGE)),
    (TypeError, lambda w: kumi.recv_into(b"constant")),
    (ValueError, lambda w: kumi.probe(0, HUGE)),
    (ValueError, lambda w: kumi.flush(HUGE)),
    (ValueError, lambda w: kumi.same_node(HUGE)),
    (ValueError, lambda w: kumi.broadcast(np.zeros(1), HUGE)),
    (ValueError, lambda w: kumi.allreduce(np.zeros(1), 99)),  # type: ignore[arg-type]
    (TypeError, lambda w: kumi.allreduce(np.zeros(1, bool))),
    (ValueError, lambda w: kumi.alltoall(np.zeros(()))),
    (ValueError, lambda w: kumi.alltoallv(np.zeros(2), [1], [2])),
    (ValueError, lambda w: kumi.alltoallv(np.zeros(2), [2, 0], [2])),
    (ValueError, lambda w: kumi.alltoallv(np.zeros(2), [2], [-2])),
    (ValueError, lambda w: kumi.alltoallv(np.zeros(2), [2], [3])),
    (TypeError, lambda w: kumi.alltoallv(np.zeros(2), ["2"], [2])),  # type: ignore[list-item]
    (ValueError, lambda w: kumi.sendrecv(1, b"", bytearray(1))),
    (TypeError, lambda w: kumi.sendrecv(0, b"", b"")),
    (kumi.OverlapError, lambda w: kumi.sendrecv(0, w.array, w.array)),
    (kumi.BadRankError, lambda w: kumi.rank_runs(HUGE)),
    (TypeError, lambda w: kumi.node_load("0")),  # type: ignore[arg-type]
    (TypeError, lambda w: w.put("0", np.zeros(1, np.int64))),
    (ValueError, lambda w: w.put(HUGE, np.zeros(1, np.int64))),
    (ValueError, lambda w: w.put(0, np.zeros(1, np.int64), notify=HUGE)),
    (TypeError, lambda w: w.put(0, np.zeros(1, np.int64), 0.5)),
    (TypeError, lambda w: w.put(0, np.zeros(1, np.int64), completion=1)),
    (TypeError, lambda w: w.put(0, [[1], [1, 2]], kumi.region(8, np.s_[0:2]))),
    (IndexError, lambda w: w.put(0, np.zeros(1, np.int64), HUGE)),
    (IndexError, lambda w: w.put(0, np.zeros(1, np.int64), -1)),
    (IndexError, lambda w: w.get(0, 0, HUGE)),
    (IndexError, lambda w: w.get(0, 0, 1 << 60)),
    (IndexError, lambda w: w.get(0, HUGE)),
    (TypeError, lambda w: w.get(0, 0, "1")),
    (TypeError, lambda w: w.get(0, dtype="S0")),
    (TypeError, lambda w: w.get(0, dtype="no such")),
    (IndexError, lambda w: w.get(0, kumi.region(1 << 60, np.s_[:]))),
    (ValueError, lambda w: w.get(0, kumi.Region((2,), 0, HUGE, 1, 2))),
    (TypeError, lambda w: w.fetch_add(0, 0, 1.5)),
    (ValueError, lambda w: w.multicast([HUGE], np.zeros(1, np.int64))),
    (TypeError, lambda w: w.multicast(["0"], np.zeros(1, np.int64))),
    (TypeError, lambda w: w.put_list(0, [3], np.zeros(1, np.int64))),
    (TypeError, lambda w: w.put_list(0, [(0.5, 1)], np.zeros(1, np.int64))),
    (ValueError, lambda w: w.fifo(0, HUGE)),
    (ValueError, lambda w: w.fifo(0, -8)),
    (IndexError, lambda w: w.fifo(HUGE, 64)),
    (IndexError, lambda w: w.append(0, -64, b"")),
    (IndexError, lambda w: w.multicast_append([0], HUGE, b"")),
    (ValueError, lambda w: w.on_signal(0, HUGE, print)),
    (TypeError, lambda w: w.on_signal(0, 64, 7)),
    (ValueError, lambda w: w.notified(HUGE)),
    (ValueError, lambda w: w.wait_notify(0, -1)),
    (ValueError, lambda w: w.size_at(HUGE)),
    (ValueError, lambda w: kumi.Completion().wait(-1)),
    (TypeError, lambda w: kumi.window(1, "no such")),
    (TypeError, lambda w: kumi.window(1.5)),  # type: ignore[arg-type]
    (TypeError, lambda w: kumi.window(("a",))),  # type: ignore[arg-type]
    (ValueError, lambda w: kumi.window(-1)),
    (kumi.WindowRefusedError, lambda w: kumi.window(HUGE)),
    (TypeError, lambda w: kumi.window_on(7)),
    (ValueError, lambda w: kumi.region(HUGE, 0)),
    (IndexError, lambda w: kumi.region(4, (0, 0))),
    (ValueError, lambda w: kumi.region(4, np.s_[::0])),
    (ValueError, lambda w: kumi.region(4, np.s_["a":])),
]


@pytest.mark.parametrize(("kind", "call"), WRONG)
def test_wrong_arguments_raise_exceptions_of_the_package(
    kind: type[Exception], call: Callable[[Any], object]
) -> None:
    with kumi.window(8, np.int64) as window:
        with pytest.raises(kind) as caught:
            call(window)
        assert isinstance(caught.value, kumi.KumiError), repr(caught.value)
        assert not window.array.any()


def test_out_of_bounds_says_where() -> None:
    window = kumi.window(8, np.int64)
    for call, offset, length in (
        (lambda: window.get(0, 4, 5), 32, 40),
        (lambda: window.get(0, HUGE, 5), 8 * HUGE, 0),
        (lambda: window.put(0, np.zeros(9, np.int64)), 0, 72),
        (lambda: window.append(0, HUGE, b""), HUGE, 0),
    ):
        with pytest.raises(kumi.OutOfBoundsError) as caught:
            call()
        error = caught.value
        assert (error.rank, error.offset, error.length, error.size) == (0, offset, length, 64)
