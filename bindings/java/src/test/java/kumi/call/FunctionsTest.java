package kumi.call;

import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Routines that call functions of the program, by a real server of four slots. */
@Timeout(120)
class FunctionsTest extends SharedServer {
    private static final Callback SQUARE = Callback.of(x -> x * x);

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.of("callbacks", "--call-memory", "64"));
    }

    /** The integral of the square from 0 to 1, as the routine computes it. */
    private static double integral(int n) {
        return IntStream.range(0, n).mapToDouble(i -> (i + 0.5) / n).map(x -> x * x / n).sum();
    }

    private static void works() {
        assertEquals(42, client.call("plain", 21).integer("twice"));
    }

    @Test
    void calledForEachPoint() throws Exception {
        List<Double> seen = new ArrayList<>();
        Thread here = Thread.currentThread();
        Callback noting = it -> {
            assertSame(here, Thread.currentThread());
            seen.add(it.real("x"));
            it.set("y", it.real("x") * it.real("x"));
        };
        assertEquals(integral(4), client.call("integrate", 4, noting).real("sum"), 1e-12);
        assertEquals(List.of(0.125, 0.375, 0.625, 0.875), seen);
        assertEquals(integral(100), client.call("integrate", 100, SQUARE).real("sum"), 1e-12);
        Call call = client.prepare("integrate").set("n", 3).function("f", it -> {
            assertNotSame(here, Thread.currentThread());
            it.set("y", 1);
        });
        assertEquals(1, call.callAsync().get(60, TimeUnit.SECONDS).real("sum"), 1e-12);
        assertTrue(client.routine("integrate").toString().contains("f: callback"));
    }

    /** Four calls have all slots until each of their functions runs; the wait is for a call behind them. */
    @Test
    void whoeverIsWaitedForAllFunctionsRun() throws Exception {
        CountDownLatch all = new CountDownLatch(4);
        Callback together = it -> {
            all.countDown();
            assertTrue(all.await(60, TimeUnit.SECONDS));
            it.set("y", 1);
        };
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            calls.add(client.prepare("integrate").set("n", 2).function("f", together).callAsync());
        }
        assertEquals(42, client.call("plain", 21).integer("twice"));
        for (CompletableFuture<Result> call : calls) {
            assertEquals(1, call.get(60, TimeUnit.SECONDS).real("sum"), 1e-12);
        }
    }

    private static void visited(CallbackArguments it, int n, double[] before) {
        assertEquals(n, it.integer("k"));
        assertEquals(-7, it.integer("small"));
        assertEquals("ninf", it.text("name"));
        assertArrayEquals(before, it.doubles("a"));
        assertThrows(NoSuchElementException.class, () -> it.ints("a"));
        assertThrows(NoSuchElementException.class, () -> it.doubles("absent"));
        assertThrows(NoSuchElementException.class, () -> it.text("said"));
        assertEquals(Shape.of(n, 2), it.shape("b"));
        int[] every = it.ints("every");
        double[] pairs = it.doubles("b");
        for (int i = 0; i < n; i++) {
            assertEquals(i % 2 == 0 ? 100 + i : 0, every[i]);
            every[i] = 1000;
            assertEquals(0.0, pairs[2 * i] + pairs[2 * i + 1]);
            pairs[2 * i + 1] = 0.5;
        }
        it.set("b", pairs.clone()).set("said", "well done");
    }

    @Test
    void arraysTextsAndSections() {
        // The last goes in several chunks each way.
        for (int n : new int[] {1, 5, 200_000}) {
            double[] x = IntStream.range(0, n).mapToDouble(i -> i / 2.0).toArray();
            AtomicReference<CallbackArguments> kept = new AtomicReference<>();
            Callback visit = it -> {
                visited(it, n, x);
                kept.set(it);
            };
            Result result = client.call("visit", n, visit, x);
            assertEquals("well done", result.text("said"));
            double[] back = result.doubles("x");
            for (int i = 0; i < n; i++) {
                // Of `every` only each second element came back.
                assertEquals(i + 0.5 + (i % 2 == 0 ? 1000 : 100 + i), back[i]);
            }
            IllegalStateException late =
                    assertThrows(IllegalStateException.class, () -> kept.get().set("said", "more"));
            assertTrue(late.getMessage().contains("has ended"), late.getMessage());
        }
    }

    @Test
    void threadsOfARoutineTakeTurns() throws Exception {
        int[] seen = new int[2];
        AtomicInteger inside = new AtomicInteger();
        Callback tick = it -> {
            assertEquals(1, inside.incrementAndGet());
            int thread = (int) it.integer("thread");
            assertEquals(seen[thread]++, it.integer("i"), "in the order of its thread");
            inside.decrementAndGet();
            it.set("back", 1);
        };
        assertEquals(100, client.call("threads", 50, tick).integer("sum"));
        assertArrayEquals(new int[] {50, 50}, seen);
        assertEquals(100, client.callAsync("threads", 50, tickOnce(inside)).get(60, TimeUnit.SECONDS).integer("sum"));
    }

    private static Callback tickOnce(AtomicInteger inside) {
        return it -> {
            assertEquals(1, inside.incrementAndGet());
            inside.decrementAndGet();
            it.set("back", 1);
        };
    }

    @Test
    void functionsCallRoutines() throws Exception {
        Callback outer = it -> {
            works();
            double x = it.real("x");
            it.set("y", client.call("integrate", 3, SQUARE).real("sum") + 0 * x);
        };
        assertEquals(integral(3), client.call("integrate", 4, outer).real("sum"), 1e-12);
        assertEquals(integral(3), client.callAsync("integrate", 4, outer).get(60, TimeUnit.SECONDS).real("sum"), 1e-12);
    }

    @Test
    void manyShareAConnection() throws Exception {
        List<CompletableFuture<Result>> calls = IntStream.range(1, 30)
                .mapToObj(n -> client.callAsync("integrate", n, SQUARE)).toList();
        List<Throwable> wrong = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = IntStream.range(1, 6).mapToObj(n -> new Thread(() -> {
            try {
                for (int round = 0; round < 5; round++) {
                    assertEquals(integral(n), client.call("integrate", n, SQUARE).real("sum"), 1e-12);
                }
            } catch (Throwable thrown) {
                wrong.add(thrown);
            }
        })).toList();
        threads.forEach(Thread::start);
        for (int n = 1; n < 30; n++) {
            assertEquals(integral(n), calls.get(n - 1).get(60, TimeUnit.SECONDS).real("sum"), 1e-12);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(), wrong);
    }

    private static CallException.Callback fails(int n, String part, Callback function) throws Exception {
        CallException.Callback failed =
                assertThrows(CallException.Callback.class, () -> client.call("integrate", n, function));
        assertTrue(failed.getMessage().contains(part), failed.getMessage());
        assertEquals(14, failed.code());
        assertFalse(failed.hasNotRun());
        CallException.Callback later =
                failure(CallException.Callback.class, client.callAsync("integrate", n, function));
        assertTrue(later.getMessage().contains(part), later.getMessage());
        return failed;
    }

    @Test
    void whatFunctionsThrow() throws Exception {
        AtomicInteger count = new AtomicInteger();
        Exception thrown = new Exception("no more");
        CallException.Callback failed = fails(100, "`f` failed: no more", it -> {
            count.incrementAndGet();
            throw thrown;
        });
        assertSame(thrown, failed.getCause());
        assertEquals(2, count.get(), "once for each of two calls");
        Error error = new AssertionError();
        assertSame(error, fails(1, "java.lang.AssertionError", it -> {
            throw error;
        }).getCause());
        String control = "\u001b[2J".repeat(2000);
        fails(1, "\\u{1b}[2J", it -> {
            throw new Exception(control);
        });
        fails(1, "?", it -> {
            throw new Exception("half \ud800 a character");
        });
        works();
    }

    @Test
    void whatFunctionsGiveWrongly() throws Exception {
        fails(1, "it gave no value of `y`", it -> { });
        fails(1, "`x` is nothing that comes back", it -> it.set("x", 1.0));
        fails(1, "`y` is a scalar (y: double), String is none", it -> it.set("y", "1"));
        fails(1, "`y` is a scalar (y: double), nothing is none", it -> it.set("y", null));
        fails(1, "`z` is nothing that comes back", it -> it.set("z", 1));
        CallException.Callback narrow = assertThrows(CallException.Callback.class,
                () -> client.call("threads", 1, (Callback) it -> it.set("back", 1L << 31)));
        assertInstanceOf(IllegalArgumentException.class, narrow.getCause());
        assertTrue(narrow.getMessage().contains("which cannot hold 2147483648"), narrow.getMessage());
        visitFails("and there is room for 15", it -> it.set("said", "sixteen letters!"));
        visitFails("zero byte", it -> it.set("said", "a\0b"));
        visitFails("half a character", it -> it.set("said", "\udc00"));
        visitFails("`said` is a text, Integer is none", it -> it.set("said", 5));
        visitFails("`b` has 32 bytes ([2, 2]), 24 were given", it -> it.set("b", new double[3]));
        visitFails("`b` is an array of double, int[] is none", it -> it.set("b", new int[4]));
        visitFails("`b` is an array of double, nothing is none", it -> it.set("b", null));
        visitFails("does not take one real number and give one", SQUARE);
        works();
    }

    private static void visitFails(String part, Callback function) {
        CallException.Callback failed = assertThrows(CallException.Callback.class,
                () -> client.call("visit", 2, function, new double[2]));
        assertTrue(failed.getMessage().contains(part), failed.getMessage());
    }

    @Test
    void whatIsNoFunction() {
        for (Object none : new Object[] {5, "f", new double[1], null}) {
            CallException.Argument wrong =
                    assertThrows(CallException.Argument.class, () -> client.call("integrate", 4, none));
            assertTrue(wrong.getMessage().contains("`f` is a function: give a Callback"), wrong.getMessage());
        }
        CallException.Argument place = assertThrows(CallException.Argument.class,
                () -> client.prepare("integrate").add(1, SQUARE).into("f", new double[1]).call());
        assertTrue(place.getMessage().contains("gives no array and no file `f`"), place.getMessage());
    }

    private static void cannotGive(KumiClient by, int n, int none, String why) {
        Callback never = it -> {
            throw new AssertionError("it is called");
        };
        CallException.Callback failed =
                assertThrows(CallException.Callback.class, () -> by.call("give", n, none, never));
        assertTrue(failed.getMessage().contains(why), failed.getMessage());
        assertEquals(null, failed.getCause());
    }

    @Test
    void whatARoutineCannotGive() {
        AtomicInteger elements = new AtomicInteger(-1);
        Callback take = it -> elements.set(it.doubles("a").length);
        client.call("give", 16, 0, take);
        assertEquals(16, elements.get());
        client.call("give", 0, 1, take);
        assertEquals(0, elements.get(), "of an array without elements nothing is read");
        cannotGive(client, 3, 1, "`a` is a null pointer");
        cannotGive(client, Integer.MAX_VALUE, 0, "bytes of memory");
        cannotGive(client, -1, 0, "is -1");
        works();
        // A client that takes less says so.
        try (KumiClient small = KumiClient.connect(served.address, ClientOptions.usual().callbackBytes(64))) {
            cannotGive(small, 16, 0, "more than 64 bytes");
            assertEquals(4, small.call("plain", 2).integer("twice"));
        }
    }

    @Test
    void crashesAndTime() throws Exception {
        CallException.Crashed crash =
                assertThrows(CallException.Crashed.class, () -> client.call("crashes", (Callback) it -> { }));
        assertEquals(6, crash.detail());
        // The time in the function is the call's.
        CountDownLatch over = new CountDownLatch(1);
        CompletableFuture<Result> late = client.prepare("integrate").set("n", 1000).function("f", it -> {
            assertTrue(over.await(60, TimeUnit.SECONDS));
            it.set("y", 0);
        }).within(Duration.ofMillis(100)).callAsync();
        failure(CallException.TimedOut.class, late);
        over.countDown();
        works();
    }

    /** A function that says when it is called, and ends when it is told to. */
    private static final class BlockingCallback implements Callback {
        private final CountDownLatch called = new CountDownLatch(1);
        private final CountDownLatch go = new CountDownLatch(1);
        private final CountDownLatch ended = new CountDownLatch(1);

        @Override
        public void call(CallbackArguments arguments) throws Exception {
            called.countDown();
            try {
                assertTrue(go.await(60, TimeUnit.SECONDS));
                arguments.set("y", 0);
            } finally {
                ended.countDown();
            }
        }

        void isCalled() throws InterruptedException {
            assertTrue(called.await(60, TimeUnit.SECONDS));
        }

        void end() throws InterruptedException {
            go.countDown();
            assertTrue(ended.await(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void cancelledWhileAFunctionRuns() throws Exception {
        for (int round = 0; round < 6; round++) {
            BlockingCallback held = new BlockingCallback();
            CompletableFuture<Result> call = client.callAsync("integrate", 1000, held);
            held.isCalled();
            call.cancel(true);
            // The slot is free although the function has not ended.
            works();
            held.end();
        }
        assertTrue(client.isOpen());
        works();
    }

    @Test
    void closedAndKilledWhileAFunctionRuns() throws Exception {
        BlockingCallback closed = new BlockingCallback();
        KumiClient own = served.client();
        CompletableFuture<Result> call = own.callAsync("integrate", 1000, closed);
        closed.isCalled();
        own.close();
        failure(CallException.ConnectionLost.class, call);
        closed.end();
        try (ServerProcess other = ServerProcess.of("callbacks"); KumiClient lost = other.client()) {
            AtomicInteger count = new AtomicInteger();
            CallException.ConnectionLost gone = assertThrows(CallException.ConnectionLost.class,
                    () -> lost.call("integrate", 1000, (Callback) it -> {
                        count.incrementAndGet();
                        other.kill();
                        it.set("y", 0);
                    }));
            assertFalse(gone.hasNotRun());
            assertEquals(1, count.get());
        }
        works();
    }

    @Test
    void anInterruptInAFunction() {
        assertThrows(CallException.Interrupted.class, () -> client.call("integrate", 1000, (Callback) it -> {
            Thread.currentThread().interrupt();
            Thread.sleep(60_000);
        }));
        assertTrue(Thread.interrupted(), "it is marked as interrupted");
        works();
    }
}
