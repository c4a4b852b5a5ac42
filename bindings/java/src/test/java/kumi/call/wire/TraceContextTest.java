package kumi.call.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Texts that are a place in a trace, and texts that are none; the cases of core/rpc/tests/trace.rs. */
class TraceContextTest {
    private static final String TEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    private static void refused(String text, String why) {
        IllegalArgumentException wrong = assertThrows(IllegalArgumentException.class, () -> TraceContext.parse(text), text);
        assertTrue(wrong.getMessage().contains(why), wrong.getMessage());
    }

    @Test
    void itIsReadAndWritten() {
        assertEquals(TEXT, TraceContext.parse(TEXT).toString());
        // Later versions may have more behind what this one has.
        for (String more : List.of("", "-", "-what is to come", "-\n")) {
            assertEquals(TraceContext.parse(TEXT), TraceContext.parse(TEXT.replaceFirst("00", "cc") + more));
        }
    }

    @Test
    void whatIsNone() {
        String form = "a traceparent is `00-`";
        for (String wrong : List.of("", "-", TEXT + "-", TEXT + "\n", TEXT.substring(1), TEXT.toUpperCase(), TEXT.replaceFirst("00", "ff"),
                TEXT.replaceFirst("00", "cc") + "00")) {
            refused(wrong, form);
        }
        for (int at = 0; at < TEXT.length(); at++) {
            for (char letter : new char[] {'g', ' ', '\0', '\u0660'}) {
                refused(TEXT.substring(0, at) + letter + TEXT.substring(at + 1), form);
            }
            refused(TEXT.substring(0, at), form);
        }
        refused(TEXT.replace(TEXT.substring(3, 35), "0".repeat(32)), "not zero");
        refused(TEXT.replace(TEXT.substring(36, 52), "0".repeat(16)), "not zero");
    }
}
