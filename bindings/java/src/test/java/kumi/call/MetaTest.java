package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Calls through a real metaserver, at real servers. */
@Timeout(180)
class MetaTest extends MetaFixture {
    /** How the metaserver shows a call that has failed, with the reason that the client has told. */
    private static final Pattern SHOWN = Pattern.compile("\"reason\":\"[^\"]*\\(127\\.0\\.0\\.1:[0-9]+\\):[^\"]*crashed");

    /** Begins a call of a routine that waits for this file, and waits until it runs. */
    private static CompletableFuture<Result> held(KumiClient by, GateFile gate) throws Exception {
        CompletableFuture<Result> waits = by.callAsync("gate", gate.name());
        gate.untilBegun();
        return waits;
    }

    @Test
    void callsGoToServers() {
        assertArrayEquals(new double[] {19, 22, 43, 50},
                client.call("dmmul", 2, new double[] {1, 2, 3, 4}, new double[] {5, 6, 7, 8}).doubles("C"));
        assertTrue(client.names("dmm").contains("dmmul"));
        // A time limit that no clock counts is as good as none.
        assertTrue(client.prepare("nap").add(0).within(Duration.ofSeconds(Long.MAX_VALUE)).call().integer("pid") > 0);
        assertThrows(CallException.RoutineNotFound.class, () -> client.call("dmmull", 1));
        Set<Long> processes = new HashSet<>();
        for (int turn = 0; turn < 8; turn++) {
            processes.add(client.prepare("nap").add(0).priority(turn).call().integer("pid"));
        }
        assertTrue(processes.size() >= 2, "calls go to both servers");
    }

    @Test
    void aServerThatGoes(@TempDir Path folder) throws Exception {
        GateFile gate = new GateFile(folder.resolve("gate"));
        CompletableFuture<Result> waits = held(client, gate);
        for (ServerProcess one : servers) {
            one.kill();
        }
        CallException lost = failure(CallException.class, waits);
        assertFalse(lost.hasNotRun(), lost.getMessage());
        serve();
        assertEquals("a!", client.call("shout", "a").text("answer"), "it goes to the server that is there");
        assertEquals(1, gate.times(), "it was not run again");
    }

    @Test
    void crashesAndStatus() throws Exception {
        CallException.Crashed crashed = assertThrows(CallException.Crashed.class, () -> client.call("crash"));
        assertFalse(crashed.hasNotRun());
        assertTrue(crashed.getMessage().startsWith("`crash` failed on one server: "), crashed.getMessage());
        assertTrue(crashed.getMessage().contains("(127.0.0.1:"), crashed.getMessage());
        eventually("the reason", () -> SHOWN.matcher(meta.status().replace(" ", "")).find());
        assertThrows(CallException.Argument.class, () -> client.call("nap", "a"));
        assertThrows(CallException.NotRunnable.class, () -> {
            try {
                client.call("absent");
            } catch (CallException.NoServer nowhere) {
                assertTrue(nowhere.hasNotRun());
                throw (CallException) nowhere.getCause();
            }
        });
        assertEquals("a!", client.call("shout", "a").text("answer"));
    }

    @Test
    void cancelledAndLate() throws Exception {
        CompletableFuture<Result> naps = client.callAsync("nap", 600_000);
        eventually("a call of nap", () -> meta.status().contains("\"nap\""));
        assertTrue(naps.cancel(false));
        CallException.TimedOut late = failure(CallException.TimedOut.class,
                client.prepare("nap").add(600_000).within(Duration.ofMillis(300)).callAsync());
        assertFalse(late.hasNotRun());
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Thread waits = new Thread(() -> {
            try {
                client.call("nap", 600_000);
            } catch (CallException stopped) {
                thrown.set(stopped);
            }
        });
        waits.start();
        waits.interrupt();
        waits.join(60_000);
        assertInstanceOf(CallException.Interrupted.class, thrown.get());
        CompletableFuture<Result> open = client.callAsync("nap", 600_000);
        client.close();
        failure(CallException.ConnectionLost.class, open);
        assertThrows(CallException.class, () -> client.call("nap", 0));
    }

    @Test
    void manyAtOnce() throws Exception {
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        for (int index = 0; index < 60; index++) {
            calls.add(client.callAsync("shout", "call " + index));
        }
        for (int index = 0; index < 60; index++) {
            assertEquals("call " + index + "!", calls.get(index).get(60, TimeUnit.SECONDS).text("answer"));
        }
        double[] x = new double[300_000];
        x[299_999] = 7;
        assertArrayEquals(x, client.prepare("doubles").set("n", x.length).inout("x", x).call().doubles("x"));
    }

    /** The metaserver goes while a call runs, which goes on; the next, at another of the addresses, takes its place. */
    @Test
    void aMetaserverThatGoes(@TempDir Path folder) throws Exception {
        ServerProcess second = ServerProcess.meta();
        try (second; ServerProcess both = ServerProcess.start("--meta", second.address);
                KumiClient of = KumiClient.connect("127.0.0.1:1, " + meta.address + "," + second.address)) {
            listed(second, both);
            GateFile gate = new GateFile(folder.resolve("gate"));
            CompletableFuture<Result> waits = held(of, gate);
            meta.kill();
            assertEquals("a!", of.call("shout", "a").text("answer"), "it is asked for through the second");
            assertFalse(waits.isDone());
            gate.open();
            assertEquals(List.of(), waits.get(60, TimeUnit.SECONDS).names());
            assertEquals(1, gate.times(), "it has run once");
            assertEquals("b!", of.call("shout", "b").text("answer"));
            assertTrue(of.isOpen());
        }
    }

