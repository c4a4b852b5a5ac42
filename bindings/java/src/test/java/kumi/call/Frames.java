package kumi.call;

import java.io.IOException;

/** Kinds of frames as the protocol numbers them, and a routine, for tests that speak it byte by byte. */
final class Frames {
    static final int CALL = 3;
    static final int CHUNK = 4;
    static final int CANCEL = 5;
    static final int PING = 6;
    static final int PONG = 7;
    static final int ERROR = 11;
    static final int FETCH = 14;
    static final int DROP = 15;
    static final int CREATE = 16;
    static final int CREATED = 17;
    static final int INVOKE = 18;
    static final int PLACE = 32;
    static final int PLACED = 33;
    static final int ATTEMPT_REPORT = 34;
    static final int CLOSED = 35;
    static final int TICKET = 46;
    static final int ATTEMPT_REASON = 130;
    static final int LISTEN = 131;
    static final int OUTPUT = 132;
    static final int TRACE = 133;
    static final int RESOURCES = 134;
    static final int HOLD = 215;

    /** {@code f(x[2]) -> y[2]}, which may run twice. */
    static final String ROUTINE = "{\"version\":1,\"name\":\"f\",\"idempotent\":true,\"params\":["
            + "{\"name\":\"x\",\"mode\":\"in\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"int\":2}}]},"
            + "{\"name\":\"y\",\"mode\":\"out\",\"type\":{\"number\":\"f64\"},\"dims\":[{\"size\":{\"int\":2}}]}],"
            + "\"target\":{\"language\":\"c\",\"symbol\":\"f\",\"arguments\":[]}}";

    private Frames() {}

    /** The result of a call of {@link #ROUTINE}: zeros. */
    static void array(FakeServer.Peer peer, int stream) throws IOException {
        peer.result(stream);
        peer.frame(CHUNK, stream, 1, new byte[16]);
    }
}
