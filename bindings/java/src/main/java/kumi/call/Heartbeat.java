package kumi.call;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** Regular pings of a metaserver: they detect one that no longer answers. */
final class Heartbeat {
    /** Time between two pings while the client waits for anything. */
    private static final Duration OFTEN = Duration.ofSeconds(2);
    /** Number of missed answers until the connection is given up. It is a count, since a stopped program hears nothing meanwhile. */
    private static final int MOST_MISSED = 4;

    private Heartbeat() {}

    /** Watches a connection until it is broken, and breaks one that is silent. */
    static void watch(Connection connection) {
        watch(connection, null, 0);
    }

    private static void watch(Connection connection, CompletableFuture<Void> asked, int missed) {
        boolean waits = asked != null && !asked.isDone();
        if (waits && missed >= MOST_MISSED) {
            connection.fail("it is silent");
        }
        if (connection.isBroken()) {
            return;
        }
        CompletableFuture<Void> sign;
        try {
            sign = waits ? asked : connection.isIdle() ? null : connection.ping();
        } catch (CallException.ConnectionLost gone) {
            // The connection has already notified waiting callers.
            return;
        }
        Timer.after(OFTEN, () -> watch(connection, sign, waits ? missed + 1 : 0));
    }
}
