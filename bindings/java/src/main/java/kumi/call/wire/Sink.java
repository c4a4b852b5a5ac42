package kumi.call.wire;

import java.nio.ByteBuffer;
import java.util.List;

/** Receiver of a connection's events. There are none for abandoned streams. */
public interface Sink {
    /** The server's hello has come. */
    void hello(ServerHello hello);

    /** A description with its hash; the stream has ended. */
    void description(int stream, long hash, byte[] json);

    /** Names of routines; the stream has ended. */
    void names(int stream, List<String> names);

    /** A voucher for a held array, which is an answer of one text; the stream has ended. */
    default void voucher(int stream, String voucher) {
        names(stream, List.of(voucher));
    }

    /** A result's head; its arrays follow. */
    void result(int stream, Values.ResultHead head);

    /** The routine of a call that listens has printed this; {@code isCut}: it has printed more, which does not come. */
    void output(int stream, byte[] bytes, boolean isCut);

    /** The next bytes of an array; all of them must be consumed now. */
    void data(int stream, int argument, ByteBuffer bytes);

    /**
     * The routine of a call calls a callback. {@link ConnectionState#accept} or {@link ConnectionState#refuse} must be called now,
     * to decide about the arrays that follow.
     */
    void callback(int stream, Values.CallbackHead head);

    /** All arguments of a callback have come. When it has ended, {@link ConnectionState#returned} must be called. */
    void called(int stream);

    /** An object exists. Its stream lasts as long as the object, and ends with {@link #failed}. */
    void created(int stream);

    /** A metaserver places a call; it may place it again later. */
    void placed(int stream, MetaserverMessages.Placement placed);

    /** A complete result has come, or a metaserver has confirmed the call's end; the stream has ended. */
    void done(int stream);

    /** A failure; the stream has ended. */
    void failed(int stream, Failure failure);

    /** The server closes the connection. */
    void ended(Failure failure);

    /** A stream has ended, abandoned or not. */
    void closed(int stream);

    /** The server sent a ping; this is the answer to send. */
    void ping(byte[] pong);

    /** An answer to a ping. */
    void pong();
}
