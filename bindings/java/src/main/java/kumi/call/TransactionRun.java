package kumi.call;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import kumi.call.ArrayRoutes.ResultRoute;
import kumi.call.TransactionArray.Place;
import kumi.call.TransactionReport.Moved;
import kumi.call.TransactionTarget.Retry;
import kumi.call.graph.CallGraph;
import kumi.call.graph.CallState;

/** Runs a transaction: begins calls, and handles their ends one after the other. One thread runs it and waits for events. */
final class TransactionRun implements TransactionTarget.Driver {
    /** Most attempts of a call, repetitions for lost results included. */
    static final int MOST_ATTEMPTS = 4;
    /** Pause before a call is tried again that servers or metaservers have no room for, and the longest. */
    private static final long PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 1000;
    /** Servers count whole milliseconds, by clocks of their own: for them the transaction's time may be over so much earlier. */
    private static final Duration EARLY = Duration.ofSeconds(1);
    private static final String LATE = "the transaction took longer than it may";

    /** When the last attempt of a call ended, and which it was. */
    private record Last(TransactionAttempt attempt, long ended) {}

    private final List<RecordedCall> calls;
    private final CallGraph graph;
    private final TransactionTarget target;
    private final InheritedContext context;
    private final long begun = System.nanoTime();
    private final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
    /** Calls that run, each with what cancels it. */
    private final Map<RecordedCall, Runnable> running = new LinkedHashMap<>();
    /** Calls that wait before they are tried again, and how often each has waited. */
    private final Set<RecordedCall> paused = new HashSet<>();
    private final Map<RecordedCall, Integer> pauses = new LinkedHashMap<>();
    /** Arrays that servers hold. */
    private final Set<TransactionArray> held = new LinkedHashSet<>();
    private final Map<RecordedCall, Last> last = new LinkedHashMap<>();
    private final RelayRules relays = new RelayRules();
    private Moved moved = Moved.NOTHING;
    /** Why it is ended early; null: it is not. */
    private CallException stopped;
    private boolean interrupted;
    private Duration took = Duration.ZERO;

    /**
     * A transaction that is about to run.
     *
     * @param context until when it may run, and in which trace its calls are
     */
    TransactionRun(List<RecordedCall> calls, CallGraph graph, TransactionTarget target, InheritedContext context) {
        this.calls = calls;
        this.graph = graph;
        this.target = target;
        this.context = context;
    }

    /** Ends it. Any thread may call this. */
    void cancel() {
        events.add(() -> stop(new CallException.Cancelled("the transaction was cancelled", 0)));
    }

    @Override
    public void ended(RecordedCall call, TransactionAttempt attempt, Result result, CallException failure) {
        events.add(() -> end(call, attempt, result, failure));
    }

    @Override
    public void post(Runnable event) {
        events.add(event);
    }

