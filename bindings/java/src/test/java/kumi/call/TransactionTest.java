package kumi.call;

import static kumi.call.Transactions.chain;
import static kumi.call.Transactions.end;
import static kumi.call.Transactions.later;
import static kumi.call.Transactions.together;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Transactions on servers that the program names. */
@Timeout(180)
class TransactionTest {
    private static final int N = 1000;
    private static final long BYTES = 8L * N;

    @TempDir
    private Path folder;
    private final List<ServerProcess> servers = new ArrayList<>();
    private final List<KumiClient> clients = new ArrayList<>();

    private void serve(int count, String... options) throws Exception {
        for (int one = 0; one < count; one++) {
            servers.add(ServerProcess.start(options));
            clients.add(servers.get(servers.size() - 1).client());
        }
    }

    @AfterEach
    void stop() {
        clients.forEach(KumiClient::close);
        servers.forEach(ServerProcess::close);
    }

    private Transaction transaction() {
        return Transaction.of(clients.toArray(KumiClient[]::new));
    }

    private GateFile gate(String name) {
        return new GateFile(folder.resolve(name));
    }

    private static double[] filled(double value) {
        return Transactions.filled(N, value);
    }

    @Test
    void aChainBringsOnlyItsEnd() throws Exception {
        serve(1);
        double[] a = {1, 2, 3, 4};
        double[] b = {5, 6, 7, 8};
        try (Transaction t = clients.get(0).transaction()) {
            TransactionStep c = t.call("dmmul", 2, a, b);
            // The size follows from the array of the other call.
            TransactionStep d = t.call("dmmul", 2, c, b);
            TransactionStep e = t.prepare("dmmul").set("n", 2).set("A", d.array("C")).set("B", d).within(Duration.ofMinutes(1)).record();
            assertThrows(IllegalStateException.class, e::result);
            assertThrows(IllegalStateException.class, t::report);
            TransactionReport report = t.run();
            double[] expected = {19, 22, 43, 50};
            expected = clients.get(0).call("dmmul", 2, expected, b).doubles("C");
            expected = clients.get(0).call("dmmul", 2, expected, expected).doubles("C");
            assertArrayEquals(expected, e.result().doubles("C"));
            assertThrows(NoSuchElementException.class, () -> c.result().doubles("C"));
            assertThrows(NoSuchElementException.class, () -> c.result().held("C"));
            assertEquals(new TransactionReport.Moved(3 * 32, 32, 0, 3 * 32), report.moved());
            assertEquals("3 of 3 calls have run", report.toString());
            assertTrue(report.isComplete());
            TransactionReport.Step step = report.steps().get(e.number());
            assertEquals(List.of("dmmul", TransactionReport.Outcome.DONE, clients.get(0).connection.address, 1),
                    List.of(step.routine(), step.outcome(), step.server(), step.attempts()));
            assertTrue(report.steps().get(0).ended().compareTo(report.steps().get(1).begun()) <= 0, "the second read the first");
            assertTrue(step.ended().compareTo(report.took()) <= 0);
            assertNull(step.failure());
            assertNull(step.relayed());
            assertEquals(report, t.report());
        }
    }

    @Test
    void independentCallsRunAtTheSameTimeAndArraysGoFromServerToServer() throws Exception {
        serve(2, "--peer", "any");
        GateFile gate = gate("gate");
        try (Transaction t = transaction()) {
            TransactionStep x = t.call("flood", N, gate.name(), 1.0);
            TransactionStep y = t.call("flood", N, gate.name(), 2.0);
            TransactionStep z = t.call("add", N, x, y);
            TransactionStep w = t.call("add", N, x, z);
            TransactionReport report = together(t, gate);
            assertArrayEquals(filled(4), w.result().doubles("y"));
            assertEquals(0, w.result().integer("info"));
            String one = report.steps().get(0).server();
            String two = report.steps().get(1).server();
            assertTrue(!one.equals(two), "each at one of the servers");
            // Of x and y one was there; z and w are at the same server, and so x goes once or twice.
            TransactionReport.Moved moved = report.moved();
            assertEquals(0, moved.sent());
            assertEquals(BYTES, moved.received());
            assertEquals(4 * BYTES, moved.between() + moved.stayed());
            assertTrue(moved.between() >= BYTES, report.moved().toString());
            assertTrue(report.steps().stream().allMatch(step -> step.relayed() == null), "nothing went through the client");
        }
    }

