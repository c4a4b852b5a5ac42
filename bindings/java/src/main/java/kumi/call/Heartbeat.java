package kumi.call;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** Whether a metaserver is alive, though it has nothing to say. */
final class Heartbeat {
    /** How often it is asked, as long as anything is waited for. */
    private static final Duration OFTEN = Duration.ofSeconds(2);
    /** How often it may have missed to answer: counted, since a program that was stopped itself has heard nothing meanwhile. */
    private static final int MOST_MISSED = 4;

    private Heartbeat() {}

    /** Gives a connection up when it is silent, until it is broken. */
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
            // Who waits for anything was told.
            return;
        }
        Timer.after(OFTEN, () -> watch(connection, sign, waits ? missed + 1 : 0));
    }
}
