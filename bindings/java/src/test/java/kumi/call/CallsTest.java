package kumi.call;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Random;
import kumi.call.idl.Order;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Arguments there and results back, by a real server. */
class CallsTest extends SharedServer {
    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.start());
    }

    private static double[] random(int count) {
        return new Random(count).doubles(count).toArray();
    }

    private static double[] product(int n, double[] a, double[] b) {
        double[] c = new double[n * n];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                for (int k = 0; k < n; k++) {
                    c[i * n + j] += a[i * n + k] * b[k * n + j];
                }
            }
        }
        return c;
    }

    @Test
    void aProduct() {
        int n = 50;
        double[] a = random(n * n);
        double[] b = random(n * n + 1);
        b = Arrays.copyOf(b, n * n);
        Result result = client.call("dmmul", n, a, b);
        assertArrayEquals(product(n, a, b), result.doubles("C"), 1e-12);
        assertEquals(Shape.of(n, n), result.shape("C"));
        assertEquals(List.of("C"), result.names());
        assertTrue(result.ran().toNanos() > 0);
        double[] in = new double[n * n];
        Result placed = client.prepare("dmmul").set("A", a).set("B", b).set("n", n).into("C", in).call();
        assertSame(in, placed.doubles("C"));
        assertArrayEquals(result.doubles("C"), in);
    }

    /** A time limit that no clock counts is as good as none. */
    @Test
    void longestTimes() {
        Duration ever = Duration.ofSeconds(Long.MAX_VALUE);
        double[] identity = {1, 0, 0, 1};
        try (KumiClient patient = KumiClient.connect(served.address, ClientOptions.usual().connectTime(ever))) {
            patient.ping(ever);
            assertArrayEquals(identity, patient.prepare("dmmul").add(2, identity, identity).within(ever).call().doubles("C"));
        }
    }

    @Test
    void sizesFollow() {
        int n = 3;
        double[] a = random(9);
        double[] b = random(9);
        double[] expected = product(n, a, b);
        Shape square = Shape.of(n, n);
        assertArrayEquals(expected, client.call("dmmul", square.rows(a), square.rows(b)).doubles("C"));
        double[][] rows = {Arrays.copyOf(a, 3), Arrays.copyOfRange(a, 3, 6), Arrays.copyOfRange(a, 6, 9)};
        Result result = client.call("dmmul", rows, square.rows(b));
        assertArrayEquals(expected, result.doubles("C"));
        assertArrayEquals(Arrays.copyOfRange(expected, 3, 6), result.matrix("C")[1]);
        assertEquals(12, client.call("total", (Object) new float[] {1, 2, 3}).real("sum"));
        assertEquals(3, client.prepare("total").add((Object) new float[] {1, 2}).set("scale", 1).call().real("sum"));
    }

    @Test
    void otherOrders() {
        int n = 40;
        double[] a = random(n * n);
        double[] b = Arrays.copyOf(random(n * n + 1), n * n);
        double[] turned = new double[n * n];
        for (int i = 0; i < n * n; i++) {
            turned[i % n * n + i / n] = a[i];
        }
        double[] c = new double[n * n];
        Shape square = Shape.of(n, n);
        Result result = client.prepare("dmmul").add(square.columns(turned), square.rows(b))
                .into("C", square.columns(c)).call();
        double[] expected = product(n, a, b);
        for (int i = 0; i < n * n; i++) {
            assertEquals(expected[i], c[i % n * n + i / n], 1e-12);
        }
        assertEquals(Order.COLUMN, result.order("C"));
        assertArrayEquals(Arrays.copyOf(expected, n), result.matrix("C")[0], 1e-12);
        double[] x = random(6);
        Result same = client.call("turned", Shape.of(2, 3).rows(x));
        assertArrayEquals(x, same.doubles("x"));
        assertEquals(Order.ROW, same.order("x"));
        assertArrayEquals(x, client.call("turned", 2, 3, x).doubles("x"));
    }

    @Test
    void everyType() {
        assertArrayEquals(new byte[] {1, -2, 3}, client.call("bytes", (Object) new byte[] {1, -2, 3}).bytes("x"));
        assertArrayEquals(new short[] {1, -2}, client.call("shorts", (Object) new short[] {1, -2}).shorts("x"));
        assertArrayEquals(new int[] {1, -2}, client.call("ints", (Object) new int[] {1, -2}).ints("x"));
        assertArrayEquals(new long[] {1, -2}, client.call("longs", (Object) new long[] {1, -2}).longs("x"));
        assertArrayEquals(new float[] {1, -2}, client.call("floats", (Object) new float[] {1, -2}).floats("x"));
        double[] z = {1, -2, 3, 4};
        assertArrayEquals(z, client.call("complex", (Object) z).doubles("x"));
        assertEquals(Shape.of(2), client.call("complex", (Object) z).shape("x"));
        assertEquals(0, client.call("bytes", (Object) new byte[0]).bytes("x").length);
        assertEquals("hello!", client.call("shout", "hello").text("answer"));
        assertEquals(0, client.call("noop").names().size());
    }

    @Test
    void sections() {
        int[] x = {1, 2, 3, 4, 5};
        assertArrayEquals(new int[] {-1, 2, -3, 4, -5}, client.call("negate", (Object) x).ints("x"));
        assertArrayEquals(new int[] {1, 2, 3, 4, 5}, x);
        assertSame(x, client.prepare("negate").inout("x", x).call().ints("x"));
        assertArrayEquals(new int[] {-1, 2, -3, 4, -5}, x);
        float[] part = new float[2 * 4 * 3];
        for (int index = 0; index < part.length; index++) {
            part[index] = index;
        }
        assertArrayEquals(part, client.call("part", 2, 4, part).floats("x"));
        float[] back = new float[part.length];
        client.prepare("part").add(2, 4, part).into("x", back).call();
        for (int index = 0; index < part.length; index++) {
            assertEquals(index % 8 < 4 ? index : 0, back[index]);
        }
    }

    @Test
    void buffers() {
        int n = 300_000;
        double[] x = random(n);
        DoubleBuffer doubles = ByteBuffer.allocateDirect(n * 8).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer();
        doubles.put(0, x);
        ByteBuffer bytes = ByteBuffer.allocateDirect(n * 8).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asDoubleBuffer().put(x);
        for (Object given : new Object[] {x, doubles, bytes, DoubleBuffer.wrap(x).asReadOnlyBuffer()}) {
            double[] back = client.call("doubles", given).doubles("x");
            assertNotSame(x, back);
            assertArrayEquals(x, back);
            ByteBuffer place = ByteBuffer.allocateDirect(n * 8).order(ByteOrder.LITTLE_ENDIAN);
            client.prepare("doubles").set("x", given).into("x", place).call();
            assertEquals(DoubleBuffer.wrap(x), place.asDoubleBuffer());
        }
        DoubleBuffer middle = DoubleBuffer.wrap(x).position(10).limit(20);
        assertArrayEquals(Arrays.copyOfRange(x, 10, 20), client.call("doubles", middle).doubles("x"));
    }

    private static void refused(String part, String routine, Object... arguments) {
        CallException.Argument wrong =
                assertThrows(CallException.Argument.class, () -> client.call(routine, arguments));
        assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
        assertTrue(wrong.hasNotRun());
    }

    @Test
    void wrongArguments() {
        double[] four = new double[4];
        refused("takes 1 arguments; 3 were given", "shout", "a", "b", "c");
        refused("takes 3 arguments, or 2", "dmmul", four);
        refused("`A` has 4 elements, the routine wants 9 ([3, 3])", "dmmul", 3, four, four);
        refused("`A` has elements of float, the routine wants double", "dmmul", 2, new float[4], four);
        refused("`A` has the shape [4, 1], the routine wants [2, 2]", "dmmul", 2, Shape.of(4, 1).rows(four), four);
        refused("`n` is of type int, which cannot hold 1.5", "dmmul", 1.5, four, four);
        refused("which cannot hold 4294967296", "dmmul", 1L << 32, four, four);
        refused("is an integer of more than 64 bits", "dmmul", BigInteger.TWO.pow(70), four, four);
        refused("`n` is a scalar (int), String is none", "dmmul", "n", four, four);
        refused("`A` is an array of double, String is none", "dmmul", 2, "a", four);
        refused("`text` is a text, Integer is none", "shout", 1);
        refused("zero byte", "shout", "a\0b");
        refused("half a character", "shout", "\ud800");
        refused("is -1", "dmmul", -1, four, four);
        CallException.Argument wrong = assertThrows(
                CallException.Argument.class, () -> client.prepare("noop").set("A", 1).call());
        assertTrue(wrong.getMessage().contains("takes no `A`"), wrong.getMessage());
        wrong = assertThrows(CallException.Argument.class, () -> client.prepare("dmmul").add(2, four, four)
                .into("C", DoubleBuffer.wrap(new double[4]).asReadOnlyBuffer()).call());
        assertTrue(wrong.getMessage().contains("read-only"), wrong.getMessage());
        wrong = assertThrows(CallException.Argument.class,
                () -> client.prepare("dmmul").add(2, four, four).into("A", new double[4]).call());
        assertTrue(wrong.getMessage().contains("gives no array and no file `A`"), wrong.getMessage());
    }

    @Test
    void tooLarge() {
        CallException.TooLarge wrong = assertThrows(
                CallException.TooLarge.class, () -> client.call("dmmul", 46_000, new double[1], new double[1]));
        assertTrue(wrong.getMessage().contains("`A`") && wrong.hasNotRun(), wrong.getMessage());
    }

    @Test
    void whatThereIs() {
        assertTrue(client.names("oub").contains("doubles"));
        assertEquals(23, client.names("").size());
        assertEquals("dmmul(n: int, A: double[][], B: double[][]) -> (C: double[][])",
                client.routine("dmmul").toString());
        CallException.RoutineNotFound none =
                assertThrows(CallException.RoutineNotFound.class, () -> client.call("dmul", 1));
        assertTrue(none.getMessage().contains("dmmul"), none.getMessage());
        NoSuchElementException wrong =
                assertThrows(NoSuchElementException.class, () -> client.call("noop").doubles("C"));
        assertTrue(wrong.getMessage().contains("noop() -> ()"), wrong.getMessage());
    }

    @Test
    void aStatus() {
        double[] y = {1, 2};
        assertArrayEquals(new double[] {4, 6}, client.call("addcol", 2, 1, new double[] {3, 4}, y).doubles("y"));
        CallException.Status failed = assertThrows(CallException.Status.class,
                () -> client.call("addcol", 1, 100, new double[100], new double[1]));
        assertEquals(100, failed.status());
        assertEquals(1, failed.results().doubles("y").length);
        assertTrue(failed.getMessage().contains("info is 100"), failed.getMessage());
    }
}
