package kumi.call;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import kumi.call.idl.Scalar;
import kumi.call.wire.Values;
import kumi.call.wire.Values.Value;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Servers that call functions which are not there, or wrongly, and that lie about files: errors, no hang, and nothing left behind. */
@Timeout(120)
class HostileFunctionsTest {
    private static final String ELSE = ",\"target\":{\"language\":\"c\",\"symbol\":\"g\",\"arguments\":[]}}";
    /** {@code g(n, f(k, a[k], b[k], s) -> (b, y, t), from) -> (to, z[n])}. */
    private static final String ROUTINE = "{\"version\":1,\"name\":\"g\",\"params\":["
            + number("n", "in", "i32", "") + ",{\"name\":\"f\",\"mode\":\"in\",\"type\":{\"callback\":["
            + number("k", "in", "i32", "") + "," + number("a", "in", "f64", "0") + "," + number("b", "inout", "f64", "0")
            + ",{\"name\":\"s\",\"mode\":\"in\",\"type\":\"string\"}," + number("y", "out", "f64", "")
            + ",{\"name\":\"t\",\"mode\":\"out\",\"type\":\"string\",\"dims\":[{\"size\":{\"int\":8}}]}]}},"
            + "{\"name\":\"from\",\"mode\":\"in\",\"type\":\"file\"},{\"name\":\"to\",\"mode\":\"out\",\"type\":\"file\"},"
            + number("z", "out", "f64", "0") + "]" + ELSE;
    private static final ClientOptions OPTIONS = ClientOptions.usual().callbackBytes(1 << 20).fileBytes(1 << 20);
    private static final Callback NEVER = it -> {
        throw new AssertionError("it is called");
    };
    private static final Callback GIVES = it -> it.set("y", it.integer("k")).set("t", "t");

    @TempDir
    Path folder;

    private static String number(String name, String mode, String element, String size) {
        String dims = size.isEmpty() ? "" : ",\"dims\":[{\"size\":{\"param\":" + size + "}}]";
        return "{\"name\":\"" + name + "\",\"mode\":\"" + mode + "\",\"type\":{\"number\":\"" + element + "\"}" + dims + "}";
    }

    private static Value integer(int param, long value) {
        return new Value(param, new Scalar.Signed(value), null);
    }

    private static Value text(int param, String text) {
        return new Value(param, null, text);
    }

    /** A head with these values behind so many bytes. */
    private static byte[] head(int before, int first, Value... values) {
        byte[] returned = Values.returned(List.of(values));
        ByteBuffer head = ByteBuffer.allocate(before + returned.length - 1).order(ByteOrder.LITTLE_ENDIAN);
        head.putShort(0, (short) first);
        return head.put(before, returned, 1, returned.length - 1).array();
    }

    private static byte[] callback(int param, Value... values) {
        return head(2, param, values);
    }

    private static byte[] result(Value... values) {
        return head(16, 0, values);
    }

    private static byte[] failure(int code, String text) {
        byte[] sentence = text.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(10 + sentence.length).order(ByteOrder.LITTLE_ENDIAN).putShort((short) code).putLong(0)
                .put(sentence).array();
    }

    private static FakeServer.Frame until(int kind, FakeServer.Peer peer) throws IOException {
        FakeServer.Frame frame = peer.next();
        while (frame.kind() != kind) {
            frame = peer.next();
        }
        return frame;
    }

    /** A server of {@code g} that does this with a call, whose stream it is told, and then reads what comes. */
    private interface CallScript {
        void call(FakeServer.Peer peer, int stream) throws IOException;
    }

