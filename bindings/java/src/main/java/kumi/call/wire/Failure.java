package kumi.call.wire;

import java.nio.ByteBuffer;

/**
 * What a server says of a failure.
 *
 * @param code what kind of failure
 * @param detail a number that belongs to it
 * @param text a sentence
 */
public record Failure(int code, long detail, String text) {
    static Failure decode(ByteBuffer bytes) throws ProtocolException {
        Cursor cursor = new Cursor(bytes);
        return new Failure(cursor.u16(), cursor.i64(), Cursor.text(cursor.rest()));
    }
}
