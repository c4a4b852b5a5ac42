package kumi.call.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Reads bytes from first to last. It compares every length with the remaining bytes before it uses it. */
final class Cursor {
    private final ByteBuffer bytes;

    Cursor(ByteBuffer bytes) {
        this.bytes = bytes.slice().order(ByteOrder.LITTLE_ENDIAN);
    }

    boolean isEmpty() {
        return !bytes.hasRemaining();
    }

    ByteBuffer take(int count) throws ProtocolException {
        if (count < 0 || count > bytes.remaining()) {
            throw new ProtocolException("it ends too early");
        }
        ByteBuffer taken = bytes.slice(bytes.position(), count).order(ByteOrder.LITTLE_ENDIAN);
        bytes.position(bytes.position() + count);
        return taken;
    }

    int u8() throws ProtocolException {
        return take(1).get() & 0xff;
    }

    int u16() throws ProtocolException {
        return take(2).getShort() & 0xffff;
    }

    int i32() throws ProtocolException {
        return take(4).getInt();
    }

    long i64() throws ProtocolException {
        return take(8).getLong();
    }

    double f64() throws ProtocolException {
        return take(8).getDouble();
    }

    ByteBuffer rest() throws ProtocolException {
        return take(bytes.remaining());
    }

    String text(int length) throws ProtocolException {
        return text(take(length));
    }

    /** A valid name of a routine. */
    String name(int length) throws ProtocolException {
        ByteBuffer bytes = take(length);
        String name = text(bytes);
        if (length > Protocol.MOST_NAME || !Protocol.isName(name)) {
            throw new ProtocolException("a name is empty, too long or has control characters");
        }
        return name;
    }

    /** A text of the other side, for display: control characters except tabs and line ends are escaped. */
    static String printable(String text) {
        StringBuilder shown = new StringBuilder(text.length());
        text.codePoints().forEach(letter -> {
            if (letter == '\r') {
                shown.append("\\r");
            } else if (Character.isISOControl(letter) && letter != '\n' && letter != '\t') {
                shown.append("\\u{").append(Integer.toHexString(letter)).append('}');
            } else {
                shown.appendCodePoint(letter);
            }
        });
        return shown.toString();
    }

    static String text(ByteBuffer bytes) throws ProtocolException {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
        } catch (CharacterCodingException wrong) {
            throw new ProtocolException("a text is not UTF-8");
        }
    }
}