    private static FakeServer serving(CallScript served) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            served.call(peer, until(3, peer).stream());
            peer.drain();
        });
    }

    private static Call call(KumiClient client, Callback function) {
        return client.prepare("g").add(2, function, new byte[] {1, 2, 3});
    }

    /** The server calls a function so, and is told that it cannot. */
    private static void refused(String part, byte[] head) throws Exception {
        CompletableFuture<String> told = new CompletableFuture<>();
        try (FakeServer fake = serving((peer, stream) -> {
            peer.frame(12, stream, 0, head);
            // Whatever comes for it is skipped.
            peer.frame(4, stream, 1, new byte[90]);
            byte[] back = until(13, peer).body();
            told.complete(back[0] + new String(back, 1, back.length - 1, StandardCharsets.UTF_8));
            peer.frame(4, stream, 7, new byte[9]);
            peer.frame(11, stream, 0, failure(14, "it failed"));
        }); KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
            CallException.Callback failed = assertThrows(CallException.Callback.class, () -> call(client, NEVER).call());
            assertEquals("it failed", failed.getMessage());
            assertNull(failed.getCause());
            String why = told.get(60, TimeUnit.SECONDS);
            assertTrue(why.startsWith("1") && why.contains(part), why);
            assertTrue(client.isOpen());
        }
    }

    @Test
    void functionsThatCannotBeCalled() throws Exception {
        for (int param : new int[] {0, 2, 3, 4, 5, 0xffff}) {
            refused("calls what is no function", callback(param, integer(0, 1), text(3, "s")));
        }
        refused("`k` has no value", callback(1, text(3, "s")));
        refused("`s` has no value", callback(1, integer(0, 1)));
        refused("takes no text", callback(1, text(0, "1"), text(3, "s")));
        refused("takes no text", callback(1, integer(0, 1), text(3, "s"), text(5, "t")));
        refused("takes no file", callback(1, Value.file(0, 1), text(3, "s")));
        refused("fewer parameters", callback(1, integer(0, 1), text(3, "s"), integer(60, 1)));
        refused("zero byte", callback(1, integer(0, 1), text(3, "a\0b")));
        refused("cannot hold 2147483648", callback(1, integer(0, 1L << 31), text(3, "s")));
        refused("cannot hold", callback(1, new Value(0, new Scalar.Real(0.5), null), text(3, "s")));
        refused("`a` takes no scalar", callback(1, integer(0, 1), integer(1, 1), text(3, "s")));
        refused("`y` takes no scalar", callback(1, integer(0, 1), text(3, "s"), integer(4, 1)));
        refused("is -1", callback(1, integer(0, -1), text(3, "s")));
        refused("more than 1048576 bytes", callback(1, integer(0, Integer.MAX_VALUE), text(3, "s")));
    }

    /** What the server sends while a function runs breaks the protocol; the function ends afterwards. */
    private static void broken(String part, CallScript served) throws Exception {
        try (FakeServer fake = serving((peer, stream) -> {
            peer.frame(12, stream, 0, callback(1, integer(0, 1), text(3, "s")));
            served.call(peer, stream);
        }); KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
            AtomicInteger count = new AtomicInteger();
            CallException.ConnectionLost lost = assertThrows(CallException.ConnectionLost.class, () -> call(client, it -> {
                count.incrementAndGet();
                while (client.isOpen()) {
                    Thread.sleep(1);
                }
                GIVES.call(it);
            }).call());
            assertTrue(lost.getMessage().contains(part), lost.getMessage());
            assertFalse(lost.hasNotRun());
            assertTrue(count.get() < 2, "it is called once at a time");
        }
    }

    @Test
    void functionsThatAreCalledWrongly() throws Exception {
        byte[] again = callback(1, integer(0, 1), text(3, "s"));
        broken("more bytes than argument 1", (peer, stream) -> peer.frame(4, stream, 1, new byte[9]));
        broken("more bytes than argument 0", (peer, stream) -> peer.frame(4, stream, 0, new byte[8]));
        broken("answers nothing", (peer, stream) -> peer.frame(12, stream, 0, again));
        CallScript all = (peer, stream) -> {
            peer.frame(4, stream, 2, new byte[8]);
            peer.frame(4, stream, 1, new byte[8]);
        };
        broken("answers nothing", (peer, stream) -> {
            all.call(peer, stream);
            peer.frame(12, stream, 0, again);
        });
        broken("answers nothing", (peer, stream) -> {
            all.call(peer, stream);
            peer.frame(10, stream, 0, result(Value.file(3, 0)));
        });
        broken("answers nothing", (peer, stream) -> {
            all.call(peer, stream);
            peer.frame(4, stream, 1, new byte[8]);
        });
        broken("not allowed here", (peer, stream) -> peer.frame(13, stream, 0, new byte[3]));
        broken("wrong flags, argument or stream", (peer, stream) -> {
            all.call(peer, stream);
            peer.frame(12, 0, 0, again);
        });
    }


    private <E extends CallException> E lies(Class<E> kind, String part, CallScript served) throws Exception {
        Path to = Files.writeString(folder.resolve("to"), "before");
        try (FakeServer fake = serving(served); KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
            E wrong = assertThrows(kind, () -> call(client, NEVER).into("to", to).call());
            assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
            assertEquals(List.of("to"), FilesTest.names(folder));
            assertEquals("before", Files.readString(to));
            return wrong;
        }
    }

    @Test
    void filesThatLie() throws Exception {
        lies(CallException.Server.class, "lacks a file", (peer, stream) -> {
            peer.frame(10, stream, 0, result());
            peer.frame(4, stream, 4, new byte[16]);
        });
        for (long length : new long[] {(1 << 20) + 1, Long.MAX_VALUE, Long.MIN_VALUE, -1}) {
            lies(CallException.File.class, "more than the 1048576 that are taken", (peer, stream) -> {
                peer.frame(10, stream, 0, result(Value.file(3, length)));
                // Both are skipped: nobody waits any more.
                peer.frame(4, stream, 4, new byte[16]);
                peer.frame(4, stream, 3, new byte[1 << 20]);
            });
        }
        for (int param : new int[] {0, 1, 2, 4, 5}) {
            lies(CallException.ConnectionLost.class, "more bytes than argument " + param,
                    (peer, stream) -> peer.frame(10, stream, 0, result(Value.file(param, 1))));
        }
        lies(CallException.ConnectionLost.class, "ascending", (peer, stream) ->
                peer.frame(10, stream, 0, result(Value.file(3, 1), Value.file(3, 1))));
        lies(CallException.ConnectionLost.class, "more bytes than argument 3", (peer, stream) -> {
            peer.frame(10, stream, 0, result(Value.file(3, 5)));
            peer.frame(4, stream, 3, new byte[4]);
            peer.frame(4, stream, 3, new byte[2]);
        });
        lies(CallException.ConnectionLost.class, "closed", (peer, stream) -> {
            peer.frame(10, stream, 0, result(Value.file(3, 5)));
            peer.frame(4, stream, 3, new byte[4]);
            peer.end();
        });
        lies(CallException.ConnectionLost.class, "bytes of at most", (peer, stream) -> {
            peer.frame(10, stream, 0, result(Value.file(3, 1 << 20)));
            peer.header(1 << 30, stream, 4, 3);
        });
        lies(CallException.Server.class, "does not fit", (peer, stream) -> {
            peer.frame(10, stream, 0, result(integer(2, 1), Value.file(3, 0)));
            peer.frame(4, stream, 4, new byte[16]);
        });
    }

    @Test
    void aFileThatBecomesShorter() throws Exception {
        Path from = folder.resolve("from");
        // More than sockets take, and no room on the disk.
        try (RandomAccessFile long_ = new RandomAccessFile(from.toFile(), "rw")) {
            long_.setLength(256 << 20);
        }
        try (FakeServer fake = serving((peer, stream) -> {
            try (RandomAccessFile short_ = new RandomAccessFile(from.toFile(), "rw")) {
                short_.setLength(0);
            }
            until(5, peer);
            peer.frame(11, stream, 0, failure(8, "cancelled"));
            until(6, peer);
            peer.frame(7, 0, 0, new byte[8]);
        }); KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
            CallException.File wrong = assertThrows(CallException.File.class,
                    () -> client.prepare("g").add(2, NEVER, from).into("to", folder.resolve("to")).call());
            assertTrue(wrong.getMessage().contains("became shorter while it was sent"), wrong.getMessage());
            assertFalse(wrong.hasNotRun());
            assertEquals(List.of("from"), FilesTest.names(folder));
            client.ping(Duration.ofSeconds(60));
        }
    }

    @Test
    void whatFailuresMean() throws Exception {
        List<Class<? extends CallException>> kinds = List.of(CallException.RoutineNotFound.class,
                CallException.Server.class, CallException.Argument.class, CallException.TooLarge.class,
                CallException.Busy.class, CallException.Crashed.class, CallException.TimedOut.class,
                CallException.Cancelled.class, CallException.NotRunnable.class, CallException.NotPermitted.class,
                CallException.Server.class, CallException.Server.class, CallException.Server.class,
                CallException.Callback.class, CallException.HeldLost.class, CallException.Server.class,
                CallException.Server.class, CallException.Server.class, CallException.Server.class,
                CallException.Server.class, CallException.NoServer.class, CallException.NoServer.class,
                CallException.Server.class, CallException.Server.class, CallException.Expired.class,
                CallException.Tls.class, CallException.Server.class, CallException.Server.class,
                CallException.Server.class, CallException.File.class, CallException.Raised.class,
                CallException.ObjectLost.class, CallException.NoResources.class, CallException.Server.class);
        // As docs/reference/call-protocol.md says what has not run, of 21 without attempts; what is not known may have.
        List<Integer> notRun = List.of(1, 2, 3, 4, 5, 9, 10, 12, 13, 15, 16, 17, 18, 20, 21, 23, 25, 26, 32, 33);
        AtomicInteger code = new AtomicInteger();
        try (FakeServer fake = serving((peer, stream) -> {
            peer.frame(11, stream, 0, failure(code.get(), "it is " + code.get()));
        })) {
            for (Class<? extends CallException> kind : kinds) {
                code.incrementAndGet();
                try (KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
                    CallException failed = assertThrows(CallException.class, () -> call(client, NEVER).call());
                    assertEquals(kind, failed.getClass(), "of " + code);
                    assertEquals(code.get(), failed.code());
                    assertEquals("it is " + code, failed.getMessage());
                    assertEquals(notRun.contains(code.get()), failed.hasNotRun(), "of " + code);
                }
            }
        }
    }

    /** Frames one behind the other. */
    private static final class Frames {
        private final ByteArrayOutputStream all = new ByteArrayOutputStream();
        private final int stream;

        Frames(int stream) {
            this.stream = stream;
        }

        Frames add(int kind, int argument, byte[] body) {
            ByteBuffer header = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN);
            header.putInt(body.length).putInt(stream).put((byte) kind).put((byte) 0).putShort((short) argument);
            all.writeBytes(header.array());
            all.writeBytes(body);
            return this;
        }

        /** The bytes, some of which are changed. */
        byte[] changed(Random random, int changes) {
            byte[] bytes = all.toByteArray();
            for (int change = 0; change < changes; change++) {
                bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
            }
            return bytes;
        }
    }

    /** What comes before a function's end, or behind it, with bits changed at random, and the end of the connection behind that. */
    private static void changed(FakeServer.Peer peer, int stream, int round) throws IOException {
        Random random = new Random(round);
        boolean first = round % 2 == 0;
        int changes = round % 10 < 2 ? 0 : 1 + random.nextInt(3);
        Frames before = new Frames(stream).add(12, 0, callback(1, integer(0, 2), text(3, "s")))
                .add(4, 1, new byte[16]).add(4, 2, new byte[16]);
        peer.write(before.changed(random, first ? changes : 0));
        if (!first || changes == 0) {
            until(13, peer);
            Frames behind = new Frames(stream).add(10, 0, result(Value.file(3, 5))).add(4, 3, new byte[5])
                    .add(4, 4, new byte[16]);
            peer.write(behind.changed(random, changes));
        }
        peer.end();
    }

    @Test
    void anyBytes() throws Exception {
        AtomicInteger round = new AtomicInteger();
        int ended = 0;
        int failed = 0;
        try (FakeServer fake = serving((peer, stream) -> changed(peer, stream, round.get()))) {
            for (; round.get() < 400; round.incrementAndGet()) {
                Path to = folder.resolve("to");
                try (KumiClient client = KumiClient.connect(fake.address(), OPTIONS)) {
                    Result result = call(client, GIVES).into("to", to).callAsync().get(60, TimeUnit.SECONDS);
                    assertEquals(5, Files.size(result.path("to")));
                    Files.delete(to);
                    ended++;
                } catch (ExecutionException wrong) {
                    assertTrue(wrong.getCause() instanceof CallException, () -> round + ": " + wrong);
                    assertTrue(round.get() % 10 >= 2, () -> round + ": " + wrong);
                    failed++;
                }
                // A future that the call itself ends is done when its files are gone.
                assertEquals(List.of(), FilesTest.names(folder), "of round " + round);
            }
        }
        assertTrue(ended >= 80 && failed > 100, ended + " ended and " + failed + " failed");
    }
}