    @Test
    void serversThatDoNotReachEachOtherAreHelpedByTheClient() throws Exception {
        serve(2, "--peer", "127.0.0.1:1");
        GateFile gate = gate("gate");
        try (Transaction t = transaction()) {
            TransactionStep x = t.call("flood", N, gate.name(), 1.0);
            TransactionStep y = t.call("flood", N, gate.name(), 2.0);
            TransactionStep z = t.call("add", N, x, y);
            TransactionReport report = together(t, gate);
            assertArrayEquals(filled(3), z.result().doubles("y"));
            TransactionReport.Step step = report.steps().get(2);
            assertEquals(2, step.attempts(), "one that did not get the array, and one that did");
            assertTrue(step.relayed() != null && step.relayed().contains("127.0.0.1:"), step.relayed());
            assertTrue(report.moved().sent() >= BYTES && report.moved().received() >= 2 * BYTES, report.moved().toString());
        }
    }

    /** Begins x (at the first server), y that reads it and waits (there too), and z that reads y; then the first server is killed. */
    private CompletableFuture<TransactionReport> withADeath(Transaction t, TransactionStep x, List<TransactionStep> steps) throws Exception {
        GateFile gate = gate("gate");
        chain(t, N, gate, x, steps);
        // The other server has something to do, so that y runs where x is.
        GateFile other = gate("other");
        steps.add(t.call("flood", N, other.name(), 7.0));
        CompletableFuture<TransactionReport> run = later(t);
        gate.untilBegun();
        other.untilBegun();
        servers.get(0).kill();
        other.open();
        gate.open();
        return run;
    }

    @Test
    void whatADeadServerHeldIsMadeAgain() throws Exception {
        serve(2, "--peer", "any");
        List<TransactionStep> steps = new ArrayList<>();
        try (Transaction t = transaction()) {
            TransactionReport report = end(withADeath(t, t.call("fill", N, 0, 1.0), steps));
            assertArrayEquals(filled(2), steps.get(2).result().doubles("y"));
            assertArrayEquals(filled(7), steps.get(3).result().doubles("y"));
            assertEquals(List.of(2, 2, 1, 1), report.steps().stream().map(TransactionReport.Step::attempts).toList());
            String left = clients.get(1).connection.address;
            assertTrue(report.steps().stream().allMatch(step -> left.equals(step.server())), report.steps().toString());
        }
    }

    /** A result that has come back is not made again, and not brought twice. */
    @Test
    void whatHasComeBackIsNotMadeAgain() throws Exception {
        serve(2, "--peer", "any");
        GateFile gate = gate("gate");
        GateFile other = gate("other");
        try (Transaction t = transaction()) {
            TransactionStep x = t.call("fill", N, 0, 1.0);
            TransactionStep two = t.call("both", N, x.array("y").wanted(), filled(9));
            TransactionStep waits = t.call("pass", N, gate.name(), two.array("x"));
            t.call("flood", N, other.name(), 7.0);
            CompletableFuture<TransactionReport> run = later(t);
            gate.untilBegun();
            other.untilBegun();
            servers.get(0).kill();
            other.open();
            gate.open();
            TransactionReport report = end(run);
            assertArrayEquals(filled(1), x.result().doubles("y"));
            assertArrayEquals(filled(9), two.result().doubles("y"));
            assertArrayEquals(filled(1), waits.result().doubles("y"));
            assertEquals(List.of(1, 2, 2, 1), report.steps().stream().map(TransactionReport.Step::attempts).toList());
            // The nines twice, and once what has come back; both attempts of the call that waits were to bring their result.
            assertEquals(new TransactionReport.Moved(3 * BYTES, 5 * BYTES, 0, 3 * BYTES), report.moved());
        }
    }

    /** Where nothing else decides, a call goes where its inputs are. */
    @Test
    void aChainStaysAtItsServer() throws Exception {
        serve(2, "--peer", "any");
        try (Transaction t = transaction()) {
            TransactionStep sum = t.call("fill", N, 0, 1.0);
            for (int number = 0; number < 4; number++) {
                sum = t.call("add", N, sum, sum);
            }
            TransactionReport report = t.run();
            assertArrayEquals(filled(16), sum.result().doubles("y"));
            assertEquals(new TransactionReport.Moved(0, BYTES, 0, 8 * BYTES), report.moved());
        }
    }