    /**
     * Runs all calls to their ends.
     *
     * @throws CallException no server can be reached
     */
    void drive() {
        try (CallContext.Scope ofCalls = context.enter()) {
            target.open(calls, this);
            while (true) {
                for (Runnable event = events.poll(); event != null; event = events.poll()) {
                    event.run();
                }
                submit();
                letGo();
                if (graph.isOver() && running.isEmpty()) {
                    return;
                }
                next();
            }
        } finally {
            // Only after an error of its own something still runs.
            running.values().forEach(Runnable::run);
            graph.cancel();
            held.forEach(array -> array.place.array().close());
            took = Duration.ofNanos(System.nanoTime() - begun);
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Waits for an event and handles it. */
    private void next() {
        try {
            Duration left = stopped == null ? context.remaining() : null;
            Runnable event = left == null ? events.take() : events.poll(Timer.nanoseconds(left), TimeUnit.NANOSECONDS);
            if (event == null) {
                stop(new CallException.TimedOut(LATE, 0));
            } else {
                event.run();
            }
        } catch (InterruptedException interrupt) {
            interrupted = true;
            stop(new CallException.Interrupted());
        }
    }

    /** Begins nothing more, and ends the calls that run. */
    private void stop(CallException why) {
        if (stopped == null) {
            stopped = why;
            graph.cancel();
            running.values().forEach(Runnable::run);
        }
    }

    /** Begins the calls that are ready, and repeats those whose lost results they need. */
    private void submit() {
        boolean hasChanged = true;
        while (hasChanged) {
            hasChanged = false;
            for (int node = graph.nextReady(-1); node >= 0 && target.hasRoom(); node = graph.nextReady(node)) {
                RecordedCall call = calls.get(node);
                // Calls before it may be ready now that were not.
                hasChanged |= !paused.contains(call) && (!hasInputs(call) || begin(call));
            }
        }
    }

    /** Begins a call. True: it has failed, so that others may be ready now. */
    private boolean begin(RecordedCall call) {
        CallMetadata said = new CallMetadata(null, call.wishes.resources(), context.trace());
        Call.CallSettings settings = new Call.CallSettings(call.wishes.time(), 0, null, said, context);
        try {
            Runnable cancel = target.begin(call, new TransactionAttempt.Conditions(routes(call), relays, settings));
            if (cancel != null) {
                graph.start(call.number);
                running.put(call, cancel);
            }
            return false;
        } catch (CallException none) {
            graph.start(call.number);
            fail(call, none, null);
            return true;
        }
    }

    /** Where the results of a call go. */
    private ResultRoute[] routes(RecordedCall call) {
        ResultRoute[] routes = new ResultRoute[call.outputs.length];
        for (int param = 0; param < routes.length; param++) {
            TransactionArray made = call.outputs[param];
            boolean isRead = call.readers.get(param).stream().anyMatch(reader -> graph.state(reader.number).isOpen());
            boolean isWanted = made != null && (made.isWanted() || call.readers.get(param).isEmpty());
            boolean isBack = isWanted && made.here() == null;
            routes[param] = made == null || isBack && !isRead ? ResultRoute.BACK : isBack ? ResultRoute.BOTH
                    : isRead ? ResultRoute.STAYS : made.isWhole() ? ResultRoute.NOWHERE : ResultRoute.BACK;
        }
        return routes;
    }

    private static boolean isThere(TransactionArray input) {
        Place place = input.place;
        return place != null && !place.isLost() || input.here() != null;
    }

    /** Whether all inputs of a call exist. If not, it waits until they are made again, or does not run. */
    private boolean hasInputs(RecordedCall call) {
        Set<RecordedCall> again = new LinkedHashSet<>();
        for (TransactionArray input : call.inputs) {
            if (isThere(input)) {
                continue;
            }
            RecordedCall maker = input.maker;
            if (graph.state(maker.number).kind() != CallState.Kind.DONE) {
                // It was repeated behind a call that has failed meanwhile.
                graph.start(call.number);
                fail(call, new CallException.HeldLost("what it reads was lost, and " + graph.explain(maker.number), 0), null);
                return false;
            }
            String why = whyNotAgain(maker);
            if (why != null) {
                maker.failure = new CallException.HeldLost(graph.explain(maker.number) + ", but " + why, 0);
                graph.markLost(maker.number, why);
                return false;
            }
            again.add(maker);
        }
        again.forEach(maker -> {
            maker.failed.addLost(last.get(maker).attempt().server);
            graph.restart(maker.number);
        });
        return again.isEmpty();
    }

    /** Why a call that has run cannot run again; null: it can. */
    private String whyNotAgain(RecordedCall call) {
        Last attempt = last.get(call);
        String lost = "its result was lost with " + (attempt == null ? "a server" : attempt.attempt().server.address);
        if (!call.of.routine().idempotent()) {
            return lost + ", and it is not marked as one that may run twice";
        }
        return call.attempts.get() < MOST_ATTEMPTS ? null : lost + ", and it was tried " + call.attempts.get() + " times; before: " + call.failed;
    }

    /** An attempt is over. */
    private void end(RecordedCall call, TransactionAttempt attempt, Result result, CallException failure) {
        running.remove(call);
        target.over(attempt);
        if (attempt != null) {
            moved = moved.plus(attempt.moved());
            last.put(call, new Last(attempt, System.nanoTime()));
        }
        if (failure instanceof CallException.TimedOut && isOfTransaction(attempt)) {
            stop(new CallException.TimedOut(LATE, 0));
        }
        if (failure instanceof CallException.Status status) {
            // Its readers do not run.
            keep(call, attempt, status.results());
            failed(call, attempt, failure);
        } else if (failure != null) {
            failed(call, attempt, failure);
        } else {
            keep(call, attempt, result);
            call.result = call.result == null ? result : call.result;
            call.failure = null;
            graph.finish(call.number, attempt.server.number);
        }
    }

    /** Whether it was the transaction's time that was over for an attempt, and not the call's own or one that its server sets. */
    private boolean isOfTransaction(TransactionAttempt attempt) {
        Duration left = context.remaining();
        return left != null && left.compareTo(EARLY) <= 0 && (attempt == null || !attempt.hasOwnLimit());
    }

    /** Takes over the arrays that stay at the server. */
    private void keep(RecordedCall call, TransactionAttempt attempt, Result result) {
        for (int param = 0; param < call.outputs.length; param++) {
            HeldArray array = result.takeHeld(param);
            if (array != null && attempt.conditions.results()[param] == ResultRoute.NOWHERE) {
                array.close();
            } else if (array != null) {
                call.outputs[param].place = new Place(attempt.server, array);
                held.add(call.outputs[param]);
            }
        }
    }

    private void failed(RecordedCall call, TransactionAttempt attempt, CallException failure) {
        call.failure = failure;
        Retry retry = Retry.NONE;
        if (stopped != null) {
            retry = Retry.NONE;
        } else if (TransactionAttempt.isOfInputs(failure) && attempt != null) {
            sourcesFailed(attempt, failure);
            retry = Retry.NOW;
        } else {
            retry = target.retry(call, attempt, failure);
        }
        if (retry == Retry.NONE || retry != Retry.LATER_UNCOUNTED && call.attempts.get() >= MOST_ATTEMPTS) {
            fail(call, failure, attempt);
            return;
        }
        graph.restart(call.number);
        if (retry != Retry.NOW) {
            pause(call);
        }
    }

    private void pause(RecordedCall call) {
        int before = pauses.merge(call, 1, Integer::sum);
        paused.add(call);
        Timer.after(Duration.ofMillis(Math.min(LONGEST_PAUSE_MS, PAUSE_MS * before)), () -> events.add(() -> paused.remove(call)));
    }

    /** A call that runs has failed for good. */
    private void fail(RecordedCall call, CallException failure, TransactionAttempt attempt) {
        String own = failure.getMessage();
        call.failure = call.failed.error(call.of.routine().name(), failure);
        String text = call.failure.getMessage();
        // Of several attempts each is named with its server.
        graph.fail(call.number, text + (attempt == null || !text.equals(own) ? "" : " (at " + attempt.server.address + ")"));
    }

    /** Inputs of a call did not arrive. */
    private void sourcesFailed(TransactionAttempt attempt, CallException failure) {
        String why = failure.getMessage();
        Set<TransactionServer> holders = new HashSet<>();
        boolean isAllThere = true;
        for (TransactionAttempt.Source source : attempt.found()) {
            isAllThere &= source.status() == TransactionAttempt.SourceStatus.HELD;
            holders.add(source.place().server());
            switch (source.status()) {
                // The client reaches the holder, so it relays the holder's arrays.
                case HELD -> relays.relay(attempt.call, why);
                case MISSING -> forget(source.input(), source.place());
                case UNREACHABLE -> giveUp(source.place().server());
                default -> throw new IllegalStateException("there is no status " + source.status());
            }
        }
        holders.remove(attempt.server);
        if (isAllThere && holders.size() == 1 && TransactionAttempt.isOfSource(failure)) {
            // No other call tries that.
            relays.keepApart(attempt.server, holders.iterator().next(), why);
        }
    }

    /** A server does not answer: the arrays that it held are made again. */
    private void giveUp(TransactionServer server) {
        for (TransactionArray array : new ArrayList<>(held)) {
            if (array.place.server() == server) {
                forget(array, array.place);
            }
        }
        target.silent(server);
    }

    private void forget(TransactionArray array, Place place) {
        if (array.place == place) {
            array.place = null;
            held.remove(array);
        }
        place.array().close();
    }

    /** Drops arrays at servers that nobody reads any more. */
    private void letGo() {
        for (TransactionArray array : new ArrayList<>(held)) {
            List<RecordedCall> readers = array.maker.readers.get(array.param);
            if (readers.stream().noneMatch(reader -> graph.state(reader.number).isOpen())) {
                forget(array, array.place);
            }
        }
    }

    /** What came of the calls. */
    TransactionReport report() {
        return new TransactionReport(calls.stream().map(this::step).toList(), moved, took);
    }

    private TransactionReport.Step step(RecordedCall call) {
        Last end = last.get(call);
        TransactionReport.Outcome outcome = switch (graph.state(call.number).kind()) {
            case DONE -> TransactionReport.Outcome.DONE;
            case FAILED -> TransactionReport.Outcome.FAILED;
            case SKIPPED -> TransactionReport.Outcome.SKIPPED;
            default -> TransactionReport.Outcome.CANCELLED;
        };
        return new TransactionReport.Step(call.of.routine().name(), outcome, graph.explain(call.number),
                end == null ? null : end.attempt().server.address, end == null ? null : since(end.attempt().begun),
                end == null ? null : since(end.ended()), call.attempts.get(), end == null ? null : end.attempt().relayed(), call.failure);
    }

    private Duration since(long time) {
        return Duration.ofNanos(Math.max(0, time - begun));
    }

    /**
     * The report, if all calls have run.
     *
     * @throws CallException they have not
     */
    TransactionReport outcome(TransactionReport report) {
        if (report.isComplete()) {
            return report;
        } else if (stopped != null) {
            throw stopped;
        }
        CallException first = report.steps().stream().map(TransactionReport.Step::failure).filter(Objects::nonNull).findFirst().orElse(null);
        throw new CallException.TransactionFailed(report, first);
    }
}
