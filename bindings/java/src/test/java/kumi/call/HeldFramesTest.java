package kumi.call;

import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CANCEL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.DROP;
import static kumi.call.Frames.FETCH;
import static kumi.call.WaitFor.eventually;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What goes to a server about arrays that stay there, byte by byte, and servers that answer as they should not. */
@Timeout(120)
class HeldFramesTest {
    /** {@code f(x[2]) -> y[2]}. */
    private static final String ROUTINE = "{\"version\":1,\"name\":\"f\",\"params\":["
            + "{\"name\":\"x\",\"mode\":\"in\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"int\":2}}]},"
            + "{\"name\":\"y\",\"mode\":\"out\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"int\":2}}]}],"
            + "\"target\":{\"language\":\"c\",\"symbol\":\"f\",\"arguments\":[]}}";

    private interface Then {
        void run(FakeServer.Peer peer) throws IOException;
    }

    /** A server that runs the first call, whose head goes to {@code heads}, and then does this. */
    private static FakeServer after(BlockingQueue<FakeServer.Frame> heads, Then then) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            FakeServer.Frame head = peer.next();
            heads.add(head);
            assertEquals(CHUNK, peer.next().kind());
            peer.result(head.stream());
            then.run(peer);
            peer.drain();
        });
    }

    private static HeldArray kept(KumiClient client) {
        return client.prepare("f").add((Object) new double[2]).keep("y", Duration.ofSeconds(3)).call().held("y");
    }

    /** The name in a head whose one value is of an array that stays: parameter 1, tag 8, name, time, flags. */
    private static byte[] name(FakeServer.Frame head) {
        ByteBuffer body = ByteBuffer.wrap(head.body()).order(ByteOrder.LITTLE_ENDIAN);
        int at = 8 + 4 + 2 + 1;
        assertEquals(1, body.getShort(at), "values");
        assertEquals(1, body.getShort(at + 2), "parameter");
        assertEquals(8, body.get(at + 4));
        assertEquals(3000, body.getInt(at + 25));
        assertEquals(0, body.get(at + 29));
        assertEquals(at + 30, head.body().length);
        return Arrays.copyOfRange(head.body(), at + 5, at + 25);
    }

    @Test
    void framesInTheirOrder() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer fake = after(frames, peer -> {
            FakeServer.Frame fetch = peer.next();
            frames.add(fetch);
            peer.result(fetch.stream());
            peer.frame(CHUNK, fetch.stream(), 0, new byte[] {0, 0, 0, 0, 0, 0, -16, 63});
            peer.frame(CHUNK, fetch.stream(), 0, new byte[8]);
            for (int count = 0; count < 2; count++) {
                frames.add(peer.next());
            }
        }); KumiClient client = fake.client()) {
            HeldArray y = kept(client);
            byte[] name = name(frames.take());
            assertArrayEquals(new double[] {1, 0}, y.doubles());
            FakeServer.Frame fetch = frames.take();
            assertEquals(FETCH, fetch.kind());
            ByteBuffer wanted = ByteBuffer.allocate(36).order(ByteOrder.LITTLE_ENDIAN).put(name).putLong(0).putLong(16);
            assertArrayEquals(wanted.array(), fetch.body());
            client.callAsync("f", y);
            y.close();
            FakeServer.Frame call = frames.take();
            assertEquals(CALL, call.kind());
            // One value: parameter 0, tag 7, one part, from byte 0, 16 bytes, the name, from its byte 0, at this server.
            ByteBuffer part = ByteBuffer.allocate(2 + 2 + 1 + 2 + 8 + 8 + 20 + 8 + 2).order(ByteOrder.LITTLE_ENDIAN);
            part.putShort((short) 1).putShort((short) 0).put((byte) 7).putShort((short) 1).putLong(0).putLong(16).put(name);
            assertArrayEquals(part.array(), Arrays.copyOfRange(call.body(), 15, call.body().length));
            FakeServer.Frame drop = frames.take();
            assertTrue(drop.kind() == DROP && drop.stream() == 0, "no chunk comes, and the array goes behind the call");
            assertArrayEquals(name, drop.body());
        }
    }

    /** Two arrays have two names. */
    @Test
    void namesDiffer() throws Exception {
        BlockingQueue<FakeServer.Frame> heads = new LinkedBlockingQueue<>();
        try (FakeServer fake = after(heads, peer -> {
            FakeServer.Frame head = peer.next();
            heads.add(head);
            peer.next();
            peer.result(head.stream());
        }); KumiClient client = fake.client()) {
            HeldArray one = kept(client);
            HeldArray two = kept(client);
            assertTrue(!Arrays.equals(name(heads.take()), name(heads.take())));
            one.close();
            two.close();
        }
    }

    /** What is at the server of a call that nobody waits for is dropped. */
    @Test
    void cancelledCalls() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        CompletableFuture<Void> begun = new CompletableFuture<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            frames.add(peer.next());
            peer.next();
            begun.complete(null);
            frames.add(peer.next());
            frames.add(peer.next());
            peer.drain();
        }); KumiClient client = fake.client()) {
            CompletableFuture<Result> call =
                    client.prepare("f").add((Object) new double[2]).keep("y", Duration.ofSeconds(3)).callAsync();
            begun.join();
            call.cancel(false);
            byte[] name = name(frames.take());
            assertEquals(CANCEL, frames.take().kind());
            FakeServer.Frame drop = frames.take();
            assertEquals(DROP, drop.kind());
            assertArrayEquals(name, drop.body());
        }
    }

    @Test
    void whatNobodyReferences() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer fake = after(new LinkedBlockingQueue<>(), peer -> frames.add(peer.next())); KumiClient client = fake.client()) {
            assertEquals(Shape.of(2), kept(client).shape());
            eventually("the end of the array", () -> {
                System.gc();
                return !frames.isEmpty();
            });
            assertEquals(DROP, frames.take().kind());
        }
    }

    /** The answer to a FETCH that is refused or malformed. */
    private static CallException fetched(FetchAnswer answer) throws IOException {
        try (FakeServer fake = after(new LinkedBlockingQueue<>(), peer -> answer.run(peer, peer.next().stream()));
                KumiClient client = fake.client()) {
            HeldArray y = kept(client);
            return assertThrows(CallException.class, y::fetch);
        }
    }

    private interface FetchAnswer {
        void run(FakeServer.Peer peer, int stream) throws IOException;
    }

    @Test
    void answersThatAreWrong() throws IOException {
        byte[] error = "\17\0\0\0\0\0\0\0\0\0gone".getBytes(StandardCharsets.US_ASCII);
        CallException lost = fetched((peer, stream) -> peer.frame(11, stream, 0, error));
        assertTrue(lost instanceof CallException.HeldLost && lost.hasNotRun(), lost.toString());
        byte[] value = Arrays.copyOf(new byte[] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, 18 + 11);
        assertEquals(CallException.ConnectionLost.class, fetched((peer, stream) -> peer.frame(10, stream, 0, value)).getClass());
        assertEquals(CallException.ConnectionLost.class, fetched((peer, stream) -> {
            peer.result(stream);
            peer.frame(CHUNK, stream, 0, new byte[17]);
        }).getClass());
        assertEquals(CallException.ConnectionLost.class, fetched((peer, stream) -> {
            peer.result(stream);
            peer.frame(CHUNK, stream, 1, new byte[16]);
        }).getClass());
        assertEquals(CallException.ConnectionLost.class, fetched((peer, stream) -> peer.frame(12, stream, 0, new byte[4])).getClass());
    }

    @Test
    void aFetchThatTakesTooLong() throws IOException {
        try (FakeServer fake = after(new LinkedBlockingQueue<>(), peer -> peer.next()); KumiClient client = fake.client()) {
            HeldArray y = kept(client);
            CallException late =
                    assertThrows(CallException.TimedOut.class, () -> y.fetchInto(new double[2], Duration.ofMillis(50)));
            assertTrue(late.getMessage().endsWith("did not come in time from " + fake.address()), late.getMessage());
        }
    }
}
