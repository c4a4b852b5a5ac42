package kumi.call;

import static kumi.call.WaitFor.eventually;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** What tests of transactions do. */
final class Transactions {
    private static final long MOST_SECONDS = 120;

    private Transactions() {}

    /** So many numbers, all of this value. */
    static double[] filled(int count, double value) {
        double[] all = new double[count];
        Arrays.fill(all, value);
        return all;
    }

    /** Runs it in another thread. */
    static CompletableFuture<TransactionReport> later(Transaction transaction) {
        return CompletableFuture.supplyAsync(transaction::run);
    }

    /** The end of a run that succeeds. */
    static TransactionReport end(CompletableFuture<TransactionReport> run) throws Exception {
        return run.get(MOST_SECONDS, TimeUnit.SECONDS);
    }

    /** Runs a transaction two of whose calls wait for the gate, which opens when both do. */
    static TransactionReport together(Transaction transaction, GateFile gate) throws Exception {
        CompletableFuture<TransactionReport> run = later(transaction);
        eventually("both", () -> Files.exists(Path.of(gate.name() + ".begun")) && gate.times() == 2);
        gate.open();
        return end(run);
    }

    /** Records, behind this call, one that reads it and waits for the gate, and one that reads both. All three are added to the steps. */
    static void chain(Transaction transaction, int count, GateFile gate, TransactionStep first, List<TransactionStep> steps) {
        steps.add(first);
        steps.add(transaction.call("pass", count, gate.name(), first));
        steps.add(transaction.call("add", count, first, steps.get(1)));
    }
}
