package kumi.call;

import static kumi.call.Frames.ATTEMPT_REPORT;
import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CANCEL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.DROP;
import static kumi.call.Frames.ERROR;
import static kumi.call.Frames.PLACE;
import static kumi.call.Frames.ROUTINE;
import static kumi.call.Frames.TICKET;
import static kumi.call.WaitFor.await;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What goes to metaservers and servers about calls with arrays that stay, byte by byte, and metaservers that do what they should not. */
@Timeout(120)
class HostileHeldMetaTest {
    private static final int BUSY = 5;
    private static final int TICKET_NOT_TAKEN = 20;

    private interface Then {
        void run(FakeServer.Peer peer) throws IOException;
    }

    /** A metaserver that sends the first call there, ends its request, and then does this. */
    private static FakeServer meta(FakeServer server, Then then) throws IOException {
        return new FakeServer(peer -> {
            peer.greetAsMetaserverThatBinds();
            peer.describe(ROUTINE);
            peer.place(next(peer, PLACE).stream(), 1, 1, server.address());
            next(peer, ATTEMPT_REPORT);
            then.run(peer);
            peer.drain();
        });
    }

    /** A server that runs the first call, and then does this. */
    private static FakeServer server(Then then) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.result(call(peer).stream());
            then.run(peer);
            peer.drain();
        });
    }

    private static FakeServer.Frame next(FakeServer.Peer peer, int kind) throws IOException {
        FakeServer.Frame frame = peer.next();
        assertEquals(kind, frame.kind());
        return frame;
    }

    /** The head of the next call; the array behind it is read. */
    private static FakeServer.Frame call(FakeServer.Peer peer) throws IOException {
        next(peer, TICKET);
        FakeServer.Frame head = next(peer, CALL);
        next(peer, CHUNK);
        return head;
    }

    private static void refuse(FakeServer.Peer peer, int stream, int code) throws IOException {
        byte[] why = "why".getBytes(StandardCharsets.UTF_8);
        ByteBuffer body = ByteBuffer.allocate(10 + why.length).order(ByteOrder.LITTLE_ENDIAN).putShort((short) code).putLong(0);
        peer.frame(ERROR, stream, 0, body.put(why).array());
    }

    /** Names a place for the second attempt when the first has been reported. */
    private static void placeAgain(FakeServer.Peer peer, int stream, String address) throws IOException {
        while (peer.next().kind() != ATTEMPT_REPORT) {
            // The reason is before it.
        }
        peer.place(stream, 1, 2, address);
    }

    private static HeldArray kept(KumiClient client) {
        return client.prepare("f").add((Object) new double[2]).keep("y").call().held("y");
    }

    @Test
    void theRequestNamesTheServer() throws Exception {
        BlockingQueue<FakeServer.Frame> places = new LinkedBlockingQueue<>();
        BlockingQueue<FakeServer.Frame> calls = new LinkedBlockingQueue<>();
        try (FakeServer server = server(peer -> {
            next(peer, TICKET);
            // Without an array behind it.
            calls.add(next(peer, CALL));
            peer.result(calls.peek().stream());
            peer.frame(CHUNK, calls.peek().stream(), 1, new byte[16]);
        }); FakeServer meta = meta(server, peer -> {
            places.add(next(peer, PLACE));
            peer.place(places.peek().stream(), 1, 1, server.address());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            assertArrayEquals(new double[2], client.call("f", y).doubles("y"));
            ByteBuffer place = ByteBuffer.wrap(places.take().body()).order(ByteOrder.LITTLE_ENDIAN);
            assertEquals(0, place.getLong(24), "bytes that are sent");
            assertEquals(16, place.getLong(32), "bytes that come back");
            assertEquals(3, place.get(57), "idempotent, bound");
            byte[] address = server.address().getBytes(StandardCharsets.UTF_8);
            ByteBuffer location = ByteBuffer.allocate(1 + 8 + 2 + 1 + 2 + address.length).order(ByteOrder.LITTLE_ENDIAN);
            location.put((byte) 1).putLong(16).putShort((short) 1).put((byte) 's').putShort((short) address.length).put(address);
            assertArrayEquals(location.array(), Arrays.copyOfRange(place.array(), 61, place.capacity()));
            assertEquals("s", y.server());
            assertEquals(server.address(), y.address());
        }
    }

    @Test
    void aMetaserverOfAnEarlierVersionGetsNoSuchCall() throws Exception {
        BlockingQueue<FakeServer.Frame> more = new LinkedBlockingQueue<>();
        try (FakeServer server = server(peer -> { }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(ROUTINE);
            peer.place(next(peer, PLACE).stream(), 1, 1, server.address());
            next(peer, ATTEMPT_REPORT);
            more.add(peer.next());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            CallException refused = assertThrows(CallException.Server.class, () -> client.call("f", y));
            assertTrue(refused.getMessage().contains("metaserver of a version"), refused.getMessage());
            assertFalse(y.isLost());
            assertThrows(CallException.class, () -> client.names("anything"));
            assertEquals(2, more.take().kind(), "LIST, and nothing before");
        }
    }

    @Test
    void aPlaceElsewhereGoesBack() throws Exception {
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        try (FakeServer server = server(peer -> { }); FakeServer meta = meta(server, peer -> {
            peer.place(next(peer, PLACE).stream(), 1, 1, "127.0.0.1:1");
            told.add(peer.next());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            CallException.HeldLost lost = assertThrows(CallException.HeldLost.class, () -> client.call("f", y));
            assertTrue(lost.hasNotRun(), lost.getMessage());
            assertEquals("`f`: `x` is `y` of `f` at s (" + server.address() + "), and that is gone: the metaserver has named another server;"
                    + " call again what makes it", lost.getMessage());
            assertEquals(CANCEL, told.take().kind());
        }
    }

    /** The call need not wait for the metaserver's word. */
    @Test
    void aServerThatGoesWhileACallWaits() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        try (FakeServer server = server(peer -> {
            await(asked);
            throw new IOException("it goes");
        }); FakeServer meta = meta(server, peer -> {
            next(peer, PLACE);
            asked.countDown();
            told.add(peer.next());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            CallException.HeldLost lost = failure(CallException.HeldLost.class, client.callAsync("f", y));
            assertTrue(lost.hasNotRun() && lost.getMessage().contains("the connection to the server was lost"), lost.getMessage());
            assertEquals(CANCEL, told.take().kind());
            assertTrue(y.isLost());
        }
    }

    /** A metaserver that takes an attempt back while it runs, and names its server again: the array may be gone, or changed. */
    @Test
    void anAttemptThatWasTakenBackIsTheLast() throws Exception {
        CountDownLatch runs = new CountDownLatch(1);
        BlockingQueue<FakeServer.Frame> ended = new LinkedBlockingQueue<>();
        try (FakeServer server = server(peer -> {
            next(peer, TICKET);
            next(peer, CALL);
            runs.countDown();
            ended.add(peer.next());
        }); FakeServer meta = meta(server, peer -> {
            int stream = next(peer, PLACE).stream();
            peer.place(stream, 1, 1, server.address());
            await(runs);
            peer.place(stream, 1, 2, server.address());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            CallException.NoServer failed = assertThrows(CallException.NoServer.class, () -> client.call("f", y));
            assertFalse(failed.hasNotRun(), failed.getMessage());
            assertEquals(CANCEL, ended.take().kind());
            assertFalse(y.isLost());
        }
    }

    /** Results have a new name for each attempt, and an attempt that failed leaves none behind. */
    @Test
    void namesAreOfAttempts() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            FakeServer.Frame head = call(peer);
            frames.add(head);
            refuse(peer, head.stream(), BUSY);
            frames.add(peer.next());
            frames.add(call(peer));
            peer.result(3);
            peer.drain();
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserverThatBinds();
            peer.describe(ROUTINE);
            int stream = next(peer, PLACE).stream();
            peer.place(stream, 1, 1, server.address());
            placeAgain(peer, stream, server.address());
            peer.drain();
        }); KumiClient client = meta.client()) {
            CompletableFuture<Result> call = client.prepare("f").add((Object) new double[2]).keep("y").callAsync();
            byte[] first = named(frames.take());
            FakeServer.Frame drop = frames.take();
            assertEquals(DROP, drop.kind());
            assertArrayEquals(first, drop.body());
            assertFalse(Arrays.equals(first, named(frames.take())));
            call.cancel(false);
        }
    }

    /** A pass that is not taken any more has the client connect anew for further calls, but not for those whose arrays are there. */
    @Test
    void aConnectionStaysWhileArraysAreAtItsServer() throws Exception {
        try (FakeServer server = server(peer -> {
            next(peer, TICKET);
            refuse(peer, next(peer, CALL).stream(), TICKET_NOT_TAKEN);
            next(peer, TICKET);
            int stream = next(peer, CALL).stream();
            peer.result(stream);
            peer.frame(CHUNK, stream, 1, new byte[16]);
        }); FakeServer meta = meta(server, peer -> {
            int stream = next(peer, PLACE).stream();
            peer.place(stream, 1, 1, server.address());
            placeAgain(peer, stream, server.address());
        }); KumiClient client = meta.client()) {
            HeldArray y = kept(client);
            assertArrayEquals(new double[2], client.call("f", y).doubles("y"));
            assertFalse(y.isLost());
        }
    }

    /** The name in a head whose one value is of an array that stays. */
    private static byte[] named(FakeServer.Frame head) {
        return Arrays.copyOfRange(head.body(), 20, 40);
    }
}
