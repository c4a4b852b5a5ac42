package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Files as arguments, by a real server. */
@Timeout(120)
class FilesTest extends SharedServer {
    /** Most MiB of a call's files. */
    private static final int MOST = 16;
    @TempDir
    static Path scratch;
    @TempDir
    Path folder;

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.of("callbacks", "--scratch", scratch.toString(), "--call-files", Integer.toString(MOST)));
    }

    private static byte[] text(int length) {
        byte[] text = new byte[length];
        for (int at = 0; at < length; at++) {
            text[at] = (byte) ('a' + at % 23);
        }
        return text;
    }

    private static byte[] capitals(byte[] text) {
        return new String(text, StandardCharsets.US_ASCII).toUpperCase(java.util.Locale.ROOT)
                .getBytes(StandardCharsets.US_ASCII);
    }

    /** What there is in a folder. */
    static List<String> names(Path folder) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.map(path -> path.getFileName().toString()).sorted().toList();
        }
    }

    @Test
    void thereAndBack() throws Exception {
        Path from = folder.resolve("from");
        Path to = folder.resolve("to");
        // The last goes in many chunks.
        for (int length : new int[] {0, 1, 70_000, 5 << 20}) {
            byte[] text = text(length);
            Files.write(from, text);
            Result content = client.call("capitals", from);
            assertArrayEquals(capitals(text), content.bytes("to"));
            assertEquals(length, content.integer("length"));
            assertEquals(List.of("to", "length"), content.names());
            assertEquals("capitals -> to: " + length + " bytes length: " + length, content.toString());
            assertArrayEquals(capitals(text), client.callAsync("capitals", text).get(60, TimeUnit.SECONDS).bytes("to"));
            Result written = client.prepare("capitals").add((Object) text).into("to", to).call();
            assertEquals(to, written.path("to"));
            assertArrayEquals(capitals(text), Files.readAllBytes(to));
            assertThrows(NoSuchElementException.class, () -> written.bytes("to"));
            assertThrows(NoSuchElementException.class, () -> content.path("to"));
        }
        for (int digit = 0; digit < 3; digit++) {
            Files.write(to, "01".substring(0, digit).getBytes(StandardCharsets.US_ASCII));
            assertEquals(to, client.prepare("append").inout("path", to).set("digit", digit).call().path("path"));
        }
        assertEquals("012", Files.readString(to));
        assertEquals("x7", new String(client.call("append", new byte[] {'x'}, 7).bytes("path"), StandardCharsets.US_ASCII));
        assertEquals(List.of("from", "to"), names(folder), "nothing but what was there and what was asked for");
    }

    @Test
    void manyAtOnce() throws Exception {
        List<CompletableFuture<Result>> calls = IntStream.range(0, 24).mapToObj(index ->
                client.prepare("capitals").add((Object) text(index * 7919)).into("to", folder.resolve("to" + index)).callAsync())
                .toList();
        for (int index = 0; index < 24; index++) {
            Path to = calls.get(index).get(60, TimeUnit.SECONDS).path("to");
            assertArrayEquals(capitals(text(index * 7919)), Files.readAllBytes(to));
        }
        assertEquals(24, names(folder).size());
    }

    private CallException.File noFile(int what, Path to) throws IOException {
        CallException.File wrong = assertThrows(CallException.File.class,
                () -> client.prepare("mischief").add(what).into("to", to).call());
        assertEquals("before", Files.readString(to), "what was there stays");
        assertEquals(List.of("to"), names(folder));
        return wrong;
    }

    @Test
    void whatIsNoFileAtTheServer() throws Exception {
        Path to = Files.writeString(folder.resolve("to"), "before");
        for (int what = 0; what < 3; what++) {
            CallException.File wrong = noFile(what, to);
            assertEquals(30, wrong.code(), wrong.getMessage());
            assertFalse(wrong.hasNotRun());
            assertThrows(CallException.File.class, () -> client.call("mischief", 0));
        }
        CallException.Crashed crash = assertThrows(CallException.Crashed.class,
                () -> client.prepare("mischief").add(4).into("to", to).call());
        assertEquals(6, crash.detail());
        assertEquals("before", Files.readString(to));
        client.prepare("mischief").add(5).into("to", to).call();
        assertEquals("", Files.readString(to), "it wrote nothing");
        assertEquals(List.of("to"), names(folder));
        CallException.TooLarge large = assertThrows(CallException.TooLarge.class,
                () -> client.call("capitals", (Object) new byte[(MOST << 20) + 1]));
        assertTrue(large.hasNotRun());
    }

    @Test
    void moreThanIsTaken() throws Exception {
        Path to = Files.writeString(folder.resolve("to"), "before");
        try (KumiClient small = KumiClient.connect(served.address, ClientOptions.usual().fileBytes(9))) {
            assertEquals(9, small.call("capitals", (Object) text(9)).bytes("to").length);
            for (boolean path : new boolean[] {false, true}) {
                Call call = small.prepare("capitals").add((Object) text(3 << 20));
                CallException.File wrong =
                        assertThrows(CallException.File.class, path ? call.into("to", to)::call : call::call);
                assertTrue(wrong.getMessage().contains("more than the 9 that are taken"), wrong.getMessage());
                assertFalse(wrong.hasNotRun());
            }
            // What still comes of those is skipped.
            assertEquals(9, small.call("capitals", (Object) text(9)).bytes("to").length);
        }
        assertEquals("before", Files.readString(to));
        try (KumiClient small = KumiClient.connect(served.address, ClientOptions.usual().memory(100))) {
            assertThrows(CallException.File.class, () -> small.call("capitals", (Object) text(101)));
            small.prepare("capitals").add((Object) text(101)).into("to", to).call();
            assertEquals(101, Files.size(to));
        }
        assertEquals(List.of("to"), names(folder));
        assertThrows(IllegalArgumentException.class, () -> ClientOptions.usual().fileBytes(-1));
    }

    @Test
    void whatIsNoFileHere() throws Exception {
        Path to = folder.resolve("to");
        for (Path missing : new Path[] {folder.resolve("missing"), folder}) {
            CallException.File wrong = assertThrows(CallException.File.class,
                    () -> client.prepare("capitals").add(missing).into("to", to).call());
            assertTrue(wrong.hasNotRun() && wrong.getMessage().contains(missing.toString()), wrong.getMessage());
        }
        for (Path nowhere : new Path[] {folder.resolve("no/where"), Path.of("/")}) {
            CallException.File wrong = assertThrows(CallException.File.class,
                    () -> client.prepare("capitals").add((Object) text(3)).into("to", nowhere).call());
            assertTrue(wrong.hasNotRun(), wrong.getMessage());
        }
        Path image = Path.of(URI.create("jrt:/java.base/java/lang/Object.class"));
        for (Call call : List.of(client.prepare("capitals").add(image).into("to", to),
                client.prepare("capitals").add((Object) text(3)).into("to", image))) {
            CallException.File wrong = assertThrows(CallException.File.class, call::call);
            assertTrue(wrong.hasNotRun() && wrong.getMessage().contains("file system (jrt)"), wrong.getMessage());
        }
        // A folder, a device and a link that leads nowhere are left alone.
        Path taken = Files.createDirectory(folder.resolve("taken"));
        Path lost = Files.createSymbolicLink(folder.resolve("lost"), Path.of("missing"));
        Path device = Files.createSymbolicLink(folder.resolve("device"), Path.of("/dev/null"));
        for (Path other : List.of(taken, lost, device)) {
            CallException.File wrong = assertThrows(CallException.File.class,
                    () -> client.prepare("capitals").add((Object) text(3)).into("to", other).call());
            assertTrue(wrong.hasNotRun() && wrong.getMessage().contains(other.toString()), wrong.getMessage());
        }
        assertEquals(3, names(folder).size(), names(folder).toString());
        // What another link leads to gets the result.
        Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("taken/file"));
        Files.writeString(taken.resolve("file"), "before");
        assertEquals(link, client.prepare("capitals").add((Object) text(3)).into("to", link).call().path("to"));
        assertArrayEquals(capitals(text(3)), Files.readAllBytes(taken.resolve("file")));
        assertTrue(Files.isSymbolicLink(link));
        refused("is a file: give a Path or its content", client.prepare("capitals").add(5));
        refused("is a file: give a Path or its content", client.prepare("capitals").add((Object) null));
        refused("a Path is a place", client.prepare("capitals").add((Object) text(3)).into("to", "to"));
        refused("no file `from`", client.prepare("capitals").add((Object) text(3)).into("from", to));
        refused("takes 1 arguments", client.prepare("capitals").add(text(3), text(3)));
    }

    private static void refused(String part, Call call) {
        CallException.Argument wrong = assertThrows(CallException.Argument.class, call::call);
        assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
    }

    /** The folders of calls at the server, which are in those of their owners. */
    private static long calls() {
        return within(scratch.toFile()).flatMap(FilesTest::within).flatMap(FilesTest::within)
                .filter(File::isDirectory).count();
    }

    /** What a folder has; one that has just gone has nothing. */
    private static Stream<File> within(File folder) {
        File[] all = folder.listFiles();
        return all == null ? Stream.empty() : Stream.of(all);
    }

    private static void running(long count) throws Exception {
        eventually(count + " folders of calls", () -> calls() == count);
    }

    @Test
    void theEndsOfCalls() throws Exception {
        Path to = Files.writeString(folder.resolve("to"), "before");
        running(0);
        try (KumiClient own = served.client()) {
            Call call = own.prepare("rests").add(600_000, text(10)).into("to", to);
            CompletableFuture<Result> cancelled = call.callAsync();
            running(1);
            assertEquals(2, names(folder).size(), "what is written has another name: " + names(folder));
            cancelled.cancel(true);
            running(0);
            until(List.of("to"));
            assertThrows(CallException.TimedOut.class, () -> own.prepare("rests").add(600_000, text(10)).into("to", to)
                    .within(Duration.ofMillis(200)).call());
            assertEquals(List.of("to"), names(folder));
            CompletableFuture<Result> closed =
                    own.prepare("rests").add(600_000, text(10)).into("to", to).callAsync();
            running(1);
            own.close();
            failure(CallException.ConnectionLost.class, closed);
            until(List.of("to"));
            running(0);
        }
        assertEquals("before", Files.readString(to));
    }

    @Test
    void closedWhileManyRun() throws Exception {
        running(0);
        KumiClient own = served.client();
        AtomicInteger called = new AtomicInteger();
        CountDownLatch over = new CountDownLatch(1);
        Callback waits = it -> {
            called.incrementAndGet();
            assertTrue(over.await(60, TimeUnit.SECONDS));
            it.set("y", 0);
        };
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        AtomicReference<Throwable> waiter = new AtomicReference<>();
        Thread thread = new Thread(() -> waiter.set(
                assertThrows(CallException.class, () -> own.call("rests", 600_000, text(10)))));
        thread.start();
        running(1);
        calls.add(own.callAsync("integrate", 1000, waits));
        eventually("a call of the function", () -> called.get() > 0);
        // Of these some run, some wait for a slot, and some are not sent yet.
        for (int round = 0; round < 8; round++) {
            calls.add(own.callAsync("integrate", 1000, waits));
            calls.add(own.prepare("rests").add(600_000, text(10)).into("to", folder.resolve("rests" + round)).callAsync());
        }
        calls.add(own.prepare("rests").add(600_000, text(5 << 20)).into("to", folder.resolve("long")).callAsync());
        own.close();
        for (CompletableFuture<Result> call : calls) {
            failure(CallException.ConnectionLost.class, call);
        }
        thread.join();
        assertInstanceOf(CallException.ConnectionLost.class, waiter.get());
        assertEquals(List.of(), names(folder));
        over.countDown();
        running(0);
        assertEquals(4, client.call("plain", 2).integer("twice"), "the slots are free");
    }

    /** Waits until there are these files: of a call that nobody waits for they go when its end is told. */
    private void until(List<String> expected) throws Exception {
        eventually("a folder with " + expected + " alone", () -> names(folder).equals(expected));
    }

    @Test
    void anInterruptedThread() throws Exception {
        Path from = Files.write(folder.resolve("from"), text(100));
        Thread.currentThread().interrupt();
        assertThrows(CallException.Interrupted.class,
                () -> client.prepare("capitals").add(from).into("to", folder.resolve("to")).call());
        assertTrue(Thread.interrupted(), "it is marked as interrupted");
        assertEquals(List.of("from"), names(folder));
        assertEquals(100, client.call("capitals", from).bytes("to").length);
    }

    @Test
    void aKilledServer() throws Exception {
        Path to = folder.resolve("to");
        try (ServerProcess other = ServerProcess.of("callbacks"); KumiClient lost = other.client()) {
            CompletableFuture<Result> rests =
                    lost.prepare("rests").add(600_000, text(10)).into("to", to).callAsync();
            assertEquals(4, lost.call("plain", 2).integer("twice"));
            other.kill();
            failure(CallException.ConnectionLost.class, rests);
            until(List.of());
        }
    }
}
