package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Deadlines go with calls: to functions of the program, to programs that routines run, and to the calls that these make. */
@Timeout(180)
class DeadlinesTest extends SharedServer {
    private static final Duration HOUR = Duration.ofHours(1);
    private static final Duration SHORT = Duration.ofMillis(200);
    /** {@code g(f())}. */
    private static final String ROUTINE = "{\"version\":1,\"name\":\"g\",\"params\":["
            + "{\"name\":\"f\",\"mode\":\"in\",\"type\":{\"callback\":[]}}],"
            + "\"target\":{\"language\":\"c\",\"symbol\":\"g\",\"arguments\":[]}}";

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.of("context"));
    }

    /** What a routine says is left; negative: there is no limit. */
    private static long left(Result result) {
        return result.integer("ns");
    }

    private static void withinHour(long nanoseconds, long most) {
        assertTrue(nanoseconds <= most && nanoseconds > HOUR.toNanos() / 2, nanoseconds + " of " + most);
    }

    /** A function that notes what is left of its call, of one that it makes, and of one with a limit of its own. */
    private static Callback noting(KumiClient further, List<Long> seen) {
        return it -> {
            seen.add(CallContext.remaining().map(Duration::toNanos).orElse(-1L));
            seen.add(left(further.call("left")));
            seen.add(left(further.prepare("left").within(Duration.ofSeconds(60)).call()));
            seen.add(left(further.callAsync("left").get(60, TimeUnit.SECONDS)));
        };
    }

    private static void noted(List<Long> seen) {
        assertEquals(4, seen.size(), seen.toString());
        withinHour(seen.get(0), HOUR.toNanos());
        withinHour(seen.get(1), seen.get(0));
        assertTrue(seen.get(2) >= 0 && seen.get(2) <= Duration.ofSeconds(60).toNanos(), seen.toString());
        // Calls of a function are within its time; that of the first may have been longer on its way than a later one.
        withinHour(seen.get(3), seen.get(0));
        seen.clear();
    }

    @Test
    void aFunctionAndItsCallsHaveTheTimeOfTheCall() throws Exception {
        List<Long> seen = Collections.synchronizedList(new ArrayList<>());
        try (KumiClient further = served.client()) {
            Callback noting = noting(further, seen);
            Result result = client.prepare("calls").function("f", noting).within(HOUR).call();
            withinHour(left(result), HOUR.toNanos());
            noted(seen);
            client.prepare("calls").function("f", noting).within(HOUR).callAsync().get(60, TimeUnit.SECONDS);
            noted(seen);
            // Neither this thread nor one of a pool keeps the deadline.
            assertEquals(Optional.empty(), CallContext.remaining());
            assertEquals(-1, left(further.call("left")));
            client.prepare("calls").function("f", it -> seen.add(left(further.call("left")))).callAsync().get(60, TimeUnit.SECONDS);
            assertEquals(List.of(-1L), seen);
        }
    }

    @Test
    void aFunctionWithinAFunctionHasNoMoreTime() {
        List<Long> seen = new ArrayList<>();
        Callback inner = it -> seen.add(CallContext.remaining().orElseThrow().toNanos());
        Callback outer = it -> {
            client.prepare("calls").function("f", inner).within(HOUR.multipliedBy(3)).call();
            client.prepare("calls").function("f", inner).call();
            seen.add(CallContext.remaining().orElseThrow().toNanos());
        };
        client.prepare("calls").function("f", outer).within(HOUR).call();
        assertEquals(3, seen.size());
        seen.forEach(left -> withinHour(left, HOUR.toNanos()));
    }

    /** A function that outlasts its call, and notes what requests say that it makes then. */
    private static Callback outlasting(KumiClient further, HeldArray held, List<CallException> told) {
        return it -> {
            while (!CallContext.remaining().equals(Optional.of(Duration.ZERO))) {
                Thread.sleep(1);
            }
            told.add(assertThrows(CallException.class, () -> further.call("left")));
            told.add(failure(CallException.class, further.callAsync("left")));
            told.add(assertThrows(CallException.class, () -> further.object("none")));
            told.add(assertThrows(CallException.class, () -> further.names("")));
            told.add(assertThrows(CallException.class, held::fetch));
        };
    }

    /** The failure of a call with so little time that its function, which notes something, outlasts it. It has more where the machine is slow. */
    private static CallException.TimedOut failed(List<?> told, Function<Duration, Executable> calls) {
        Duration time = SHORT;
        while (true) {
            CallException.TimedOut failed = assertThrows(CallException.TimedOut.class, calls.apply(time));
            if (!told.isEmpty()) {
                return failed;
            }
            time = time.multipliedBy(2);
        }
    }

    private static void outlasted(CallException.TimedOut failed, List<CallException> told) {
        assertTrue(failed.getMessage().contains("it waited for `f`, a function of its caller"), failed.getMessage());
        assertEquals(5, told.size());
        for (CallException one : told) {
            assertEquals(CallException.TimedOut.class, one.getClass());
            assertTrue(one.getMessage().contains("was not begun"), one.getMessage());
        }
        told.clear();
    }

    @Test
    void aFunctionThatOutlastsTheDeadlineEndsTheCall() throws Exception {
        List<CallException> told = Collections.synchronizedList(new ArrayList<>());
        try (ServerProcess other = ServerProcess.start(); KumiClient further = other.client();
                HeldArray held = further.prepare("doubles").add((Object) new double[2]).keep("x").call().held("x")) {
            Callback late = outlasting(further, held, told);
            outlasted(failed(told, time -> () -> client.prepare("calls").function("f", late).within(time).call()), told);
            outlasted(failed(told, time -> () -> inBackground(late, time)), told);
            assertEquals(-1, left(client.call("left")), "the connection is as good as before");
            further.call("noop");
        }
    }

    /** Waits for an asynchronous call to fail, and for the end of its function if that was called. */
    private static void inBackground(Callback function, Duration time) throws Exception {
        CountDownLatch called = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        CallException.TimedOut failed = failure(CallException.TimedOut.class, client.prepare("calls").function("f", it -> {
            called.countDown();
            function.call(it);
            ended.countDown();
        }).within(time).callAsync());
        if (called.getCount() == 0) {
            await(ended);
        }
        throw failed;
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException ended) {
            throw new IllegalStateException(ended);
        }
    }

    @Test
    void deadlinesGoThroughAMetaserver() throws Exception {
        List<Long> seen = Collections.synchronizedList(new ArrayList<>());
        try (ServerProcess meta = ServerProcess.meta(); ServerProcess member = ServerProcess.of("context", "--meta", meta.address);
                KumiClient far = meta.client()) {
            listed(meta, member);
            withinHour(left(far.prepare("left").within(HOUR).call()), HOUR.toNanos());
            assertEquals(-1, left(far.call("left")));
            far.prepare("calls").function("f", noting(far, seen)).within(HOUR).call();
            noted(seen);
            client.prepare("calls").function("f", noting(far, seen)).within(HOUR).call();
            noted(seen);
            List<String> told = new ArrayList<>();
            Callback outlasts = it -> {
                while (!CallContext.remaining().orElseThrow().isZero()) {
                    Thread.sleep(1);
                }
                told.add(assertThrows(CallException.TimedOut.class, () -> far.call("left")).getMessage());
            };
            CallException late = failed(told, time -> () -> far.prepare("calls").function("f", outlasts).within(time).call());
            assertTrue(late.getMessage().contains("longer than"), late.getMessage());
            assertTrue(told.size() == 1 && told.get(0).contains("`left` was not begun"), told.toString());
        }
    }

    /** A program of Java that a routine runs. */
    @Test
    void aProgramOfARoutineHasTheTimeOfItsCall() {
        Call call = client.prepare("prints").add(ContextProgram.command(served.address)).within(HOUR);
        long[] left = Arrays.stream(call.call().text("text").split(" ")).limit(2).mapToLong(Long::parseLong).toArray();
        withinHour(left[0], HOUR.toNanos());
        withinHour(left[1], left[0]);
        assertEquals("-1 -1 none ", client.call("prints", ContextProgram.command(served.address)).text("text"));
    }

    @Test
    void theVariable() {
        assertNull(InheritedContext.deadline(null));
        assertNull(InheritedContext.deadline(""));
        assertEquals(1, InheritedContext.deadline("1"));
        assertNull(InheritedContext.deadline("18446744073709551615"), "in 584 years");
        for (String wrong : List.of("soon", "-1", "+1", "1.5", "18446744073709551616", "9".repeat(99))) {
            CallException.Argument failed = assertThrows(CallException.Argument.class, () -> InheritedContext.deadline(wrong));
            assertTrue(failed.getMessage().contains("KUMI_CALL_DEADLINE is a number"), failed.getMessage());
        }
        InheritedContext over = new InheritedContext(System.nanoTime(), null);
        assertTrue(over.isOver() && over.remaining().isZero());
        InheritedContext hour = InheritedContext.of(HOUR, null);
        assertEquals(SHORT, hour.limit(SHORT, "f"));
        withinHour(hour.limit(null, "f").toNanos(), HOUR.toNanos());
        withinHour(hour.limit(Duration.ofSeconds(Long.MAX_VALUE), "f").toNanos(), HOUR.toNanos());
        assertNull(InheritedContext.of(null, null).limit(null, "f"));
    }

    /** A server that calls the function of each call, and then does this. */
    private static FakeServer calling(HostileMetaTest.Script then) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            while (true) {
                FakeServer.Frame frame = peer.next();
                if (frame.kind() == 3) {
                    peer.frame(12, frame.stream(), 0, new byte[4]);
                    then.run(peer, frame.stream());
                }
            }
        });
    }

    private static void timeIsOver(FakeServer.Peer peer, int stream) throws IOException {
        byte[] text = "it waited for `f`".getBytes(StandardCharsets.UTF_8);
        ByteBuffer body = ByteBuffer.allocate(10 + text.length).order(ByteOrder.LITTLE_ENDIAN);
        peer.frame(11, stream, 0, body.putShort((short) 7).putLong(0).put(text).array());
    }

    /** The outcome of a function that is late is not sent, also if it has failed: the server says why the call has ended. */
    @Test
    void aLateFunctionGivesNothingBack() throws Exception {
        BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
        CountDownLatch late = new CountDownLatch(1);
        try (FakeServer fake = calling((peer, stream) -> {
            FakeServer.Frame next = peer.next();
            kinds.add(next.kind());
            peer.frame(7, 0, 0, next.body());
            timeIsOver(peer, stream);
        }); KumiClient asks = fake.client()) {
            Thread caller = Thread.currentThread();
            Thread pings = new Thread(() -> {
                await(late);
                try {
                    eventually("the wait for the end", () -> caller.getState() == Thread.State.WAITING);
                    asks.ping(Duration.ofMinutes(1));
                } catch (Exception failed) {
                    throw new IllegalStateException(failed);
                }
            });
            pings.start();
            assertThrows(CallException.TimedOut.class, () -> asks.prepare("g").function("f", it -> {
                while (!CallContext.remaining().orElseThrow().isZero()) {
                    Thread.onSpinWait();
                }
                late.countDown();
                throw new IllegalStateException("late");
            }).within(Duration.ofMillis(50)).call());
            assertNotEquals(13, kinds.take(), "the next frame is the ping");
            pings.join();
        }
    }

    private static void undescribed(KumiClient asks, Supplier<CallException> fails) {
        List<String> told = new ArrayList<>();
        Callback function = it -> {
            String text = fails.get().getMessage();
            // Otherwise it was called too late to ask.
            if (!text.contains("was not begun")) {
                told.add(text);
            }
        };
        failed(told, time -> () -> asks.prepare("g").function("f", function).within(time).call());
        assertTrue(told.size() == 1 && told.get(0).contains("the description of `f`"), told.toString());
    }

    /** A server that never describes its routine does not hold up a function longer than its call may take. */
    @Test
    void serversThatDoNotAnswerHoldUpNoFunction() throws Exception {
        try (FakeServer silent = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.drain();
        }); FakeServer fake = calling((peer, stream) -> { }); KumiClient further = silent.client(); KumiClient asks = fake.client()) {
            undescribed(asks, () -> assertThrows(CallException.TimedOut.class, () -> further.call("f")));
            undescribed(asks, () -> failure(CallException.TimedOut.class, further.callAsync("f")));
        }
    }
}
