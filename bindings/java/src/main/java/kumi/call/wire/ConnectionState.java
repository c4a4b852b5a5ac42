package kumi.call.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The client's state of a connection: its unanswered requests. Not safe for several threads at once. */
public final class ConnectionState {
    /** An array that comes back. */
    private static final class IncomingArray {
        private final int argument;
        private long left;

        IncomingArray(int argument, long left) {
            this.argument = argument;
            this.left = left;
        }
    }

    /** State of a callback that a routine has called. */
    private enum CallbackState {
        /** No callback. */
        NONE,
        /** The client must accept or refuse its arrays. */
        ASKED,
        /** Its arrays are coming. */
        COMING,
        /** It was refused: its arrays are skipped. */
        REFUSED,
        /** It runs. */
        RUNS
    }

    /** A request. */
    private static final class Stream {
        private final int kind;
        private final List<IncomingArray> parts = new ArrayList<>();
        /** Parameters of files that come back. */
        private final List<Integer> files = new ArrayList<>();
        /** Arrays of the callback in progress. */
        private List<IncomingArray> given = List.of();
        private CallbackState back = CallbackState.NONE;
        private boolean begun;
        private boolean wanted = true;
        /** It has asked for what its routine prints. */
        private boolean listens;

        Stream(int kind) {
            this.kind = kind;
        }

        static boolean isComplete(List<IncomingArray> parts) {
            return parts.stream().allMatch(part -> part.left == 0);
        }

        /** Whether a result or a callback may follow. */
        boolean isRunning() {
            return isCall() && !begun && back == CallbackState.NONE;
        }

        /** Whether a result may come. */
        boolean awaitsResult() {
            return isRunning() || isOfHeldArray() && !begun;
        }

        /** Whether a held array is fetched or sent. */
        boolean isOfHeldArray() {
            return kind == Protocol.FETCH || kind == Protocol.HOLD;
        }

        boolean isCall() {
            return kind == Protocol.CALL || kind == Protocol.INVOKE;
        }
    }

    private final Sink sink;
    private final Map<Integer, Stream> streams = new HashMap<>();
    private boolean greeted;
    private int next;
    private int needed = Protocol.HELLO;
    /** Remaining bytes of the current chunk. */
    private int left;
    private int chunkStream;
    /** The chunk's destination; null: it is skipped. */
    private IncomingArray chunk;

    /** A connection that has received nothing. */
    public ConnectionState(Sink sink) {
        this.sink = sink;
    }

    /** Begins a request of this kind. Returns its stream, whose number no open stream has. */
    public int begin(int kind) {
        do {
            next++;
        } while (next == 0 || streams.containsKey(next));
        streams.put(next, new Stream(kind));
        return next;
    }

    /** Announces that a stream's call asks for what its routine prints. */
    public void listen(int stream) {
        streams.get(stream).listens = true;
    }

    /** Announces an array of this many bytes that comes back in a stream's parameter. */
    public void expect(int stream, int argument, long bytes) {
        streams.get(stream).parts.add(new IncomingArray(argument, bytes));
    }

    /** Announces a file that comes back in a stream's parameter; its length comes with the result. */
    public void expectFile(int stream, int argument) {
        streams.get(stream).files.add(argument);
    }

    /** Accepts a callback, whose arrays have this many bytes, by parameter. */
    public void accept(int stream, Map<Integer, Long> sizes) {
        Stream open = streams.get(stream);
        if (open != null && open.back == CallbackState.ASKED) {
            open.given = sizes.entrySet().stream().map(size -> new IncomingArray(size.getKey(), size.getValue())).toList();
            open.back = Stream.isComplete(open.given) ? CallbackState.RUNS : CallbackState.COMING;
        }
    }

    /** Refuses a callback: its arrays are skipped. */
    public void refuse(int stream) {
        Stream open = streams.get(stream);
        if (open != null && open.back == CallbackState.ASKED) {
            open.back = CallbackState.REFUSED;
        }
    }

