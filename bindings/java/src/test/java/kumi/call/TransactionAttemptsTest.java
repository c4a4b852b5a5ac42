package kumi.call;

import static kumi.call.Frames.ATTEMPT_REASON;
import static kumi.call.Frames.CALL;
import static kumi.call.Frames.ROUTINE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What is said of a call of a transaction that was tried as often as it may be. */
@Timeout(120)
class TransactionAttemptsTest {
    private static final int BUSY = 5;

    /** Refuses every call. */
    private static void refuse(FakeServer.Peer peer, String why) throws IOException {
        while (true) {
            FakeServer.Frame frame = peer.next();
            if (frame.kind() == CALL) {
                peer.fail(frame.stream(), BUSY, why);
            }
        }
    }

    /** The failure of the only call, which the report tells with the same words. */
    private static String failure(Transaction t) {
        TransactionStep step = t.call("f", (Object) new double[2]);
        CallException.TransactionFailed failed = assertThrows(CallException.TransactionFailed.class, t::run);
        assertEquals(4, failed.report().steps().get(0).attempts());
        String told = assertThrows(CallException.Busy.class, step::result).getMessage();
        assertEquals("0 of 1 calls have run\ncall 0 (f) failed: " + told, failed.getMessage());
        return told;
    }

    @Test
    void eachNamedServerIsNamed() throws Exception {
        try (FakeServer one = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            refuse(peer, "full");
        }); FakeServer two = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            refuse(peer, "no room");
        }); KumiClient first = one.client(); KumiClient second = two.client(); Transaction t = Transaction.of(first, second)) {
            String both = " (" + one.address() + "): full;  (" + two.address() + "): no room";
            assertEquals("`f` failed in 4 attempts: " + both + "; " + both, failure(t));
        }
    }

    /** The metaserver hears that the fourth attempt was the last. */
    @Test
    void eachServerOfAMetaserverIsNamed() throws Exception {
        Queue<Integer> outcomes = new ConcurrentLinkedQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            refuse(peer, "full");
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(ROUTINE);
            int stream = peer.next().stream();
            for (int attempt = 1; attempt <= 5; attempt++) {
                peer.place(stream, 1, attempt, server.address());
                FakeServer.Frame report = peer.next();
                while (report.kind() == ATTEMPT_REASON) {
                    report = peer.next();
                }
                outcomes.add((int) report.body()[12]);
            }
        }); KumiClient client = meta.client(); Transaction t = client.transaction()) {
            String each = "s (" + server.address() + "): full";
            assertEquals("`f` failed in 4 attempts: " + String.join("; ", each, each, each, each), failure(t));
            WaitFor.eventually("the last report", () -> outcomes.size() >= 4);
            assertEquals(List.of(1, 1, 1, 3), List.copyOf(outcomes), "not begun, and failed for good");
        }
    }

    /** What has not begun in the last attempt may have run in one before. */
    @Test
    void whatMayHaveRunBefore() {
        CallException.Busy busy = new CallException.Busy("full");
        FailedAttempts attempts = new FailedAttempts();
        assertEquals(busy, attempts.error("f", busy));
        attempts.addAll(List.of("a (a:1): full"), false);
        assertEquals(busy, attempts.error("f", busy));
        assertEquals("full", busy.getMessage(), "the server of a single attempt is in the report");
        attempts.addAll(List.of("b (b:1): gone", "a (a:1): full"), true);
        CallException told = assertInstanceOf(CallException.NoServer.class, attempts.error("f", busy));
        assertFalse(told.hasNotRun());
        assertEquals(busy, told.getCause());
        assertEquals("`f` failed in 3 attempts: a (a:1): full; b (b:1): gone; a (a:1): full", told.getMessage());
        String further = attempts.error("f", new CallException.TimedOut("nobody is left", 0)).getMessage();
        assertTrue(further.endsWith("a (a:1): full; then nobody is left"), further);
    }
}