    @Test
    void whatMustNotRunTwiceIsReported() throws Exception {
        serve(2, "--peer", "any");
        GateFile first = gate("first");
        first.open();
        List<TransactionStep> steps = new ArrayList<>();
        try (Transaction t = transaction()) {
            CompletableFuture<TransactionReport> run = withADeath(t, t.call("once", N, first.name(), 1.0), steps);
            CallException.TransactionFailed failed = failure(CallException.TransactionFailed.class, run);
            String told = failed.getMessage();
            assertTrue(told.startsWith("1 of 4 calls have run\ncall 0 (once) failed: its result was lost with "), told);
            assertTrue(told.contains("it is not marked as one that may run twice"), told);
            assertTrue(told.contains("call 2 (add) did not run, because of 0 (once) -> 2 (add): its result was lost"), told);
            assertInstanceOf(CallException.HeldLost.class, failed.getCause());
            assertEquals(failed.report(), t.report());
            assertThrows(CallException.HeldLost.class, steps.get(0)::result);
            assertTrue(assertThrows(CallException.Skipped.class, steps.get(1)::result).hasNotRun());
            assertArrayEquals(filled(7), steps.get(3).result().doubles("y"));
            assertEquals(1, first.times());
        }
    }

    @Test
    void aCallThatRanOnADeadServerAndMustNotRunTwice() throws Exception {
        serve(1);
        GateFile gate = gate("gate");
        try (Transaction t = transaction()) {
            TransactionStep x = t.call("once", N, gate.name(), 1.0);
            TransactionStep y = t.call("both", N, x, filled(1));
            CompletableFuture<TransactionReport> run = later(t);
            gate.untilBegun();
            servers.get(0).kill();
            CallException.TransactionFailed failed = failure(CallException.TransactionFailed.class, run);
            assertInstanceOf(CallException.ConnectionLost.class, failed.getCause());
            assertThrows(CallException.ConnectionLost.class, x::result);
            assertThrows(CallException.Skipped.class, y::result);
            assertEquals(1, failed.report().steps().get(0).attempts());
            assertEquals(1, gate.times());
        }
    }

    /** A failed call takes those with it that read its results, and no others. */
    @Test
    void whatFailedAndWhatDidNotRunBecauseOfIt() throws Exception {
        serve(2, "--peer", "any");
        try (Transaction t = transaction()) {
            TransactionStep bad = t.call("add", N, filled(-1), filled(5));
            TransactionStep reads = t.call("add", N, filled(1), bad);
            TransactionStep further = t.call("both", N, reads, reads);
            TransactionStep crashes = t.call("crash");
            TransactionStep good = t.call("fill", N, 0, 3.0);
            CallException.TransactionFailed failed = assertThrows(CallException.TransactionFailed.class, t::run);
            assertTrue(failed.getMessage().contains("call 2 (both) did not run, because of 0 (add) -> 1 (add) -> 2 (both): `add` failed: info is 1"),
                    failed.getMessage());
            CallException.Status status = assertThrows(CallException.Status.class, bad::result);
            assertEquals(1, status.status());
            assertThrows(CallException.Skipped.class, reads::result);
            assertThrows(CallException.Skipped.class, further::result);
            assertThrows(CallException.Crashed.class, crashes::result);
            assertArrayEquals(filled(3), good.result().doubles("y"));
            assertEquals(0, failed.report().steps().get(2).attempts());
            assertNull(failed.report().steps().get(2).server());
        }
    }

    @Test
    void whatIsWantedComesBackToo() throws Exception {
        serve(1);
        try (Transaction t = clients.get(0).transaction()) {
            TransactionStep x = t.call("fill", N, 0, 1.0);
            TransactionStep two = t.call("both", N, x.array("y").wanted(), filled(9));
            TransactionStep sum = t.call("add", N, two.array("x"), x.array("y"));
            TransactionReport report = t.run();
            assertArrayEquals(filled(1), x.result().doubles("y"));
            assertArrayEquals(filled(9), two.result().doubles("y"));
            assertThrows(NoSuchElementException.class, () -> two.result().doubles("x"));
            assertArrayEquals(filled(2), sum.result().doubles("y"));
            assertEquals(new TransactionReport.Moved(BYTES, 3 * BYTES, 0, 3 * BYTES), report.moved());
            assertThrows(IllegalStateException.class, () -> x.array("y").wanted());
        }
    }

