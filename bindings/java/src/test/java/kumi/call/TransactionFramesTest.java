package kumi.call;

import static kumi.call.Frames.ATTEMPT_REPORT;
import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.CLOSED;
import static kumi.call.Frames.DROP;
import static kumi.call.Frames.FETCH;
import static kumi.call.Frames.PLACE;
import static kumi.call.Frames.ROUTINE;
import static kumi.call.Frames.TICKET;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a transaction tells metaservers and servers, byte by byte, and servers that lose arrays. */
@Timeout(120)
class TransactionFramesTest {
    /** Where the values of a call's head begin. */
    private static final int VALUES = 8 + 4 + 2 + 1;

    private static FakeServer.Frame next(FakeServer.Peer peer, int kind) throws IOException {
        FakeServer.Frame frame = peer.next();
        assertEquals(kind, frame.kind());
        return frame;
    }

    /** The call's head; its array comes next. */
    private static FakeServer.Frame call(FakeServer.Peer peer, boolean isSent) throws IOException {
        FakeServer.Frame head = next(peer, CALL);
        if (isSent) {
            next(peer, CHUNK);
        }
        return head;
    }

    /** The values of a head whose parameter 1 stays by this name, as long as a transaction wants it. */
    private static byte[] stays(byte[] name) {
        ByteBuffer out = ByteBuffer.allocate(2 + 2 + 1 + 20 + 4 + 1).order(ByteOrder.LITTLE_ENDIAN);
        return out.putShort((short) 1).putShort((short) 1).put((byte) 8).put(name).putInt(3_600_000).put((byte) 0).array();
    }

    /** The values of a head whose parameter 0 this server holds by this name. */
    private static byte[] reads(byte[] name) {
        ByteBuffer out = ByteBuffer.allocate(2 + 2 + 1 + 2 + 8 + 8 + 20 + 8 + 2).order(ByteOrder.LITTLE_ENDIAN);
        return out.putShort((short) 1).putShort((short) 0).put((byte) 7).putShort((short) 1).putLong(0).putLong(16).put(name).array();
    }

    private static byte[] values(FakeServer.Frame head) {
        return Arrays.copyOfRange(head.body(), VALUES, head.body().length);
    }

    private static byte[] name(FakeServer.Frame head) {
        return Arrays.copyOfRange(head.body(), VALUES + 5, VALUES + 25);
    }

    /** Bytes of the arguments and of the results in a request for a place, behind the key and the hash. */
    private static List<Long> bytes(FakeServer.Frame place) {
        ByteBuffer body = ByteBuffer.wrap(place.body()).order(ByteOrder.LITTLE_ENDIAN);
        return List.of(body.getLong(24), body.getLong(32));
    }

