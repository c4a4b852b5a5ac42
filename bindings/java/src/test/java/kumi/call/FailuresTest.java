package kumi.call;

import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Calls that wait, fail, are cancelled, or whose server goes; by a real server of four slots. */
@Timeout(120)
class FailuresTest extends SharedServer {
    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.start("--waiting", "40"));
    }

    @Test
    void manyAtOnce() throws Exception {
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        for (int index = 0; index < 40; index++) {
            calls.add(client.callAsync("shout", "call " + index));
        }
        CompletableFuture.allOf(calls.toArray(CompletableFuture[]::new)).get(60, TimeUnit.SECONDS);
        for (int index = 0; index < 40; index++) {
            assertEquals("call " + index + "!", calls.get(index).join().text("answer"));
        }
    }

    @Test
    void manyThreads() throws Exception {
        List<Throwable> wrong = new ArrayList<>();
        List<Thread> threads = IntStream.range(0, 8).mapToObj(number -> new Thread(() -> {
            try {
                double[] x = IntStream.range(0, 200_000).mapToDouble(at -> at * number).toArray();
                for (int round = 0; round < 10; round++) {
                    assertArrayEquals(x, client.call("doubles", x).doubles("x"));
                }
            } catch (Throwable thrown) {
                synchronized (wrong) {
                    wrong.add(thrown);
                }
            }
        })).toList();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(), wrong);
    }

    @Test
    void theFirstOfTwo() throws Exception {
        CompletableFuture<Result> slow = client.callAsync("nap", 60_000);
        CompletableFuture<Result> quick = client.callAsync("nap", 1);
        Object first = CompletableFuture.anyOf(slow, quick).get(60, TimeUnit.SECONDS);
        assertEquals(quick.join(), first);
        assertFalse(slow.isDone());
        slow.cancel(true);
        free();
    }

    /** All slots are free: as many naps as there are slots run and end. */
    private static void free() throws Exception {
        List<CompletableFuture<Result>> naps = IntStream.range(0, 4).mapToObj(at -> client.callAsync("nap", 1)).toList();
        CompletableFuture.allOf(naps.toArray(CompletableFuture[]::new)).get(60, TimeUnit.SECONDS);
    }

    @Test
    void cancelledCallsFreeTheirSlots() throws Exception {
        for (int round = 0; round < 3; round++) {
            List<CompletableFuture<Result>> naps =
                    IntStream.range(0, 8).mapToObj(at -> client.callAsync("nap", 60_000)).toList();
            naps.forEach(nap -> nap.cancel(true));
            assertTrue(naps.stream().allMatch(CompletableFuture::isCancelled));
            free();
        }
        CompletableFuture<Result> late = client.callAsync("nap", 60_000).orTimeout(100, TimeUnit.MILLISECONDS);
        assertInstanceOf(TimeoutException.class,
                assertThrows(ExecutionException.class, () -> late.get(60, TimeUnit.SECONDS)).getCause());
        free();
    }

    @Test
    void tooLong() throws Exception {
        // Its process is there: the time passes in the routine, and not before it begins.
        client.call("nap", 1);
        CallException.TimedOut late = assertThrows(CallException.TimedOut.class,
                () -> client.prepare("nap").add(60_000).within(Duration.ofSeconds(2)).call());
        assertEquals(7, late.code(), late.getMessage());
        assertFalse(late.hasNotRun());
        free();
    }

    @Test
    void crashes() {
        CallException.Crashed crash = assertThrows(CallException.Crashed.class, () -> client.call("crash"));
        assertEquals(6, crash.detail(), crash.getMessage());
        assertEquals(-1 - 7, failure(CallException.Crashed.class, client.callAsync("leave", 7)).detail());
        assertThrows(CallException.NotRunnable.class, () -> client.call("absent"));
        assertEquals("still here!", client.call("shout", "still here").text("answer"));
    }

    @Test
    void errorsOfAsynchronousCalls() {
        try (KumiClient fresh = served.client()) {
            failure(CallException.RoutineNotFound.class, fresh.callAsync("dmul"));
            failure(CallException.Argument.class, fresh.callAsync("dmmul"));
            failure(CallException.Argument.class, fresh.callAsync("dmmul", 1, 2));
        }
    }

    @Test
    void asManyAsMayWait() {
        List<CompletableFuture<Result>> naps =
                IntStream.range(0, 60).mapToObj(at -> client.callAsync("nap", 60_000)).toList();
        CallException.Busy busy =
                failure(CallException.Busy.class, CompletableFuture.anyOf(naps.toArray(CompletableFuture[]::new)));
        naps.forEach(nap -> nap.cancel(true));
        assertTrue(busy.hasNotRun());
    }

    @Test
    void anInterruptEndsOneCallOnly() throws Exception {
        CompletableFuture<Result> other = client.callAsync("nap", 300);
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        CountDownLatch marked = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            try {
                client.call("nap", 60_000);
            } catch (CallException wrong) {
                thrown.set(wrong);
                if (Thread.currentThread().isInterrupted()) {
                    marked.countDown();
                }
            }
        });
        thread.start();
        Thread.sleep(100);
        thread.interrupt();
        thread.join();
        assertInstanceOf(CallException.Interrupted.class, thrown.get());
        assertEquals(0, marked.getCount(), "it is marked as interrupted");
        other.get(60, TimeUnit.SECONDS);
        assertTrue(client.isOpen());
        free();
    }

    @Test
    void aKilledServer() throws Exception {
        try (ServerProcess other = ServerProcess.start(); KumiClient lost = other.client()) {
            CompletableFuture<Result> nap = lost.callAsync("nap", 60_000);
            lost.ping(Duration.ofSeconds(30));
            while (lost.callAsync("nap", 1).get(60, TimeUnit.SECONDS).integer("pid") == 0) {
                Thread.onSpinWait();
            }
            other.kill();
            CallException.ConnectionLost error = failure(CallException.ConnectionLost.class, nap);
            assertFalse(error.hasNotRun(), "it may have run");
            CallException.ConnectionLost later =
                    assertThrows(CallException.ConnectionLost.class, () -> lost.call("nap", 1));
            assertTrue(later.hasNotRun());
            assertFalse(lost.isOpen());
            CallException.Connect refused = assertThrows(CallException.Connect.class, other::client);
            assertTrue(refused.getMessage().contains(other.address), refused.getMessage());
        }
    }

    @Test
    void closing() {
        KumiClient closed = served.client();
        CompletableFuture<Result> nap = closed.callAsync("nap", 60_000);
        closed.close();
        assertTrue(failure(CallException.ConnectionLost.class, nap).getMessage().contains("it was closed"));
        closed.close();
        assertThrows(CallException.ConnectionLost.class, () -> closed.names(""));
    }

    @Test
    void overASocketOfThisMachine(@TempDir Path folder) throws Exception {
        String address = "unix:" + folder.resolve("s");
        try (ServerProcess other = ServerProcess.start("--listen", address); KumiClient local = KumiClient.connect(address)) {
            assertEquals("a!", local.call("shout", "a").text("answer"));
        }
    }

    @Test
    void addresses() {
        for (String address : new String[] {"nowhere", ":1", "host:", "host:port", "host:70000", "::1:7070"}) {
            CallException.Argument wrong =
                    assertThrows(CallException.Argument.class, () -> KumiClient.connect(address), address);
            assertTrue(wrong.getMessage().contains("HOST:PORT"), wrong.getMessage());
        }
        assertThrows(CallException.Connect.class, () -> KumiClient.connect("unix:/nowhere/at/all"));
        assertThrows(CallException.Connect.class, () -> KumiClient.connect("[::1]:1"));
    }
}
