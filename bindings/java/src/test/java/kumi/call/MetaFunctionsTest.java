package kumi.call;

import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Routines that have called a function of the program when their server goes, through a real metaserver. */
@Timeout(180)
class MetaFunctionsTest extends MetaFixture {
    private static final int POINTS = 10;

    @Override
    int count() {
        return 1;
    }

    /** Starts one more server, to which calls are sent from now on. */
    @Override
    void serve() throws Exception {
        ServerProcess one = ServerProcess.of("callbacks", "--meta", meta.address);
        servers.add(one);
        listed(meta, one);
    }

    /** The square; while it is computed for this point, the server that asks is killed when another is there. */
    private final class ServerKillingCallback implements Callback {
        private final int point;
        private final List<Double> seen = new ArrayList<>();

        ServerKillingCallback(int point) {
            this.point = point;
        }

        @Override
        public void call(CallbackArguments arguments) throws Exception {
            double x = arguments.real("x");
            seen.add(x);
            if (seen.size() == point + 1) {
                ServerProcess first = servers.get(0);
                serve();
                first.kill();
            }
            arguments.set("y", x * x);
        }
    }

    /** The points for which a routine wants the function, up to this one. */
    private static List<Double> points(int count) {
        return IntStream.range(0, count).mapToObj(i -> (i + 0.5) / POINTS).toList();
    }

    private void isNotRunAgain(ServerKillingCallback function, CallException.ConnectionLost lost) {
        assertFalse(lost.hasNotRun(), lost.getMessage());
        assertEquals(points(1), function.seen, lost.getMessage());
        // The server that is left would have been there for it.
        assertEquals(42, client.call("plain", 21).integer("twice"));
        assertEquals(points(1), function.seen);
    }

    @Test
    void notRunAgain() {
        ServerKillingCallback function = new ServerKillingCallback(0);
        isNotRunAgain(function, assertThrows(CallException.ConnectionLost.class,
                () -> client.call("integrate", POINTS, function)));
    }

    @Test
    void notRunAgainWhileNobodyWaits() {
        ServerKillingCallback function = new ServerKillingCallback(0);
        isNotRunAgain(function,
                failure(CallException.ConnectionLost.class, client.callAsync("integrate", POINTS, function)));
    }

    private void isRunAgain(ServerKillingCallback function, Result result) {
        double wanted = points(POINTS).stream().mapToDouble(x -> x * x / POINTS).sum();
        assertEquals(wanted, result.real("sum"), 1e-12);
        List<Double> all = new ArrayList<>(points(3));
        all.addAll(points(POINTS));
        assertEquals(all, function.seen, "all points anew, at the server that is left");
    }

    @Test
    void whatMayRunTwice() {
        ServerKillingCallback function = new ServerKillingCallback(2);
        isRunAgain(function, client.call("again", POINTS, function));
    }

    @Test
    void whatMayRunTwiceWhileNobodyWaits() throws Exception {
        ServerKillingCallback function = new ServerKillingCallback(2);
        isRunAgain(function, client.callAsync("again", POINTS, function).get(120, TimeUnit.SECONDS));
    }
}
