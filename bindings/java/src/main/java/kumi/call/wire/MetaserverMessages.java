package kumi.call.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/** Messages between clients and metaservers about a call. */
public final class MetaserverMessages {
    /** Longest address, name or pass, in bytes. */
    private static final int MOST_TEXT = 512;

    private MetaserverMessages() {}

    /**
     * An attempt of a call.
     *
     * @param call the call
     * @param attempt the attempt; the first is 1
     */
    public record Ticket(long call, int attempt) {
        private static final int LENGTH = 12;

        private void put(ByteBuffer out) {
            out.putLong(call).putInt(attempt);
        }

        /** The body of an ATTEMPT_REASON frame. The text is cut to what a metaserver takes, and has no control characters. */
        byte[] reason(String why) {
            StringBuilder plain = new StringBuilder();
            why.codePoints().forEach(letter -> plain.appendCodePoint(Character.isISOControl(letter) ? ' ' : letter));
            byte[] text = Protocol.shortened(plain.toString(), MOST_TEXT).getBytes(StandardCharsets.UTF_8);
            ByteBuffer out = ByteBuffer.allocate(LENGTH + text.length).order(ByteOrder.LITTLE_ENDIAN);
            put(out);
            return out.put(text).array();
        }
    }

    /**
     * A request to place a call.
     *
     * @param client random bytes of the client
     * @param number the number of the call at the client
     * @param hash hash of the client's description
     * @param sent bytes of the arguments
     * @param returned bytes of the results
     * @param operations operations; NaN: not described
     * @param milliseconds time limit; 0: none
     * @param attempts failed attempts before a connection was lost
     * @param priority 0 to 9, among the calls of the user
     * @param idempotent running it twice has the effect of running it once
     * @param bound it runs at the first of the input locations or nowhere; only for metaservers whose hello mentions it
     * @param routine the routine
     * @param inputs servers that hold inputs already, at most 32
     */
    public record PlacementRequest(long client, long number, long hash, long sent, long returned, double operations,
            int milliseconds, int attempts, int priority, boolean idempotent, boolean bound, String routine, List<InputLocation> inputs) {
        private static final int IDEMPOTENT = 1;
        private static final int BOUND = 2;

        /** The body of a PLACE frame. */
        public byte[] encode() {
            byte[] name = routine.getBytes(StandardCharsets.UTF_8);
            int room = 61 + name.length + inputs.size() * InputLocation.MOST;
            ByteBuffer out = ByteBuffer.allocate(room).order(ByteOrder.LITTLE_ENDIAN);
            out.putLong(client).putLong(number).putLong(hash).putLong(sent).putLong(returned).putDouble(operations);
            out.putInt(milliseconds).putInt(attempts).put((byte) priority).put((byte) ((idempotent ? IDEMPOTENT : 0) | (bound ? BOUND : 0)));
            out.putShort((short) name.length).put(name);
            if (!inputs.isEmpty()) {
                out.put((byte) inputs.size());
                inputs.forEach(input -> input.put(out));
            }
            return Arrays.copyOf(out.array(), out.position());
        }
    }

    /**
     * A server that holds inputs of a call.
     *
     * @param bytes how many bytes of the inputs it holds
     * @param server its name
     * @param address its address in a {@link Placement}
     */
    public record InputLocation(long bytes, String server, String address) {
        private static final int MOST = Long.BYTES + 2 * (Short.BYTES + MOST_TEXT);

        private void put(ByteBuffer out) {
            out.putLong(bytes);
            for (String text : List.of(server, address)) {
                byte[] shown = Protocol.shortened(text, MOST_TEXT).getBytes(StandardCharsets.UTF_8);
                out.putShort((short) shown.length).put(shown);
            }
        }
    }

    /**
     * The placement of a call.
     *
     * @param ticket the attempt
     * @param address the server's address
     * @param server its name
     * @param pass the pass for the server; empty: none
     */
    public record Placement(Ticket ticket, String address, String server, String pass) {
        static Placement decode(ByteBuffer bytes) throws ProtocolException {
            Cursor cursor = new Cursor(bytes);
            Ticket ticket = new Ticket(cursor.i64(), cursor.i32());
            Placement placed = new Placement(ticket, text(cursor), text(cursor), cursor.isEmpty() ? "" : text(cursor));
            if (!cursor.isEmpty()) {
                throw new ProtocolException("it is longer than what it says");
            }
            return placed;
        }

        private static String text(Cursor cursor) throws ProtocolException {
            int length = cursor.u16();
            String text = cursor.text(length);
            if (length > MOST_TEXT || text.codePoints().anyMatch(Character::isISOControl)) {
                throw new ProtocolException("a text is too long or has control characters");
            }
            return text;
        }

        /** The body of a TICKET frame. */
        public byte[] shown() {
            byte[] shown = pass.getBytes(StandardCharsets.UTF_8);
            ByteBuffer out = ByteBuffer.allocate(Ticket.LENGTH + shown.length).order(ByteOrder.LITTLE_ENDIAN);
            ticket.put(out);
            return out.put(shown).array();
        }

        @Override
        public String toString() {
            return server + " (" + address + ")";
        }
    }

    /** How an attempt ended, in the order of the protocol's numbers. */
    public enum AttemptOutcome {
        /** It has run. */
        DONE,
        /** It has certainly not begun. */
        NOT_BEGUN,
        /** It may have run in part. */
        BROKEN,
        /** It failed, and would fail elsewhere too. */
        FAILED
    }

    /**
     * How an attempt went.
     *
     * @param ticket the attempt
     * @param ended how it ended
     * @param sent bytes of the arguments
     * @param sending nanoseconds that they took; 0: not known
     * @param returned bytes of the results
     * @param receiving nanoseconds that they took; 0: not known
     * @param ran nanoseconds that the routine ran
     * @param waited nanoseconds that it waited at the server
     */
    public record AttemptReport(
            Ticket ticket, AttemptOutcome ended, long sent, long sending, long returned, long receiving, long ran, long waited) {
        /** A report without measurements. */
        public static AttemptReport of(Ticket ticket, AttemptOutcome ended) {
            return new AttemptReport(ticket, ended, 0, 0, 0, 0, 0, 0);
        }

        /** The body of an ATTEMPT_REPORT frame. */
        public byte[] encode() {
            ByteBuffer out = ByteBuffer.allocate(Ticket.LENGTH + 1 + 48).order(ByteOrder.LITTLE_ENDIAN);
            ticket.put(out);
            out.put((byte) ended.ordinal()).putLong(sent).putLong(sending).putLong(returned).putLong(receiving);
            return out.putLong(ran).putLong(waited).array();
        }
    }
}
