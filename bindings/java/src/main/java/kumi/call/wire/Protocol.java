package kumi.call.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Numbers of the protocol, and small frames. */
public final class Protocol {
    /** The version of this code. */
    public static final int VERSION = 1;
    /** Bytes of a frame's header. */
    public static final int HEADER = 12;
    /** Bytes of a hello without its fields. */
    public static final int HELLO = 16;
    /** Most bytes of a hello's fields. */
    static final int MOST_FIELDS = 4096;
    /** Longest body of a client's frame, except chunks. */
    public static final int MOST_REQUEST = 64 << 10;
    /** Longest body of a server's frame, except chunks. */
    static final int MOST_ANSWER = 4 << 20;
    /** Longest chunk that is accepted. */
    static final int MOST_CHUNK = 16 << 20;
    /** Length of sent chunks. */
    public static final int CHUNK = 1 << 20;
    /** Longest name of a routine. */
    public static final int MOST_NAME = 512;
    /** Longest token. */
    public static final int MOST_TOKEN = 1024;

    /** Requests a description. */
    public static final int INTERFACE = 1;
    /** Requests names. */
    public static final int LIST = 2;
    /** A call's head. */
    public static final int CALL = 3;
    static final int CHUNKS = 4;
    static final int CANCEL = 5;
    static final int PING = 6;
    static final int PONG = 7;
    static final int DESCRIPTION = 8;
    static final int NAMES = 9;
    static final int RESULT = 10;
    static final int ERROR = 11;
    static final int CALLBACK = 12;
    static final int CALLBACK_RETURN = 13;
    /** Requests bytes of a held array. */
    public static final int FETCH = 14;
    /** Has the server drop held arrays. */
    public static final int DROP = 15;
    /** Requests an object of a class; the stream stands for the object. */
    public static final int CREATE = 16;
    static final int CREATED = 17;
    /** The head of a call on an object. */
    public static final int INVOKE = 18;
    /** Requests a voucher for a held array. Only for servers whose hello mentions vouchers. */
    public static final int VOUCH = 24;
    static final int VOUCHER = 25;
    /** Longest voucher, in bytes. */
    static final int MOST_VOUCHER = 512;
    /** Requests a placement from a metaserver. */
    public static final int PLACE = 32;
    static final int PLACED = 33;
    static final int ATTEMPT_REPORT = 34;
    static final int CLOSED = 35;
    static final int TICKET = 46;
    /** Receivers skip unknown frames from here on. */
    static final int EXTENSIONS = 128;
    static final int ATTEMPT_REASON = 130;
    static final int LISTEN = 131;
    static final int OUTPUT = 132;
    static final int TRACE = 133;
    static final int RESOURCES = 134;
    /** Sends an array that the server then holds. Only for servers whose hello mentions it. */
    public static final int HOLD = 215;
    /** Most bytes of one frame of output. */
    static final int MOST_OUTPUT = 64 << 10;

    private Protocol() {}

    /** The client's hello. */
    public static byte[] hello(String token, String program) {
        return hello(token, program, "");
    }

    /** The client's hello with its site; empty: unknown. */
    public static byte[] hello(String token, String program, String site) {
        byte[] where = site.getBytes(StandardCharsets.UTF_8);
        byte[] who = token.getBytes(StandardCharsets.UTF_8);
        byte[] what = shortened(program, MOST_NAME).getBytes(StandardCharsets.UTF_8);
        int fields = (who.length == 0 ? 0 : 4 + who.length) + 4 + what.length
                + (where.length == 0 ? 0 : 4 + where.length);
        ByteBuffer out = ByteBuffer.allocate(HELLO + fields).order(ByteOrder.LITTLE_ENDIAN);
        out.put("kumicall".getBytes(StandardCharsets.US_ASCII));
        out.putShort((short) VERSION).putShort((short) VERSION).putInt(fields);
        if (who.length > 0) {
            out.putShort((short) 1).putShort((short) who.length).put(who);
        }
        out.putShort((short) 2).putShort((short) what.length).put(what);
        if (where.length > 0) {
            out.putShort((short) 8).putShort((short) where.length).put(where);
        }
        return out.array();
    }

    /** The longest prefix of at most {@code most} bytes. */
    static String shortened(String text, int most) {
        int bytes = 0;
        int end = 0;
        while (end < text.length()) {
            int letter = text.codePointAt(end);
            bytes += letter < 0x80 ? 1 : letter < 0x800 ? 2 : letter < 0x1_0000 ? 3 : 4;
            if (bytes > most) {
                break;
            }
            end += Character.charCount(letter);
        }
        return text.substring(0, end);
    }

    /** Whether the name is valid for a routine. */
    public static boolean isName(String name) {
        return !name.isEmpty() && name.getBytes(StandardCharsets.UTF_8).length <= MOST_NAME
                && name.codePoints().noneMatch(Character::isISOControl);
    }

    /** A frame. */
    public static byte[] frame(int kind, int stream, byte[] body) {
        ByteBuffer out = ByteBuffer.allocate(HEADER + body.length).order(ByteOrder.LITTLE_ENDIAN);
        header(out, body.length, stream, kind, 0);
        return out.put(body).array();
    }

    /** The outcome of a callback, from {@link Values#returned} or {@link Values#failed}. */
    public static byte[] callbackReturn(int stream, byte[] body) {
        return frame(CALLBACK_RETURN, stream, body);
    }

    /** The report on an attempt; stream 0: the call's own stream is gone. */
    public static byte[] over(int stream, MetaserverMessages.AttemptReport over) {
        return frame(ATTEMPT_REPORT, stream, over.encode());
    }

    /** Why an attempt failed, 1 to 512 bytes of the text, before its report. */
    public static byte[] reason(int stream, MetaserverMessages.Ticket ticket, String why) {
        return frame(ATTEMPT_REASON, stream, ticket.reason(why));
    }

    /** The place of a call in a trace, before it or before the request for its place. */
    public static byte[] trace(int stream, TraceContext context) {
        return frame(TRACE, stream, context.encode());
    }

    /** The pass right before a call, from {@link MetaserverMessages.Placement#shown}. */
    public static byte[] ticket(int stream, byte[] shown) {
        return frame(TICKET, stream, shown);
    }

    /** The request, right before a call or its pass, for what its routine prints. */
    public static byte[] listen(int stream) {
        return frame(LISTEN, stream, new byte[0]);
    }

    /** What a call or an object asks for, before it. Only for servers whose hello mentions it, as others skip it. */
    public static byte[] resources(int stream, byte[] asked) {
        return frame(RESOURCES, stream, asked);
    }

    /** The body of a request for a voucher that is good for so many unsigned milliseconds. */
    public static byte[] vouch(byte[] name, int milliseconds) {
        return ByteBuffer.allocate(name.length + Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN).put(name).putInt(milliseconds).array();
    }

    /** The request to cancel a call. */
    public static byte[] cancel(int stream) {
        return frame(CANCEL, stream, new byte[0]);
    }

    /** A ping. */
    public static byte[] ping() {
        return frame(PING, 0, new byte[8]);
    }

    /** Writes the header of a chunk. */
    public static void chunk(ByteBuffer out, int stream, int argument, int length) {
        header(out, length, stream, CHUNKS, argument);
    }

    private static void header(ByteBuffer out, int length, int stream, int kind, int argument) {
        out.putInt(length).putInt(stream).put((byte) kind).put((byte) 0).putShort((short) argument);
    }
}