    /** A callback has ended, with success or not. Returns whether to send its outcome; false: its call has ended meanwhile. */
    public boolean returned(int stream, boolean well) {
        Stream open = streams.get(stream);
        if (open != null && open.back == CallbackState.RUNS) {
            open.back = CallbackState.NONE;
            return true;
        }
        return open != null && open.back == CallbackState.REFUSED && !well;
    }

    /** The caller no longer waits for this stream: its further frames are skipped. */
    public void abandon(int stream) {
        Stream open = streams.get(stream);
        if (open != null) {
            open.wanted = false;
        }
    }

    /** Number of open streams. */
    public int open() {
        return streams.size();
    }

    /** Least number of input bytes for the next step. */
    public int needed() {
        return needed;
    }

    /**
     * Handles as much input as possible, and leaves the rest.
     *
     * @throws ProtocolException the server broke the protocol
     */
    public void take(ByteBuffer input) throws ProtocolException {
        while (step(input)) {
            needed = 1;
        }
    }

    /** One step; false: more input is needed. */
    private boolean step(ByteBuffer input) throws ProtocolException {
        if (!greeted) {
            needed = ServerHello.needed(input);
            ServerHello hello = ServerHello.decode(input);
            greeted = hello != null;
            if (greeted) {
                sink.hello(hello);
            }
            return greeted;
        }
        if (left > 0) {
            return data(input);
        }
        if (input.remaining() < Protocol.HEADER) {
            needed = Protocol.HEADER;
            return false;
        }
        int at = input.position();
        int length = input.getInt(at);
        int stream = input.getInt(at + 4);
        int kind = input.get(at + 8) & 0xff;
        int argument = input.getShort(at + 10) & 0xffff;
        check(length, stream, kind, input.get(at + 9) & 0xff, argument);
        if (kind == Protocol.CHUNKS || isUnknownExtension(kind)) {
            input.position(at + Protocol.HEADER);
            chunk = kind == Protocol.CHUNKS ? part(stream, argument, length) : null;
            chunkStream = stream;
            left = length;
            return true;
        }
        Stream asked = asked(kind, stream);
        // Memory for a long answer is allocated only once it is known that it was requested.
        if (input.remaining() - Protocol.HEADER < length) {
            needed = Protocol.HEADER + length;
            return false;
        }
        ByteBuffer body = input.slice(at + Protocol.HEADER, length).order(input.order());
        input.position(at + Protocol.HEADER + length);
        try {
            answer(kind, stream, asked, body);
        } catch (ProtocolException wrong) {
            throw new ProtocolException("a malformed frame of kind " + kind + ": " + wrong.getMessage());
        }
        return true;
    }

    private static boolean isUnknownExtension(int kind) {
        return kind >= Protocol.EXTENSIONS && kind != Protocol.OUTPUT;
    }

    private static void check(int length, int stream, int kind, int flags, int argument) throws ProtocolException {
        boolean extension = isUnknownExtension(kind);
        boolean output = kind == Protocol.OUTPUT;
        boolean meta = kind == Protocol.PLACED || kind == Protocol.CLOSED;
        if (kind == 0 || kind > Protocol.CALLBACK && kind != Protocol.CREATED && kind != Protocol.VOUCHER && !extension && !output && !meta) {
            throw new ProtocolException("a frame of kind " + kind + ", which is unknown or not allowed here");
        }
        boolean long_ = kind == Protocol.CHUNKS || extension;
        int most = long_ ? Protocol.MOST_CHUNK : output ? 1 + Protocol.MOST_OUTPUT : kind == Protocol.CREATED ? 0
                : kind == Protocol.VOUCHER ? Protocol.MOST_VOUCHER : meta ? Protocol.MOST_REQUEST : Protocol.MOST_ANSWER;
        if (length < 0 || length > most) {
            throw new ProtocolException("a frame of kind " + kind + " with " + Integer.toUnsignedString(length)
                    + " bytes of at most " + most);
        }
        boolean connection = kind == Protocol.PING || kind == Protocol.PONG;
        if (connection && length != 8) {
            throw new ProtocolException("a sign of life of " + length + " bytes");
        }
        boolean placed = connection ? stream == 0 : stream != 0 || kind == Protocol.ERROR || extension;
        if (!placed || argument != 0 && !long_ || flags != 0 && !extension) {
            throw new ProtocolException("a frame of kind " + kind + " with wrong flags, argument or stream "
                    + Integer.toUnsignedString(stream));
        }
    }

