package kumi.call;

import static kumi.call.Products.A;
import static kumi.call.Products.AB;
import static kumi.call.Products.B;
import static kumi.call.Products.product;
import static kumi.call.Products.wrong;
import static kumi.call.WaitFor.eventually;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Results that stay at a real server, as arguments of later calls. */
@Timeout(120)
class HeldTest extends SharedServer {

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.start());
    }

    @Test
    void aResultIsAnArgument() throws Exception {
        try (HeldArray ab = product(client)) {
            assertEquals(Shape.of(2, 2), ab.shape());
            assertEquals(Element.F64, ab.element());
            assertEquals(Order.ROW, ab.order());
            assertFalse(ab.isLost());
            assertArrayEquals(AB, ab.doubles());
            ByteBuffer place = ByteBuffer.allocateDirect(4 * Double.BYTES).order(ByteOrder.LITTLE_ENDIAN);
            ab.fetchInto(place, Duration.ofMinutes(1));
            assertEquals(50, place.getDouble(3 * Double.BYTES));
            // A time that no clock counts is as good as none.
            double[] late = new double[4];
            ab.fetchInto(late, Duration.ofSeconds(Long.MAX_VALUE));
            assertArrayEquals(AB, late);
            double[] identity = {1, 0, 0, 1};
            assertArrayEquals(AB, client.call("dmmul", 2, ab, identity).doubles("C"));
            assertArrayEquals(AB, client.call("dmmul", 2, identity, ab).doubles("C"));
            Result both = client.prepare("dmmul").add(2, ab, ab).keep("C", Duration.ofMinutes(10)).callAsync().get(60, TimeUnit.SECONDS);
            assertEquals(List.of("C"), both.names());
            assertThrows(NoSuchElementException.class, () -> both.doubles("C"));
            assertArrayEquals(new double[] {19 * 19 + 22 * 43, 19 * 22 + 22 * 50, 43 * 19 + 50 * 43, 43 * 22 + 50 * 50},
                    both.held("C").doubles());
            assertThrows(NoSuchElementException.class, () -> both.held("A"));
        }
    }

    @Test
    void sizesFollowAndArraysAreReplaced() {
        HeldArray x = client.prepare("doubles").add((Object) new double[] {1, 2, 3}).keep("x").call().held("x");
        HeldArray same = client.prepare("doubles").add(x).keep("x").call().held("x");
        x.close();
        assertArrayEquals(new double[] {1, 2, 3}, client.call("doubles", same).doubles("x"));
        HeldArray none = client.prepare("doubles").add((Object) new double[0]).keep("x").call().held("x");
        assertEquals(0, none.doubles().length);
        assertEquals(0, client.call("doubles", none).doubles("x").length);
        HeldArray ints = client.prepare("ints").add((Object) new int[] {7}).keep("x").call().held("x");
        assertArrayEquals(new int[] {7}, (int[]) ints.fetch());
        assertThrows(CallException.Argument.class, ints::doubles);
    }

    @Test
    void whatDoesNotFit() {
        HeldArray ab = product(client);
        assertTrue(wrong(client.prepare("dmmul").add(3, ab, new double[9])).contains("shape"));
        assertTrue(wrong(client.prepare("longs").add(4, ab)).contains("elements of"));
        HeldArray turned = client.prepare("turned").add(2, 2, A).keep("x").call().held("x");
        assertEquals(Order.COLUMN, turned.order());
        assertTrue(wrong(client.prepare("dmmul").add(2, turned, A)).contains("order"));
        assertTrue(wrong(client.prepare("negate").add(2, new int[2]).keep("x")).contains("in pieces"));
        assertTrue(wrong(client.prepare("shout").add("a").keep("answer")).contains("gives no array"));
        assertTrue(wrong(client.prepare("dmmul").add(2, A, B).keep("A")).contains("gives no array"));
        assertThrows(IllegalArgumentException.class, () -> client.prepare("dmmul").keep("C").into("C", new double[4]));
        assertThrows(IllegalArgumentException.class, () -> client.prepare("dmmul").into("C", new double[4]).keep("C"));
        assertThrows(IllegalArgumentException.class, () -> client.prepare("dmmul").keep("C", Duration.ZERO));
        assertThrows(CallException.Argument.class, () -> ab.fetchInto(new double[3], null));
        assertThrows(CallException.Argument.class, () -> ab.fetchInto(new long[4], null));
        assertThrows(CallException.Argument.class, () -> ab.fetchInto("no array", null));
    }

    @Test
    void itEnds() throws Exception {
        HeldArray closed = product(client);
        closed.close();
        closed.close();
        assertTrue(closed.isLost());
        assertThrows(CallException.HeldLost.class, closed::fetch);
        assertThrows(CallException.HeldLost.class, () -> client.call("dmmul", 2, closed, A));
        HeldArray brief = client.prepare("dmmul").add(2, A, B).keep("C", Duration.ofMillis(1)).call().held("C");
        eventually("the end of its time", () -> {
            try {
                client.call("dmmul", 2, brief, A);
                return false;
            } catch (CallException.HeldLost lost) {
                return lost.hasNotRun() && lost.code() == 15;
            }
        });
        assertThrows(CallException.HeldLost.class, brief::fetch);
        HeldArray gone;
        try (KumiClient other = served.client()) {
            gone = other.prepare("dmmul").add(2, A, B).keep("C").call().held("C");
            assertTrue(wrong(client.prepare("dmmul").add(2, gone, A)).contains("another connection"));
        }
        assertTrue(gone.isLost());
        assertThrows(CallException.HeldLost.class, gone::fetch);
        gone.close();
    }

    /** A call that was begun keeps its arrays. */
    @Test
    void closedBehindACall() throws Exception {
        for (int turn = 0; turn < 20; turn++) {
            HeldArray ab = product(client);
            CompletableFuture<Result> call = client.callAsync("dmmul", 2, ab, new double[] {1, 0, 0, 1});
            ab.close();
            assertArrayEquals(AB, call.get(60, TimeUnit.SECONDS).doubles("C"));
        }
    }
}