    @Test
    void theMetaserverIsToldWhereArraysAre() throws Exception {
        // What the two get has no order.
        BlockingQueue<FakeServer.Frame> calls = new LinkedBlockingQueue<>();
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        FakeServer.Script serves = peer -> {
            peer.greet(8, Long.MAX_VALUE);
            next(peer, TICKET);
            FakeServer.Frame first = call(peer, true);
            calls.add(first);
            peer.result(first.stream());
            next(peer, TICKET);
            FakeServer.Frame second = call(peer, false);
            calls.add(second);
            Frames.array(peer, second.stream());
            calls.add(next(peer, DROP));
            peer.drain();
        };
        try (FakeServer server = new FakeServer(serves); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(ROUTINE);
            for (int call = 1; call <= 2; call++) {
                FakeServer.Frame place = next(peer, PLACE);
                frames.add(place);
                peer.place(place.stream(), call, 1, server.address());
                frames.add(next(peer, ATTEMPT_REPORT));
                peer.frame(CLOSED, place.stream(), 0, new byte[0]);
            }
            peer.drain();
        }); KumiClient client = meta.client(); Transaction t = client.transaction()) {
            TransactionStep last = t.call("f", t.call("f", (Object) new double[2]));
            TransactionReport report = t.run();
            assertEquals(new TransactionReport.Moved(16, 16, 0, 16), report.moved());
            assertEquals(2, last.result().doubles("y").length);
            int without = 8 + 8 + 8 + 8 + 8 + 8 + 4 + 4 + 1 + 1 + 2 + 1;
            FakeServer.Frame asked = frames.take();
            assertEquals(without, asked.body().length, "nobody has anything of the first call");
            assertEquals(List.of(16L, 0L), bytes(asked), "its result stays");
            FakeServer.Frame first = calls.take();
            byte[] name = name(first);
            assertArrayEquals(stays(name), values(first));
            ByteBuffer measured = ByteBuffer.wrap(frames.take().body()).order(ByteOrder.LITTLE_ENDIAN);
            assertEquals(16, measured.getLong(13), "bytes of the arguments");
            FakeServer.Frame again = frames.take();
            assertEquals(List.of(16L, 16L), bytes(again), "arguments count wherever they are");
            byte[] place = again.body();
            byte[] where = server.address().getBytes(StandardCharsets.UTF_8);
            ByteBuffer told = ByteBuffer.allocate(1 + 8 + 2 + 1 + 2 + where.length).order(ByteOrder.LITTLE_ENDIAN);
            told.put((byte) 1).putLong(16).putShort((short) 1).put((byte) 's').putShort((short) where.length).put(where);
            assertArrayEquals(told.array(), Arrays.copyOfRange(place, without, place.length));
            assertArrayEquals(reads(name), values(calls.take()));
            ByteBuffer unmeasured = ByteBuffer.wrap(frames.take().body()).order(ByteOrder.LITTLE_ENDIAN);
            assertEquals(0, unmeasured.getLong(13), "no array came from the client");
            assertArrayEquals(name, calls.take().body(), "nobody reads it any more");
        }
    }

    /** An array goes as soon as nobody reads it any more, and not only at the end. */
    @Test
    void arraysThatNobodyReadsAnyMore() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            FakeServer.Frame first = call(peer, true);
            frames.add(first);
            peer.result(first.stream());
            peer.result(call(peer, false).stream());
            // In any order: the last call, and the word that the first array is not needed.
            FakeServer.Frame one = peer.next();
            FakeServer.Frame other = peer.next();
            frames.add(one.kind() == DROP ? one : other);
            Frames.array(peer, (one.kind() == DROP ? other : one).stream());
            peer.drain();
        }); KumiClient client = server.client(); Transaction t = client.transaction()) {
            TransactionStep last = t.call("f", t.call("f", t.call("f", (Object) new double[2])));
            t.run();
            assertEquals(2, last.result().doubles("y").length);
            assertArrayEquals(name(frames.take()), frames.take().body());
        }
    }

    /** A server that holds an array no more is told to make it again, and again until the call was tried four times. */
    @Test
    void aServerThatLosesArrays() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            while (true) {
                FakeServer.Frame frame = peer.next();
                frames.add(frame);
                boolean isReader = frame.kind() == CALL && frame.body()[VALUES + 4] == 7;
                if (frame.kind() == FETCH || isReader) {
                    peer.fail(frame.stream(), 15, "");
                } else if (frame.kind() == CALL) {
                    next(peer, CHUNK);
                    peer.result(frame.stream());
                }
            }
        }); KumiClient client = server.client(); Transaction t = client.transaction()) {
            TransactionStep first = t.call("f", (Object) new double[2]);
            TransactionStep second = t.call("f", first);
            CallException.TransactionFailed failed = assertThrows(CallException.TransactionFailed.class, t::run);
            String told = failed.getMessage();
            assertTrue(told.contains("call 1 (f) failed: `f` failed in 4 attempts:  (" + server.address() + "): "), told);
            assertEquals(4, failed.report().steps().get(second.number()).attempts());
            assertEquals(4, failed.report().steps().get(first.number()).attempts());
            assertThrows(CallException.HeldLost.class, second::result);
            client.close();
            long fetches = frames.stream().filter(frame -> frame.kind() == FETCH).count();
            long readers = frames.stream().filter(frame -> frame.kind() == CALL && frame.body()[VALUES + 4] == 7).count();
            assertEquals(4, fetches, "after each failure the server is asked whether it holds the array");
            assertEquals(4, readers);
        }
    }
}
