package kumi.call;

import static kumi.call.Products.A;
import static kumi.call.Products.AB;
import static kumi.call.Products.B;
import static kumi.call.Products.product;
import static kumi.call.Products.wrong;
import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import kumi.call.idl.Element;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Results that stay at real servers that a real metaserver chooses, and calls that then run there. */
@Timeout(180)
class HeldMetaTest extends MetaFixture {
    private static final double[] ABA = {85, 126, 193, 286};
    private static final Pattern WAITS = Pattern.compile("\"waiting\":1\\b");

    @TempDir
    private Path folder;

    /** The metaserver knows its servers again when it is begun anew. */
    @Override
    String[] options() {
        return new String[] {"--policy", "round-robin", "--state", folder.resolve("meta.db").toString()};
    }

    /** Two products at two servers. */
    private HeldArray[] apart() throws Exception {
        HeldArray[] both = new HeldArray[2];
        eventually("calls in turn", () -> {
            both[0] = product(client);
            both[1] = product(client);
            return !both[0].address().equals(both[1].address());
        });
        return both;
    }

    private HeldArray vector() {
        return client.prepare("doubles").add((Object) A).keep("x").call().held("x");
    }

    /** The error of a call that is given this array as A of dmmul, which is gone with this server. */
    private CallException.HeldLost lost(HeldArray array) {
        CallException.HeldLost lost = assertThrows(CallException.HeldLost.class, () -> client.call("dmmul", 2, array, A));
        assertTrue(lost.getMessage().contains("`C` of `dmmul` at "), lost.getMessage());
        assertTrue(lost.getMessage().contains("(" + array.address() + ")"), lost.getMessage());
        return lost;
    }

    private ServerProcess serverOf(HeldArray array) {
        return servers.stream().filter(one -> one.address.equals(array.address())).findAny().orElseThrow();
    }

    @Test
    void callsRunWhereTheirArraysAre() throws Exception {
        HeldArray[] apart = apart();
        HeldArray one = apart[0];
        HeldArray other = apart[1];
        assertFalse(one.server().isEmpty());
        assertEquals(Shape.of(2, 2), one.shape());
        assertEquals(Element.F64, one.element());
        assertArrayEquals(AB, one.doubles());
        for (int turn = 0; turn < 4; turn++) {
            // In turn, each second call would leave its result at the other server.
            HeldArray chained = client.prepare("dmmul").add(2, one, A).keep("C").call().held("C");
            assertEquals(one.address(), chained.address());
            assertArrayEquals(ABA, chained.doubles());
            client.call("dmmul", 2, one, chained);
            chained.close();
        }
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        for (int turn = 0; turn < 20; turn++) {
            calls.add(client.prepare("dmmul").add(2, other, A).keep("C").callAsync());
        }
        for (CompletableFuture<Result> call : calls) {
            HeldArray chained = call.get(60, TimeUnit.SECONDS).held("C");
            assertEquals(other.address(), chained.address());
            assertArrayEquals(ABA, chained.doubles());
        }
        // The array that a call is given may become its result. Sizes follow from it.
        HeldArray x = client.prepare("doubles").add((Object) new double[] {1, 2, 3}).keep("x").call().held("x");
        HeldArray same = client.prepare("doubles").add(x).keep("x").call().held("x");
        assertEquals(x.address(), same.address());
        x.close();
        assertArrayEquals(new double[] {1, 2, 3}, client.call("doubles", same).doubles("x"));
        HeldArray none = client.prepare("doubles").add((Object) new double[0]).keep("x").call().held("x");
        assertEquals(0, client.call("doubles", none).doubles("x").length);
        String two = wrong(client.prepare("dmmul").add(2, one, other));
        assertTrue(two.contains("a call has arrays of one server; fetch one of them"), two);
        assertTrue(two.contains(one.address()) && two.contains(other.address()), two);
        assertTrue(failure(CallException.Argument.class, client.callAsync("dmmul", 2, one, other)).hasNotRun());
        assertArrayEquals(new double[] {19 * 19 + 22 * 43, 19 * 22 + 22 * 50, 43 * 19 + 50 * 43, 43 * 22 + 50 * 50},
                client.call("dmmul", 2, one, other.doubles()).doubles("C"));
    }

    @Test
    void wrongUse() throws Exception {
        HeldArray ab = product(client);
        String sent = assertThrows(CallException.Argument.class, () -> client.hold(A)).getMessage();
        assertTrue(sent.contains("a metaserver chooses servers for calls only"), sent);
        assertTrue(wrong(client.prepare("dmmul").add(3, ab, new double[9])).contains("shape"));
        assertTrue(wrong(client.prepare("longs").add(4, ab)).contains("elements of"));
        assertTrue(wrong(client.prepare("negate").add(2, new int[2]).keep("x")).contains("in pieces"));
        // Arrays of a server and of calls through the metaserver, or of two of its clients, do not meet.
        try (KumiClient direct = servers.get(0).client(); KumiClient stranger = meta.client(); HeldArray there = direct.hold(A)) {
            assertNull(there.address());
            assertEquals(direct.server(), there.server());
            assertTrue(wrong(direct.prepare("doubles").add(4, ab)).contains("another connection"));
            assertTrue(wrong(client.prepare("doubles").add(4, there)).contains("another connection"));
            assertTrue(wrong(stranger.prepare("dmmul").add(2, ab, A)).contains("another connection"));
        }
        try (ServerProcess objects = ServerProcess.of("objects", "--meta", meta.address)) {
            listed(meta, objects);
            try (RemoteObject object = client.object("log")) {
                String text = wrong(object.prepare("add").add(4, ab));
                assertTrue(text.contains("another connection"), text);
            }
        }
        assertArrayEquals(AB, ab.doubles());
        ab.close();
        ab.close();
        assertTrue(ab.isLost());
        assertTrue(lost(ab).getMessage().contains("it was closed"));
        assertThrows(CallException.HeldLost.class, ab::fetch);
        // The results of a routine that says that it failed are in place.
        CallException.Status failed = assertThrows(CallException.Status.class,
                () -> client.prepare("addcol").add(1, 100, new double[100], new double[] {7}).keep("y").call());
        assertArrayEquals(new double[] {7}, failed.results().held("y").doubles());
    }

