package kumi.call;

import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CREATE;
import static kumi.call.Frames.LISTEN;
import static kumi.call.Frames.RESOURCES;
import static kumi.call.Frames.TICKET;
import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Threads and memory that calls and objects ask for. */
@Timeout(180)
class ResourcesTest {
    /** Tag of the hello of a server that gives what is asked for. */
    private static final int TAG = 13;

    private static Resources threads(int count) {
        return Resources.of(count, 0);
    }

    private static Result asking(KumiClient client, int threads) {
        return client.prepare("threads").resources(threads(threads)).call();
    }

    private static CallException.NoResources refusal(Executable call) {
        CallException.NoResources refused = assertThrows(CallException.NoResources.class, call);
        assertTrue(refused.hasNotRun(), refused.getMessage());
        return refused;
    }

    private static ServerProcess served(String... options) throws IOException {
        return ServerProcess.of("resources", options);
    }

    @Test
    void aRoutineHasTheThreadsThatItsCallAsksFor() throws Exception {
        try (ServerProcess server = served("--slots", "3", "--threads", "1"); KumiClient client = server.client()) {
            assertEquals(1, client.call("threads").integer("omp"));
            Result three = asking(client, 3);
            assertEquals(3, three.integer("omp"));
            assertEquals(3, three.integer("openblas"));
            assertEquals(3, three.integer("mkl"));
            Call later = client.prepare("threads").resources(threads(2)).output(new CallOutput());
            assertEquals(2, later.callAsync().get(60, TimeUnit.SECONDS).integer("omp"));
            assertEquals(1, client.call("threads").integer("omp"), "the next call has the server's");
            CallException.NoResources refused = refusal(() -> asking(client, 4));
            assertTrue(refused.code() == 33 && refused.getMessage().contains("3 slots of 1"), refused.getMessage());
            String memory = refusal(() -> client.prepare("threads").resources(Resources.of(1, 1L << 30)).call()).getMessage();
            assertTrue(memory.contains("1073741824 bytes") && memory.contains("--slot-memory"), memory);
            failure(CallException.NoResources.class, client.prepare("threads").resources(threads(4)).callAsync());
            assertEquals(1, client.call("threads").integer("omp"), "the connection goes on");
        }
    }

    @Test
    void anObjectHasTheThreadsWithWhichItWasMade() throws Exception {
        try (ServerProcess server = served("--slots", "2", "--threads", "1"); KumiClient client = server.client();
                RemoteObject wide = client.object("holder", null, 0, threads(2)); RemoteObject usual = client.object("holder")) {
            assertEquals(2, wide.call("threads").integer("omp"));
            assertEquals(1, usual.call("threads").integer("omp"));
            assertEquals(2, wide.call("threads").integer("omp"));
            String refused = refusal(() -> client.object("holder", null, 0, threads(3))).getMessage();
            assertTrue(refused.contains("`holder` asks for 3 threads"), refused);
            CallException own = assertThrows(CallException.Argument.class,
                    () -> wide.prepare("threads").resources(threads(1)).call());
            assertTrue(own.getMessage().contains("with which its object was made"), own.getMessage());
        }
    }

    @Test
    void aMetaserverSendsACallToAServerThatGivesWhatItAsksFor() throws Exception {
        try (ServerProcess meta = ServerProcess.meta("--policy", "round-robin");
                ServerProcess narrow = served("--slots", "1", "--threads", "1", "--meta", meta.address);
                ServerProcess wide = served("--slots", "3", "--threads", "1", "--meta", meta.address);
                KumiClient client = meta.client()) {
            listed(meta, narrow);
            listed(meta, wide);
            for (int call = 0; call < 4; call++) {
                assertEquals(3, asking(client, 3).integer("omp"));
            }
            assertEquals(1, client.call("threads").integer("omp"));
            try (RemoteObject object = client.object("holder", Duration.ofMinutes(1), 0, threads(3))) {
                assertEquals(3, object.call("threads").integer("omp"));
            }
            CallException.NoServer none = assertThrows(CallException.NoServer.class, () -> asking(client, 4));
            assertTrue(none.hasNotRun() && none.getCause() instanceof CallException.NoResources, none.getMessage());
            assertTrue(none.getMessage().contains("1 slots") && none.getMessage().contains("3 slots"), none.getMessage());
        }
    }

