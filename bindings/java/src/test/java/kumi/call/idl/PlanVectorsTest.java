package kumi.call.idl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import kumi.call.TestVectors;
import org.junit.jupiter.api.Test;

/** Plans against those of the Rust code (bindings/testvectors/plans.json). */
class PlanVectorsTest {
    private static final long EMPTY = 0xcbf29ce484222325L;

    private final Map<?, ?> vectors;

    PlanVectorsTest() throws IOException {
        Path root = Path.of(System.getProperty("kumi.root", "../.."));
        vectors = (Map<?, ?>) Json.read(Files.readAllBytes(root.resolve("bindings/testvectors/plans.json")));
    }

    private List<Map<?, ?>> section(String name) {
        return TestVectors.section(vectors, name);
    }

    @Test
    void whatIsADescriptionIsTheSame() {
        for (Map<?, ?> item : section("descriptions")) {
            String json = (String) item.get("json");
            boolean good = true;
            try {
                Routine.fromJson(json.getBytes(StandardCharsets.UTF_8));
            } catch (DescriptionException wrong) {
                good = false;
            }
            assertEquals(item.get("good"), good, json);
        }
    }

    @Test
    void plansAreTheSame() throws Exception {
        List<Map<?, ?>> descriptions = section("descriptions");
        int plans = 0;
        int errors = 0;
        for (Map<?, ?> item : section("cases")) {
            String json = (String) descriptions.get(((BigInteger) item.get("of")).intValue()).get("json");
            Routine routine = Routine.fromJson(json.getBytes(StandardCharsets.UTF_8));
            String shown = json + "\n" + item;
            Plan plan;
            try {
                plan = planned(routine, item);
            } catch (PlanException wrong) {
                Map<?, ?> expected = (Map<?, ?>) item.get("error");
                assertTrue(expected != null, () -> wrong + "\n" + shown);
                assertEquals(((String) expected.get("kind")).toLowerCase(Locale.ROOT),
                        wrong.kind().name().toLowerCase(Locale.ROOT).replace("_", ""), shown);
                assertEquals(expected.get("message"), wrong.getMessage(), shown);
                errors++;
                continue;
            }
            if (item.get("plan") == null) {
                fail("there is a plan: " + shown);
            }
            compare((Map<?, ?>) item.get("plan"), plan, shown);
            plans++;
        }
        assertTrue(plans > 100 && errors > 40, plans + " plans, " + errors + " errors");
    }

    private static Plan planned(Routine routine, Map<?, ?> item) throws PlanException {
        int count = routine.params().size();
        Scalar[] scalars = new Scalar[count];
        String[] texts = new String[count];
        long[][] shapes = new long[count][];
        for (int index = 0; index < count; index++) {
            scalars[index] = scalar(((List<?>) item.get("scalars")).get(index));
            if (item.get("texts") instanceof List<?> all && all.get(index) instanceof String text) {
                texts[index] = text;
            }
            if (item.get("shapes") instanceof List<?> all && all.get(index) instanceof List<?> shape) {
                shapes[index] = longs(shape);
            }
        }
        routine.deduce(scalars, shapes);
        return routine.plan(scalars, texts, ((BigInteger) item.get("limit")).longValueExact());
    }

    private static long[] longs(List<?> numbers) {
        return numbers.stream().mapToLong(number -> ((BigInteger) number).longValueExact()).toArray();
    }

    private static Scalar scalar(Object json) {
        if (!(json instanceof List<?> parts)) {
            return null;
        }
        return switch ((String) parts.get(0)) {
            case "i" -> new Scalar.Signed(((BigInteger) parts.get(1)).longValueExact());
            case "u" -> new Scalar.Unsigned(((BigInteger) parts.get(1)).longValue());
            case "f" -> new Scalar.Real(TestVectors.real(parts.get(1)));
            default -> new Scalar.Complex(TestVectors.real(parts.get(1)), TestVectors.real(parts.get(2)));
        };
    }

    /** Logarithms and powers may differ in the last place. */
    private static void near(double expected, double actual, String shown) {
        if (!Double.isNaN(expected) || !Double.isNaN(actual)) {
            assertEquals(expected, actual, 1e-14 * Math.abs(expected), shown);
        }
    }

    private static void compare(Map<?, ?> expected, Plan plan, String shown) {
        long[] totals = longs(List.of(expected.get("memory"), expected.get("sent"), expected.get("returned")));
        assertArrayEquals(totals, new long[] {plan.memory(), plan.sent(), plan.returned()}, shown);
        Object operations = expected.get("operations");
        near(operations instanceof String ? TestVectors.real(operations) : Double.NaN, plan.operations(), shown);
        List<?> arguments = (List<?>) expected.get("arguments");
        assertEquals(arguments.size(), plan.arguments().size(), shown);
        for (int index = 0; index < arguments.size(); index++) {
            compare((Map<?, ?>) arguments.get(index), plan.arguments().get(index), index + " " + shown);
        }
    }

    private static void compare(Map<?, ?> expected, Argument argument, String shown) {
        long[] sizes = {argument.elements(), argument.bytes(), argument.offset(), argument.align(), argument.sent(),
            argument.returned()};
        assertArrayEquals(longs((List<?>) expected.get("sizes")), sizes, shown);
        Scalar scalar = scalar(expected.get("scalar"));
        if (scalar instanceof Scalar.Real real) {
            near(real.value(), argument.scalar().asReal(), shown);
        } else {
            assertEquals(scalar, argument.scalar(), shown);
        }
        if (!(expected.get("axes") instanceof List<?> axes)) {
            assertTrue(argument.axes().isEmpty(), shown);
            return;
        }
        for (int index = 0; index < axes.size(); index++) {
            Axis axis = argument.axes().get(index);
            assertArrayEquals(longs((List<?>) axes.get(index)),
                    new long[] {axis.size(), axis.start(), axis.count(), axis.step()}, shown);
        }
        runs((List<?>) expected.get("runs"), argument, shown);
        if (expected.get("copied") instanceof List<?> copied) {
            assertEquals(copied, List.of(copied(argument, Order.ROW), copied(argument, Order.COLUMN)), shown);
        }
    }

    private static void runs(List<?> expected, Argument argument, String shown) {
        Section section = argument.section();
        long count = section.bytes() == 0 ? 0 : section.bytes() / section.run();
        assertEquals(((BigInteger) expected.get(0)).longValueExact(), count, shown);
        if (expected.get(1) instanceof List<?> first) {
            assertArrayEquals(longs(first), new long[] {section.first(), section.run()}, shown);
        }
        long[] hash = {EMPTY};
        ByteBuffer bytes = ByteBuffer.allocate(16).order(java.nio.ByteOrder.LITTLE_ENDIAN);
        section.eachRun(1000, (offset, length) ->
                hash[0] = digest(hash[0], bytes.clear().putLong(offset).putLong(length).array()));
        assertEquals(expected.get(2), String.format("%016x", hash[0]), shown);
    }

    private static String copied(Argument argument, Order order) {
        byte[] array = new byte[(int) argument.bytes()];
        for (int index = 0; index < array.length; index++) {
            array[index] = (byte) (index * 7 % 251);
        }
        byte[] packed = new byte[(int) argument.section().bytes()];
        int size = argument.element().size();
        new Copies(argument, order).each((to, from) -> System.arraycopy(array, from * size, packed, to * size, size));
        return String.format("%016x", digest(EMPTY, packed));
    }

    private static long digest(long start, byte[] bytes) {
        long hash = start;
        for (byte one : bytes) {
            hash = (hash ^ one & 0xff) * 0x100000001b3L;
        }
        return hash;
    }
}