    /** Four calls take all slots of the server, so that another one waits, which keeps its array. */
    @Test
    void closedWhileACallWaits() throws Exception {
        HeldArray x = vector();
        HeldArray waited = client.prepare("doubles").add(x).keep("x").call().held("x");
        GateFile gate = new GateFile(folder.resolve("gate"));
        List<CompletableFuture<Result>> full = new ArrayList<>();
        for (int index = 0; index < 4; index++) {
            full.add(client.callAsync("watch", gate.name(), 4, x));
        }
        gate.untilBegun();
        eventually("four calls", () -> gate.times() == 4);
        CompletableFuture<Result> waits = client.callAsync("doubles", waited);
        eventually("a call that waits", () -> WAITS.matcher(meta.status().replace(" ", "")).find());
        waited.close();
        assertThrows(CallException.HeldLost.class, () -> client.call("doubles", waited));
        assertFalse(waits.isDone());
        gate.open();
        assertArrayEquals(A, waits.get(60, TimeUnit.SECONDS).doubles("x"));
        for (CompletableFuture<Result> call : full) {
            call.get(60, TimeUnit.SECONDS);
        }
    }

    /** Also of a routine that may run twice, a call whose array is gone runs nowhere else. */
    @Test
    void aServerThatIsKilled() throws Exception {
        HeldArray[] apart = apart();
        HeldArray x = apart[0];
        HeldArray other = apart[1];
        GateFile gate = new GateFile(folder.resolve("gate"));
        HeldArray line = client.prepare("dmmul").add(2, x, A).keep("C").call().held("C");
        HeldArray watched = vector();
        while (!watched.address().equals(x.address())) {
            watched = vector();
        }
        CompletableFuture<Result> runs = client.callAsync("watch", gate.name(), 4, watched);
        gate.untilBegun();
        serverOf(x).kill();
        CallException.HeldLost ended = failure(CallException.HeldLost.class, runs);
        assertFalse(ended.hasNotRun(), ended.getMessage());
        assertTrue(ended.getMessage().startsWith("`watch`: `x` is `x` of `doubles` at "), ended.getMessage());
        eventually("the end of the connection", x::isLost);
        for (int turn = 0; turn < 2; turn++) {
            assertTrue(lost(x).hasNotRun());
            assertTrue(lost(line).hasNotRun());
            CallException.HeldLost gone = assertThrows(CallException.HeldLost.class, x::fetch);
            assertTrue(gone.getMessage().contains(x.address()), gone.getMessage());
        }
        assertEquals(1, gate.times(), "it has run once");
        // The other one is there, and calls without arrays are, too.
        assertArrayEquals(ABA, client.call("dmmul", 2, other, A).doubles("C"));
        assertArrayEquals(AB, client.call("dmmul", 2, A, B).doubles("C"));
    }

    @Test
    void referencesOutliveTheMetaserver() throws Exception {
        HeldArray[] apart = apart();
        meta.kill();
        meta = ServerProcess.meta("--listen", meta.address, "--policy", "round-robin", "--state", folder.resolve("meta.db").toString());
        for (ServerProcess server : servers) {
            listed(meta, server);
        }
        for (HeldArray held : List.of(apart[0], apart[1], apart[0], apart[1])) {
            HeldArray chained = client.prepare("dmmul").add(2, held, A).keep("C").call().held("C");
            assertEquals(held.address(), chained.address());
            assertArrayEquals(ABA, chained.doubles());
        }
    }

    /** The server has room for one array of 800 kB. */
    @Test
    void arraysGoWithTheirReferences() throws Exception {
        double[] large = new double[100_000];
        GateFile gate = new GateFile(folder.resolve("gate"));
        try (ServerProcess small = ServerProcess.meta();
                ServerProcess only = ServerProcess.start("--meta", small.address, "--held-memory", "1"); KumiClient to = small.client()) {
            listed(small, only);
            HeldArray first = to.prepare("doubles").add((Object) large).keep("x").call().held("x");
            CallException full = assertThrows(CallException.class, () -> to.prepare("doubles").add((Object) large).keep("x").call());
            assertTrue(full.hasNotRun() && full.getMessage().contains("room"), full.getMessage());
            first.close();
            to.prepare("doubles").add((Object) large).keep("x").call().held("x").close();
            // So goes what a call was to leave that was cancelled while it ran.
            CompletableFuture<Result> runs = to.prepare("late").add(gate.name(), large.length, large).keep("x").callAsync();
            gate.untilBegun();
            assertTrue(runs.cancel(false));
            eventually("room", () -> {
                try {
                    to.prepare("doubles").add((Object) large).keep("x").call().held("x").close();
                    return true;
                } catch (CallException still) {
                    assertTrue(still.getMessage().contains("room"), still.getMessage());
                    return false;
                }
            });
        }
    }
}
