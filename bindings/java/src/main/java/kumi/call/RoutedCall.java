package kumi.call;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import kumi.call.Exchange.Answer;
import kumi.call.wire.MetaserverMessages.AttemptOutcome;
import kumi.call.wire.MetaserverMessages.AttemptReport;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.MetaserverMessages.PlacementRequest;
import kumi.call.wire.Protocol;

/**
 * A call, or the creation of an object, through a metaserver. It goes from server to server until one has done it. It is a state
 * machine: a background thread handles its events one after the other and never waits.
 */
final class RoutedCall<T> {
    /** How much longer than its time limit the client waits for a call. */
    private static final Duration GRACE = Duration.ofSeconds(2);
    /** Pause before a running call looks for a metaserver again. */
    private static final Duration AGAIN = Duration.ofSeconds(1);
    /** The longest pause, in milliseconds, between requests to a metaserver whose connections break. */
    private static final long LONGEST_PAUSE = 1000;
    /** The protocol's codes for "no server"; with the second the call may have run in part. */
    private static final int NO_SERVER = 21;
    private static final int SERVER_GONE = 22;

    /** The routine or class, the arguments, and the operation. */
    record Task<T>(KumiClient.KnownRoutine of, PreparedCall prepared, int priority, Duration time, RoutedOperation<T> aim) {}

    /** An attempt at a server; connection and exchange are set when it begins. */
    private static final class Attempt {
        private final Placement placed;
        private Connection connection;
        private Exchange exchange;

        Attempt(Placement placed) {
            this.placed = placed;
        }
    }

    private final Grid grid;
    private final Task<T> task;
    private final String name;
    private final long number;
    private final boolean idempotent;
    /** When the time is over, by {@link System#nanoTime}. */
    private final long deadline;
    private final CompletableFuture<T> future = new CompletableFuture<>();
    /** Events that wait to be handled. Its lock also guards {@code taking}: a thread handles events. */
    private final Deque<Runnable> events = new ArrayDeque<>();
    private boolean taking;
    /** Lock for the caller's arrays outside of a connection, and for the begin of an attempt. */
    private final Object argumentsLock = new Object();
    private boolean cancelled;
    /** The attempt that has begun; guarded by {@link #argumentsLock}. */
    private Attempt current;

    /** Only the thread that handles events uses the fields from here on. */
    private Future<?> limit;
    private boolean over;
    private Attempt attempt;
    /** The placement request at the metaserver, or null, and its connection. */
    private Exchange placeRequest;
    private Connection meta;
    /** The call has begun, and a new metaserver has not said yet whether it knows the call. */
    private boolean isReattaching;
    /** The current metaserver does not know the running call. */
    private boolean unknownToMetaserver;
    /** The latest attempt, and its report if no metaserver has answered since. */
    private Placement at;
    private AttemptReport unreported;
    private final List<String> tried = new ArrayList<>();
    private CallException last;
    private boolean hasRun;
    private long pause;

    RoutedCall(Grid grid, Task<T> task) {
        this.grid = grid;
        this.task = task;
        name = task.of().routine().name();
        idempotent = task.of().routine().idempotent();
        number = grid.number();
        long nanoseconds = task.time() == null || task.time().toSeconds() > Integer.MAX_VALUE ? Long.MAX_VALUE / 2 : task.time().toNanos();
        deadline = System.nanoTime() + nanoseconds;
    }

    /** Begins the call. When the future completes, the prepared arguments are no longer used. */
    CompletableFuture<T> begin() {
        post(() -> {
            if (task.time() != null) {
                limit = Timer.after(task.time().plus(GRACE), () -> post(this::late));
            }
            requestPlace();
        });
        return future;
    }

    /** Cancels the call. Afterwards the caller's arrays are neither read nor written. */
    void cancel() {
        synchronized (argumentsLock) {
            cancelled = true;
            if (current != null) {
                current.connection.abandon(current.exchange);
            }
        }
        post(() -> drop(new CallException.Cancelled("the call of `" + name + "` was cancelled", 0)));
    }

    /** Ends the call because the client is closed. */
    void close() {
        post(() -> {
            boolean unsent = !hasRun && (attempt == null || attempt.exchange == null);
            drop(new CallException.ConnectionLost("the client was closed", unsent));
        });
    }

