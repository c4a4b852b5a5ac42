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


def test_claimed_messages_are_received_by_their_holder_only() -> None:
    assert kumi.claim() is None
    for tag, data in ((1, b"first"), (2, b"second"), (1, b"third")):
        kumi.send(0, data, tag)
    first = kumi.claim(0, 1)
    assert first is not None and first.status == (0, 1, 5)
    assert kumi.probe(tag=1) == (0, 1, 5) and kumi.recv(tag=1).data == b"third"
    second = kumi.await_claim(tag=2)
    assert kumi.probe() is None and kumi.claim() is None
    out = np.zeros(8, np.uint8)
    assert second.receive_into(out) == kumi.Status(0, 2, 6)
    assert out.tobytes() == b"second\0\0"
    assert first.receive() == kumi.Message(0, 1, b"first")
    for again in (first.receive, first.release, lambda: second.receive_into(out)):
        with pytest.raises(kumi.StaleClaimError):
            again()
    # What it was is still known.
    assert first.status.length == 5


def test_a_claimed_message_that_is_dropped_is_at_its_old_place_again() -> None:
    for data in (b"1", b"2", b"3"):
        kumi.send(0, data, 4)
    # By its last reference, by hand, and by the end of a block.
    message = kumi.await_claim(0, 4)
    assert kumi.recv().data == b"2"
    del message
    assert kumi.probe() == (0, 4, 1)
    kumi.await_claim().release()
    with kumi.await_claim():
        pass
    assert kumi.recv().data == b"1"
    with kumi.await_claim() as message:
        assert message.receive().data == b"3"
    assert kumi.probe() is None


def test_what_a_claim_cannot_be_of_is_refused() -> None:
    for call in (kumi.claim, kumi.await_claim):
        with pytest.raises(kumi.BadRankError):
            call(1)
        with pytest.raises(kumi.BadTagError):
            call(0, -1)
    kumi.send(0, b"longer")
    message = kumi.await_claim()
    with pytest.raises(TypeError, match="read-only"):
        message.receive_into(b"constant")
    # That took nothing.
    with pytest.raises(kumi.TruncatedError) as caught:
        message.receive_into(bytearray(3))
    assert caught.value.needed == 6
    assert kumi.probe() is None
    kumi.send(0, b"left")
    message = kumi.await_claim()
    kumi.finalize()
    with pytest.raises(kumi.NotInitialisedError):
        message.receive()
    kumi.init()
    with pytest.raises(kumi.StaleClaimError):
        message.receive()
