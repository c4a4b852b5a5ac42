package kumi.call;

import static kumi.call.Frames.ATTEMPT_REASON;
import static kumi.call.WaitFor.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Metaservers that say what they should not, and servers to which they send. */
@Timeout(120)
class HostileMetaTest {
    private static final int BUSY = 5;
    private static final int NO_SERVER = 21;

    /** What a metaserver does with the first PLACE of a connection. */
    interface Script {
        void run(FakeServer.Peer peer, int stream) throws IOException;
    }

    /** PLACED's body: the first attempt of call 7. */
    private static byte[] placed(String address) {
        return placed(1, address);
    }

    /** PLACED's body: this attempt of call 7. */
    private static byte[] placed(int attempt, String address) {
        return FakeServer.placed(7, attempt, address);
    }

    /** The next frame, which is the report of an attempt. Why it failed comes before it, and goes to {@code reasons}. */
    private static FakeServer.Frame report(FakeServer.Peer peer, List<String> reasons) throws IOException {
        FakeServer.Frame frame = peer.next();
        while (frame.kind() == ATTEMPT_REASON) {
            assertEquals(7, frame.body()[0], "the ticket");
            assertEquals(1, frame.body()[8], "the attempt");
            reasons.add(new String(frame.body(), 12, frame.body().length - 12, StandardCharsets.UTF_8));
            frame = peer.next();
        }
        return frame;
    }

    private static void refuse(FakeServer.Peer peer, int stream, int code) throws IOException {
        byte[] body = ByteBuffer.allocate(13).order(ByteOrder.LITTLE_ENDIAN).putShort((short) code).putLong(1)
                .put("why".getBytes(StandardCharsets.UTF_8)).array();
        peer.frame(11, stream, 0, body);
    }