    private void post(Runnable event) {
        synchronized (events) {
            events.add(event);
            if (taking) {
                return;
            }
            taking = true;
        }
        try {
            BackgroundThreads.run(this::take);
        } catch (RuntimeException | OutOfMemoryError none) {
            // No thread is available: handle the events in this one.
            take();
        }
    }

    private void take() {
        while (true) {
            Runnable event;
            synchronized (events) {
                event = events.poll();
                taking = event != null;
            }
            if (event == null) {
                return;
            }
            try {
                if (!over) {
                    event.run();
                }
            } catch (RuntimeException | Error wrong) {
                // Otherwise the caller would wait for ever.
                drop(KumiClient.again(wrong));
            }
        }
    }

    /** The remaining time in milliseconds, rounded up; 0: no limit, -1: none is left. */
    private int left() {
        if (task.time() == null) {
            return 0;
        }
        long left = deadline - System.nanoTime();
        return left <= 0 ? -1 : (int) Math.min(Integer.MAX_VALUE, (left - 1) / 1_000_000 + 1);
    }

    private CallException tooLate() {
        return new CallException.TimedOut("`" + name + "` took longer than it may", 0);
    }

    private void late() {
        if (attempt != null && attempt.exchange != null) {
            attempt.connection.late(attempt.exchange);
        }
        drop(tooLate());
    }

    /** Ends the call in any state. */
    private void drop(CallException why) {
        if (over) {
            return;
        }
        Attempt left = attempt;
        leave();
        if (left != null) {
            tell(AttemptReport.of(left.placed.ticket(), AttemptOutcome.FAILED));
        } else {
            leaveStream();
        }
        finish(null, why);
    }

    private void finish(T result, Throwable error) {
        over = true;
        if (limit != null) {
            limit.cancel(false);
        }
        task.prepared().close();
        grid.end(this);
        if (error == null) {
            future.complete(result);
        } else {
            future.completeExceptionally(error);
        }
    }

    /** Requests a placement. */
    private void requestPlace() {
        if (hasRun && !idempotent) {
            // A metaserver that does not know the attempt would run it twice.
            giveUp(new CallException.NoServer("no metaserver knows it any more", SERVER_GONE, false, null));
            return;
        }
        grid.metaserver().whenComplete((connection, error) -> post(() -> {
            if (placeRequest == null && attempt == null) {
                if (error != null) {
                    giveUp(KumiClient.again(error));
                } else {
                    ask(connection);
                }
            }
        }));
    }

    private void ask(Connection connection) {
        int left = left();
        if (left < 0) {
            drop(tooLate());
            return;
        }
        PreparedCall prepared = task.prepared();
        PlacementRequest placing = new PlacementRequest(grid.client(), number, task.of().hash(), prepared.sent(), prepared.returned(),
                prepared.operations(), left, at == null ? 0 : at.ticket().attempt(), task.priority(), idempotent, name);
        Exchange asked = Exchange.of(Protocol.PLACE, placing.encode());
        asked.placed = () -> post(() -> placed(asked));
        // The report on the previous connection may be lost, so it is sent again.
        asked.behind = attempt == null ? unreported : null;
        placeRequest = asked;
        meta = connection;
        unknownToMetaserver = false;
        isReattaching = attempt != null || unreported != null;
        asked.answer.whenComplete((answer, error) -> post(() -> {
            if (asked == placeRequest) {
                metaEnded(error == null ? null : KumiClient.again(error));
            }
        }));
        try {
            connection.submit(asked);
        } catch (CallException.ConnectionLost lost) {
            asked.answer.completeExceptionally(lost);
        }
    }

    /** Handles a placement. */
    private void placed(Exchange asked) {
        Placement placed = asked.place.getAndSet(null);
        if (asked != placeRequest || placed == null) {
            return;
        }
        pause = 0;
        boolean known = isReattaching && placed.isSame(at);
        if (attempt == null) {
            // The metaserver may name the ended attempt before it reads its report.
            isReattaching = false;
            if (!known) {
                unreported = null;
                go(placed);
            }
        } else if (known) {
            isReattaching = false;
        } else if (isReattaching) {
            // The metaserver does not know the running call. The call goes on; a second placement is not needed.
            leaveStream();
            unknownToMetaserver = true;
        } else if (isSuperseded()) {
            go(placed);
        }
    }

