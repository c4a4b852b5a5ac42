package kumi.call.wire;

/** The other side broke the protocol: the connection cannot go on. */
public final class ProtocolException extends Exception {
    private static final long serialVersionUID = 1;

    ProtocolException(String message) {
        super(message);
    }
}
