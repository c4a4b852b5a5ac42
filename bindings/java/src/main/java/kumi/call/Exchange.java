package kumi.call;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import kumi.call.wire.MetaserverMessages;
import kumi.call.wire.Protocol;
import kumi.call.wire.Values.ResultHead;
import kumi.call.wire.Values.Value;

/** A request and its answer: the life of a stream. */
final class Exchange {
    /** The answer to a request. */
    record Answer(ResultHead result, long hash, byte[] json, List<String> names) {}

    /** A source of bytes to send. */
    interface Source {
        /** Fills {@code into} with the bytes from {@code offset}. */
        void read(long offset, ByteBuffer into) throws IOException;

        /** A buffer of bytes that can be sent without a copy; null: they must be read first. */
        default ByteBuffer direct(long offset, int length) {
            return null;
        }
    }

    /** Data to send: all bytes of the source from first to last. */
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

        /** The same data again, from the first byte. */
        Send again() {
            return new Send(argument, source, begin, bytes);
        }

        /** Bytes of these numbers, from {@code begin} on. */
        static Send of(int argument, Numbers numbers, long begin, long bytes) {
            return new Send(argument, numbers, begin, bytes);
        }

        /** Packed bytes. */
        static Send of(int argument, ByteBuffer packed) {
            Source source = (offset, into) -> into.put(0, packed, (int) offset, into.remaining());
            return new Send(argument, source, 0, packed.limit());
        }

        /** A file. */
        static Send of(int argument, Source file, long bytes) {
            return new Send(argument, file, 0, bytes);
        }
    }

    /** A destination of bytes. They arrive in order, in pieces of any length. */
    interface Destination {
        /** Writes the next bytes, at {@code offset}. */
        void put(long offset, ByteBuffer from) throws IOException;
    }

    /** An array or a file that comes back. */
    static final class Target {
        private final int argument;
        /** Makes a destination for each attempt: a broken one may end within a number. */
        private final Supplier<Destination> places;
        private final Destination place;
        private final long bytes;
        private final boolean file;
        private long got;

        private Target(int argument, Supplier<Destination> places, long bytes, boolean file) {
            this.argument = argument;
            this.places = places;
            this.place = places.get();
            this.bytes = bytes;
            this.file = file;
        }

        /** Writes to these numbers, from {@code begin} on. */
        static Target of(int argument, Numbers numbers, long begin, long bytes) {
            return new Target(argument, () -> numbers.destination(begin), bytes, false);
        }

        /** Writes to this buffer. */
        static Target of(int argument, ByteBuffer packed) {
            Destination place = (offset, from) -> packed.put((int) offset, from, from.position(), from.remaining());
            return new Target(argument, () -> place, packed.limit(), false);
        }

        /** A file of at most this many bytes. */
        static Target file(int argument, Destination file, long most) {
            return new Target(argument, () -> file, most, true);
        }

        /** The same destination again, from the first byte. */
        Target again() {
            return new Target(argument, places, bytes, file);
        }

        int argument() {
            return argument;
        }

        /** Number of incoming bytes; for a file the maximum. */
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
    /** The callbacks that the routine may call; null: none. */
    final Functions functions;
    /** Completed with the answer or a failure; the reading thread completes it. */
    final CompletableFuture<Answer> answer = new CompletableFuture<>();
    /** The pass that the server gets before a call; null: none. */
    byte[] ticket;
    /** What is said of it before it. */
    CallMetadata said = CallMetadata.NONE;
    /** Frames that a metaserver gets after the request, by its stream. */
    final List<IntFunction<byte[]>> behind = new ArrayList<>();
    /** The latest placement from a metaserver, until it is handled. */
    final AtomicReference<MetaserverMessages.Placement> place = new AtomicReference<>();
    /** Runs when there is a placement. */
    Runnable placed = () -> { };
    /** When it began, when its result began to come, and when the result was complete: {@link System#nanoTime}. */
    volatile long begun;
    volatile long headAt;
    volatile long endAt;
    /** The stream; 0: not begun. Changed under the connection's lock. */
    int stream;
    ResultHead head;
    /** Arguments of a callback while they come; needs the connection's lock. */
    CallbackInvocation coming;
    /** The failure that ended it, if any; for an object, the reason of its end. Written before {@link #over}. */
    CallException why;
    /** The caller no longer waits, or the answer has come: nothing more is sent. For an object: it has ended. */
    volatile boolean over;
    /** All data has been sent. */
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

    /** Puts the request into {@code out}, with the frames before and after it. */
    void put(ByteBuffer out) {
        said.put(stream, out);
        if (ticket != null) {
            out.put(Protocol.ticket(stream, ticket));
        }
        out.put(Protocol.frame(kind, stream, body));
        behind.forEach(frame -> out.put(frame.apply(stream)));
    }

    /** Whether the other side gets a cancellation when the caller no longer waits. */
    boolean isEndedByCancel() {
        return switch (kind) {
            case Protocol.CALL, Protocol.PLACE, Protocol.CREATE, Protocol.INVOKE, Protocol.HOLD -> true;
            default -> false;
        };
    }

    /** Reads a result's head; returns why the result is refused, or null. */
    CallException begin(ResultHead result) {
        head = result;
        headAt = System.nanoTime();
        for (Value value : result.values()) {
            for (Target target : targets) {
                boolean is = value.file() != null && target.file && target.argument == value.param();
                // Compared as unsigned: a server may announce any length.
                if (is && Long.compareUnsigned(value.file(), target.bytes) > 0) {
                    return new CallException.File("a file of " + Long.toUnsignedString(value.file())
                            + " bytes would come back, which is more than the " + target.bytes + " that are taken", false);
                }
            }
        }
        return null;
    }

    /** Writes the next bytes of an array or file to their destination; returns why that fails, or null. */
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
     * Puts as much of the next chunk into {@code out} as fits. Returns a buffer to send after it without a copy, or null.
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

    /** Shorter chunks are copied, so that several are written at once. */
    private static final int WORTH = 64 << 10;
}
