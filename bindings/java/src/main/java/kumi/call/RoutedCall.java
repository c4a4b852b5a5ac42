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
 * A call through a metaserver, or the making of an object, from server to server until one has done it. What happens to it comes as
 * events, which are taken one after the other, in a thread that is there as long as there are any; nothing is waited for there.
 */
final class RoutedCall<T> {
    /** How much longer than a call may take is waited for those who say so. */
    private static final Duration GRACE = Duration.ofSeconds(2);
    /** How soon a metaserver is looked for again, for a call that runs. */
    private static final Duration AGAIN = Duration.ofSeconds(1);
    /** The longest pause before a metaserver is asked again whose connections do not last, in milliseconds. */
    private static final long LONGEST_PAUSE = 1000;
    /** No server: the metaserver's number of it; the second if the call may have run in part. */
    private static final int NO_SERVER = 21;
    private static final int SERVER_GONE = 22;

    /** What is to be called, or of what class an object is to be made, and what for. */
    record Task<T>(KumiClient.KnownRoutine of, PreparedCall prepared, int priority, Duration time, RoutedOperation<T> aim) {}

    /** An attempt: where it is, and when it has begun, over which connection. */
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
    /** What has happened and was not taken yet; with its lock, also whether a thread takes it. */
    private final Deque<Runnable> events = new ArrayDeque<>();
    private boolean taking;
    /** Held while the caller's arrays are read or written otherwise than by a connection, and while an attempt begins. */
    private final Object argumentsLock = new Object();
    private boolean cancelled;
    /** With {@link #argumentsLock}: the attempt that has begun. */
    private Attempt current;

    /** From here on: for the thread that takes events alone. */
    private Future<?> limit;
    private boolean over;
    private Attempt attempt;
    /** The stream at the metaserver, if there is one, and its connection. */
    private Exchange placeRequest;
    private Connection meta;
    /** That stream is for a call that runs or has run, and the metaserver has not said yet whether it knows it. */
    private boolean isReattaching;
    /** The present metaserver knows nothing of the call that runs. */
    private boolean unknownToMetaserver;
    /** The last attempt, and how it ended, if no metaserver has answered since. */
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

    /** Begins it; its end. Of what was prepared nothing is used any more then. */
    CompletableFuture<T> begin() {
        post(() -> {
            if (task.time() != null) {
                limit = Timer.after(task.time().plus(GRACE), () -> post(this::late));
            }
            requestPlace();
        });
        return future;
    }

    /** Ends it: nothing is read from or written to the caller's arrays any more. */
    void cancel() {
        synchronized (argumentsLock) {
            cancelled = true;
            if (current != null) {
                current.connection.abandon(current.exchange);
            }
        }
        post(() -> drop(new CallException.Cancelled("the call of `" + name + "` was cancelled", 0)));
    }