    /** A metaserver of routine {@code f}, which does this with the first PLACE. */
    private static FakeServer meta(Script script) throws IOException {
        return new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(FakeServer.ROUTINE);
            script.run(peer, peer.next().stream());
            peer.drain();
        });
    }

    /** A metaserver that does this in its first connection, and says in further ones that it is busy. */
    private static CallException failure(AtomicInteger connections, Script script) throws IOException {
        return failure(connections, FakeServer.ROUTINE, client -> client.call("f"), script);
    }

    /** What this comes to, of a routine or class that is so described. */
    private static CallException failure(
            AtomicInteger connections, String description, Consumer<KumiClient> asks, Script script) throws IOException {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            FakeServer.Frame asked = peer.next();
            if (connections.incrementAndGet() == 1) {
                assertEquals(1, asked.kind());
                byte[] json = description.getBytes(StandardCharsets.UTF_8);
                peer.frame(8, asked.stream(), 0, ByteBuffer.allocate(8 + json.length).put(8, json).array());
                script.run(peer, peer.next().stream());
            } else {
                refuse(peer, asked.stream(), BUSY);
            }
            peer.drain();
        }); KumiClient client = fake.client()) {
            return assertThrows(CallException.class, () -> asks.accept(client));
        }
    }

    /** What breaks the protocol costs the connection, and the call is asked for over the next. */
    private static void broken(Script script) throws IOException {
        AtomicInteger connections = new AtomicInteger();
        CallException.Busy busy = (CallException.Busy) failure(connections, script);
        assertTrue(busy.hasNotRun() && connections.get() == 2, busy.getMessage());
    }

    @Test
    void placesForNobody() throws Exception {
        broken((peer, stream) -> peer.frame(33, stream + 1, 0, placed("127.0.0.1:1")));
        broken((peer, stream) -> peer.frame(33, 0, 0, placed("127.0.0.1:1")));
        broken((peer, stream) -> peer.frame(35, stream + 1, 0, new byte[0]));
        broken((peer, stream) -> peer.frame(10, stream, 0, new byte[18]));
        broken((peer, stream) -> peer.frame(8, stream, 0, new byte[18]));
    }

    @Test
    void placesThatAreMalformed() throws Exception {
        byte[] absurd = placed("127.0.0.1:1");
        absurd[12] = (byte) 0xff;
        absurd[13] = (byte) 0xff;
        broken((peer, stream) -> peer.frame(33, stream, 0, absurd));
        broken((peer, stream) -> peer.header((64 << 10) + 1, stream, 33, 0));
        broken((peer, stream) -> peer.header(-1, stream, 33, 0));
        broken((peer, stream) -> peer.frame(33, stream, 0, new byte[11]));
        broken((peer, stream) -> peer.frame(33, stream, 0, placed("a".repeat(513))));
        broken((peer, stream) -> peer.frame(33, stream, 0, placed("a\nb:1")));
        broken((peer, stream) -> peer.frame(35, stream, 0, new byte[1]));
        broken((peer, stream) -> peer.end());
    }

    /** A place where nobody is: the metaserver hears that nothing has begun, and what it says then counts. */
    private static CallException nowhere(String address) throws Exception {
        return nowhere(address, FakeServer.ROUTINE, client -> client.call("f"));
    }

    private static CallException nowhere(String address, String description, Consumer<KumiClient> asks) throws Exception {
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        List<String> reasons = Collections.synchronizedList(new ArrayList<>());
        CallException failed = failure(new AtomicInteger(), description, asks, (peer, stream) -> {
            peer.frame(33, stream, 0, placed(address));
            told.add(report(peer, reasons));
            refuse(peer, stream, NO_SERVER);
        });
        assertEquals(1, reasons.size(), "why it failed comes once, before the report");
        assertTrue(failed.getMessage().contains(reasons.get(0)), reasons + ": " + failed.getMessage());
        FakeServer.Frame over = told.take();
        assertEquals(34, over.kind());
        assertEquals(61, over.body().length);
        assertEquals(7, over.body()[0]);
        assertEquals(1, over.body()[12], "not begun");
        assertTrue(failed.hasNotRun(), failed.getMessage());
        return failed;
    }

    @Test
    void placesToNowhere() throws Exception {
        assertEquals(CallException.Connect.class, nowhere("127.0.0.1:1").getClass());
        assertEquals(CallException.Connect.class, nowhere("unix:/nowhere/at/all").getClass());
        assertEquals(CallException.Argument.class, nowhere("").getClass());
        assertEquals(CallException.Argument.class, nowhere("no address").getClass());
        try (FakeServer other = new FakeServer(FakeServer.Peer::greetAsMetaserver)) {
            assertTrue(nowhere(other.address()).getMessage().contains("metaserver"));
        }
    }

    @Test
    void serversWithoutRoomForObjects() throws Exception {
        String described = FakeServer.ROUTINE.replace("\"params\"", "\"class\":\"f\",\"params\"");
        try (FakeServer narrow = new FakeServer(peer -> {
            peer.greet(1, Long.MAX_VALUE);
            peer.drain();
        })) {
            CallException none = nowhere(narrow.address(), described, client -> client.object("f"));
            assertEquals(CallException.Busy.class, none.getClass(), none.getMessage());
        }
    }

    /** A server that takes the ticket and the call, and goes. */
    @Test
    void serversThatGo() throws Exception {
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            told.add(peer.next());
            told.add(peer.next());
        })) {
            CallException lost = failure(new AtomicInteger(), (peer, stream) -> {
                peer.frame(33, stream, 0, placed(server.address()));
                told.add(report(peer, new ArrayList<>()));
                refuse(peer, stream, 22);
            });
            assertEquals(CallException.ConnectionLost.class, lost.getClass());
            assertTrue(!lost.hasNotRun());
            FakeServer.Frame ticket = told.take();
            FakeServer.Frame call = told.take();
            assertTrue(ticket.kind() == 46 && call.kind() == 3 && ticket.stream() == call.stream());
            assertEquals(2, told.take().body()[12], "it may have run");
        }
    }

    @Test
    void endsUnasked() throws Exception {
        CallException ended = failure(new AtomicInteger(), (peer, stream) -> peer.frame(35, stream, 0, new byte[0]));
        assertTrue(ended instanceof CallException.NoServer && ended.hasNotRun(), ended.getMessage());
    }

    /** Without time for further attempts the metaserver hears that the call has failed, and places it nowhere else. */
    @Test
    void noTimeForFurtherAttempts() throws Exception {
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        ClientOptions options = ClientOptions.usual().retryTime(Duration.ZERO);
        try (FakeServer fake = meta((peer, stream) -> {
            peer.frame(33, stream, 0, placed("127.0.0.1:1"));
            told.add(report(peer, new ArrayList<>()));
        }); KumiClient client = KumiClient.connect(fake.address(), options)) {
            CallException failed = assertThrows(CallException.class, () -> client.call("f"));
            assertEquals(CallException.Connect.class, failed.getClass());
            assertTrue(failed.hasNotRun() && failed.getMessage().contains("retryTime"), failed.getMessage());
            FakeServer.Frame over = told.take();
            assertTrue(over.kind() == 34 && over.body()[12] == 3, "failed for good");
        }
    }

    /** Why an attempt failed is cut to what a metaserver takes, and has no control characters. */
    @Test
    void reasonsThatMetaserversTake() throws Exception {
        List<String> reasons = Collections.synchronizedList(new ArrayList<>());
        byte[] text = ("no\n\u001b" + "ü".repeat(300)).getBytes(StandardCharsets.UTF_8);
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.next();
            ByteBuffer body = ByteBuffer.allocate(10 + text.length).order(ByteOrder.LITTLE_ENDIAN).putShort((short) BUSY);
            peer.frame(11, peer.next().stream(), 0, body.putLong(0).put(text).array());
            peer.drain();
        })) {
            failure(new AtomicInteger(), (peer, stream) -> {
                peer.frame(33, stream, 0, placed(server.address()));
                report(peer, reasons);
                refuse(peer, stream, NO_SERVER);
            });
        }
        assertEquals(1, reasons.size());
        assertTrue(reasons.get(0).startsWith("no ") && reasons.get(0).endsWith("ü"), reasons.get(0));
        int length = reasons.get(0).getBytes(StandardCharsets.UTF_8).length;
        assertTrue(length == 511 || length == 512, "" + length);
        assertTrue(reasons.get(0).codePoints().noneMatch(Character::isISOControl), reasons.get(0));
    }

    /** Metaservers take no empty reason: a server that says none costs the report nothing, and the connection neither. */
    @Test
    void errorsWithoutText() throws Exception {
        List<String> reasons = Collections.synchronizedList(new ArrayList<>());
        BlockingQueue<FakeServer.Frame> told = new LinkedBlockingQueue<>();
        AtomicInteger connections = new AtomicInteger();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.next();
            byte[] body = ByteBuffer.allocate(10).order(ByteOrder.LITTLE_ENDIAN).putShort((short) BUSY).putLong(0).array();
            peer.frame(11, peer.next().stream(), 0, body);
            peer.drain();
        })) {
            CallException failed = failure(connections, (peer, stream) -> {
                peer.frame(33, stream, 0, placed(server.address()));
                told.add(report(peer, reasons));
                refuse(peer, stream, NO_SERVER);
            });
            assertEquals(CallException.Busy.class, failed.getClass(), failed.getMessage());
        }
        assertEquals(0, reasons.size(), "reasons");
        FakeServer.Frame over = told.take();
        assertTrue(over.kind() == 34 && over.body()[12] == 1, "not begun");
        assertEquals(1, connections.get(), "one connection serves all of it");
    }

    /** A place that the metaserver names while the call runs elsewhere: the call leaves, and runs there. */
    @Test
    void aCallIsMoved() throws Exception {
        BlockingQueue<FakeServer.Frame> first = new LinkedBlockingQueue<>();
        BlockingQueue<FakeServer.Frame> reports = new LinkedBlockingQueue<>();
        CountDownLatch runs = new CountDownLatch(1);
        try (FakeServer silent = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.next();
            peer.next();
            runs.countDown();
            first.add(peer.next());
        }); FakeServer second = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.next();
            peer.result(peer.next().stream());
            peer.drain();
        }); FakeServer fake = meta((peer, stream) -> {
            peer.frame(33, stream, 0, placed(1, silent.address()));
            await(runs);
            peer.frame(33, stream, 0, placed(2, second.address()));
            reports.add(peer.next());
        }); KumiClient client = fake.client()) {
            assertEquals(List.of(), client.call("f").names());
            assertEquals(5, first.take().kind(), "the first server is told to end it");
            FakeServer.Frame over = reports.take();
            assertTrue(over.kind() == 34 && over.body()[8] == 2 && over.body()[12] == 0, "the second attempt has run");
        }
    }

    /** A metaserver that does not know the running call: the call goes on, gives the new place back, and reports beside it. */
    @Test
    void aMetaserverThatHasForgotten() throws Exception {
        BlockingQueue<FakeServer.Frame> second = new LinkedBlockingQueue<>();
        AtomicInteger connections = new AtomicInteger();
        CountDownLatch runs = new CountDownLatch(1);
        CountDownLatch mayEnd = new CountDownLatch(1);
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.next();
            int stream = peer.next().stream();
            runs.countDown();
            await(mayEnd);
            peer.result(stream);
            peer.drain();
        }); FakeServer fake = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            if (connections.incrementAndGet() == 1) {
                peer.describe(FakeServer.ROUTINE);
                peer.frame(33, peer.next().stream(), 0, placed(1, server.address()));
                await(runs);
                return;
            }
            FakeServer.Frame place = peer.next();
            second.add(place);
            peer.frame(33, place.stream(), 0, placed(2, "127.0.0.1:1"));
            second.add(peer.next());
            mayEnd.countDown();
            second.add(peer.next());
            peer.drain();
        }); KumiClient client = fake.client()) {
            assertEquals(List.of(), client.call("f").names());
            FakeServer.Frame place = second.take();
            assertEquals(32, place.kind());
            assertEquals(1, place.body()[52], "attempts so far");
            FakeServer.Frame cancel = second.take();
            assertTrue(cancel.kind() == 5 && cancel.stream() == place.stream(), "the place goes back");
            FakeServer.Frame over = second.take();
            assertTrue(over.kind() == 34 && over.stream() == 0, "the request is gone");
            assertTrue(over.body()[8] == 1 && over.body()[12] == 0, "the first attempt has run");
        }
    }

    @Test
    void timesForFurtherAttempts() {
        assertEquals(null, ClientOptions.seconds(null));
        assertEquals(Duration.ofSeconds(90), ClientOptions.seconds("90"));
        for (String wrong : List.of("1h", "-1", "1.5", "9".repeat(19))) {
            assertThrows(IllegalArgumentException.class, () -> ClientOptions.seconds(wrong), wrong);
        }
        assertThrows(IllegalArgumentException.class, () -> ClientOptions.usual().retryTime(Duration.ofNanos(-1)));
    }
}
