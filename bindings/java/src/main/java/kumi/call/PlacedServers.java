package kumi.call;

import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import kumi.call.Exchange.Answer;
import kumi.call.TransactionReport.Moved;
import kumi.call.wire.MetaserverMessages.AttemptOutcome;
import kumi.call.wire.MetaserverMessages.AttemptReport;
import kumi.call.wire.MetaserverMessages.InputLocation;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.MetaserverMessages.Ticket;

/** Servers that a metaserver chooses: each call is one of its calls. */
final class PlacedServers implements TransactionTarget {
    /** Most calls that wait at the metaserver or run. */
    private static final int MOST_PLACED = 256;

    private final KumiClient client;
    private final int priority;
    /** The servers so far; this object's lock guards it. */
    private final Map<Connection, TransactionServer> servers = new HashMap<>();
    private Driver driver;
    private int under;

    PlacedServers(KumiClient client, int priority) {
        this.client = client;
        this.priority = priority;
    }

    @Override
    public void open(List<RecordedCall> calls, Driver driver) {
        this.driver = driver;
    }

    private synchronized TransactionServer server(Placement placed, Connection connection) {
        return servers.computeIfAbsent(connection, made -> TransactionServer.placed(servers.size(), client, placed, made));
    }

    @Override
    public boolean hasRoom() {
        return under < MOST_PLACED;
    }

    @Override
    public Runnable begin(RecordedCall call, TransactionAttempt.Conditions conditions) {
        PlacedCall placed = new PlacedCall(call, conditions);
        RoutedCall<Result> routed = new RoutedCall<>(client.grid, new RoutedCall.Task<>(call.of, call.rehearsed, priority,
                conditions.settings().context().limit(null, call.of.routine().name()), conditions.settings().said(), placed));
        client.grid.begin(routed);
        under++;
        routed.begin().whenCompleteAsync((result, error) -> {
            CallException failure = error == null ? null : Waits.again(error);
            TransactionAttempt attempt = placed.last;
            if (attempt == null) {
                driver.ended(call, null, result, failure);
            } else {
                attempt.finish(driver, result, failure);
            }
        }, BackgroundThreads::run);
        return () -> {
            placed.cancel();
            routed.cancel();
        };
    }

    /** The metaserver knows best whether it is there: calls that are placed there get a connection of their own. */
    @Override
    public void silent(TransactionServer server) {
        server.giveUp();
        client.grid.forget(server.placed(), server.connection);
    }

    @Override
    public void over(TransactionAttempt attempt) {
        under--;
    }

    @Override
    public Retry retry(RecordedCall call, TransactionAttempt attempt, CallException failure) {
        // All else the metaserver has tried already.
        return !(failure instanceof CallException.Busy) ? Retry.NONE : attempt == null ? Retry.LATER_UNCOUNTED : Retry.LATER;
    }

    /** A call at the servers that the metaserver chooses one after the other. */
    private final class PlacedCall implements RoutedOperation<Result> {
        private final RecordedCall call;
        private final TransactionAttempt.Conditions conditions;
        /** The attempt that was begun last; null: there was none. */
        private volatile TransactionAttempt last;
        /** It begins no attempt any more; this object's lock guards it. */
        private boolean cancelled;

        PlacedCall(RecordedCall call, TransactionAttempt.Conditions conditions) {
            this.call = call;
            this.conditions = conditions;
        }

        @Override
        public List<InputLocation> inputs() {
            Map<TransactionServer, Long> bytes = new LinkedHashMap<>();
            for (TransactionArray input : call.inputs) {
                TransactionArray.Place place = input.place;
                if (place != null) {
                    bytes.merge(place.server(), input.bytes(), Long::sum);
                }
            }
            return bytes.entrySet().stream()
                    .map(one -> new InputLocation(one.getValue(), one.getKey().name, one.getKey().address)).toList();
        }

        @Override
        public long returned(PreparedCall prepared) {
            return prepared.returned() - conditions.staying(prepared);
        }

        @Override
        public CompletableFuture<RoutedOperation<Result>> ready(Placement placed, Connection connection) {
            CompletableFuture<RoutedOperation<Result>> ready = new CompletableFuture<>();
            TransactionAttempt before = last;
            if (before != null) {
                // It may still wait for an input.
                before.cancel();
            }
            TransactionAttempt attempt = new TransactionAttempt(
                    call, server(placed, connection), conditions, before == null ? Moved.NOTHING : before.moved());
            synchronized (this) {
                if (cancelled) {
                    return CompletableFuture.failedFuture(
                            new CallException.Cancelled("`" + call.of.routine().name() + "` was cancelled with its transaction", 0));
                }
                last = attempt;
            }
            BackgroundThreads.run(() -> {
                try {
                    if (wasLast()) {
                        // A metaserver may move a call that has not failed.
                        throw new CallException.NoServer("`" + call.of.routine().name() + "` may be tried " + TransactionRun.MOST_ATTEMPTS
                                + " times", 0, true, null);
                    }
                    ready.complete(new PlacedAttempt(attempt, attempt.prepare(call.of, client.memory, client.options)));
                } catch (RuntimeException | OutOfMemoryError wrong) {
                    ready.completeExceptionally(wrong);
                }
            });
            return ready;
        }

        void cancel() {
            TransactionAttempt attempt;
            synchronized (this) {
                cancelled = true;
                attempt = last;
            }
            if (attempt != null) {
                attempt.cancel();
            }
        }

        @Override
        public boolean isEndedBy(CallException failure) {
            return TransactionAttempt.isOfInputs(failure);
        }

        @Override
        public boolean wasLast() {
            return call.attempts.get() >= TransactionRun.MOST_ATTEMPTS;
        }

        @Override
        public void over(List<String> attempts, boolean mayHaveRun) {
            call.failed.addAll(attempts, mayHaveRun);
        }

        @Override
        public Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context) {
            throw new IllegalStateException("an attempt has the arguments of its server");
        }

        @Override
        public Result take(Connection connection, Exchange exchange, Answer answer) {
            throw new IllegalStateException("an attempt has the results of its server");
        }

        @Override
        public AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer) {
            throw new IllegalStateException("an attempt is measured at its server");
        }
    }

    /** An attempt at a server, with arguments for it. */
    private record PlacedAttempt(TransactionAttempt attempt, PreparedCall prepared) implements RoutedOperation<Result> {
        private RoutineCall plain() {
            return new RoutineCall(attempt.call.of, prepared, 0, BackgroundThreads::run);
        }

        /** The call's own limit is that of each attempt: while the call waits for a place, only the transaction's time runs. */
        @Override
        public Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context) {
            Duration time = attempt.limit();
            Exchange exchange = plain().exchange(connection, placed, time == null ? 0 : Timer.milliseconds(time), context);
            if (attempt.hasOwnLimit()) {
                Future<?> limit = Timer.after(time, KumiClient.GRACE, () -> Waits.late(connection, exchange));
                exchange.answer.whenComplete((answer, error) -> limit.cancel(false));
            }
            return exchange;
        }

        @Override
        public Result take(Connection connection, Exchange exchange, Answer answer) {
            return plain().take(connection, exchange, answer);
        }

        @Override
        public AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer) {
            AttemptReport all = plain().measured(ticket, exchange, answer);
            // The time of arrays that come from elsewhere says nothing of the way between client and server.
            return attempt.isAlone() ? all : new AttemptReport(ticket, AttemptOutcome.DONE, 0, 0, 0, 0, all.ran(), all.waited());
        }

        @Override
        public void close() {
            prepared.close();
        }
    }
}
