package kumi.call;

import static kumi.call.Products.A;
import static kumi.call.Products.AB;
import static kumi.call.Products.B;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.time.Duration;
import java.util.stream.IntStream;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Arrays of the program that are sent to a real server once, as arguments of later calls. */
@Timeout(120)
class HoldTest extends SharedServer {

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.start());
    }

    private static String wrong(Object array, Element element) {
        return assertThrows(CallException.Argument.class, () -> client.hold(array, element, null)).getMessage();
    }

    @Test
    void anArrayIsAnArgumentOfManyCalls() {
        try (HeldArray a = client.hold(Shape.of(2, 2).rows(A)); HeldArray b = client.hold(new double[][] {{5, 6}, {7, 8}})) {
            assertEquals(Shape.of(2, 2), a.shape());
            assertEquals(Element.F64, a.element());
            assertEquals(Order.ROW, a.order());
            for (int call = 0; call < 3; call++) {
                assertArrayEquals(AB, client.call("dmmul", 2, a, b).doubles("C"));
                assertArrayEquals(AB, client.call("dmmul", 2, a, B).doubles("C"));
            }
            // The size follows from the array, and a result that stays goes on with one that was sent.
            try (HeldArray ab = client.prepare("dmmul").add(a, b).keep("C").call().held("C")) {
                assertArrayEquals(AB, client.call("dmmul", ab, new double[][] {{1, 0}, {0, 1}}).doubles("C"));
            }
            assertArrayEquals(A, a.doubles());
            a.close();
            assertTrue(a.isLost());
            assertThrows(CallException.HeldLost.class, () -> client.call("dmmul", 2, a, b));
        }
    }

    /** What is sent is a copy: the program may change its array. */
    @Test
    void longArraysAndChanges() {
        double[] x = IntStream.range(0, 700_001).mapToDouble(i -> i / 4.0).toArray();
        double[] same = x.clone();
        try (HeldArray held = client.hold(x, null, Duration.ofMinutes(1))) {
            x[0] = 7;
            assertArrayEquals(same, held.doubles());
            assertArrayEquals(same, client.call("doubles", held).doubles("x"));
        }
        ByteBuffer direct = ByteBuffer.allocateDirect(3 << 20).order(ByteOrder.LITTLE_ENDIAN);
        direct.putDouble((3 << 20) - 8, 1.5);
        try (HeldArray held = client.hold(direct, Element.F64, Duration.ofSeconds(Long.MAX_VALUE))) {
            assertEquals(1.5, held.doubles()[(3 << 17) - 1]);
        }
    }

    private static Object through(String routine, HeldArray array) {
        try (HeldArray held = array) {
            return client.prepare(routine).add(held).keep("x").call().held("x").fetch();
        }
    }

    @Test
    void allTypesAndOrders() {
        assertArrayEquals(new byte[] {1, -2}, (byte[]) through("bytes", client.hold(new byte[] {1, -2})));
        assertArrayEquals(new short[] {1, -2}, (short[]) through("shorts", client.hold(new short[] {1, -2}, Element.U16, null)));
        assertArrayEquals(new int[] {1, -2}, (int[]) through("ints", client.hold(new int[] {1, -2}, Element.U32, null)));
        assertArrayEquals(new long[] {1, -2}, (long[]) through("longs", client.hold(new long[] {1, -2}, Element.U64, null)));
        assertArrayEquals(new float[] {1, -2}, (float[]) through("floats", client.hold(new float[] {1, -2})));
        assertArrayEquals(new double[] {1, -2}, (double[]) through("doubles", client.hold(DoubleBuffer.wrap(new double[] {1, -2}))));
        HeldArray complex = client.hold(Shape.of(1).rows(new double[] {1, -2}), Element.C128, null);
        assertEquals(Shape.of(1), complex.shape());
        assertArrayEquals(new double[] {1, -2}, (double[]) through("complex", complex));
        HeldArray columns = client.hold(Shape.of(2, 2).columns(A));
        assertEquals(Order.COLUMN, columns.order());
        assertArrayEquals(A, client.call("turned", columns).doubles("x"));
        assertTrue(assertThrows(CallException.Argument.class, () -> client.call("dmmul", 2, columns, B)).getMessage().contains("order"));
        assertTrue(assertThrows(CallException.Argument.class, () -> client.call("doubles", 4, columns)).getMessage().contains("shape"));
        HeldArray signed = client.hold(new int[] {1});
        assertTrue(assertThrows(CallException.Argument.class, () -> client.call("ints", signed)).getMessage().contains("elements of"));
        HeldArray none = client.hold(new double[0]);
        assertEquals(0, none.doubles().length);
        assertEquals(0, client.call("doubles", none).doubles("x").length);
    }

    @Test
    void whatCannotBeHeld() {
        assertTrue(wrong(null, null).contains("nothing is none"));
        assertTrue(wrong("text", null).contains("String is none"));
        assertTrue(wrong(5, null).contains("Integer is none"));
        assertTrue(wrong(ByteBuffer.allocate(8), null).contains("say which"));
        assertTrue(wrong(ByteBuffer.allocate(9), Element.F64).contains("9 bytes"));
        assertTrue(wrong(new double[2], Element.I64).contains("elements of double"));
        assertTrue(wrong(new double[3], Element.C128).contains("none of"));
        assertTrue(wrong(Shape.of(2, 2).rows(new double[3]), null).contains("3 elements"));
        assertTrue(wrong(Shape.of(1L << 62, 1L << 62).rows(new double[3]), null).contains("3 elements"));
        assertTrue(wrong(Shape.of(1L << 62, 1L << 62, 0).rows(new double[3]), null).contains("3 elements"));
        assertTrue(wrong(new double[][] {{1}, {1, 2}}, null).contains("no matrix"));
        assertThrows(IllegalArgumentException.class, () -> client.hold(A, null, Duration.ZERO));
    }

    @Test
    void withoutRoom() throws Exception {
        try (ServerProcess narrow = ServerProcess.start("--call-memory", "64", "--held-memory", "64"); KumiClient to = narrow.client()) {
            CallException large = assertThrows(CallException.TooLarge.class, () -> to.hold(new double[9 << 20]));
            assertTrue(large.hasNotRun(), large.getMessage());
            HeldArray most = to.hold(new double[7 << 20]);
            CallException full = assertThrows(CallException.Server.class, () -> to.hold(new double[7 << 20]));
            assertTrue(full.code() == 18 && full.hasNotRun(), full.getMessage());
            most.close();
            // The server takes requests in their order.
            to.hold(new double[7 << 20]).close();
            assertArrayEquals(AB, to.call("dmmul", 2, A, B).doubles("C"));
        }
    }

    @Test
    void notThroughAMetaserverAndNotElsewhere() throws Exception {
        try (ServerProcess meta = ServerProcess.meta(); ServerProcess member = ServerProcess.start("--meta", meta.address);
                KumiClient far = meta.client(); KumiClient other = served.client(); HeldArray held = client.hold(A)) {
            listed(meta, member);
            String text = assertThrows(CallException.Argument.class, () -> far.hold(A)).getMessage();
            assertTrue(text.contains("a metaserver chooses"), text);
            text = assertThrows(CallException.Argument.class, () -> other.call("doubles", held)).getMessage();
            assertTrue(text.contains("another connection"), text);
            assertFalse(held.isLost());
        }
    }
}
