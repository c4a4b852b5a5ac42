package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Objects of a class at a real server, which has as many as four at a time. */
@Timeout(120)
class ObjectsTest extends SharedServer {
    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.of("objects", "--objects", "4"));
    }

    private static CompletableFuture<Result> write(RemoteObject object, String path, String text) {
        return object.callAsync("write", path, text);
    }

    private static String read(RemoteObject object) {
        return object.call("read").text("text");
    }

    private static long pid(RemoteObject object) {
        return object.call("pid").integer("pid");
    }

    /** An object, when the server has room for it: those of tests before go when their ends have come to the server. */
    private static RemoteObject made() throws Exception {
        List<RemoteObject> made = new ArrayList<>();
        eventually("room for an object", () -> {
            try {
                return made.add(client.object("log"));
            } catch (CallException.Busy full) {
                return false;
            }
        });
        return made.get(0);
    }

    private static void done(CompletableFuture<Result> call) throws Exception {
        call.get(60, TimeUnit.SECONDS);
    }

    @Test
    void eachHasAStateOfItsOwn() throws Exception {
        try (RemoteObject one = made(); RemoteObject two = made()) {
            assertNotEquals(pid(one), pid(two));
            done(write(one, "", "a"));
            done(write(two, "", "b"));
            done(write(one, "", "c"));
            assertEquals("ac", read(one));
            assertEquals("b", read(two));
            double[] x = new double[100_000];
            Arrays.fill(x, 1.5);
            for (int round = 1; round < 4; round++) {
                assertEquals(150_000.0 * round, one.call("add", x.length, x).real("total"));
            }
            client.call("plain");
            assertFalse(one.isLost());
            assertEquals("log", one.className());
            assertEquals(client.server(), one.server());
            assertEquals("log.read() -> (text: string)", one.method("read").toString());
            assertEquals("log", one.method("read").className());
        }
    }

    @Test
    void itGoesWhenItIsClosed() throws Exception {
        RemoteObject object = made();
        long process = pid(object);
        object.close();
        object.close();
        assertTrue(object.isLost());
        CallException.ObjectLost lost = assertThrows(CallException.ObjectLost.class, () -> object.call("read"));
        assertTrue(lost.hasNotRun());
        assertEquals("the object of `log` is no more: it was closed", lost.getMessage());
        eventually("the end of the process", () -> ProcessHandle.of(process).isEmpty());
        failure(CallException.ObjectLost.class, object.callAsync("read"));
        try (KumiClient other = served.client()) {
            RemoteObject of = other.object("log", Duration.ofMinutes(1), 0);
            long its = pid(of);
            other.close();
            assertTrue(of.isLost());
            assertThrows(CallException.class, () -> of.call("read"));
            eventually("the end of the process", () -> ProcessHandle.of(its).isEmpty());
        }
    }

    @Test
    void whatItRunsGoesWithIt(@TempDir Path folder) throws Exception {
        GateFile shut = new GateFile(folder.resolve("shut"));
        RemoteObject object = made();
        long process = pid(object);
        CompletableFuture<Result> runs = write(object, shut.name(), "a");
        CompletableFuture<Result> waits = write(object, "", "b");
        shut.untilBegun();
        object.close();
        assertFalse(failure(CallException.class, runs).hasNotRun());
        assertTrue(failure(CallException.ObjectLost.class, waits).hasNotRun());
        eventually("the end of the process", () -> ProcessHandle.of(process).isEmpty());
    }

    @Test
    void thereIsRoomForSoMany() throws Exception {
        List<RemoteObject> all = new ArrayList<>();
        try (ServerProcess few = ServerProcess.of("objects", "--objects", "2"); KumiClient own = few.client()) {
            all.add(own.object("log"));
            all.add(own.object("log"));
            CallException.Busy full = assertThrows(CallException.Busy.class, () -> own.object("log"));
            assertTrue(full.hasNotRun() && full.getMessage().contains("objects already"), full.getMessage());
            all.remove(0).close();
            eventually("room for another", () -> {
                try {
                    return all.add(own.object("log"));
                } catch (CallException.Busy still) {
                    return false;
                }
            });
            assertEquals("", read(all.get(1)));
        }
    }

    @Test
    void callsRunOneAfterTheOther(@TempDir Path folder) throws Exception {
        GateFile gate = new GateFile(folder.resolve("gate"));
        try (RemoteObject object = made()) {
            List<CompletableFuture<Result>> calls = new ArrayList<>(List.of(write(object, gate.name(), "0")));
            for (int call = 1; call < 10; call++) {
                calls.add(write(object, "", "" + call));
            }
            gate.untilBegun();
            client.call("plain");
            assertTrue(calls.stream().noneMatch(CompletableFuture::isDone));
            gate.open();
            for (CompletableFuture<Result> call : calls) {
                done(call);
            }
            assertEquals("0123456789", read(object));
        }
    }

    @Test
    void aCrashIsTheEndOfOne(@TempDir Path folder) throws Exception {
        GateFile gate = new GateFile(folder.resolve("gate"));
        try (RemoteObject object = made(); RemoteObject other = made()) {
            CompletableFuture<Result> before = write(object, gate.name(), "x");
            CompletableFuture<Result> crash = object.callAsync("crash");
            CompletableFuture<Result> behind = write(object, "", "y");
            gate.open();
            done(before);
            assertFalse(failure(CallException.Crashed.class, crash).hasNotRun());
            CallException.ObjectLost lost = failure(CallException.ObjectLost.class, behind);
            assertTrue(lost.hasNotRun() && lost.getMessage().contains("signal 6"), lost.getMessage());
            assertEquals(32, lost.code());
            eventually("that it is told", object::isLost);
            lost = assertThrows(CallException.ObjectLost.class, () -> read(object));
            assertTrue(lost.getMessage().contains("signal 6"), lost.getMessage());
            done(write(other, "", "z"));
            assertEquals("z", read(other));
        }
    }

    @Test
    void aCallThatIsStoppedWhileItRunsEndsIt(@TempDir Path folder) throws Exception {
        GateFile gate = new GateFile(folder.resolve("gate"));
        GateFile shut = new GateFile(folder.resolve("shut"));
        try (RemoteObject object = made()) {
            CompletableFuture<Result> first = write(object, gate.name(), "a");
            CompletableFuture<Result> second = write(object, "", "b");
            gate.untilBegun();
            assertTrue(second.cancel(false));
            // The server has heard of it then.
            client.ping(Duration.ofMinutes(1));
            failure(CallException.TimedOut.class, object.prepare("read").within(Duration.ofMillis(1)).callAsync());
            gate.open();
            done(first);
            assertEquals("a", read(object), "what only waited has not ended it");
            CompletableFuture<Result> third = write(object, shut.name(), "c");
            shut.untilBegun();
            assertTrue(third.cancel(false));
            eventually("its end", object::isLost);
            assertThrows(CallException.ObjectLost.class, () -> object.call("read"));
        }
    }

    @Test
    void methodsHaveFilesAndFunctions(@TempDir Path folder) throws Exception {
        try (RemoteObject object = made()) {
            for (double sum : new double[] {1, 3}) {
                Callback more = it -> it.set("more", it.real("so_far") + 1);
                assertEquals(sum, object.prepare("ask").function("f", more).call().real("total"));
            }
            byte[] content = new byte[100_000];
            Arrays.fill(content, (byte) 7);
            Path to = folder.resolve("to");
            assertEquals(content.length, object.prepare("file").set("from", content).into("to", to).call().integer("bytes"));
            assertArrayEquals(content, Files.readAllBytes(to));
            assertTrue(assertThrows(CallException.Callback.class, () -> object.prepare("ask").function("f", it -> {
                throw new IllegalStateException("no more");
            }).call()).getCause() instanceof IllegalStateException);
        }
    }

    @Test
    void whatCannotBeIsSaid() throws Exception {
        CallException none = assertThrows(CallException.RoutineNotFound.class, () -> client.object("lug"));
        assertTrue(none.getMessage().contains("did you mean log?"), none.getMessage());
        none = assertThrows(CallException.RoutineNotFound.class, () -> client.object("plain"));
        assertTrue(none.getMessage().contains("it is a routine"), none.getMessage());
        for (String name : new String[] {"", "a\nb", "x".repeat(600)}) {
            assertThrows(CallException.Argument.class, () -> client.object(name));
        }
        assertThrows(CallException.NotRunnable.class, () -> client.object("broken"));
        assertThrows(CallException.Argument.class, () -> client.object("log", null, 1));
        assertThrows(IllegalArgumentException.class, () -> client.object("log", Duration.ZERO, 0));
        try (RemoteObject object = made()) {
            none = assertThrows(CallException.RoutineNotFound.class, () -> object.call("reed"));
            assertTrue(none.getMessage().contains("did you mean log.read or "), none.getMessage());
            assertThrows(CallException.Argument.class, () -> object.call("add", 2, new double[1]));
            for (String name : new String[] {"log.read", "log"}) {
                CallException alone = assertThrows(CallException.Argument.class, () -> client.call(name));
                assertTrue(alone.getMessage().contains("make an object of `log`"), alone.getMessage());
                assertEquals(0, alone.code(), "nothing was sent");
            }
            assertEquals("", read(object));
        }
    }
}
