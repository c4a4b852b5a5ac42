package kumi.call.wire;

import java.nio.ByteBuffer;
import java.util.List;

/** Who is told what has come over a connection. Streams that nobody waits for any more are not spoken of. */
public interface Sink {
    /** The server has said who it is. */
    void hello(ServerHello hello);

    /** A description with its hash; the stream has ended. */
    void description(int stream, long hash, byte[] json);

    /** Names of routines; the stream has ended. */
    void names(int stream, List<String> names);

    /** A result's head; its arrays follow. */
    void result(int stream, Values.ResultHead head);

    /** The next bytes of an array, all of which are to be taken now. */
    void data(int stream, int argument, ByteBuffer bytes);

    /**
     * The routine of a call calls a function: {@link ConnectionState#accept} or {@link ConnectionState#refuse} is to be called now, by
     * which it is said what becomes of its arrays, which follow.
     */
    void callback(int stream, Values.CallbackHead head);

    /** All that a function is called with has come; {@link ConnectionState#returned} is to be called when it has ended. */
    void called(int stream);

    /** An object is there; its stream goes on as long as it is, and ends with {@link #failed}. */
    void created(int stream);

    /** A metaserver says where a call is to go; it may say so again. */
    void placed(int stream, MetaserverMessages.Placement placed);

    /** All of a result has come, or a metaserver knows that the call is over; the stream has ended. */
    void done(int stream);

    /** A failure; the stream has ended. */
    void failed(int stream, Failure failure);

    /** The server gives up the connection. */
    void ended(Failure failure);

    /** A stream has ended, whether somebody waited for it or not. */
    void closed(int stream);

    /** The server asks for a sign of life; this is to be sent. */
    void ping(byte[] pong);

    /** A sign of life. */
    void pong();
}
