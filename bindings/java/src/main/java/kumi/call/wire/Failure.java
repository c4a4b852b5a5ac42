package kumi.call.wire;

import java.nio.ByteBuffer;

/**
 * A failure that a server reports.
 *
 * @param code its kind
 * @param detail a number that belongs to it
 * @param text a sentence
 */
public record Failure(int code, long detail, String text) {
    /** Longest sentence, in bytes. */
    private static final int MOST_TEXT = 2048;

    /** Reads a failure; a sentence that is too long is cut. */
    static Failure decode(ByteBuffer bytes) throws ProtocolException {
        Cursor cursor = new Cursor(bytes);
        int code = cursor.u16();
        long detail = cursor.i64();
        String text = Cursor.text(cursor.rest());
        return new Failure(code, detail, Cursor.printable(Protocol.shortened(text, MOST_TEXT)));
    }
}
