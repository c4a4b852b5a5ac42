package kumi.call;

import java.nio.ByteBuffer;
import kumi.call.wire.Protocol;
import kumi.call.wire.ServerHello;
import kumi.call.wire.TraceContext;

/**
 * What a client says of a call, in frames before it.
 *
 * @param output where the output of the routine goes; null: nowhere
 * @param resources the threads and the memory that it asks for; null: it asks for nothing
 * @param trace its place in a trace; null: it is in none
 */
record CallMetadata(CallOutput output, Resources resources, TraceContext trace) {
    /** Nothing is said. */
    static final CallMetadata NONE = new CallMetadata(null, null, null);

    /** What is said before the request for the place of the call. */
    CallMetadata ofPlace() {
        return new CallMetadata(null, null, trace);
    }

    /**
     * Checks that a server, as far as its hello says, gives what this asks for.
     *
     * @throws CallException.NoResources it is of an earlier version, which would skip what it is asked for
     */
    void check(ServerHello server) {
        if (resources != null && !server.givesResources()) {
            throw new CallException.NoResources("`" + server.name() + "` is of a version that gives calls no threads and no memory that"
                    + " they ask for: ask for nothing, or have it updated", 0);
        }
    }

    /** Puts the frames before a call on this stream. */
    void put(int stream, ByteBuffer out) {
        if (trace != null) {
            out.put(Protocol.trace(stream, trace));
        }
        if (resources != null) {
            out.put(Protocol.resources(stream, resources.encode()));
        }
        if (output != null) {
            out.put(Protocol.listen(stream));
        }
    }
}
