package kumi.call;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import kumi.call.graph.CallGraph;

/**
 * Calls that are recorded and then run together, on one or several servers. Those that do not depend on each other run at the same
 * time. Arrays that only other calls read stay at the servers and go from one to the next.
 *
 * <pre>{@code
 * try (Transaction t = client.transaction()) {
 *     TransactionStep c = t.call("dmmul", n, a, b);       // stays at a server: a later call reads it
 *     TransactionStep d = t.call("dmmul", n, c, b);
 *     t.run();
 *     double[] numbers = d.result().doubles("C");
 * }
 * }</pre>
 *
 * <p>Numbers and texts are read when a call is recorded. Arrays are read when it runs, and again if it runs once more: they are not to
 * change until the end.
 * Nothing is changed in place; an array that a routine changes comes back, or goes on, as a new one. Calls take no files, no functions
 * and no {@link HeldArray}. One thread records and runs; any thread may {@link #cancel}.
 */
public final class Transaction implements AutoCloseable {
    private enum Stage {
        OPEN,
        RUNNING,
        OVER
    }

    private final List<KumiClient> clients;
    /** In the order in which they are asked for descriptions: those that were silent come last. */
    private final List<KumiClient> asked;
    private final List<RecordedCall> calls = new ArrayList<>();
    private final CallGraph graph = new CallGraph();
    private Duration time;
    private int priority;
    /** The fields from here on are guarded by this object's lock. */
    private Stage stage = Stage.OPEN;
    private TransactionRun run;
    private TransactionReport report;
    private boolean cancelled;

    private Transaction(List<KumiClient> clients) {
        this.clients = clients;
        asked = new ArrayList<>(clients);
    }

    /**
     * A transaction on these servers, or of one client of a metaserver. Servers fetch arrays from each other if their owners allow it
     * ({@code kumi call serve --peer}); otherwise arrays go through the client.
     *
     * @throws CallException.Argument there is none, or a metaserver among several
     */
    public static Transaction of(KumiClient... servers) {
        List<KumiClient> clients = Arrays.stream(servers).distinct().toList();
        if (clients.isEmpty() || clients.size() > 1 && clients.stream().anyMatch(one -> one.grid != null)) {
            throw new CallException.Argument("a transaction is on one or several servers, or of one metaserver, which chooses them");
        }
        return new Transaction(clients);
    }

    /** Sets the time limit of the run. Calls that have not ended then are cancelled. */
    public Transaction within(Duration time) {
        checkOpen();
        this.time = Call.checked(time);
        return this;
    }

    /** Sets the priority of its calls at a metaserver, see {@link Call#priority}. Without a metaserver only 0 is allowed. */
    public Transaction priority(int priority) {
        checkOpen();
        if (priority > 0 && clients.get(0).grid == null) {
            throw new CallException.Argument("a priority is for calls through a metaserver");
        }
        this.priority = Call.checked(priority);
        return this;
    }

    /**
     * Records a call. Arguments are those of {@link KumiClient#call}, without files and functions, and results of calls that were
     * recorded before: a {@link TransactionStep} or a {@link TransactionArray}.
     *
     * @throws CallException see {@link TransactionCall#record}
     */
    public TransactionStep call(String routine, Object... arguments) {
        return prepare(routine).add(arguments).record();
    }

    /** Prepares a call with arguments by name, a time limit, or threads and memory. */
    public TransactionCall prepare(String routine) {
        return new TransactionCall(this, routine);
    }

    TransactionStep record(String routine, Arguments arguments, RecordedCall.Wishes wishes) {
        checkOpen();
        Described described = describe(routine);
        RecordedCall call = new RecordedCall(this, calls.size(), described.of, arguments, wishes, described.by.memory);
        try {
            graph.record(routine, call.inputs.stream().map(input -> input.maker.number).toList());
        } catch (CallGraph.TooLarge beyond) {
            throw new CallException.Argument(beyond.getMessage());
        }
        call.link();
        calls.add(call);
        return new TransactionStep(call);
    }

    /** A routine, and the client whose server, or metaserver, has described it. */
    private record Described(KumiClient.KnownRoutine of, KumiClient by) {}