    @Test
    void filesAndFunctions(@TempDir Path folder) throws Exception {
        try (ServerProcess calls = ServerProcess.of("callbacks", "--meta", meta.address)) {
            listed(meta, calls);
            Path letter = Files.writeString(folder.resolve("letter"), "abc");
            assertEquals("ABC", new String(client.call("capitals", letter).bytes("to")));
            client.prepare("capitals").add(letter).into("to", folder.resolve("back")).call();
            assertEquals("ABC", Files.readString(folder.resolve("back")));
            Callback twice = it -> it.set("y", 2 * it.real("x"));
            double sum = client.prepare("integrate").set("n", 10).function("f", twice).call().real("sum");
            assertEquals(sum, client.prepare("integrate").set("n", 10).function("f", twice).callAsync()
                    .get(60, TimeUnit.SECONDS).real("sum"));
            CallException.Callback failed = assertThrows(CallException.Callback.class, () -> client.prepare("integrate")
                    .set("n", 10).function("f", it -> {
                        throw new IllegalStateException("no");
                    }).call());
            assertEquals("no", failed.getCause().getMessage());
        }
    }

    @Test
    void usersAndPasses(@TempDir Path folder) throws Exception {
        String users = folder.resolve("users.toml").toString();
        String ada = ServerProcess.command("call", "token", "add", "ada", "--file", users).strip();
        String bob = ServerProcess.command("call", "token", "add", "bob", "--file", users, "--routines", "sh*").strip();
        String node = ServerProcess.command("call", "token", "add", "node", "--server", "--file", users);
        Path token = Files.writeString(folder.resolve("token"), node);
        Files.setPosixFilePermissions(token, java.nio.file.attribute.PosixFilePermissions.fromString("rw-------"));
        try (ServerProcess knows = ServerProcess.meta("--tokens", users);
                ServerProcess only = ServerProcess.start("--meta", knows.address, "--meta-token-file", token.toString(), "--meta-only");
                KumiClient adas = KumiClient.connect(knows.address, ClientOptions.usual().token(ada));
                KumiClient bobs = KumiClient.connect(knows.address, ClientOptions.usual().token(bob))) {
            eventually("its routines", () -> adas.names("shout").contains("shout"));
            assertEquals("a!", adas.call("shout", "a").text("answer"));
            assertEquals("b!", bobs.call("shout", "b").text("answer"));
            assertEquals("a!", adas.call("shout", "a").text("answer"));
            assertThrows(CallException.NotPermitted.class, () -> bobs.call("nap", 0));
            assertThrows(CallException.NotPermitted.class, () -> KumiClient.connect(only.address, ClientOptions.usual().token(ada)));
        }
    }

    @Test
    void priorities() {
        try (KumiClient direct = servers.get(0).client()) {
            assertThrows(CallException.Argument.class, () -> direct.prepare("shout").add("a").priority(1).call());
            assertEquals("a!", direct.prepare("shout").add("a").priority(0).call().text("answer"));
        }
        assertThrows(IllegalArgumentException.class, () -> client.prepare("shout").priority(10));
        assertThrows(IllegalArgumentException.class, () -> client.prepare("shout").priority(-1));
        assertThrows(CallException.Argument.class, () -> KumiClient.connect(servers.get(0).address + "," + servers.get(1).address));
    }

    /** A metaserver that does not lead says who does; one that knows none is asked again until it does. */
    @Test
    void redirected() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        try (FakeServer follows = new FakeServer(peer -> peer.refuse(23, asked.incrementAndGet() < 3 ? "" : meta.address));
                KumiClient of = follows.client()) {
            assertEquals("a!", of.call("shout", "a").text("answer"));
            assertEquals(3, asked.get());
        }
    }

    /** A server whose slots others use. */
    @Test
    void busyServers() throws Exception {
        String busy = servers.get(0).address;
        try (KumiClient direct = KumiClient.connect(busy)) {
            List<CompletableFuture<Result>> naps = new ArrayList<>();
            for (int index = 0; index < 4; index++) {
                naps.add(direct.callAsync("nap", 2000));
            }
            for (int index = 0; index < 20; index++) {
                assertEquals("x!", client.call("shout", "x").text("answer"));
            }
            for (CompletableFuture<Result> nap : naps) {
                nap.get(60, TimeUnit.SECONDS);
            }
        }
    }

    /** What may run twice does when its server is killed, and its arguments are sent anew. */
    @Test
    void idempotent() throws Exception {
        int n = 700;
        double[] a = new double[n * n];
        double[] b = new double[n * n];
        for (int index = 0; index < n; index++) {
            a[index * n + index] = 2;
            b[index * n] = index;
        }
        List<CompletableFuture<Result>> calls = new ArrayList<>();
        for (int index = 0; index < 8; index++) {
            calls.add(client.callAsync("dmmul", n, a, b));
        }
        calls.get(0).get(60, TimeUnit.SECONDS);
        servers.get(0).kill();
        for (CompletableFuture<Result> call : calls) {
            double[] c = call.get(120, TimeUnit.SECONDS).doubles("C");
            assertEquals(2.0 * (n - 1), c[(n - 1) * n]);
        }
    }
}
