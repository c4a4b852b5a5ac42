package kumi.call.idl;

/** Direction of a parameter. */
public enum Mode {
    /** To the server. */
    IN,
    /** From the server. */
    OUT,
    /** In both directions. */
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
