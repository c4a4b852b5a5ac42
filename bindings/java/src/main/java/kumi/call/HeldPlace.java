package kumi.call;

/**
 * Where arrays of a call may stay.
 *
 * @param connection the connection to the server; null: the call goes where a metaserver says
 * @param grid the client of the metaserver; null: there is none
 */
record HeldPlace(Connection connection, Grid grid) {
    /** The server of a connection. */
    static HeldPlace at(Connection connection) {
        return new HeldPlace(connection, null);
    }

    /** The servers that a metaserver chooses. */
    static HeldPlace chosenBy(Grid grid) {
        return new HeldPlace(null, grid);
    }
}
