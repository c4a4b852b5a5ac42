package kumi.call;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import kumi.call.wire.MetaserverMessages;
import kumi.call.wire.Protocol;
import kumi.call.wire.Values.ResultHead;
import kumi.call.wire.Values.Value;

/** A request and what comes of it: the life of a stream. */
final class Exchange {
    /** What has come of a request. */
    record Answer(ResultHead result, long hash, byte[] json, List<String> names) {}

    /** Where bytes that are sent come from. */
    interface Source {
        /** Fills {@code into} with the bytes from {@code offset}. */
        void read(long offset, ByteBuffer into) throws IOException;

        /** A part that can be sent from where it is; null: it must be read first. */
        default ByteBuffer direct(long offset, int length) {
            return null;
        }
    }

    /** What is to be sent: all of these bytes from first to last. */
    static final class Send {
        private final int argument;
        private final Source source;
        private final long begin;
        private final long bytes;
        private long sent;

        private Send(int argument, Source source, long begin, long bytes) {
            this.argument = argument;
            this.source = source;
            this.begin = begin;
            this.bytes = bytes;
        }

        /** The same once more, from the first byte. */
        Send again() {
            return new Send(argument, source, begin, bytes);
        }

        /** Bytes from {@code begin} of these numbers. */
        static Send of(int argument, Numbers numbers, long begin, long bytes) {
            return new Send(argument, numbers, begin, bytes);
        }

        /** Bytes that were put together. */
        static Send of(int argument, ByteBuffer packed) {
            Source source = (offset, into) -> into.put(0, packed, (int) offset, into.remaining());
            return new Send(argument, source, 0, packed.limit());
        }

        /** A file. */
        static Send of(int argument, Source file, long bytes) {
            return new Send(argument, file, 0, bytes);
        }
    }

    /** Where bytes go, from first to last; they come cut anywhere. */
    interface Destination {
        /** Puts the next bytes, from {@code offset} on. */
        void put(long offset, ByteBuffer from) throws IOException;
    }

    /** An array or a file that comes back. */
    static final class Target {
        private final int argument;
        private final Destination place;
        private final long bytes;
        private final boolean file;
        private long got;

        private Target(int argument, Destination place, long bytes, boolean file) {
            this.argument = argument;
            this.place = place;
            this.bytes = bytes;
            this.file = file;
        }

        /** To {@code begin} of these numbers. */
        static Target of(int argument, Numbers numbers, long begin, long bytes) {
            return new Target(argument, (offset, from) -> numbers.receive(begin + offset, from), bytes, false);
        }

        /** Into this buffer. */
        static Target of(int argument, ByteBuffer packed) {
            Destination place = (offset, from) -> packed.put((int) offset, from, from.position(), from.remaining());
            return new Target(argument, place, packed.limit(), false);
        }

        /** A file of at most so many bytes. */
        static Target file(int argument, Destination file, long most) {
            return new Target(argument, file, most, true);
        }

        /** The same once more, from the first byte. */
        Target again() {
            return new Target(argument, place, bytes, file);
        }

        int argument() {
            return argument;
        }

        /** How many bytes come; of a file the most. */
        long bytes() {
            return bytes;
        }

        boolean isFile() {
            return file;
        }

        void put(ByteBuffer from) throws IOException {
            int count = from.remaining();
            place.put(got, from);
            got += count;
        }
    }

    final int kind;
    final byte[] body;
    final List<Send> sends;
    final List<Target> targets;
    /** The functions that the routine may call; null: none. */
    final Functions functions;
    /** What has come, or why nothing has; told by the thread that reads. */
    final CompletableFuture<Answer> answer = new CompletableFuture<>();
    /** What the server is shown before a call; null: nothing. */
    byte[] ticket;
    /** What a metaserver is told behind the request. */
    MetaserverMessages.AttemptReport behind;
    /** Where a metaserver says that a call is to go, until that is looked at: the last word. */
    final AtomicReference<MetaserverMessages.Placement> place = new AtomicReference<>();
    /** What is done when there is a place. */
    Runnable placed = () -> { };
    /** When it began, when its result began to come, and when all had come: {@link System#nanoTime}. */
    volatile long begun;
    volatile long headAt;
    volatile long endAt;
    /** The stream; 0: not begun. Changed under the connection's lock. */
    int stream;
    ResultHead head;
    /** What a function is to be called with, while it comes; under the connection's lock. */
    CallbackInvocation coming;
    /** Why it is over, if that is a failure; of an object, why that is no more. Written before {@link #over}. */
    CallException why;
    /** Nobody waits for it, or its answer has come: nothing more of it is sent. Of an object: that is no more. */
    volatile boolean over;
    /** All of it is sent. */
    volatile boolean sent;

    Exchange(int kind, byte[] body, List<Send> sends, List<Target> targets, Functions functions) {
        this.kind = kind;
        this.body = body;
        this.sends = new ArrayList<>(sends);
        this.targets = targets;
        this.functions = functions;
    }

    /** A request without arrays. */
    static Exchange of(int kind, byte[] body) {
        return new Exchange(kind, body, List.of(), List.of(), null);
    }

    /** Whether the other side is told when nobody waits for it any more. */
    boolean isEndedByCancel() {
        return switch (kind) {
            case Protocol.CALL, Protocol.PLACE, Protocol.CREATE, Protocol.INVOKE -> true;
            default -> false;
        };
    }

    /** Takes a result's head; why the result is not taken, or null. */
    CallException begin(ResultHead result) {
        head = result;
        headAt = System.nanoTime();
        for (Value value : result.values()) {
            for (Target target : targets) {
                boolean is = value.file() != null && target.file && target.argument == value.param();
                // Without a sign: a server may say any length.
                if (is && Long.compareUnsigned(value.file(), target.bytes) > 0) {
                    return new CallException.File("a file of " + Long.toUnsignedString(value.file())
                            + " bytes would come back, which is more than the " + target.bytes + " that are taken", false);
                }
            }
        }
        return null;
    }

    /** Puts the next bytes of an array or file where they belong; why that cannot be, or null. */
    CallException put(int argument, ByteBuffer bytes) {
        for (Target target : coming == null ? targets : coming.targets()) {
            if (target.argument == argument) {
                try {
                    target.put(bytes);
                } catch (IOException wrong) {
                    return new CallException.File("a file that came back cannot be written: " + wrong, false);
                }
            }
        }
        return null;
    }

    /**
     * Puts the next chunk into {@code out}, as much as there is room for; what is to be sent behind it from where it is,
     * or null.
     *
     * @throws IOException it cannot be read; nothing was put
     */
    ByteBuffer next(ByteBuffer out) throws IOException {
        Send send = sends.get(0);
        long left = send.bytes - send.sent;
        int most = (int) Math.min(left, Protocol.CHUNK);
        ByteBuffer place = most < WORTH ? null : send.source.direct(send.begin + send.sent, most);
        int length = most;
        if (place == null) {
            length = Math.min(most, (out.remaining() - Protocol.HEADER) / 16 * 16);
            send.source.read(send.begin + send.sent, out.slice(out.position() + Protocol.HEADER, length));
        }
        Protocol.chunk(out, stream, send.argument, length);
        if (place == null) {
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
}