    /** Arrays in another order, and sections, go as in other calls. */
    @Test
    void ordersAndSections() throws Exception {
        serve(1);
        try (Transaction t = clients.get(0).transaction()) {
            double[][] rows = {{1, 2}, {3, 4}};
            TransactionStep turned = t.call("turned", 2, 2, rows);
            TransactionStep negated = t.call("negate", 4, new int[] {1, 2, 3, 4});
            assertTrue(wrong(t, "negate", 4, negated).contains("travels in pieces"));
            assertTrue(wrong(t, "dmmul", 2, turned, rows).contains("in the order COLUMN"), wrong(t, "dmmul", 2, turned, rows));
            t.run();
            assertArrayEquals(rows, turned.result().matrix("x"));
            assertArrayEquals(new int[] {-1, 2, -3, 4}, negated.result().ints("x"));
        }
    }

    /** Numbers and texts are those of the recording, and arrays those of the run. */
    @Test
    void whenArgumentsAreRead() throws Exception {
        serve(1);
        GateFile gate = gate("gate");
        gate.open();
        AtomicInteger count = new AtomicInteger(N);
        StringBuilder name = new StringBuilder(gate.name());
        double[] array = filled(1);
        try (Transaction t = transaction()) {
            TransactionCall call = t.prepare("flood").add(count, name, 1.0);
            TransactionStep made = call.record();
            TransactionStep read = t.call("add", count, array, array);
            count.set(1);
            name.setLength(0);
            call.set("n", 2).add("further");
            Arrays.fill(array, 2);
            t.run();
            assertArrayEquals(filled(1), made.result().doubles("y"));
            assertArrayEquals(filled(4), read.result().doubles("y"));
        }
    }

    private static String wrong(Transaction t, String routine, Object... arguments) {
        return assertThrows(CallException.Argument.class, () -> t.call(routine, arguments)).getMessage();
    }

    @Test
    void wrongUse() throws Exception {
        serve(2);
        KumiClient client = clients.get(0);
        Transaction other = client.transaction();
        TransactionStep elsewhere = other.call("fill", 2, 0, 1.0);
        try (Transaction t = transaction()) {
            TransactionStep x = t.call("fill", N, 0, 1.0);
            TransactionStep two = t.call("both", N, x, x);
            assertTrue(wrong(t, "add", 2, elsewhere, filled(1)).contains("`x` is an array of another transaction"));
            assertTrue(wrong(t, "add", 2, x, x).contains("has the shape"));
            assertTrue(wrong(t, "total", N, x, 2).contains("has elements of"));
            assertTrue(wrong(t, "both", N, two, x).contains("makes 2 arrays: name one"));
            assertTrue(wrong(t, "fill", x, 0, 1.0).contains("is a scalar"));
            assertTrue(assertThrows(CallException.Argument.class, () -> two.array("z")).getMessage().contains("makes no array `z`"));
            HeldArray there = client.hold(filled(1));
            assertTrue(wrong(t, "add", N, there, filled(1)).contains("no argument of a transaction"));
            assertTrue(wrong(client.transaction().priority(0), "dmmul", 2).contains("takes"));
            assertThrows(CallException.RoutineNotFound.class, () -> t.call("dmmull", 1));
            assertThrows(CallException.Argument.class, () -> t.priority(3));
            assertThrows(IllegalArgumentException.class, () -> t.within(Duration.ZERO));
            assertThrows(CallException.Argument.class, () -> client.call("add", N, x, filled(1)), "a result outside of its transaction");
            // None of these was recorded.
            assertEquals(2, t.run().steps().size());
            assertThrows(IllegalStateException.class, t::run);
            assertThrows(IllegalStateException.class, () -> t.call("noop"));
        }
        other.close();
        assertThrows(IllegalStateException.class, other::run);
        assertThrows(CallException.Argument.class, Transaction::of);
        try (Transaction none = client.transaction()) {
            assertEquals("0 of 0 calls have run", none.run().toString());
        }
    }

    @Test
    void functionsFilesAndMethodsAreRefused() throws Exception {
        servers.add(ServerProcess.of("callbacks"));
        servers.add(ServerProcess.of("objects"));
        for (ServerProcess one : servers) {
            clients.add(one.client());
        }
        try (Transaction t = transaction()) {
            for (String name : clients.get(0).names("")) {
                boolean isPlain = clients.get(0).routine(name).params().stream()
                        .noneMatch(param -> param.type() instanceof kumi.call.idl.Type.Callback || param.type() instanceof kumi.call.idl.Type.File);
                if (!isPlain) {
                    assertTrue(wrong(t, name).contains("is a file or a function"), name);
                }
            }
            String method = clients.get(1).names("").stream().filter(name -> !clients.get(1).routine(name).className().isEmpty())
                    .findFirst().orElseThrow();
            assertTrue(wrong(t, method).contains("not of objects"));
        }
    }