    @Test
    void whatCannotBeAskedFor() {
        assertThrows(IllegalArgumentException.class, () -> Resources.of(0, 0));
        assertThrows(IllegalArgumentException.class, () -> Resources.of(-1, 5));
        assertThrows(IllegalArgumentException.class, () -> Resources.of(1, -5));
        assertEquals(2, Resources.of(2, 0).threads());
        assertEquals(7, Resources.of(0, 7).memory());
    }

    /** The frame goes before LISTEN, and before a call. Its bytes are those of the protocol's page. */
    @Test
    void framesInTheirOrder() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greetWithField(TAG, 1);
            peer.describe(FakeServer.ROUTINE);
            for (int count = 0; count < 3; count++) {
                frames.add(peer.next());
            }
            FakeServer.Frame call = frames.stream().skip(2).findFirst().orElseThrow();
            peer.result(call.stream());
            for (int count = 0; count < 2; count++) {
                frames.add(peer.next());
            }
            peer.drain();
        }); KumiClient client = fake.client()) {
            client.prepare("f").resources(Resources.of(3, 256 << 20)).output(new CallOutput()).call();
            assertThrows(CallException.TimedOut.class,
                    () -> client.object("f", Duration.ofMillis(50), 0, Resources.of(3, 256 << 20)));
            FakeServer.Frame asked = frames.take();
            assertEquals(RESOURCES, asked.kind());
            assertArrayEquals(HexFormat.of().parseHex("030000000000001000000000"), asked.body());
            FakeServer.Frame listen = frames.take();
            FakeServer.Frame call = frames.take();
            assertTrue(listen.kind() == LISTEN && call.kind() == CALL);
            assertTrue(asked.stream() == call.stream() && listen.stream() == call.stream());
            assertArrayEquals(asked.body(), frames.take().body());
            assertEquals(CREATE, frames.take().kind());
        }
    }

    /** Servers whose hello does not say that they give it, or says something else. */
    @Test
    void earlierServersAreAskedForNothing() throws Exception {
        for (int[] content : new int[][] {{0}, {2}, {}, {1, 1}}) {
            BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
            try (FakeServer fake = new FakeServer(peer -> {
                peer.greetWithField(TAG, content);
                peer.describe(FakeServer.ROUTINE);
                FakeServer.Frame call = peer.next();
                kinds.add(call.kind());
                peer.result(call.stream());
                peer.drain();
            }); KumiClient client = fake.client()) {
                String text = refusal(() -> client.prepare("f").resources(threads(1)).call()).getMessage();
                assertTrue(text.contains("of a version"), text);
                refusal(() -> client.object("f", null, 0, threads(1)));
                client.call("f");
                assertEquals(CALL, kinds.take(), "it hears of no other call");
            }
        }
    }

    /** A server that a metaserver names: the frame goes before TICKET, and to an earlier server there goes no call. */
    @Test
    void serversOfAMetaserver() throws Exception {
        for (boolean gives : new boolean[] {true, false}) {
            BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
            BlockingQueue<FakeServer.Frame> reports = new LinkedBlockingQueue<>();
            try (FakeServer server = new FakeServer(peer -> {
                peer.greetWithField(TAG, gives ? 1 : 0);
                for (int count = 0; count < 3; count++) {
                    FakeServer.Frame frame = peer.next();
                    kinds.add(frame.kind());
                    if (frame.kind() == CALL) {
                        peer.result(frame.stream());
                    }
                }
                peer.drain();
            }); FakeServer meta = new FakeServer(peer -> {
                peer.greetAsMetaserver();
                peer.describe(FakeServer.ROUTINE);
                FakeServer.Frame place = peer.next();
                peer.place(place.stream(), 7, 1, server.address());
                FakeServer.Frame report = peer.next();
                while (report.kind() != 34) {
                    report = peer.next();
                }
                reports.add(report);
                peer.frame(35, place.stream(), 0, new byte[0]);
                peer.drain();
            }); KumiClient client = meta.client()) {
                Call call = client.prepare("f").resources(threads(2));
                if (gives) {
                    call.call();
                    assertEquals(RESOURCES, kinds.take());
                    assertEquals(TICKET, kinds.take());
                    assertEquals(CALL, kinds.take());
                } else {
                    refusal(call::call);
                    assertTrue(kinds.isEmpty());
                }
                assertEquals(gives ? 0 : 1, reports.take().body()[12], "it has run, or not begun");
            }
        }
    }
}
