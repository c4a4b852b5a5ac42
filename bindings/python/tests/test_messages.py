"""Messages of a rank to itself."""

import array

import numpy as np
import pytest

import kumi


@pytest.fixture(autouse=True)
def in_a_job(job: kumi.Job) -> None:
    """Every test here is in one."""


def test_messages_match_by_tag_and_in_order() -> None:
    assert kumi.probe() is None
    for tag, data in ((1, b"a"), (2, b"b"), (1, b"c")):
        kumi.send(0, data, tag)
    assert kumi.probe(tag=2) == kumi.Status(0, 2, 1)
    assert kumi.recv(0, 2) == kumi.Message(0, 2, b"b")
    assert kumi.recv().data == b"a"
    assert kumi.recv(tag=1).data == b"c"
    assert kumi.probe(0) is None


def test_anything_with_bytes_can_be_sent() -> None:
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    for data in (
        numbers,
        bytearray(numbers.tobytes()),
        memoryview(bytes(numbers)),
        array.array("h", range(6)),
    ):
        kumi.send(0, data)
        assert np.frombuffer(kumi.recv().data, np.int16).tolist() == list(range(6))
    kumi.send(0, b"")
    assert kumi.recv() == (0, 0, b"")
    kumi.send(0, np.empty((0, 3)))
    assert kumi.recv().data == b""
    large = np.random.default_rng(1).bytes(3 << 20)
    kumi.send(0, large)
    assert kumi.recv().data == large


def test_what_cannot_be_sent_is_named() -> None:
    for data in ("text", 7, None, np.array([{}]), np.zeros((2, 2))[:, 0], np.zeros(1, [("a", "O")])):
        with pytest.raises(TypeError, match="data"):
            kumi.send(0, data)
    for tag in (-1, 1 << 31):
        with pytest.raises(kumi.BadTagError):
            kumi.send(0, b"", tag)
        with pytest.raises(kumi.BadTagError):
            kumi.probe(0, tag)
    assert kumi.probe() is None


def test_receiving_into_memory() -> None:
    kumi.send(0, np.arange(3.0), 5)
    out = np.zeros(4)
    assert kumi.recv_into(out, 0, 5) == kumi.Status(0, 5, 24)
    assert out.tolist() == [0, 1, 2, 0]
    with pytest.raises(TypeError, match="read-only"):
        kumi.recv_into(b"constant")
    kumi.send(0, b"longer")
    short = bytearray(3)
    with pytest.raises(kumi.TruncatedError) as caught:
        kumi.recv_into(short)
    assert (caught.value.needed, bytes(short)) == (6, b"lon")
    assert kumi.probe() is None


def test_a_message_too_large_to_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kumi.finalize()
    monkeypatch.setenv("KUMI_UNEXPECTED_BYTES", "1000")
    kumi.init()
    with pytest.raises(kumi.UnreadError) as caught:
        kumi.send(0, bytes(2000))
    assert caught.value.bytes == 2000
