package kumi.call.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The server's hello.
 *
 * @param version the version of the connection; 0: refused
 * @param name the server's name
 * @param streams most streams that may be open at once
 * @param bytes most bytes of memory of one call
 * @param metaserver whether it places calls, and runs none itself
 * @param givesResources whether it knows what calls ask for
 * @param bindsCalls whether it is a metaserver that places a call at one server or nowhere
 * @param holdsArrays whether it holds arrays that clients send
 * @param refusal the refusal, or null
 */
public record ServerHello(int version, String name, int streams, long bytes, boolean metaserver, boolean givesResources,
        boolean bindsCalls, boolean holdsArrays, Failure refusal) {
    private static final byte[] MAGIC = "KUMICALL".getBytes(StandardCharsets.US_ASCII);

    /** Reads one from the beginning of the input; null: more bytes are needed, see {@link #needed}. */
    static ServerHello decode(ByteBuffer input) throws ProtocolException {
        int length = needed(input);
        if (input.remaining() < length) {
            return null;
        }
        Cursor cursor = new Cursor(input.slice(input.position(), length));
        cursor.take(MAGIC.length);
        int version = cursor.u16();
        int highest = cursor.u16();
        Cursor fields = new Cursor(input.slice(input.position() + Protocol.HELLO, length - Protocol.HELLO));
        String name = "";
        int streams = Integer.MAX_VALUE;
        long bytes = Long.MAX_VALUE;
        Failure refusal = version(highest);
        boolean metaserver = false;
        boolean givesResources = false;
        boolean bindsCalls = false;
        boolean holdsArrays = false;
        while (!fields.isEmpty()) {
            int tag = fields.u16();
            ByteBuffer content = fields.take(fields.u16());
            switch (tag) {
                case 3 -> name = name(content);
                case 4 -> streams = positive(new Cursor(content).i32());
                case 5 -> bytes = new Cursor(content).i64();
                case 6 -> refusal = Failure.decode(content);
                case 7 -> metaserver = new Cursor(content).u8() == 1;
                // Another value is of another version.
                case 13 -> givesResources = isOne(content);
                case 14 -> bindsCalls = isOne(content);
                case 215 -> holdsArrays = isOne(content);
                default -> { }
            }
        }
        input.position(input.position() + length);
        if (version > Protocol.VERSION) {
            refusal = version(highest);
        }
        return new ServerHello(version, name, streams, bytes < 0 ? Long.MAX_VALUE : bytes, metaserver, givesResources,
                bindsCalls, holdsArrays, version == 0 || version > Protocol.VERSION ? refusal : null);
    }

    private static Failure version(int highest) {
        return new Failure(
                13, highest, "client and server have no version of the protocol in common; update the older");
    }

    /** Least number of input bytes needed. A peer of another protocol is refused at its first wrong byte. */
    static int needed(ByteBuffer input) throws ProtocolException {
        for (int index = 0; index < MAGIC.length && index < input.remaining(); index++) {
            if (input.get(input.position() + index) != MAGIC[index]) {
                throw new ProtocolException("the other side does not speak Kumi's call protocol");
            }
        }
        if (input.remaining() < Protocol.HELLO) {
            return Protocol.HELLO;
        }
        int fields = input.getInt(input.position() + 12);
        if (fields < 0 || fields > Protocol.MOST_FIELDS) {
            throw new ProtocolException("the hello is malformed: it is longer than what it says");
        }
        return Protocol.HELLO + fields;
    }

    private static String name(ByteBuffer content) throws ProtocolException {
        if (content.remaining() > Protocol.MOST_NAME) {
            throw new ProtocolException("the hello is malformed: a name is too long");
        }
        return Cursor.printable(Cursor.text(content));
    }

    private static boolean isOne(ByteBuffer content) {
        return content.remaining() == 1 && content.get(content.position()) == 1;
    }

    private static int positive(int unsigned) {
        return unsigned < 0 ? Integer.MAX_VALUE : unsigned;
    }
}
