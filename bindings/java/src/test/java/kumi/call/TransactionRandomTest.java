package kumi.call;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Random transactions give what the same calls would give one after the other, also if a server dies. */
@Timeout(300)
class TransactionRandomTest {
    private static final int N = 500;
    private static final int CALLS = 14;

    @TempDir
    private Path folder;

    /** An array of a transaction, all elements of which have this value. */
    private record Made(Object array, TransactionStep step, String name, double value) {}

    /** Records random calls, one of which waits for the gate, and says what each array is to be. */
    private static List<Made> record(Random random, Transaction t, GateFile gate) {
        List<Made> made = new ArrayList<>();
        int waits = random.nextInt(CALLS - 2) + 2;
        for (int call = 0; call < CALLS; call++) {
            Made one = made.isEmpty() ? null : made.get(random.nextInt(made.size()));
            Made other = made.isEmpty() ? null : made.get(random.nextInt(made.size()));
            if (call == waits) {
                TransactionStep step = t.call("pass", N, gate.name(), one.array());
                made.add(new Made(step, step, "y", one.value()));
            } else if (one == null || random.nextInt(4) == 0) {
                TransactionStep step = t.call("fill", N, random.nextInt(3), (double) call);
                made.add(new Made(step, step, "y", call));
            } else if (random.nextInt(4) == 0) {
                TransactionStep step = t.call("both", N, one.array(), other.array());
                made.add(new Made(step.array("x"), step, "x", one.value()));
                made.add(new Made(step.array("y").wanted(), step, "y", other.value()));
            } else {
                TransactionStep step = t.call("add", N, one.array(), other.array());
                made.add(new Made(step.array("y").wanted(), step, "y", one.value() + other.value()));
            }
        }
        return made;
    }

    private static void check(String which, List<Made> made, TransactionReport report) {
        assertTrue(report.isComplete(), which);
        int back = 0;
        for (Made one : made) {
            Result result = one.step().result();
            if (result.names().contains(one.name())) {
                back++;
                for (double element : result.doubles(one.name())) {
                    assertEquals(one.value(), element, which + ", " + one);
                }
            }
        }
        assertTrue(back > 1, which);
    }

    @Test
    void asIfRunOneAfterTheOther() throws Exception {
        try (ServerProcess one = ServerProcess.start("--peer", "any"); ServerProcess two = ServerProcess.start();
                KumiClient first = one.client(); KumiClient second = two.client()) {
            for (int seed = 0; seed < 30; seed++) {
                GateFile gate = new GateFile(folder.resolve("gate" + seed));
                gate.open();
                try (Transaction t = Transaction.of(first, second)) {
                    List<Made> made = record(new Random(seed), t, gate);
                    check("seed " + seed, made, t.run());
                }
            }
        }
    }

    @Test
    void alsoIfAServerDies() throws Exception {
        for (int seed = 100; seed < 106; seed++) {
            try (ServerProcess one = ServerProcess.start("--peer", "any"); ServerProcess two = ServerProcess.start("--peer", "any");
                    KumiClient first = one.client(); KumiClient second = two.client();
                    Transaction t = Transaction.of(first, second)) {
                GateFile gate = new GateFile(folder.resolve("gate" + seed));
                List<Made> made = record(new Random(seed), t, gate);
                CompletableFuture<TransactionReport> run = Transactions.later(t);
                gate.untilBegun();
                (seed % 2 == 0 ? one : two).kill();
                gate.open();
                check("seed " + seed, made, Transactions.end(run));
            }
        }
    }

    @Test
    void alsoIfAServerOfAMetaserverDies() throws Exception {
        for (int seed = 200; seed < 206; seed++) {
            try (ServerProcess meta = ServerProcess.meta("--policy", "round-robin"); ServerProcess one = ServerProcess.start("--meta", meta.address);
                    ServerProcess two = ServerProcess.start("--meta", meta.address); KumiClient client = meta.client()) {
                WaitFor.listed(meta, one);
                WaitFor.listed(meta, two);
                try (Transaction t = client.transaction()) {
                    GateFile gate = new GateFile(folder.resolve("gate" + seed));
                    List<Made> made = record(new Random(seed), t, gate);
                    CompletableFuture<TransactionReport> run = Transactions.later(t);
                    gate.untilBegun();
                    (seed % 2 == 0 ? one : two).kill();
                    gate.open();
                    check("seed " + seed, made, Transactions.end(run));
                }
            }
        }
    }
}
