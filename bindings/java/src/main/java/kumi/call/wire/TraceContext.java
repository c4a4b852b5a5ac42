package kumi.call.wire;

import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The place of a call in a trace, as the header {@code traceparent} of W3C Trace Context and OpenTelemetry has it. */
public final class TraceContext {
    /** Of a version above 00 there may be more behind what version 00 has. */
    private static final Pattern FORM =
            Pattern.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", Pattern.DOTALL);

    /** In version 00. */
    private final String text;

    private TraceContext(String text) {
        this.text = text;
    }

    /**
     * Reads a {@code traceparent}. Of a version above 00 it takes what version 00 has.
     *
     * @throws IllegalArgumentException the text is none
     */
    public static TraceContext parse(String text) {
        Matcher found = FORM.matcher(text);
        boolean fits = found.matches() && !found.group(1).equals("ff") && (found.group(5) == null || !found.group(1).equals("00"));
        if (!fits) {
            throw new IllegalArgumentException("a traceparent is `00-`, 32 hexadecimal digits of the trace, `-`, 16 of the span, `-`, and 2 of"
                    + " flags, in lower case");
        }
        if (isZero(found.group(2)) || isZero(found.group(3))) {
            throw new IllegalArgumentException("the trace and the span of a traceparent are not zero");
        }
        return new TraceContext("00-" + found.group(2) + "-" + found.group(3) + "-" + found.group(4));
    }

    private static boolean isZero(String digits) {
        return digits.chars().allMatch(digit -> digit == '0');
    }

    /** The body of a frame. */
    byte[] encode() {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof TraceContext context && text.equals(context.text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }

    /** As {@code traceparent} of version 00. */
    @Override
    public String toString() {
        return text;
    }
}
