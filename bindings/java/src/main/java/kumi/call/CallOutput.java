package kumi.call;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/**
 * Receives what routines print: standard output and standard error, in the order in which they were printed. It comes before the end
 * of the call. Several calls may have one receiver, and threads may share it.
 */
public final class CallOutput {
    /** Most bytes that are kept until they are taken. */
    private static final int MOST = 4 << 20;

    /**
     * What was printed.
     *
     * @param bytes the bytes, as the routine printed them
     * @param isCut bytes are missing: a server passes on 1 MiB of each call, and a receiver keeps 4 MiB
     */
    public record Printed(byte[] bytes, boolean isCut) {
        /** The bytes as UTF-8; those that are none become U+FFFD. */
        public String text() {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }

    private final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private boolean isCut;

    /** A receiver that has got nothing. */
    public CallOutput() {}

    /** Takes what has come. */
    public synchronized Printed take() {
        Printed taken = new Printed(printed.toByteArray(), isCut);
        printed.reset();
        isCut = false;
        return taken;
    }

    synchronized void add(byte[] bytes, boolean cut) {
        int fits = Math.min(bytes.length, MOST - printed.size());
        printed.write(bytes, 0, fits);
        isCut |= cut || fits < bytes.length;
    }
}
