package kumi.call;

import static kumi.call.Frames.CANCEL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.DROP;
import static kumi.call.Frames.ERROR;
import static kumi.call.Frames.HOLD;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What goes to a server about arrays that it is to hold, byte by byte, and servers that answer as they should not. */
@Timeout(120)
class HoldFramesTest {
    private static final int RESULT = 10;
    /** The first two numbers of a chunk. */
    private static final double[] TWO = {1, 0};

    /** A server that holds arrays, and does this when it is sent one. */
    private static FakeServer holding(HostileMetaTest.Script script) throws IOException {
        return new FakeServer(peer -> {
            peer.greetWithField(HOLD, 1);
            FakeServer.Frame head = peer.next();
            assertEquals(HOLD, head.kind());
            script.run(peer, head.stream());
            peer.drain();
        });
    }

    @Test
    void framesInTheirOrder() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greetWithField(HOLD, 1);
            frames.add(peer.next());
            FakeServer.Frame chunk = peer.next();
            frames.add(chunk);
            peer.result(chunk.stream());
            frames.add(peer.next());
            peer.drain();
        }); KumiClient client = fake.client()) {
            HeldArray held = client.hold(TWO);
            FakeServer.Frame head = frames.take();
            assertEquals(HOLD, head.kind());
            ByteBuffer body = ByteBuffer.wrap(head.body()).order(ByteOrder.LITTLE_ENDIAN);
            assertEquals(20 + 4 + 8, body.remaining());
            assertEquals(-1, body.getInt(20), "as long as the server allows");
            assertEquals(16, body.getLong(24));
            FakeServer.Frame chunk = frames.take();
            assertTrue(chunk.kind() == CHUNK && chunk.stream() == head.stream() && chunk.argument() == 0);
            assertArrayEquals(new byte[] {0, 0, 0, 0, 0, 0, -16, 63, 0, 0, 0, 0, 0, 0, 0, 0}, chunk.body());
            held.close();
            FakeServer.Frame drop = frames.take();
            assertEquals(DROP, drop.kind());
            assertArrayEquals(Arrays.copyOf(head.body(), 20), drop.body());
        }
    }

    /** Servers whose hello does not say that they hold arrays, or says something else. */
    @Test
    void earlierServersAreSentNothing() throws Exception {
        for (int[] content : new int[][] {{0}, {2}, {}, {1, 1}}) {
            BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
            try (FakeServer fake = new FakeServer(peer -> {
                peer.greetWithField(HOLD, content);
                FakeServer.Frame ping = peer.next();
                kinds.add(ping.kind());
                peer.frame(7, 0, 0, ping.body());
                peer.drain();
            }); KumiClient client = fake.client()) {
                CallException.Server old = assertThrows(CallException.Server.class, () -> client.hold(TWO));
                assertTrue(old.getMessage().contains("only results of calls"), old.getMessage());
                client.ping(Duration.ofMinutes(1));
                assertEquals(6, kinds.take(), "it hears of nothing else");
            }
        }
    }

    private static CallException failure(HostileMetaTest.Script script) throws IOException {
        try (FakeServer fake = holding(script); KumiClient client = fake.client()) {
            return assertThrows(CallException.class, () -> client.hold(TWO));
        }
    }

    private static void broken(HostileMetaTest.Script script) throws IOException {
        CallException lost = failure(script);
        assertInstanceOf(CallException.ConnectionLost.class, lost);
        assertTrue(lost.getMessage().contains("broke the protocol"), lost.getMessage());
    }

    private static byte[] error(int code) {
        return ByteBuffer.allocate(13).order(ByteOrder.LITTLE_ENDIAN).putShort((short) code).putLong(0)
                .put("why".getBytes(StandardCharsets.US_ASCII)).array();
    }

    @Test
    void answersThatAreWrong() throws Exception {
        byte[] value = Arrays.copyOf(new byte[] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, 18 + 11);
        broken((peer, stream) -> peer.frame(RESULT, stream, 0, value));
        broken((peer, stream) -> peer.frame(RESULT, stream + 1, 0, new byte[18]));
        broken((peer, stream) -> peer.frame(RESULT, stream, 0, new byte[17]));
        broken((peer, stream) -> peer.frame(CHUNK, stream, 0, new byte[16]));
        broken((peer, stream) -> peer.frame(12, stream, 0, new byte[4]));
        broken((peer, stream) -> peer.frame(17, stream, 0, new byte[0]));
        broken((peer, stream) -> peer.frame(132, stream, 0, new byte[1]));
        assertInstanceOf(CallException.ConnectionLost.class, failure((peer, stream) -> peer.end()));
    }

    @Test
    void refusals() throws Exception {
        assertInstanceOf(CallException.Argument.class, failure((peer, stream) -> peer.frame(ERROR, stream, 0, error(3))));
        assertInstanceOf(CallException.TooLarge.class, failure((peer, stream) -> peer.frame(ERROR, stream, 0, error(4))));
        assertInstanceOf(CallException.NotPermitted.class, failure((peer, stream) -> peer.frame(ERROR, stream, 0, error(10))));
        CallException full = failure((peer, stream) -> peer.frame(ERROR, stream, 0, error(18)));
        assertTrue(full instanceof CallException.Server && full.code() == 18 && full.hasNotRun(), full.toString());
    }

    /** A refusal before all has come: the rest is not sent, and the array does not stay there. */
    @Test
    void refusedWhileItIsSent() throws Exception {
        AtomicReference<Integer> dropped = new AtomicReference<>();
        CountDownLatch gone = new CountDownLatch(1);
        try (FakeServer fake = holding((peer, stream) -> {
            peer.frame(ERROR, stream, 0, error(18));
            int bytes = 0;
            for (FakeServer.Frame frame = peer.next(); frame.kind() != DROP; frame = peer.next()) {
                bytes += frame.body().length;
            }
            dropped.set(bytes);
            gone.countDown();
        }); KumiClient client = fake.client()) {
            assertThrows(CallException.Server.class, () -> client.hold(new double[4 << 20]));
            assertTrue(gone.await(60, TimeUnit.SECONDS));
            assertTrue(dropped.get() <= 32 << 20, dropped.get() + " bytes");
        }
    }

    /** A server that never answers. Who waits no more has the server drop the array. */
    @Test
    void aServerThatDoesNotAnswer() throws Exception {
        BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
        HostileMetaTest.Script silent = (peer, stream) -> {
            for (int count = 0; count < 3; count++) {
                kinds.add(peer.next().kind());
            }
        };
        try (FakeServer fake = holding(silent); KumiClient client = fake.client()) {
            assertThrows(CallException.TimedOut.class, () -> client.hold(TWO, null, Duration.ofSeconds(2)));
            gone(kinds);
        }
        try (FakeServer fake = holding(silent); KumiClient client = fake.client()) {
            AtomicReference<Throwable> ended = new AtomicReference<>();
            Thread waits = new Thread(() -> ended.set(assertThrows(CallException.Interrupted.class, () -> client.hold(TWO))));
            waits.start();
            assertEquals(CHUNK, kinds.take());
            waits.interrupt();
            waits.join();
            assertInstanceOf(CallException.Interrupted.class, ended.get());
            assertEquals(CANCEL, kinds.take());
            assertEquals(DROP, kinds.take());
        }
    }

    private static void gone(BlockingQueue<Integer> kinds) throws InterruptedException {
        assertEquals(CHUNK, kinds.take());
        assertEquals(CANCEL, kinds.take());
        assertEquals(DROP, kinds.take());
    }

    /** A server that reads nothing: its connection is no good any more. */
    @Test
    void aServerThatDoesNotRead() throws Exception {
        CountDownLatch over = new CountDownLatch(1);
        try (FakeServer fake = holding((peer, stream) -> {
            try {
                over.await();
            } catch (InterruptedException ended) {
                throw new IOException(ended);
            }
        }); KumiClient client = fake.client()) {
            CallException late =
                    assertThrows(CallException.TimedOut.class, () -> client.hold(new double[8 << 20], null, Duration.ofMillis(500)));
            assertTrue(late.getMessage().contains("while its arguments were sent"), late.getMessage());
            assertTrue(!client.isOpen());
            over.countDown();
        }
    }
}