    /** Asks one server after the other for a routine: what one of several says of it, or does not say, is its own failure. */
    private Described describe(String routine) {
        if (clients.size() == 1) {
            return new Described(clients.get(0).known(routine), clients.get(0));
        }
        List<CallException> failures = new ArrayList<>();
        List<String> why = new ArrayList<>();
        for (KumiClient client : List.copyOf(asked)) {
            try {
                return new Described(NamedServer.describe(client, routine), client);
            } catch (CallException.Argument | CallException.Interrupted own) {
                throw own;
            } catch (CallException none) {
                if (InheritedContext.ofThisThread().isOver()) {
                    throw none;
                } else if (none instanceof CallException.TimedOut) {
                    asked.remove(client);
                    asked.add(client);
                }
                failures.add(none);
                why.add(client.server.name() + " (" + client.connection.address + "): " + none.getMessage());
            }
        }
        String all = "no server of the transaction has described `" + routine + "`: " + String.join("; ", why);
        CallException last = failures.get(failures.size() - 1);
        boolean isSame = failures.stream().allMatch(one -> one.getClass() == last.getClass());
        throw isSame ? last.at(all) : new CallException.NoServer(all, 0, true, last);
    }

    synchronized void checkOpen() {
        if (stage != Stage.OPEN) {
            throw new IllegalStateException("the transaction has begun to run, or was closed: begin another");
        }
    }

    /**
     * Runs the calls and waits for all of them. A call that fails takes those with it that read its results; all others run. A call
     * whose server was lost runs again, at most four times in all, if it is {@code @idempotent}. So do calls whose results were lost
     * and are still needed.
     *
     * @return what came of each call
     * @throws CallException.TransactionFailed calls failed
     * @throws CallException.Cancelled it was cancelled; {@link #report} says what had run
     * @throws CallException.TimedOut its time was over, likewise
     * @throws CallException.Interrupted the thread was interrupted, likewise
     * @throws CallException.Connect the connections to all servers were lost before; nothing has run
     * @throws IllegalStateException it has run before, or was closed
     */
    public TransactionReport run() {
        InheritedContext context = InheritedContext.ofThisThread();
        Duration limit = context.limit(time, "the transaction");
        TransactionRun begun;
        synchronized (this) {
            checkOpen();
            stage = Stage.RUNNING;
            TransactionTarget target = clients.get(0).grid == null ? new NamedServers(clients) : new PlacedServers(clients.get(0), priority);
            begun = new TransactionRun(calls, graph, target, InheritedContext.of(limit, context.trace()));
            run = begun;
            if (cancelled) {
                begun.cancel();
            }
        }
        try {
            begun.drive();
        } finally {
            synchronized (this) {
                report = begun.report();
                run = null;
                stage = Stage.OVER;
            }
        }
        return begun.outcome(report);
    }

    /** Has the servers end its calls. Nothing more begins, and {@link #run} throws {@link CallException.Cancelled}. */
    public void cancel() {
        TransactionRun under;
        synchronized (this) {
            cancelled = true;
            under = run;
        }
        if (under != null) {
            under.cancel();
        }
    }

    /**
     * What came of its calls.
     *
     * @throws IllegalStateException it has not run to an end
     */
    public synchronized TransactionReport report() {
        if (report == null) {
            throw new IllegalStateException("the transaction has not ended");
        }
        return report;
    }

    Result result(RecordedCall call) {
        TransactionReport.Step step = report().steps().get(call.number);
        return switch (step.outcome()) {
            case DONE -> call.result;
            case SKIPPED -> throw new CallException.Skipped(step.explanation());
            case CANCELLED -> throw new CallException.Cancelled(step.explanation(), 0);
            case FAILED -> throw step.failure();
        };
    }

    /** Ends it. Without {@link #run} nothing has run; while another thread runs it, it is cancelled. Results remain. */
    @Override
    public void close() {
        cancel();
        synchronized (this) {
            if (stage == Stage.OPEN) {
                stage = Stage.OVER;
            }
        }
    }
}
