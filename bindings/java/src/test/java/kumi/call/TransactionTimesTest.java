package kumi.call;

import static kumi.call.Frames.ATTEMPT_REPORT;
import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CANCEL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.CLOSED;
import static kumi.call.Frames.PLACE;
import static kumi.call.Frames.ROUTINE;
import static kumi.call.WaitFor.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The time limits of calls and of their transaction. */
@Timeout(120)
class TransactionTimesTest {
    private static final int TIMED_OUT = 7;
    private static final Duration LONG = Duration.ofHours(1);

    /** Takes so many calls, and gives their streams by the first number that each sends. */
    private static Map<Double, Integer> calls(FakeServer.Peer peer, int count) throws IOException {
        Map<Double, Integer> streams = new HashMap<>();
        while (streams.size() < count) {
            FakeServer.Frame frame = peer.next();
            if (frame.kind() == CHUNK) {
                streams.put(ByteBuffer.wrap(frame.body()).order(ByteOrder.LITTLE_ENDIAN).getDouble(), frame.stream());
            }
        }
        return streams;
    }

    private static int milliseconds(FakeServer.Frame frame, int at) {
        return ByteBuffer.wrap(frame.body()).order(ByteOrder.LITTLE_ENDIAN).getInt(at);
    }

    /** Runs three calls: the first takes too long, the second reads it, and the third is done when that is known. */
    private static void oneIsLate(KumiClient client, Duration limit) {
        try (Transaction t = client.transaction().within(LONG)) {
            TransactionCall first = t.prepare("f").add((Object) new double[] {1, 1});
            TransactionStep late = (limit == null ? first : first.within(limit)).record();
            TransactionStep reads = t.call("f", late);
            TransactionStep other = t.call("f", (Object) new double[] {2, 2});
            CallException.TransactionFailed failed = assertThrows(CallException.TransactionFailed.class, t::run);
            assertEquals(List.of(TransactionReport.Outcome.FAILED, TransactionReport.Outcome.SKIPPED, TransactionReport.Outcome.DONE),
                    failed.report().steps().stream().map(TransactionReport.Step::outcome).toList());
            assertThrows(CallException.TimedOut.class, late::result);
            assertThrows(CallException.Skipped.class, reads::result);
            assertEquals(2, other.result().doubles("y").length);
        }
    }

    /** Lets the first call be late in one of two ways: its server says so, or says nothing until the client gives it up. */
    private static void endOne(FakeServer.Peer peer, int stream, boolean isSilent) throws IOException {
        if (isSilent) {
            FakeServer.Frame cancel = peer.next();
            assertEquals(List.of(CANCEL, stream), List.of(cancel.kind(), cancel.stream()));
        } else {
            peer.fail(stream, TIMED_OUT, "");
        }
    }

    /** A call whose time is over fails, with those that read it. The transaction has time, and the others run on. */
    @Test
    void oneLateCallOfAMetaserver() throws Exception {
        for (boolean isSilent : new boolean[] {false, true}) {
            CountDownLatch isKnown = new CountDownLatch(1);
            try (FakeServer server = new FakeServer(peer -> {
                peer.greet(8, Long.MAX_VALUE);
                Map<Double, Integer> streams = calls(peer, 2);
                endOne(peer, streams.get(1.0), isSilent);
                await(isKnown);
                Frames.array(peer, streams.get(2.0));
                peer.drain();
            }); FakeServer meta = new FakeServer(peer -> {
                peer.greetAsMetaserver();
                peer.describe(ROUTINE);
                for (int call = 1; call <= 2; call++) {
                    FakeServer.Frame place = peer.next();
                    assertEquals(PLACE, place.kind());
                    peer.place(place.stream(), call, 1, server.address());
                }
                while (peer.next().kind() != ATTEMPT_REPORT) {
                    // Why the attempt failed comes before.
                    continue;
                }
                isKnown.countDown();
                peer.drain();
            }); KumiClient client = meta.client()) {
                oneIsLate(client, isSilent ? Duration.ofMillis(100) : null);
            }
        }
    }

    @Test
    void oneLateCallOfANamedServer() throws Exception {
        for (boolean isSilent : new boolean[] {false, true}) {
            try (FakeServer server = new FakeServer(peer -> {
                peer.greet(8, Long.MAX_VALUE);
                peer.describe(ROUTINE);
                Map<Double, Integer> streams = calls(peer, 2);
                endOne(peer, streams.get(1.0), isSilent);
                Frames.array(peer, streams.get(2.0));
                peer.drain();
            }); KumiClient client = server.client()) {
                oneIsLate(client, isSilent ? Duration.ofMillis(100) : null);
            }
        }
    }

    /** The limit of a call is one of its attempts at servers: the metaserver hears of the transaction's time only. */
    @Test
    void aCallThatWaitsForItsPlaceHasTime() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            FakeServer.Frame frame = peer.next();
            while (frame.kind() != CALL) {
                frame = peer.next();
            }
            frames.add(frame);
            Frames.array(peer, frame.stream());
            peer.drain();
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(ROUTINE);
            FakeServer.Frame place = peer.next();
            frames.add(place);
            peer.place(place.stream(), 1, 1, server.address());
            assertEquals(ATTEMPT_REPORT, peer.next().kind());
            peer.frame(CLOSED, place.stream(), 0, new byte[0]);
            peer.drain();
        }); KumiClient client = meta.client(); Transaction t = client.transaction().within(LONG)) {
            Duration own = Duration.ofMinutes(10);
            t.prepare("f").add((Object) new double[2]).within(own).record();
            t.run();
            int placed = milliseconds(frames.take(), 48);
            assertTrue(placed > own.toMillis() && placed <= LONG.toMillis(), "until its place is known: " + placed);
            assertEquals(own.toMillis(), milliseconds(frames.take(), 8), "at its server");
        }
    }
}