    private static ProtocolException unasked(int kind, int stream) {
        return new ProtocolException(
                "a frame of kind " + kind + " for stream " + Integer.toUnsignedString(stream) + " answers nothing");
    }

    /** The destination of a chunk's bytes. */
    private IncomingArray part(int stream, int argument, int length) throws ProtocolException {
        Stream open = streams.get(stream);
        if (open != null && !open.begun && open.back == CallbackState.REFUSED) {
            return null;
        }
        if (open == null || !open.begun && open.back != CallbackState.COMING) {
            throw unasked(Protocol.CHUNKS, stream);
        }
        for (IncomingArray part : open.begun ? open.parts : open.given) {
            // Compared as unsigned: a server may announce any length of a file.
            if (part.argument == argument && Long.compareUnsigned(length, part.left) <= 0) {
                return part;
            }
        }
        throw excess(stream, argument);
    }

    private static ProtocolException excess(int stream, int argument) {
        return new ProtocolException("stream " + Integer.toUnsignedString(stream) + " brings more bytes than argument "
                + argument + " has");
    }

    private boolean data(ByteBuffer input) {
        int here = Math.min(left, input.remaining());
        if (here == 0) {
            needed = 1;
            return false;
        }
        left -= here;
        ByteBuffer bytes = input.slice(input.position(), here).order(input.order());
        input.position(input.position() + here);
        if (chunk == null) {
            return true;
        }
        chunk.left -= here;
        Stream open = streams.get(chunkStream);
        if (open == null) {
            return true;
        }
        if (open.wanted) {
            sink.data(chunkStream, chunk.argument, bytes);
        }
        if (!open.begun) {
            given(chunkStream, open);
        } else if (Stream.isComplete(open.parts)) {
            complete(chunkStream, open);
        }
        return true;
    }

    /** Bytes for a callback have come. */
    private void given(int stream, Stream open) {
        if (Stream.isComplete(open.given)) {
            open.back = open.wanted ? CallbackState.RUNS : CallbackState.REFUSED;
            if (open.wanted) {
                sink.called(stream);
            }
        }
    }

    private void complete(int stream, Stream open) {
        end(stream);
        if (open.wanted) {
            sink.done(stream);
        }
    }

    private void end(int stream) {
        streams.remove(stream);
        sink.closed(stream);
    }

    /** The stream that a frame answers; null: it concerns the connection. */
    private Stream asked(int kind, int stream) throws ProtocolException {
        if (kind == Protocol.PING || kind == Protocol.PONG || kind == Protocol.ERROR && stream == 0) {
            return null;
        }
        Stream open = streams.get(stream);
        boolean fits = open != null && switch (kind) {
            case Protocol.DESCRIPTION -> open.kind == Protocol.INTERFACE;
            case Protocol.NAMES -> open.kind == Protocol.LIST;
            case Protocol.VOUCHER -> open.kind == Protocol.VOUCH;
            case Protocol.RESULT -> open.awaitsResult();
            case Protocol.CALLBACK -> open.isRunning();
            // A second answer for an existing object answers nothing.
            case Protocol.CREATED -> open.kind == Protocol.CREATE && !open.begun;
            case Protocol.PLACED, Protocol.CLOSED -> open.kind == Protocol.PLACE;
            case Protocol.OUTPUT -> open.isCall() && open.listens && !open.begun;
            case Protocol.ERROR -> true;
            default -> throw new ProtocolException(
                    "a frame of kind " + kind + ", which is unknown or not allowed here");
        };
        if (!fits) {
            throw unasked(kind, stream);
        }
        return open;
    }