    /** The client is closed. */
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
            // Rather in this thread than never.
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
                // Who waits would wait for ever otherwise.
                drop(KumiClient.again(wrong));
            }
        }
    }

    /** The time that is left in milliseconds, rounded up, so that nobody else ends it sooner; 0: it is not bounded, -1: it is over. */
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

    /** Ends it, whatever it does. */
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

    /** Asks where to go. */
    private void requestPlace() {
        if (hasRun && !idempotent) {
            // A metaserver that has forgotten the attempt would have it run twice.
            giveUp(new CallException.NoServer("no metaserver knows of it any more", SERVER_GONE, false, null));
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
        // What the connection before was told is lost with it, perhaps.
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

    /** The metaserver says where to go. */
    private void placed(Exchange asked) {
        Placement placed = asked.place.getAndSet(null);
        if (asked != placeRequest || placed == null) {
            return;
        }
        pause = 0;
        boolean known = isReattaching && placed.isSame(at);
        if (attempt == null) {
            // What is known of an attempt that is over may have been said before that was.
            isReattaching = false;
            if (!known) {
                unreported = null;
                go(placed);
            }
        } else if (known) {
            isReattaching = false;
        } else if (isReattaching) {
            // It does not know the call, which goes on all the same; a place for one more is not wanted.
            leaveStream();
            unknownToMetaserver = true;
        } else if (isSuperseded()) {
            go(placed);
        }
    }

    /** The metaserver says no more of the call. */
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

    /** Asks a metaserver again, but one whose connections do not last not without a pause. */
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

    /** Tells the next metaserver of a call that runs, which would take it for given up otherwise. */
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

    /** The stream at the metaserver is of no use any more. */
    private void leaveStream() {
        if (placeRequest != null) {
            meta.abandon(placeRequest);
        }
        placeRequest = null;
        isReattaching = false;
    }

    /** Whether an attempt may be left for another: nothing is written over what is sent, and nothing has run here that may not run twice. */
    private boolean mayLeave(Exchange exchange) {
        boolean spoiled = task.prepared().overwrites() && exchange.head != null;
        return !spoiled && mayRepeat(exchange);
    }

    private boolean mayRepeat(Exchange exchange) {
        return idempotent || exchange.functions == null || !exchange.functions.wereCalled();
    }

    /** The metaserver has given the attempt up; whether it is left here, too. */
    private boolean isSuperseded() {
        Attempt left = attempt;
        if (left.exchange != null && !left.connection.abandonIf(left.exchange, () -> mayLeave(left.exchange))) {
            return false;
        }
        leave();
        tried.add(left.placed + ": the metaserver lost it");
        // Where it was only connected to nothing was sent.
        hasRun |= left.exchange != null;
        return true;
    }

    /** There is no attempt any more. */
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

    /** What an error means for a call that its client has not cancelled: one that was stopped all the same is broken. */
    private CallException unasked(CallException error) {
        if (!(error instanceof CallException.Cancelled)) {
            return error;
        }
        return left() < 0 ? tooLate() : new CallException.NoServer("`" + name + "` was stopped, and not by its client: a metaserver "
                + "that is begun anew without its state (--state) has servers stop what it does not know. It may have run in part",
                SERVER_GONE, false, null);
    }

    /** What a failed attempt means for the next. */
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
        // One that was opened with a pass which is not good any more is opened anew with the next.
        if (error instanceof CallException.ConnectionLost || error.code() == 20 || mine.connection.isBroken()) {
            grid.forget(mine.placed, mine.connection);
        }
        AttemptOutcome how = ended(error);
        if (how == AttemptOutcome.FAILED || !mayLeave(mine.exchange)) {
            // A server that calls a function has begun, whatever it says.
            boolean lies = error.hasNotRun() && !mayRepeat(mine.exchange);
            drop(lies ? new CallException.Server(error.getMessage() + ", after it had called a function", 0) : error);
        } else {
            failed(error, how);
        }
    }

    /** An attempt came to nothing. */
    private void failed(CallException error, AttemptOutcome how) {
        Placement placed = attempt.placed;
        leave();
        tried.add(placed + ": " + error.getMessage());
        hasRun |= how == AttemptOutcome.BROKEN;
        last = error;
        unreported = AttemptReport.of(placed.ticket(), how);
        report(unreported);
        // What was lost may not be placed again by a metaserver that does not know it.
        boolean unknown = placeRequest == null || isReattaching;
        if (unknown && how == AttemptOutcome.BROKEN && !idempotent) {
            leaveStream();
            giveUp(new CallException.NoServer("no metaserver knows of it", SERVER_GONE, false, null));
        } else if (placeRequest == null) {
            requestPlace();
        }
    }

    /** No server has run the call, and none will. */
    private void giveUp(CallException error) {
        leaveStream();
        CallException told = error;
        if (error instanceof CallException.TimedOut) {
            told = tooLate();
        } else if (last != null && tried.size() == 1 && error instanceof CallException.NoServer) {
            told = last;
        } else if (!tried.isEmpty()) {
            CallException why = last == null ? error : last;
            told = new CallException.NoServer("`" + name + "` failed: " + String.join("; ", tried)
                    + (last == error ? "" : "; " + error.getMessage()), hasRun ? SERVER_GONE : NO_SERVER, !hasRun, why);
        }
        finish(null, told);
    }

    /** Tells the metaserver of the call's end. */
    private void tell(AttemptReport how) {
        report(how);
        if (isReattaching) {
            // If it knows the call it has ended it, and if not it is to.
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