    @Test
    void cancelledLateAndInterrupted() throws Exception {
        serve(1);
        GateFile gate = gate("gate");
        Transaction t = clients.get(0).transaction();
        TransactionStep x = t.call("flood", N, gate.name(), 1.0);
        TransactionStep y = t.call("add", N, x, filled(1));
        CompletableFuture<TransactionReport> run = later(t);
        gate.untilBegun();
        t.cancel();
        failure(CallException.Cancelled.class, run);
        assertThrows(CallException.Cancelled.class, x::result);
        assertThrows(CallException.Cancelled.class, y::result);
        assertEquals(List.of(TransactionReport.Outcome.FAILED, TransactionReport.Outcome.CANCELLED),
                t.report().steps().stream().map(TransactionReport.Step::outcome).toList());

        Transaction late = clients.get(0).transaction().within(Duration.ofMillis(200));
        late.call("flood", N, gate("never").name(), 1.0);
        assertThrows(CallException.TimedOut.class, late::run);

        Transaction shut = clients.get(0).transaction();
        shut.call("fill", N, 0, 1.0);
        shut.cancel();
        assertThrows(CallException.Cancelled.class, shut::run);
        assertEquals(0, shut.report().steps().get(0).attempts(), "nothing has begun");

        GateFile third = gate("third");
        Transaction interrupted = clients.get(0).transaction();
        interrupted.call("flood", N, third.name(), 1.0);
        CompletableFuture<Boolean> flag = new CompletableFuture<>();
        Thread runs = new Thread(() -> {
            try {
                interrupted.run();
            } catch (CallException.Interrupted expected) {
                flag.complete(Thread.currentThread().isInterrupted());
            } catch (RuntimeException other) {
                flag.completeExceptionally(other);
            }
        });
        runs.start();
        third.untilBegun();
        runs.interrupt();
        assertTrue(flag.get(60, TimeUnit.SECONDS));
        // The slots are free again, and calls have limits of their own.
        Transaction last = clients.get(0).transaction();
        TransactionStep brief = last.prepare("flood").add(N, gate("never").name(), 1.0).within(Duration.ofMillis(100)).record();
        TransactionStep fine = last.call("fill", N, 0, 1.0);
        assertThrows(CallException.TransactionFailed.class, last::run);
        assertThrows(CallException.TimedOut.class, brief::result);
        assertArrayEquals(filled(1), fine.result().doubles("y"));
    }

    /** A server that does not give what a call asks for is left for the next. */
    @Test
    void threadsOfCalls() throws Exception {
        for (String slots : new String[] {"1", "3"}) {
            servers.add(ServerProcess.of("resources", "--slots", slots, "--threads", "1"));
            clients.add(servers.get(servers.size() - 1).client());
        }
        try (Transaction t = transaction()) {
            TransactionStep wide = t.prepare("threads").resources(Resources.of(3, 0)).record();
            TransactionStep plain = t.call("threads");
            TransactionStep many = t.prepare("threads").resources(Resources.of(4, 0)).record();
            assertThrows(CallException.TransactionFailed.class, t::run);
            assertEquals(3, wide.result().integer("omp"));
            assertEquals(1, plain.result().integer("omp"));
            assertThrows(CallException.NoResources.class, many::result);
            assertEquals(clients.get(1).connection.address, t.report().steps().get(0).server());
        }
    }

    /** More calls than a server gets at a time, and servers that offer other routines. */
    @Test
    void manyCalls() throws Exception {
        serve(1, "--slots", "2");
        servers.add(ServerProcess.of("context"));
        clients.add(servers.get(1).client());
        try (Transaction t = transaction()) {
            List<TransactionStep> sums = new ArrayList<>();
            for (int number = 0; number < 60; number++) {
                sums.add(t.call("add", N, t.call("fill", N, 0, number), filled(1)));
            }
            TransactionReport report = t.run();
            for (int number = 0; number < 60; number++) {
                assertArrayEquals(filled(number + 1), sums.get(number).result().doubles("y"));
            }
            assertEquals(new TransactionReport.Moved(60 * BYTES, 60 * BYTES, 0, 60 * BYTES), report.moved());
            String all = clients.get(0).connection.address;
            assertTrue(report.steps().stream().allMatch(step -> step.server().equals(all)));
        }
    }
}