    private void result(int stream, Stream asked, Values.ResultHead head) throws ProtocolException {
        asked.begun = true;
        if (asked.isOfHeldArray() && !head.values().isEmpty()) {
            throw new ProtocolException("a held array comes with values");
        }
        for (Values.Value value : head.values()) {
            if (value.file() != null) {
                if (!asked.files.remove((Integer) value.param())) {
                    throw excess(stream, value.param());
                }
                asked.parts.add(new IncomingArray(value.param(), value.file()));
            }
        }
        if (asked.wanted) {
            sink.result(stream, head);
        }
        if (Stream.isComplete(asked.parts)) {
            complete(stream, asked);
        }
    }

    private void callback(int stream, Stream asked, Values.CallbackHead head) {
        if (!asked.wanted) {
            asked.back = CallbackState.REFUSED;
            return;
        }
        asked.back = CallbackState.ASKED;
        sink.callback(stream, head);
        if (asked.back == CallbackState.RUNS) {
            sink.called(stream);
        }
    }

    private void output(int stream, Stream asked, Cursor cursor) throws ProtocolException {
        int cut = cursor.u8();
        if (cut > 1) {
            throw new ProtocolException("output that says " + cut);
        }
        ByteBuffer rest = cursor.rest();
        byte[] bytes = new byte[rest.remaining()];
        rest.get(bytes);
        if (asked.wanted) {
            sink.output(stream, bytes, cut == 1);
        }
    }

    private void voucher(int stream, Stream asked, ByteBuffer body) throws ProtocolException {
        if (!body.hasRemaining()) {
            throw new ProtocolException("an empty voucher");
        }
        Cursor cursor = new Cursor(body);
        String voucher = cursor.name(body.remaining());
        end(stream);
        if (asked.wanted) {
            sink.voucher(stream, voucher);
        }
    }

    private void answer(int kind, int stream, Stream asked, ByteBuffer body) throws ProtocolException {
        switch (kind) {
            case Protocol.PING -> {
                byte[] sign = new byte[8];
                body.get(sign);
                sink.ping(Protocol.frame(Protocol.PONG, 0, sign));
            }
            case Protocol.PONG -> sink.pong();
            case Protocol.ERROR -> {
                Failure failure = Failure.decode(body);
                if (asked == null) {
                    sink.ended(failure);
                    return;
                }
                end(stream);
                if (asked.wanted) {
                    sink.failed(stream, failure);
                }
            }
            case Protocol.PLACED -> {
                MetaserverMessages.Placement placed = MetaserverMessages.Placement.decode(body);
                if (asked.wanted) {
                    sink.placed(stream, placed);
                }
            }
            case Protocol.CLOSED -> {
                if (body.hasRemaining()) {
                    throw new ProtocolException("it is longer than what it says");
                }
                complete(stream, asked);
            }
            case Protocol.OUTPUT -> output(stream, asked, new Cursor(body));
            case Protocol.VOUCHER -> voucher(stream, asked, body);
            case Protocol.CREATED -> {
                asked.begun = true;
                if (asked.wanted) {
                    sink.created(stream);
                }
            }
            case Protocol.RESULT -> result(stream, asked, Values.ResultHead.decode(body));
            case Protocol.CALLBACK -> callback(stream, asked, Values.CallbackHead.decode(body));
            case Protocol.DESCRIPTION -> {
                Cursor cursor = new Cursor(body);
                long hash = cursor.i64();
                ByteBuffer rest = cursor.rest();
                byte[] json = new byte[rest.remaining()];
                rest.get(json);
                Cursor.text(ByteBuffer.wrap(json));
                end(stream);
                if (asked.wanted) {
                    sink.description(stream, hash, json);
                }
            }
            default -> {
                Cursor cursor = new Cursor(body);
                List<String> names = new ArrayList<>();
                while (!cursor.isEmpty()) {
                    names.add(cursor.name(cursor.u16()));
                }
                end(stream);
                if (asked.wanted) {
                    sink.names(stream, List.copyOf(names));
                }
            }
        }
    }
}
