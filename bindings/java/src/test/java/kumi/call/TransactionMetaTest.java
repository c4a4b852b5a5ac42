package kumi.call;

import static kumi.call.Transactions.chain;
import static kumi.call.Transactions.end;
import static kumi.call.Transactions.later;
import static kumi.call.Transactions.together;
import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Transactions whose servers a metaserver chooses. */
@Timeout(240)
class TransactionMetaTest extends MetaFixture {
    private static final int N = 200_000;
    private static final long BYTES = 8L * N;

    @TempDir
    private Path folder;

    /** Each test begins with what it needs. */
    @Override
    void start() {}

    private GateFile gate(String name) {
        return new GateFile(folder.resolve(name));
    }

    private static double[] filled(double value) {
        return Transactions.filled(N, value);
    }

    /** Two calls that run at the same time, each at a server, and one that reads what both have made. */
    private void diamond(KumiClient by) throws Exception {
        GateFile gate = gate("gate");
        try (Transaction t = by.transaction()) {
            TransactionStep x = t.call("flood", N, gate.name(), 1.0);
            TransactionStep y = t.call("flood", N, gate.name(), 2.0);
            TransactionStep z = t.call("add", N, x, y);
            TransactionReport report = together(t, gate);
            assertArrayEquals(filled(3), z.result().doubles("y"));
            assertTrue(!report.steps().get(0).server().equals(report.steps().get(1).server()), "each at one of the servers");
            assertEquals(new TransactionReport.Moved(0, BYTES, BYTES, BYTES), report.moved());
            assertTrue(report.steps().stream().allMatch(step -> step.relayed() == null && step.attempts() == 1), report.steps().toString());
        }
    }

    @Test
    void aDiamondGoesFromServerToServer() throws Exception {
        begin(2, "--policy", "round-robin");
        diamond(client);
    }

    /** Servers that take only clients which the metaserver has sent give their arrays to others for vouchers. */
    @Test
    void serversThatWantVouchers() throws Exception {
        Cluster cluster = new Cluster(folder.resolve("cluster"));
        String authority = cluster.authority().toString();
        String token = cluster.token("ada");
        meta = cluster.meta("--tokens", folder.resolve("cluster/users.toml").toString(), "--policy", "round-robin");
        for (int one = 0; one < 2; one++) {
            servers.add(cluster.serveOnly(meta, "--peer-ca", authority));
        }
        client = KumiClient.connect(meta.address, ClientOptions.usual().authority(cluster.authority()).token(token));
        Path secret = Files.writeString(folder.resolve("secret"), token);
        Files.setPosixFilePermissions(secret, java.nio.file.attribute.PosixFilePermissions.fromString("rw-------"));
        for (ServerProcess one : servers) {
            listed(meta, one, "--ca", authority, "--token-file", secret.toString());
        }
        diamond(client);
    }

    /** Begins x, y that reads it and waits, and z that reads both; then their server is killed, and there is another one. */
    private CompletableFuture<TransactionReport> withADeath(Transaction t, TransactionStep x, List<TransactionStep> steps) throws Exception {
        GateFile gate = gate("gate");
        chain(t, N, gate, x, steps);
        CompletableFuture<TransactionReport> run = later(t);
        gate.untilBegun();
        serve();
        listed(meta, servers.get(1));
        servers.get(0).kill();
        gate.open();
        return run;
    }

    @Test
    void whatADeadServerHeldIsMadeAgain() throws Exception {
        begin(1);
        List<TransactionStep> steps = new ArrayList<>();
        try (Transaction t = client.transaction().priority(3)) {
            TransactionReport report = end(withADeath(t, t.call("fill", N, 0, 1.0), steps));
            assertArrayEquals(filled(2), steps.get(2).result().doubles("y"));
            assertEquals(List.of(2, 2, 1), report.steps().stream().map(TransactionReport.Step::attempts).toList());
            assertTrue(report.steps().stream().allMatch(step -> step.server().equals(servers.get(1).address)), report.steps().toString());
        }
    }

    @Test
    void whatMustNotRunTwiceIsReported() throws Exception {
        begin(1);
        GateFile first = gate("first");
        first.open();
        List<TransactionStep> steps = new ArrayList<>();
        try (Transaction t = client.transaction()) {
            CompletableFuture<TransactionReport> run = withADeath(t, t.call("once", N, first.name(), 1.0), steps);
            String told = failure(CallException.TransactionFailed.class, run).getMessage();
            assertTrue(told.contains("call 0 (once) failed: its result was lost with " + servers.get(0).address
                    + ", and it is not marked as one that may run twice"), told);
            assertThrows(CallException.HeldLost.class, steps.get(0)::result);
            assertThrows(CallException.Skipped.class, steps.get(2)::result);
            assertEquals(1, first.times());
        }
    }

    @Test
    void moreCallsThanMayWaitTakeTurns() throws Exception {
        begin(1, "--waiting", "2", "--limit", "1");
        try (Transaction t = client.transaction()) {
            List<TransactionStep> all = new ArrayList<>();
            for (int number = 0; number < 12; number++) {
                all.add(t.call("fill", 10, 20, number));
            }
            TransactionReport report = t.run();
            for (int number = 0; number < 12; number++) {
                assertEquals(number, all.get(number).result().doubles("y")[9]);
            }
            assertTrue(report.steps().stream().allMatch(step -> step.attempts() == 1), report.steps().toString());
        }
    }

    @Test
    void aCancelledTransactionLeavesNothingBehind() throws Exception {
        begin(1, "--limit", "1");
        GateFile gate = gate("gate");
        Transaction t = client.transaction();
        TransactionStep runs = t.call("once", 10, gate.name(), 1.0);
        TransactionStep waits = t.call("once", 10, gate.name(), 1.0);
        t.call("add", 10, runs, waits);
        CompletableFuture<TransactionReport> run = later(t);
        gate.untilBegun();
        eventually("a call that waits", () -> meta.status().replace(" ", "").contains("\"waiting\":1"));
        t.cancel();
        failure(CallException.Cancelled.class, run);
        eventually("the end of all", () -> {
            String state = meta.status().replace(" ", "");
            return state.contains("\"waiting\":0") && state.contains("\"running\":0") && !state.contains("\"running\":1");
        });
        assertEquals(1, gate.times());
    }

    @Test
    void whatIsWrong() throws Exception {
        begin(1);
        try (Transaction t = client.transaction()) {
            TransactionStep bad = t.call("add", N, filled(-1), filled(1));
            TransactionStep reads = t.call("add", N, bad, filled(1));
            TransactionStep crashes = t.call("crash");
            assertThrows(CallException.RoutineNotFound.class, () -> t.call("dmmull", 1));
            assertThrows(IllegalArgumentException.class, () -> t.priority(10));
            assertThrows(CallException.Argument.class, () -> Transaction.of(client, meta.client()));
            assertThrows(CallException.TransactionFailed.class, t::run);
            assertThrows(CallException.Status.class, bad::result);
            assertThrows(CallException.Skipped.class, reads::result);
            assertThrows(CallException.Crashed.class, crashes::result);
        }
    }
}
