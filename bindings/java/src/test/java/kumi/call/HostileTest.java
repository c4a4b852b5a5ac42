package kumi.call;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Servers that lie, stop in the middle, or send what was not asked for: errors, and no hang. */
@Timeout(120)
class HostileTest {
    private static final String TARGET = "\"target\":{\"language\":\"c\",\"symbol\":\"f\",\"arguments\":[]}}";
    /** {@code f(n, x[n]) -> y[n]}. */
    private static final String ROUTINE = "{\"version\":1,\"name\":\"f\",\"params\":["
            + "{\"name\":\"n\",\"mode\":\"in\",\"type\":{\"number\":\"i32\"}},"
            + "{\"name\":\"x\",\"mode\":\"in\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"param\":0}}]},"
            + "{\"name\":\"y\",\"mode\":\"out\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"param\":0}}]}],"
            + TARGET;

    private static void greeting(byte[] said, String part) throws IOException {
        try (FakeServer fake = new FakeServer(peer -> peer.write(said))) {
            CallException wrong = assertThrows(CallException.Connect.class, fake::client);
            assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
        }
    }

    @Test
    void whoIsNoServer() throws IOException {
        greeting("HTTP/1.1 400 Bad Request\r\n".getBytes(StandardCharsets.US_ASCII), "does not speak");
        greeting(new byte[0], "closed");
        greeting("KUMI".getBytes(StandardCharsets.US_ASCII), "closed");
        greeting("KUMICALL\1\0\1\0\0\0\0\177".getBytes(StandardCharsets.US_ASCII), "longer");
        try (FakeServer silent = new FakeServer(FakeServer.Peer::drain)) {
            ClientOptions soon = ClientOptions.usual().connectTime(Duration.ofMillis(200));
            CallException late = assertThrows(
                    CallException.Connect.class, () -> KumiClient.connect(silent.address(), soon));
            assertTrue(late.getMessage().contains("did not greet"), late.getMessage());
        }
    }

    @Test
    void refusals() throws IOException {
        byte[] version = "KUMICALL\7\0\7\0\0\0\0\0".getBytes(StandardCharsets.US_ASCII);
        try (FakeServer fake = new FakeServer(peer -> peer.write(version))) {
            assertEquals(13, assertThrows(CallException.Server.class, fake::client).code());
        }
        byte[] body = "KUMICALL\0\0\1\0\17\0\0\0\6\0\13\0\12\0\0\0\0\0\0\0\0\0!".getBytes(StandardCharsets.US_ASCII);
        body[12] = (byte) (body.length - 16);
        body[18] = (byte) (body.length - 20);
        try (FakeServer fake = new FakeServer(peer -> {
            peer.write(body);
            peer.drain();
        })) {
            assertEquals("!", assertThrows(CallException.NotPermitted.class, fake::client).getMessage());
        }
    }

