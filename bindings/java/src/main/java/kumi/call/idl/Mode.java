package kumi.call.idl;

/** Which way a parameter goes. */
public enum Mode {
    /** To the server. */
    IN,
    /** Back. */
    OUT,
    /** There and back. */
    INOUT,
    /** Memory the routine needs; never sent. */
    WORK;

    /** Whether it is sent to the server. */
    public boolean isSent() {
        return this == IN || this == INOUT;
    }

    /** Whether it is sent back. */
    public boolean isReturned() {
        return this == OUT || this == INOUT;
    }
}