    /** Handles the end of the placement request. */
    private void metaEnded(CallException error) {
        boolean gone = error instanceof CallException.ConnectionLost || error != null && error.code() == Handshake.NOT_LEADING;
        boolean unknown = isReattaching;
        Connection connection = meta;
        placeRequest = null;
        isReattaching = false;
        if (gone) {
            grid.lost(connection);
            again();
        } else if (attempt != null && unknown) {
            unknownToMetaserver = true;
        } else if (attempt == null || isSuperseded()) {
            if (error != null && error.code() == 2) {
                task.of().forget();
            }
            giveUp(error != null ? error
                    : new CallException.NoServer("the metaserver ended the call", NO_SERVER, !hasRun, null));
        } else {
            unknownToMetaserver = true;
        }
    }

    /** Asks a metaserver again, after a pause if its connections keep breaking. */
    private void again() {
        if (pause == 0) {
            pause = 20;
            askAgain();
        } else {
            Timer.after(Duration.ofMillis(pause), () -> post(this::askAgain));
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    private void askAgain() {
        if (placeRequest == null && attempt == null) {
            requestPlace();
        } else if (placeRequest == null) {
            reattach();
        }
    }

    /** Tells a new metaserver about the running call, which it would give up otherwise. */
    private void reattach() {
        Attempt mine = attempt;
        grid.metaserver().whenComplete((connection, error) -> post(() -> {
            if (mine != attempt || placeRequest != null || unknownToMetaserver) {
                return;
            } else if (error == null) {
                ask(connection);
            } else {
                Timer.after(AGAIN, () -> post(() -> {
                    if (mine == attempt && placeRequest == null) {
                        reattach();
                    }
                }));
            }
        }));
    }

    /** Gives up the placement request. */
    private void leaveStream() {
        if (placeRequest != null) {
            meta.abandon(placeRequest);
        }
        placeRequest = null;
        isReattaching = false;
    }

    /** Whether another attempt may replace this one: inputs are intact, and no callback ran that must not run twice. */
    private boolean mayLeave(Exchange exchange) {
        boolean spoiled = task.prepared().overwrites() && exchange.head != null;
        return !spoiled && mayRepeat(exchange);
    }

    private boolean mayRepeat(Exchange exchange) {
        return idempotent || exchange.functions == null || !exchange.functions.wereCalled();
    }

    /** Leaves an attempt that the metaserver has given up; false if that is not allowed. */
    private boolean isSuperseded() {
        Attempt left = attempt;
        if (left.exchange != null && !left.connection.abandonIf(left.exchange, () -> mayLeave(left.exchange))) {
            return false;
        }
        leave();
        tried.add(left.placed + ": the metaserver lost it");
        // Without an exchange nothing was sent.
        hasRun |= left.exchange != null;
        return true;
    }

    /** Abandons the attempt. */
    private void leave() {
        synchronized (argumentsLock) {
            current = null;
        }
        if (attempt != null && attempt.exchange != null) {
            attempt.connection.abandon(attempt.exchange);
        }
        attempt = null;
    }

    private void go(Placement placed) {
        Attempt mine = new Attempt(placed);
        at = placed;
        attempt = mine;
        grid.server(placed).whenComplete((connection, error) -> post(() -> {
            if (mine == attempt && error != null) {
                failed(KumiClient.again(error), AttemptOutcome.NOT_BEGUN);
            } else if (mine == attempt) {
                send(mine, connection);
            }
        }));
    }

    private void send(Attempt mine, Connection connection) {
        int left = left();
        if (left < 0) {
            drop(tooLate());
            return;
        }
        Exchange exchange = task.aim().exchange(left);
        exchange.ticket = mine.placed.shown();
        try {
            synchronized (argumentsLock) {
                if (cancelled) {
                    return;
                }
                connection.submit(exchange);
                mine.connection = connection;
                mine.exchange = exchange;
                current = mine;
            }
        } catch (CallException.ConnectionLost lost) {
            grid.forget(mine.placed, connection);
            failed(lost, AttemptOutcome.NOT_BEGUN);
            return;
        } catch (CallException.Busy full) {
            failed(full, AttemptOutcome.NOT_BEGUN);
            return;
        }
        exchange.answer.whenComplete((answer, error) -> post(() -> {
            if (mine == attempt && error != null) {
                broke(mine, unasked(KumiClient.again(error)));
            } else if (mine == attempt) {
                ran(mine, answer);
            }
        }));
    }

    private void ran(Attempt mine, Answer answer) {
        T result;
        try {
            synchronized (argumentsLock) {
                if (cancelled) {
                    return;
                }
                current = null;
                result = task.aim().take(mine.connection, mine.exchange, answer);
            }
        } catch (CallException wrong) {
            drop(wrong);
            return;
        }
        attempt = null;
        tell(task.aim().measured(mine.placed.ticket(), mine.exchange, answer));
        finish(result, null);
    }

    /** The meaning of an error for a call that its client has not cancelled: if it was stopped nevertheless, it is lost. */
    private CallException unasked(CallException error) {
        if (!(error instanceof CallException.Cancelled)) {
            return error;
        }
        return left() < 0 ? tooLate() : new CallException.NoServer("`" + name + "` was stopped, and not by its client: a metaserver "
                + "that is begun anew without its state (--state) has servers stop what it does not know. It may have run in part",
                SERVER_GONE, false, null);
    }

    /** The meaning of a failed attempt for the next one. */
    private static AttemptOutcome ended(CallException error) {
        if (error instanceof CallException.ConnectionLost || error instanceof CallException.Crashed
                || error instanceof CallException.NoServer) {
            return error.hasNotRun() ? AttemptOutcome.NOT_BEGUN : AttemptOutcome.BROKEN;
        } else if (error instanceof CallException.Argument) {
            return AttemptOutcome.FAILED;
        }
        return error.hasNotRun() ? AttemptOutcome.NOT_BEGUN : AttemptOutcome.FAILED;
    }

    /** An attempt has failed after it was sent. */
    private void broke(Attempt mine, CallException error) {
        // An object whose pass has expired is opened again with the next pass.
        if (error instanceof CallException.ConnectionLost || error.code() == 20 || mine.connection.isBroken()) {
            grid.forget(mine.placed, mine.connection);
        }
        AttemptOutcome how = ended(error);
        if (how == AttemptOutcome.FAILED || !mayLeave(mine.exchange)) {
            // A server that calls a callback has begun, even if it reports otherwise.
            boolean lies = error.hasNotRun() && !mayRepeat(mine.exchange);
            drop(lies ? new CallException.Server(error.getMessage() + ", after it had called a function", 0) : error);
        } else {
            failed(error, how);
        }
    }

    /** Handles a failed attempt. */
    private void failed(CallException error, AttemptOutcome how) {
        Placement placed = attempt.placed;
        leave();
        tried.add(placed + ": " + error.getMessage());
        hasRun |= how == AttemptOutcome.BROKEN;
        last = error;
        unreported = AttemptReport.of(placed.ticket(), how);
        report(unreported);
        // A metaserver that does not know the call must not place a lost attempt again.
        boolean unknown = placeRequest == null || isReattaching;
        if (unknown && how == AttemptOutcome.BROKEN && !idempotent) {
            leaveStream();
            giveUp(new CallException.NoServer("no metaserver knows it", SERVER_GONE, false, null));
        } else if (placeRequest == null) {
            requestPlace();
        }
    }

    /** Fails the call: no server has run it, and none will. */
    private void giveUp(CallException error) {
        leaveStream();
        CallException told = error;
        if (error instanceof CallException.TimedOut) {
            told = tooLate();
        } else if (last != null && tried.size() == 1 && error instanceof CallException.NoServer) {
            told = last.at("`" + name + "` failed on one server: " + tried.get(0));
        } else if (!tried.isEmpty()) {
            CallException why = last == null ? error : last;
            told = new CallException.NoServer("`" + name + "` failed: " + String.join("; ", tried)
                    + (last == error ? "" : "; " + error.getMessage()), hasRun ? SERVER_GONE : NO_SERVER, !hasRun, why);
        }
        finish(null, told);
    }

    /** Reports the end of the call to the metaserver. */
    private void tell(AttemptReport how) {
        report(how);
        if (isReattaching) {
            // Whether or not it knows the call, closing the request ends the call there.
            leaveStream();
        } else if (placeRequest != null) {
            meta.forget(placeRequest);
            placeRequest = null;
        }
    }

    private void report(AttemptReport how) {
        if (placeRequest != null && !meta.over(placeRequest, how)) {
            grid.lost(meta);
            placeRequest = null;
            isReattaching = false;
        } else if (placeRequest != null) {
            return;
        }
        grid.report(how);
    }
}
