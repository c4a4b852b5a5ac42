package kumi.call;

import static kumi.call.Frames.ATTEMPT_REPORT;
import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CHUNK;
import static kumi.call.Frames.CLOSED;
import static kumi.call.Frames.PING;
import static kumi.call.Frames.PLACE;
import static kumi.call.Frames.PONG;
import static kumi.call.Frames.ROUTINE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Servers of a transaction that are silent, or describe their routines badly. */
@Timeout(180)
class TransactionSilenceTest {
    private static final int NO_SOURCE = 17;
    /** The kind of a value that a server holds, behind the values' number and the parameter of the first. */
    private static final int FIRST_KIND = 8 + 4 + 2 + 1 + 4;
    private static final int HELD = 7;

    /** Takes calls and pings, and answers no question about an array. The first call that reads one fails because of that. */
    private static void serve(FakeServer.Peer peer, AtomicInteger readers) throws IOException {
        while (true) {
            FakeServer.Frame frame = peer.next();
            boolean reads = frame.kind() == CALL && frame.body()[FIRST_KIND] == HELD;
            if (frame.kind() == PING) {
                peer.frame(PONG, 0, 0, frame.body());
            } else if (reads && readers.incrementAndGet() == 1) {
                peer.fail(frame.stream(), NO_SOURCE, "");
            } else if (reads) {
                Frames.array(peer, frame.stream());
            } else if (frame.kind() == CHUNK) {
                peer.result(frame.stream());
            }
        }
    }

    /** Runs a call and one that reads it, each of which needs a second attempt. */
    private static void runsTwice(KumiClient client) {
        try (Transaction t = client.transaction()) {
            TransactionStep last = t.call("f", t.call("f", (Object) new double[2]));
            TransactionReport report = t.run();
            assertEquals(List.of(2, 2), report.steps().stream().map(TransactionReport.Step::attempts).toList());
            assertEquals(2, last.result().doubles("y").length);
        }
    }

    /** What a silent server held is made again, and it takes calls again when it gives a sign of life. */
    @Test
    void aNamedServerThatWasSilent() throws Exception {
        AtomicInteger readers = new AtomicInteger();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(ROUTINE);
            serve(peer, readers);
        }); KumiClient client = server.client()) {
            runsTwice(client);
        }
    }

    /** Where a metaserver sends calls again, they go over a new connection. */
    @Test
    void aServerOfAMetaserverThatWasSilent() throws Exception {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger connections = new AtomicInteger();
        try (FakeServer server = new FakeServer(peer -> {
            connections.incrementAndGet();
            peer.greet(8, Long.MAX_VALUE);
            serve(peer, readers);
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(ROUTINE);
            int call = 0;
            int stream = 0;
            while (true) {
                FakeServer.Frame frame = peer.next();
                if (frame.kind() == PLACE) {
                    stream = frame.stream();
                    peer.place(stream, ++call, 1, server.address());
                } else if (frame.kind() == ATTEMPT_REPORT && frame.body()[12] == 0) {
                    peer.frame(CLOSED, stream, 0, new byte[0]);
                } else if (frame.kind() == PING) {
                    peer.frame(PONG, 0, 0, frame.body());
                }
            }
        }); KumiClient client = meta.client()) {
            runsTwice(client);
            assertEquals(2, connections.get());
        }
    }

    /** A server that greets, and does this with the first question. */
    private static FakeServer fake(FakeServer.Script script) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            script.run(peer);
            peer.drain();
        });
    }

    /** A server that describes the routine and runs a call of it. */
    private static FakeServer good() throws IOException {
        return fake(peer -> {
            peer.describe(ROUTINE);
            FakeServer.Frame call = peer.next();
            peer.next();
            Frames.array(peer, call.stream());
        });
    }

    /** A client of the same connection that waits for descriptions no longer than this. */
    private static KumiClient impatient(KumiClient client) {
        return KumiClient.over(client.connection, ClientOptions.usual().connectTime(Duration.ofMillis(200)));
    }

    /** Describes everything badly. */
    private static void lie(FakeServer.Peer peer) throws IOException {
        while (true) {
            peer.describe("{}");
        }
    }

    /** Gives signs of life, and no answers. */
    private static void lives(FakeServer.Peer peer) throws IOException {
        while (true) {
            FakeServer.Frame frame = peer.next();
            if (frame.kind() == PING) {
                peer.frame(PONG, 0, 0, frame.body());
            }
        }
    }

    /** Whether it is asked first or last, a server that says nothing useful of a routine is as good as none. */
    @Test
    void badServersBesideAGoodOne() throws Exception {
        for (FakeServer.Script script : List.<FakeServer.Script>of(peer -> { }, TransactionSilenceTest::lie, FakeServer.Peer::next)) {
            for (boolean isFirst : new boolean[] {false, true}) {
                try (FakeServer bad = fake(script); FakeServer good = good(); KumiClient to = bad.client(); KumiClient other = good.client();
                        Transaction t = isFirst ? Transaction.of(impatient(to), other) : Transaction.of(other, impatient(to))) {
                    TransactionStep step = t.call("f", (Object) new double[2]);
                    assertEquals(good.address(), t.run().steps().get(0).server());
                    assertEquals(2, step.result().doubles("y").length);
                }
            }
        }
    }

    private static void names(String told, FakeServer server, String why) {
        int at = told.indexOf("(" + server.address() + "): ");
        assertTrue(at >= 0 && told.substring(at).split(";")[0].contains(why), server.address() + ", " + why + ": " + told);
    }

    @Test
    void ifNoneIsLeftEachIsNamed() throws Exception {
        try (FakeServer lost = fake(peer -> {
            peer.describe(ROUTINE);
            peer.next();
            peer.end();
        }); FakeServer bad = fake(TransactionSilenceTest::lie); FakeServer silent = fake(TransactionSilenceTest::lives);
                KumiClient one = lost.client(); KumiClient two = bad.client(); KumiClient three = silent.client()) {
            try (Transaction t = Transaction.of(one, two, impatient(three))) {
                TransactionStep step = t.call("f", (Object) new double[2]);
                assertThrows(CallException.TransactionFailed.class, t::run);
                String told = assertThrows(CallException.ConnectionLost.class, step::result).getMessage();
                told = told.substring(told.indexOf("no server of the transaction is left"));
                names(told, lost, "was lost");
                names(told, bad, "description");
                names(told, silent, "did not come in time");
            }
            try (Transaction t = Transaction.of(two, impatient(three))) {
                String told = assertThrows(CallException.NoServer.class, () -> t.call("f", (Object) new double[2])).getMessage();
                names(told, bad, "description");
                names(told, silent, "did not come in time");
            }
        }
    }
}
