package kumi.call;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import kumi.call.wire.Protocol;
import kumi.call.wire.Values.ResultHead;

/** A request and what comes of it: the life of a stream. */
final class Exchange {
    /** What has come of a request. */
    record Answer(ResultHead result, long hash, byte[] json, List<String> names) {}

    /** An array to be sent: all of these bytes from first to last. */
    static final class Send {
        private final int argument;
        private final Numbers numbers;
        private final ByteBuffer packed;
        private final long begin;
        private final long bytes;
        private long sent;

        private Send(int argument, Numbers numbers, ByteBuffer packed, long begin, long bytes) {
            this.argument = argument;
            this.numbers = numbers;
            this.packed = packed;
            this.begin = begin;
            this.bytes = bytes;
        }

        /** Bytes from {@code begin} of these numbers. */
        static Send of(int argument, Numbers numbers, long begin, long bytes) {
            return new Send(argument, numbers, null, begin, bytes);
        }

        /** Bytes that were put together. */
        static Send of(int argument, ByteBuffer packed) {
            return new Send(argument, null, packed, 0, packed.limit());
        }
    }

    /** An array that comes back. */
    static final class Target {
        private final int argument;
        private final Numbers numbers;
        private final ByteBuffer packed;
        private final long begin;
        private final long bytes;
        private long got;

        private Target(int argument, Numbers numbers, ByteBuffer packed, long begin, long bytes) {
            this.argument = argument;
            this.numbers = numbers;
            this.packed = packed;
            this.begin = begin;
            this.bytes = bytes;
        }

        /** To {@code begin} of these numbers. */
        static Target of(int argument, Numbers numbers, long begin, long bytes) {
            return new Target(argument, numbers, null, begin, bytes);
        }

        /** Into this buffer. */
        static Target of(int argument, ByteBuffer packed) {
            return new Target(argument, null, packed, 0, packed.limit());
        }

        int argument() {
            return argument;
        }

        long bytes() {
            return bytes;
        }

        private void put(ByteBuffer from) {
            int count = from.remaining();
            if (numbers != null) {
                numbers.receive(begin + got, from);
            } else {
                packed.put((int) got, from, from.position(), count);
            }
            got += count;
        }
    }

    final int kind;
    final byte[] body;
    final List<Send> sends;
    final List<Target> targets;
    /** What has come, or why nothing has; told by the thread that reads. */
    final CompletableFuture<Answer> answer = new CompletableFuture<>();
    /** The stream; 0: not begun. Changed under the connection's lock. */
    int stream;
    ResultHead head;
    /** Nobody waits for it, or its answer has come: nothing more of it is sent. */
    volatile boolean over;
    /** All of it is sent. */
    volatile boolean sent;

    Exchange(int kind, byte[] body, List<Send> sends, List<Target> targets) {
        this.kind = kind;
        this.body = body;
        this.sends = new ArrayList<>(sends);
        this.targets = targets;
    }

    /** Puts the next bytes of an array where they belong. */
    void put(int argument, ByteBuffer bytes) {
        for (Target target : targets) {
            if (target.argument == argument) {
                target.put(bytes);
            }
        }
    }

    /**
     * Puts the next chunk into {@code out}, as much as there is room for; what is to be sent behind it from where it is,
     * or null.
     */
    ByteBuffer next(ByteBuffer out) {
        Send send = sends.get(0);
        long left = send.bytes - send.sent;
        ByteBuffer place = place(send, (int) Math.min(left, Protocol.CHUNK));
        int room = (out.remaining() - Protocol.HEADER) / 16 * 16;
        int length = place != null ? place.remaining() : (int) Math.min(Math.min(left, Protocol.CHUNK), room);
        Protocol.chunk(out, stream, send.argument, length);
        if (place == null) {
            ByteBuffer into = out.slice(out.position(), length);
            if (send.numbers != null) {
                send.numbers.read(send.begin + send.sent, into);
            } else {
                into.put(0, send.packed, (int) send.sent, length);
            }
            out.position(out.position() + length);
        }
        send.sent += length;
        if (send.sent == send.bytes) {
            sends.remove(0);
            sent = sends.isEmpty();
        }
        return place;
    }

    /** Chunks of fewer bytes are copied, so that several go at once. */
    private static final int WORTH = 64 << 10;

    /** A part that is sent from where it is; null: it is copied. */
    private static ByteBuffer place(Send send, int length) {
        return length < WORTH || send.numbers == null ? null : send.numbers.direct(send.begin + send.sent, length);
    }
}