    /** What a call of {@code f} comes to, when after its head this is done. */
    private static CallException after(FakeServer.Script script, String part) throws IOException {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            script.run(peer);
        })) {
            try (KumiClient client = fake.client()) {
                CallException wrong =
                        assertThrows(CallException.class, () -> client.call("f", (Object) new double[] {1, 2}));
                assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
                return wrong;
            }
        }
    }

    @Test
    void answersThatLie() throws IOException {
        assertFalse(after(peer -> peer.next(), "closed").hasNotRun());
        after(peer -> peer.header(Integer.MAX_VALUE, peer.next().stream(), 10, 0), "2147483647 bytes of at most");
        after(peer -> peer.header(-1, peer.next().stream(), 4, 0), "4294967295 bytes of at most");
        after(peer -> peer.result(peer.next().stream() + 1), "answers nothing");
        after(peer -> {
            int stream = peer.next().stream();
            peer.result(stream);
            peer.frame(4, stream, 2, new byte[17]);
            peer.drain();
        }, "more bytes than argument 2");
        after(peer -> {
            int stream = peer.next().stream();
            peer.result(stream);
            peer.frame(4, stream, 2, new byte[15]);
        }, "closed");
        after(peer -> {
            peer.frame(8, peer.next().stream(), 0, new byte[8]);
            peer.drain();
        }, "answers nothing");
        after(peer -> {
            byte[] values = new byte[16 + 2 + 11];
            values[16] = 1;
            values[18] = 1;
            values[20] = 1;
            int stream = peer.next().stream();
            peer.frame(10, stream, 0, values);
            peer.frame(4, stream, 2, new byte[16]);
            peer.drain();
        }, "does not fit its description");
        CallException other = after(peer -> {
            byte[] unknown = {99, 0, 0, 0, 0, 0, 0, 0, 0, 0, '?'};
            peer.frame(11, peer.next().stream(), 0, unknown);
            peer.drain();
        }, "?");
        assertEquals(99, other.code());
        after(peer -> {
            byte[] ends = {12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'b', 'y', 'e'};
            peer.frame(11, 0, 0, ends);
            peer.drain();
        }, "bye");
    }

    @Test
    void chunksCutAnywhere() throws Exception {
        double[] expected = new Random(1).doubles(1000).toArray();
        byte[] bytes = new byte[8000];
        java.nio.ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().put(expected);
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            int stream = peer.next().stream();
            peer.result(stream);
            Random random = new Random(2);
            for (int at = 0; at < bytes.length; ) {
                int length = Math.min(random.nextInt(30), bytes.length - at);
                peer.frame(4, stream, 2, java.util.Arrays.copyOfRange(bytes, at, at + length));
                at += length;
            }
            peer.drain();
        }); KumiClient client = fake.client()) {
            assertArrayEquals(expected, client.call("f", (Object) new double[1000]).doubles("y"));
        }
    }

    @Test
    void descriptionsThatLie() throws IOException {
        String huge = ROUTINE.replace("{\"size\":{\"param\":0}}]}]", "{\"size\":{\"int\":1152921504606846975}}]}]");
        String deep = "{\"version\":1,\"name\":\"f\",\"params\":" + "[".repeat(100_000);
        for (String json : new String[] {"", "{}", deep, ROUTINE.replace("\"param\":0", "\"param\":7")}) {
            try (FakeServer fake = new FakeServer(peer -> {
                peer.greet(8, Long.MAX_VALUE);
                peer.describe(json);
                peer.drain();
            }); KumiClient client = fake.client()) {
                assertThrows(CallException.Server.class, () -> client.call("f", (Object) new double[1]));
            }
        }
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, -1);
            peer.describe(huge);
            peer.drain();
        }); KumiClient client = fake.client()) {
            CallException.TooLarge wrong =
                    assertThrows(CallException.TooLarge.class, () -> client.call("f", (Object) new double[1]));
            assertTrue(wrong.getMessage().contains("`y`"), wrong.getMessage());
        }
    }

    @Test
    void aServerThatTakesOneCallAtATime() throws Exception {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(1, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            for (int call = 0; call < 20; call++) {
                int stream = 0;
                for (int chunks = 0; chunks < 2; chunks++) {
                    FakeServer.Frame frame = peer.next();
                    assertTrue(stream == 0 || stream == frame.stream(), "one after the other");
                    stream = frame.stream();
                }
                peer.result(stream);
                peer.frame(4, stream, 2, new byte[8]);
            }
            peer.drain();
        }); KumiClient client = fake.client()) {
            CompletableFuture<?>[] calls = new CompletableFuture<?>[20];
            client.routine("f");
            for (int call = 0; call < calls.length; call++) {
                calls[call] = client.callAsync("f", (Object) new double[1]);
            }
            CompletableFuture.allOf(calls).get(60, TimeUnit.SECONDS);
        }
    }

    @Test
    void aServerThatDoesNotRead() throws IOException {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            try {
                Thread.sleep(60_000);
            } catch (InterruptedException over) {
                Thread.currentThread().interrupt();
            }
        }); KumiClient client = fake.client()) {
            client.routine("f");
            CallException.TimedOut late = assertThrows(CallException.TimedOut.class, () -> client.prepare("f")
                    .add((Object) new double[8 << 20]).within(Duration.ofMillis(100)).call());
            assertTrue(late.getMessage().endsWith("while its arguments were sent to " + fake.address()), late.getMessage());
            assertFalse(client.isOpen(), "half a frame is sent");
        }
    }

    @Test
    void aServerThatDoesNotAnswerIsNamed() throws IOException {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            while (true) {
                peer.next();
            }
        }); KumiClient client = fake.client()) {
            CallException.TimedOut late = assertThrows(CallException.TimedOut.class, () -> client.prepare("f")
                    .add((Object) new double[1]).within(Duration.ofMillis(1)).call());
            assertEquals("the server at " + fake.address() + " did not answer in time", late.getMessage());
        }
    }

    @Test
    void whatNobodyWaitsForIsNotWritten() throws Exception {
        ConcurrentLinkedQueue<Integer> kinds = new ConcurrentLinkedQueue<>();
        CompletableFuture<Void> cancelled = new CompletableFuture<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            int stream = peer.next().stream();
            peer.next();
            peer.result(stream);
            peer.frame(4, stream, 2, new byte[] {0, 0, 0, 0, 0, 0, -16, 63});
            FakeServer.Frame frame = peer.next();
            kinds.add(frame.kind());
            peer.frame(4, stream, 2, new byte[] {0, 0, 0, 0, 0, 0, -16, 63});
            cancelled.complete(null);
            FakeServer.Frame ping = peer.next();
            kinds.add(ping.kind());
            peer.frame(7, 0, 0, new byte[8]);
            peer.drain();
        }); KumiClient client = fake.client()) {
            double[] y = new double[2];
            client.routine("f");
            CompletableFuture<Result> call =
                    client.prepare("f").add((Object) new double[2]).into("y", y).callAsync();
            for (int tries = 0; y[0] == 0 && tries < 10_000; tries++) {
                Thread.sleep(1);
            }
            assertArrayEquals(new double[] {1, 0}, y);
            call.cancel(true);
            cancelled.get(60, TimeUnit.SECONDS);
            client.ping(Duration.ofSeconds(60));
            assertArrayEquals(new double[] {1, 0}, y, "the second half came when the call was over");
            assertEquals(java.util.List.of(5, 6), java.util.List.copyOf(kinds));
        }
    }

    @Test
    void pingsWithoutEnd() throws Exception {
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            byte[] many = new byte[20 * 100_000];
            for (int at = 0; at < many.length; at += 20) {
                many[at] = 8;
                many[at + 8] = 6;
            }
            peer.write(many);
            FakeServer.Frame frame;
            do {
                frame = peer.next();
            } while (frame.kind() == 7);
            peer.result(frame.stream());
            peer.frame(4, frame.stream(), 2, new byte[8]);
            peer.drain();
        }); KumiClient client = fake.client()) {
            assertEquals(0, client.call("f", (Object) new double[1]).doubles("y")[0]);
        }
    }
}
