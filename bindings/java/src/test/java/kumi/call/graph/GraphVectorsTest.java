package kumi.call.graph;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
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

/** Transactions step by step against those of the Rust code (bindings/testvectors/graph.json). */
class GraphVectorsTest {
    private final List<?> cases;

    GraphVectorsTest() throws IOException {
        cases = (List<?>) TestVectors.read("graph.json").get("cases");
    }

    private static String said(CallState state) {
        String word = state.kind().name().toLowerCase(Locale.ROOT);
        return switch (state.kind()) {
            case DONE, SKIPPED -> word + " " + state.number();
            case FAILED -> word + " " + state.why();
            default -> word;
        };
    }

    private static List<String> states(CallGraph graph, Set<CallState.Kind> seen) {
        List<String> all = new ArrayList<>();
        for (int node = 0; node < graph.size(); node++) {
            seen.add(graph.state(node).kind());
            all.add(said(graph.state(node)));
        }
        return all;
    }

    private static void happen(CallGraph graph, String what) {
        String[] words = what.split(" ");
        int node = words.length > 1 ? Integer.parseInt(words[1]) : -1;
        switch (words[0]) {
            case "start" -> graph.start(node);
            case "finish" -> graph.finish(node, Integer.parseInt(words[2]));
            case "fail" -> graph.fail(node, words[2]);
            case "restart" -> graph.restart(node);
            case "lose" -> graph.markLost(node, words[2]);
            case "cancel" -> graph.cancel();
            default -> throw new AssertionError("nothing is called " + what);
        }
    }

    private static CallGraph recorded(Map<?, ?> vector) throws CallGraph.TooLarge {
        CallGraph graph = new CallGraph();
        for (Object reads : (List<?>) vector.get("calls")) {
            List<Integer> numbers = ((List<?>) reads).stream().map(read -> ((BigInteger) read).intValueExact()).toList();
            graph.record("f" + graph.size(), numbers);
        }
        return graph;
    }

    private static void run(int number, Map<?, ?> vector, Set<CallState.Kind> seen) throws CallGraph.TooLarge {
        CallGraph graph = recorded(vector);
        List<String> states = states(graph, seen);
        assertEquals(vector.get("begin"), states, "case " + number);
        int step = 0;
        for (Object item : (List<?>) vector.get("steps")) {
            List<?> row = (List<?>) item;
            String what = (String) row.get(0);
            String where = "case " + number + ", step " + step + ": " + what;
            if ((Boolean) row.get(1)) {
                happen(graph, what);
            } else {
                assertThrows(IllegalStateException.class, () -> happen(graph, what), where);
            }
            for (Object change : (List<?>) row.get(2)) {
                List<?> pair = (List<?>) change;
                states.set(((BigInteger) pair.get(0)).intValueExact(), (String) pair.get(1));
            }
            assertEquals(states, states(graph, seen), where);
            int ready = -1;
            for (int node = 0; node < graph.size(); node++) {
                if (states.get(node).equals("ready")) {
                    ready = graph.nextReady(ready);
                    assertEquals(node, ready, where);
                }
            }
            assertEquals(-1, graph.nextReady(ready), where);
            step++;
        }
        assertEquals(vector.get("over"), graph.isOver(), "case " + number);
        List<String> told = new ArrayList<>();
        for (int node = 0; node < graph.size(); node++) {
            told.add(graph.explain(node));
        }
        assertEquals(vector.get("explain"), told, "case " + number);
    }

    @Test
    void transactionsGoAsTheRustCodesDo() throws CallGraph.TooLarge {
        Set<CallState.Kind> seen = EnumSet.noneOf(CallState.Kind.class);
        int number = 0;
        for (Object vector : cases) {
            run(number++, (Map<?, ?>) vector, seen);
        }
        assertEquals(EnumSet.allOf(CallState.Kind.class), seen, "each state is in some case");
    }

    /** The test of the Rust code says how many cases there are. */
    @Test
    void noneIsMissing() throws IOException {
        String source = Files.readString(TestVectors.file("core/broker/tests/vectors.rs"));
        Matcher count = Pattern.compile("const CASES: u64 = (\\d+);").matcher(source);
        assertTrue(count.find(), "core/broker/tests/vectors.rs says how many cases it writes");
        assertEquals(Integer.parseInt(count.group(1)), cases.size(), "cases in bindings/testvectors/graph.json");
    }

    @Test
    void whatCannotBeRecorded() throws CallGraph.TooLarge {
        CallGraph graph = new CallGraph();
        assertThrows(IllegalArgumentException.class, () -> graph.record("f", List.of(0)), "it would read itself");
        for (int node = 0; node < 65_536; node++) {
            graph.record("f", List.of());
        }
        assertThrows(CallGraph.TooLarge.class, () -> graph.record("f", List.of()));
        assertEquals(65_536, graph.size());
    }

    /** A call that is recorded behind one that has failed is skipped at once. */
    @Test
    void behindWhatHasFailed() throws CallGraph.TooLarge {
        CallGraph graph = new CallGraph();
        graph.record("f", List.of());
        graph.start(0);
        graph.fail(0, "it broke");
        graph.record("g", List.of(0, 0));
        assertEquals("call 1 (g) did not run, because of 0 (f) -> 1 (g): it broke", graph.explain(1));
        assertTrue(graph.isOver());
    }
}
