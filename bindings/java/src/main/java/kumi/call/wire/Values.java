package kumi.call.wire;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import kumi.call.idl.Scalar;

/** Scalars, texts and lengths of files in the heads of calls and results, and in those of callbacks. */
public final class Values {
    private Values() {}

    /** Longest sentence about a failed callback, in bytes. */
    private static final int MOST_TEXT = 2048;

    /**
     * One scalar, text or length of a file.
     *
     * @param param the parameter
     * @param scalar the scalar, or null
     * @param text the text, or null
     * @param file the unsigned length of a file, or null
     * @param held tag and content of what concerns a held array, which only goes to servers; or null
     */
    public record Value(int param, Scalar scalar, String text, Long file, byte[] held) {
        /** A scalar, a text or the length of a file. */
        public Value(int param, Scalar scalar, String text, Long file) {
            this(param, scalar, text, file, null);
        }

        /** A scalar or a text. */
        public Value(int param, Scalar scalar, String text) {
            this(param, scalar, text, null);
        }

        /** The length of a file. */
        public static Value file(int param, long bytes) {
            return new Value(param, null, null, bytes);
        }

        /** An array that is sent, of which all {@code bytes} (not 0) are those of the array that the called server holds by this name. */
        public static Value held(int param, byte[] name, long bytes) {
            return held(param, name, bytes, "", "");
        }

        /**
         * An array that is sent, of which all {@code bytes} (not 0) are those of the array that a server holds by this name.
         *
         * @param address the server; empty: the one that is called
         * @param voucher what it is shown; empty: nothing. Only to servers whose hello mentions vouchers
         */
        public static Value held(int param, byte[] name, long bytes, String address, String voucher) {
            byte[] where = address.getBytes(StandardCharsets.UTF_8);
            byte[] shown = voucher.getBytes(StandardCharsets.UTF_8);
            boolean isVouched = shown.length > 0;
            int length = 1 + 2 + 8 + 8 + name.length + 8 + 2 + where.length + (isVouched ? 2 + shown.length : 0);
            ByteBuffer out = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
            out.put((byte) (isVouched ? 10 : 7)).putShort((short) 1).putLong(0).putLong(bytes).put(name).putLong(0);
            out.putShort((short) where.length).put(where);
            if (isVouched) {
                out.putShort((short) shown.length).put(shown);
            }
            return new Value(param, null, null, null, out.array());
        }

        /**
         * An array that stays at the server by this name.
         *
         * @param milliseconds for how long, unsigned
         * @param isReturned it comes back, too. If it does not, and has no time, nobody wants it
         */
        public static Value keep(int param, byte[] name, int milliseconds, boolean isReturned) {
            ByteBuffer out = ByteBuffer.allocate(1 + name.length + 4 + 1).order(ByteOrder.LITTLE_ENDIAN);
            out.put((byte) 8).put(name).putInt(milliseconds).put((byte) (isReturned ? 1 : 0));
            return new Value(param, null, null, null, out.array());
        }
    }

    /**
     * A result's head.
     *
     * @param waited nanoseconds that the call waited for a slot
     * @param ran nanoseconds that the routine ran
     * @param values returned scalars, texts and lengths of files, in ascending order of the parameters
     */
    public record ResultHead(long waited, long ran, List<Value> values) {
        static ResultHead decode(ByteBuffer bytes) throws ProtocolException {
            Cursor cursor = new Cursor(bytes);
            return new ResultHead(cursor.i64(), cursor.i64(), Values.decode(cursor));
        }
    }

    /**
     * The head of a callback.
     *
     * @param param the routine's parameter that is the callback
     * @param values sent scalars and texts, in ascending order of the callback's parameters
     */
    public record CallbackHead(int param, List<Value> values) {
        static CallbackHead decode(ByteBuffer bytes) throws ProtocolException {
            Cursor cursor = new Cursor(bytes);
            return new CallbackHead(cursor.u16(), Values.decode(cursor));
        }
    }

    /** The outcome of a callback that has returned: its scalars and texts, in ascending order. */
    public static byte[] returned(List<Value> values) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(3 + 16 * values.size());
        out.write(0);
        put(out, values);
        return out.toByteArray();
    }

    /** The outcome of a callback that has failed; a sentence that is too long is cut. */
    public static byte[] failed(String text) {
        byte[] sentence = Protocol.shortened(text, MOST_TEXT).getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(1 + sentence.length).put((byte) 1).put(sentence).array();
    }

    /** The body of a call's head; the values are in ascending order of the parameters. */
    public static byte[] callHead(long hash, int milliseconds, String routine, List<Value> values) {
        byte[] name = routine.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream(64 + 16 * values.size());
        ByteBuffer scratch = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
        put(out, scratch.putLong(hash).putInt(milliseconds).putShort((short) name.length));
        out.writeBytes(name);
        put(out, values);
        return out.toByteArray();
    }

    private static void put(ByteArrayOutputStream out, List<Value> values) {
        ByteBuffer scratch = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
        put(out, scratch.putShort((short) values.size()));
        for (Value value : values) {
            scratch.putShort((short) value.param());
            if (value.text() != null) {
                byte[] text = value.text().getBytes(StandardCharsets.UTF_8);
                put(out, scratch.put((byte) 5).putInt(text.length));
                out.writeBytes(text);
            } else if (value.held() != null) {
                put(out, scratch);
                out.writeBytes(value.held());
            } else if (value.file() != null) {
                put(out, scratch.put((byte) 6).putLong(value.file()));
            } else {
                put(out, encode(scratch, value.scalar()));
            }
        }
    }

    private static ByteBuffer encode(ByteBuffer out, Scalar scalar) {
        if (scalar instanceof Scalar.Signed signed) {
            return out.put((byte) 1).putLong(signed.value());
        } else if (scalar instanceof Scalar.Unsigned unsigned) {
            return out.put((byte) 2).putLong(unsigned.bits());
        } else if (scalar instanceof Scalar.Real real) {
            return out.put((byte) 3).putDouble(real.value());
        }
        Scalar.Complex complex = (Scalar.Complex) scalar;
        return out.put((byte) 4).putDouble(complex.real()).putDouble(complex.imaginary());
    }

    private static void put(ByteArrayOutputStream out, ByteBuffer scratch) {
        out.write(scratch.array(), 0, scratch.position());
        scratch.clear();
    }

    static List<Value> decode(Cursor cursor) throws ProtocolException {
        int count = cursor.u16();
        List<Value> values = new ArrayList<>();
        int last = -1;
        for (int index = 0; index < count; index++) {
            int param = cursor.u16();
            if (param <= last) {
                throw new ProtocolException("parameters are not in ascending order");
            }
            last = param;
            values.add(value(param, cursor));
        }
        if (!cursor.isEmpty()) {
            throw new ProtocolException("it is longer than what it says");
        }
        return List.copyOf(values);
    }

    private static Value value(int param, Cursor cursor) throws ProtocolException {
        return switch (cursor.u8()) {
            case 1 -> new Value(param, new Scalar.Signed(cursor.i64()), null);
            case 2 -> new Value(param, new Scalar.Unsigned(cursor.i64()), null);
            case 3 -> new Value(param, new Scalar.Real(cursor.f64()), null);
            case 4 -> new Value(param, new Scalar.Complex(cursor.f64(), cursor.f64()), null);
            case 5 -> new Value(param, null, cursor.text(cursor.i32()));
            case 6 -> Value.file(param, cursor.i64());
            default -> throw new ProtocolException("a value of an unknown type");
        };
    }
}
