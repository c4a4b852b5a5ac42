package kumi.call.routing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import kumi.call.TestVectors;
import org.junit.jupiter.api.Test;

/** Calls step by step against those of the Rust code (bindings/testvectors/routing.json). Places and errors are numbers. */
class RoutingVectorsTest {
    private final List<?> cases;

    RoutingVectorsTest() throws IOException {
        cases = (List<?>) TestVectors.read("routing.json").get("cases");
    }

    private static String words(Enum<?> constant) {
        return constant.name().toLowerCase(Locale.ROOT).replace('_', ' ');
    }

    /** The event of this name, behind which a place or an error may stand. */
    private static RoutingEvent<Integer, Integer> event(String said) {
        Matcher parts = Pattern.compile("([a-z ]*?)(?: (\\d+))?").matcher(said);
        assertTrue(parts.matches(), said);
        RoutingEvent.Kind kind = RoutingEvent.Kind.valueOf(parts.group(1).toUpperCase(Locale.ROOT).replace(' ', '_'));
        if (parts.group(2) == null) {
            return RoutingEvent.of(kind);
        }
        Integer number = Integer.valueOf(parts.group(2));
        return kind == RoutingEvent.Kind.PLACED ? RoutingEvent.placed(number) : RoutingEvent.failed(kind, number);
    }

    private static String said(RoutingAction<Integer, Integer> action) {
        String word = words(action.kind());
        return switch (action.kind()) {
            case START -> word + " " + action.place();
            case REPORT -> word + " " + action.place() + " " + words(action.outcome());
            case END -> word + " " + words(action.end()) + (action.error() == null ? "" : " " + action.error());
            default -> word;
        };
    }

    private static List<String> actions(CallRouting<Integer, Integer> call, Set<RoutingAction.Kind> seen) {
        List<String> all = new ArrayList<>();
        for (RoutingAction<Integer, Integer> action = call.poll(); action != null; action = call.poll()) {
            seen.add(action.kind());
            all.add(said(action));
        }
        return all;
    }

    private static void run(int number, Map<?, ?> vector, Set<RoutingAction.Kind> seen) {
        BigInteger time = (BigInteger) vector.get("retry_time");
        // One that is bound runs only at the server that has the even places.
        CallRouting<Integer, Integer> call = new CallRouting<>(
                new CallRouting.Rules((Boolean) vector.get("idempotent"), time == null ? null : time.longValueExact()),
                (Boolean) vector.get("bound") ? place -> place % 2 == 0 : null);
        int step = 0;
        for (Object item : (List<?>) vector.get("steps")) {
            List<?> row = (List<?>) item;
            String name = (String) row.get(1);
            if (!name.equals("begin")) {
                call.handle(((BigInteger) row.get(0)).longValueExact(), event(name));
            }
            assertEquals(row.get(2), actions(call, seen), "case " + number + ", step " + step + ": " + name);
            step++;
        }
        List<BigInteger> tried = call.tried().stream().map(one -> BigInteger.valueOf(one.place())).toList();
        assertEquals(vector.get("tried"), tried, "case " + number);
        assertEquals(vector.get("may_have_run"), call.mayHaveRun(), "case " + number);
        assertEquals(vector.get("wants_metaserver"), call.wantsMetaserver(), "case " + number);
    }

    @Test
    void callsGoAsTheRustCodesDo() {
        Set<RoutingAction.Kind> seen = EnumSet.noneOf(RoutingAction.Kind.class);
        int number = 0;
        for (Object vector : cases) {
            run(number++, (Map<?, ?>) vector, seen);
        }
        assertEquals(EnumSet.allOf(RoutingAction.Kind.class), seen, "each action is in some case");
    }

    /** The test of the Rust code says how many cases there are. */
    @Test
    void noneIsMissing() throws IOException {
        String source = Files.readString(TestVectors.file("core/routing/tests/vectors.rs"));
        Matcher count = Pattern.compile("const CASES: u64 = (\\d+);").matcher(source);
        assertTrue(count.find(), "core/routing/tests/vectors.rs says how many cases it writes");
        assertEquals(Integer.parseInt(count.group(1)), cases.size(), "cases in bindings/testvectors/routing.json");
    }

    /** Times that the vectors do not have. */
    @Test
    void wakes() {
        CallRouting<Integer, Integer> call = new CallRouting<>(new CallRouting.Rules(true, Long.MAX_VALUE));
        call.handle(0, RoutingEvent.of(RoutingEvent.Kind.ASKED));
        assertEquals(null, call.wakesAt(), "nothing has failed");
        call.handle(1, RoutingEvent.placed(1));
        call.handle(5, RoutingEvent.failed(RoutingEvent.Kind.NOT_BEGUN, 1));
        assertEquals(Long.MAX_VALUE, call.wakesAt(), "a sum that is too large is for ever");
        call.handle(6, RoutingEvent.placed(2));
        assertEquals(null, call.wakesAt(), "an attempt is under way");
        assertEquals(2, call.last());
    }
}
