package kumi.call;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import kumi.call.Exchange.Answer;
import kumi.call.routing.CallRouting;
import kumi.call.routing.RoutingAction;
import kumi.call.routing.RoutingEvent;
import kumi.call.wire.MetaserverMessages;
import kumi.call.wire.MetaserverMessages.AttemptOutcome;
import kumi.call.wire.MetaserverMessages.AttemptReport;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.MetaserverMessages.PlacementRequest;
import kumi.call.wire.Protocol;

/**
 * A call, or the creation of an object, through a metaserver: it does what {@link CallRouting} decides. A background thread handles
 * its events one after the other and never waits.
 */
final class RoutedCall<T> {
    /** Pause before a running call looks for a metaserver again. */
    private static final Duration AGAIN = Duration.ofSeconds(1);
    /** Pauses between requests to a metaserver whose connections break, in milliseconds. The first is asked again at once. */
    private static final long SHORTEST_PAUSE = 20;
    private static final long LONGEST_PAUSE = 1000;
    /** Codes of the protocol: the description has changed, a pass is not taken any more. */
    private static final int INTERFACE_CHANGED = 2;
    private static final int TICKET_NOT_TAKEN = 20;
    /** Why a call got no further attempt: its time for that is over. */
    private static final String NO_MORE_TIME = "the time for further attempts is over (ClientOptions.retryTime, KUMI_CALL_RETRY_TIME)";

    /** The routine or class, the arguments, what is said of the call, and the operation. */
    record Task<T>(KumiClient.KnownRoutine of, PreparedCall prepared, int priority, Duration time, CallMetadata said,
            RoutedOperation<T> aim) {}

    /** A place, by ticket and address: independent metaservers may use the same numbers. */
    record Place(Placement placed) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Place place && placed.ticket().equals(place.placed.ticket())
                    && placed.address().equals(place.placed.address());
        }

        @Override
        public int hashCode() {
            return placed.ticket().hashCode();
        }
    }

    private final Grid grid;
    private final Task<T> task;
    private final String name;
    private final long number;
    private final boolean idempotent;
    /** The arrays that bind the call to their server; null: it may run anywhere. */
    private final BoundArguments bound;
    /** When the call began, and when its time is over, by {@link System#nanoTime}. */
    private final long begun = System.nanoTime();
    private final long deadline;
    /** What calls of its functions inherit. */
    private final InheritedContext context;
    private final CompletableFuture<T> future = new CompletableFuture<>();
    private final EventQueue events = new EventQueue(() -> this.over, this::act, this::broken);
    /** Lock for the caller's arrays outside of a connection, and for the begin of an attempt. */
    private final Object argumentsLock = new Object();
    private boolean cancelled;
    /** The attempt that has begun; guarded by {@link #argumentsLock}. */
    private RoutedAttempt<T> current;

    /** Only the thread that handles events uses the fields from here on. */
    private final CallRouting<Place, CallException> routing;
    private Future<?> limit;
    private Future<?> wake;
    private boolean over;
    /** The attempt that was begun last; null: it is over. */
    private RoutedAttempt<T> attempt;
    /** The placement request at the metaserver, or null, and its connection. */
    private Exchange placeRequest;
    private Connection meta;
    /** How long to wait before the next request, and before the one after that, in milliseconds. */
    private long pause;
    private long nextPause;
    /** The result and the report of the attempt that has run. */
    private T result;
    private AttemptReport done;
    /** Why the program has ended the call; null: it has not. */
    private CallException stopped;

    RoutedCall(Grid grid, Task<T> task) {
        this.grid = grid;
        this.task = task;
        name = task.of().routine().name();
        idempotent = task.of().routine().idempotent();
        number = grid.number();
        long nanoseconds = task.time() == null || task.time().toSeconds() > Integer.MAX_VALUE ? Long.MAX_VALUE / 2 : task.time().toNanos();
        deadline = begun + nanoseconds;
        context = new InheritedContext(task.time() == null ? null : (Long) deadline, task.said().trace());
        bound = task.prepared().bound();
        routing = new CallRouting<>(new CallRouting.Rules(idempotent, grid.retryTime()),
                bound == null ? null : place -> bound.isAt(place.placed()));
    }

    /** Begins the call. When the future completes, the prepared arguments are no longer used. */
    CompletableFuture<T> begin() {
        post(() -> {
            if (task.time() != null) {
                limit = Timer.after(task.time(), KumiClient.GRACE, () -> post(this::late));
            }
        });
        if (bound != null && bound.connection().isBroken()) {
            serverLost(bound.connection());
        }
        return future;
    }

    /** A connection to a server is lost. A call whose arrays were there need not wait for a place. */
    void serverLost(Connection connection) {
        if (bound != null && bound.connection() == connection) {
            post(() -> {
                if (!routing.hasAttempt()) {
                    stop(bound.connectionLost(!routing.mayHaveRun()));
                }
            });
        }
    }

    /** Cancels the call. Afterwards the caller's arrays are neither read nor written. */
    void cancel() {
        synchronized (argumentsLock) {
            cancelled = true;
            if (current != null) {
                current.connection.abandon(current.exchange);
            }
        }
        post(() -> stop(new CallException.Cancelled("the call of `" + name + "` was cancelled", 0)));
    }

    /** Ends the call because the client is closed. */
    void close() {
        post(() -> {
            boolean unsent = !routing.mayHaveRun() && (attempt == null || attempt.exchange == null);
            stop(new CallException.ConnectionLost("the client was closed", unsent));
        });
    }

    private void post(Runnable event) {
        events.post(event, () -> { });
    }

    /** An event has thrown this. Otherwise the caller would wait for ever. */
    private void broken(Throwable wrong) {
        stop(Waits.again(wrong));
        act();
    }

    private void tell(RoutingEvent<Place, CallException> event) {
        routing.handle(System.nanoTime() - begun, event);
    }

    private void tell(RoutingEvent.Kind kind) {
        tell(RoutingEvent.of(kind));
    }

    private void tell(RoutingEvent.Kind kind, CallException error) {
        tell(RoutingEvent.failed(kind, error));
    }

    /** Does what the routing wants. */
    private void act() {
        for (RoutingAction<Place, CallException> action = routing.poll(); action != null; action = routing.poll()) {
            switch (action.kind()) {
                case ASK -> lookLater();
                case START -> start(action.place());
                case LEAVE -> tell(leaveIfAllowed() ? RoutingEvent.Kind.LEFT : RoutingEvent.Kind.STAYS);
                case REPORT -> report(action.place().placed().ticket(), action.outcome());
                case CANCEL_REQUEST -> cancelRequest();
                case CLOSE_REQUEST -> closeRequest();
                case END -> end(action.end(), action.error());
                default -> throw new IllegalStateException("there is no action " + action.kind());
            }
        }
        wakeWhenDue();
    }

    /** Sets the timer by which the routing ends a call that gets no place in time. */
    private void wakeWhenDue() {
        Long at = over ? null : routing.wakesAt();
        if (at == null && wake != null) {
            wake.cancel(false);
            wake = null;
        } else if (at != null && wake == null) {
            long left = Math.max(0, at - (System.nanoTime() - begun));
            wake = Timer.after(Duration.ofNanos(left), () -> post(() -> {
                wake = null;
                tell(RoutingEvent.Kind.TICK);
            }));
        }
    }

    /** The remaining time in milliseconds, at least 1; 0: no limit, -1: none is left. */
    private int left() {
        if (task.time() == null) {
            return 0;
        }
        long left = deadline - System.nanoTime();
        return left <= 0 ? -1 : Timer.milliseconds(Duration.ofNanos(left));
    }

    private CallException tooLate() {
        return new CallException.TimedOut("`" + name + "` took longer than it may", 0);
    }

    private void late() {
        if (attempt != null && attempt.exchange != null) {
            attempt.connection.late(attempt.exchange);
        }
        stop(tooLate());
    }

    /** Ends the call in any state. */
    private void stop(CallException why) {
        if (stopped == null) {
            stopped = why;
        }
        leave();
        tell(RoutingEvent.Kind.STOPPED, stopped);
    }

    /** Asks a metaserver, after a pause if its connections keep breaking. */
    private void lookLater() {
        if (pause == 0) {
            look();
        } else {
            Timer.after(Duration.ofMillis(pause), () -> post(this::look));
            pause = 0;
        }
    }

    private void look() {
        grid.metaserver().whenComplete((connection, error) -> post(() -> {
            if (!routing.wantsMetaserver()) {
                return;
            } else if (error == null) {
                ask(connection);
            } else if (routing.hasAttempt()) {
                // The attempt goes on meanwhile. A new metaserver would give it up if it never heard of it.
                Timer.after(AGAIN, () -> post(this::look));
            } else {
                tell(RoutingEvent.Kind.NO_METASERVER, Waits.again(error));
            }
        }));
    }

    private void ask(Connection connection) {
        int left = left();
        if (left < 0) {
            stop(tooLate());
            return;
        }
        if (bound != null && !connection.hello().join().bindsCalls()) {
            stop(new CallException.Server("`" + connection.hello().join().name()
                    + "` is a metaserver of a version that sends no call to the server of its arrays: fetch them", 0));
            return;
        }
        PreparedCall prepared = task.prepared();
        int attempts = routing.last() == null ? 0 : routing.last().placed().ticket().attempt();
        PlacementRequest placing = new PlacementRequest(grid.client(), number, task.of().hash(), prepared.sent(), task.aim().returned(prepared),
                prepared.operations(), left, attempts, task.priority(), idempotent, bound != null, name,
                bound == null ? task.aim().inputs() : bound.location());
        Exchange asked = Exchange.of(Protocol.PLACE, placing.encode());
        asked.said = task.said().ofPlace();
        asked.placed = () -> post(() -> placed(asked));
        try {
            connection.submit(asked);
        } catch (CallException.ConnectionLost lost) {
            grid.lost(connection);
            lengthenPause();
            lookLater();
            return;
        }
        placeRequest = asked;
        meta = connection;
        tell(RoutingEvent.Kind.ASKED);
        asked.answer.whenComplete((answer, error) -> post(() -> {
            if (asked == placeRequest) {
                requestEnded(error == null ? null : Waits.again(error));
            }
        }));
    }

    private void placed(Exchange asked) {
        Placement placed = asked.place.getAndSet(null);
        if (asked == placeRequest && placed != null) {
            nextPause = 0;
            tell(RoutingEvent.placed(new Place(placed)));
        }
    }

    /** The metaserver has ended the placement request, or is lost. */
    private void requestEnded(CallException error) {
        if (error instanceof CallException.ConnectionLost || error != null && error.code() == Handshake.NOT_LEADING) {
            loseMetaserver();
            return;
        }
        placeRequest = null;
        if (bound != null) {
            bound.requestEnded(error);
        }
        if (error != null && error.code() == INTERFACE_CHANGED) {
            task.of().forget();
        }
        tell(RoutingEvent.Kind.REQUEST_ENDED, error != null ? error
                : noServer("the metaserver ended the call"));
    }

    private void loseMetaserver() {
        placeRequest = null;
        grid.lost(meta);
        lengthenPause();
        tell(RoutingEvent.Kind.METASERVER_LOST);
    }

    private void lengthenPause() {
        pause = nextPause;
        nextPause = nextPause == 0 ? SHORTEST_PAUSE : Math.min(2 * nextPause, LONGEST_PAUSE);
    }

    private void cancelRequest() {
        if (placeRequest != null) {
            meta.abandon(placeRequest);
            placeRequest = null;
        }
    }

    private void closeRequest() {
        if (placeRequest != null) {
            meta.forget(placeRequest);
            placeRequest = null;
        }
    }

    /** Whether another attempt may replace this one: inputs are intact, and no callback ran that must not run twice. */
    private boolean mayLeave(Exchange exchange) {
        boolean spoiled = task.prepared().overwrites() && exchange.head != null;
        return !spoiled && mayRepeat(exchange);
    }

    private boolean mayRepeat(Exchange exchange) {
        return idempotent || exchange.functions == null || !exchange.functions.wereCalled();
    }

    /** Leaves the attempt, which the metaserver has given up; false if that is not allowed. */
    private boolean leaveIfAllowed() {
        RoutedAttempt<T> mine = attempt;
        boolean leaves = mine.connection.abandonIf(mine.exchange, () -> mayLeave(mine.exchange));
        if (leaves) {
            leave();
        }
        return leaves;
    }

    /** Abandons the attempt. */
    private void leave() {
        synchronized (argumentsLock) {
            current = null;
        }
        if (attempt != null && attempt.exchange != null) {
            attempt.connection.abandon(attempt.exchange);
            task.prepared().dropKept();
        }
        if (attempt != null && attempt.operation != null) {
            attempt.operation.close();
        }
        attempt = null;
    }

    private void start(Place place) {
        RoutedAttempt<T> mine = new RoutedAttempt<>(place.placed());
        attempt = mine;
        if (bound != null) {
            // The arrays are of this connection.
            mine.operation = task.aim();
            send(mine, bound.connection());
            return;
        }
        grid.server(mine.placed).whenComplete((connection, error) -> post(() -> {
            if (mine == attempt && error != null) {
                failed(RoutingEvent.Kind.NOT_BEGUN, Waits.again(error));
            } else if (mine == attempt) {
                prepare(mine, connection);
            }
        }));
    }

    /** There is a connection. What gets ready for an attempt that is over meanwhile is released. */
    private void prepare(RoutedAttempt<T> mine, Connection connection) {
        task.aim().ready(mine.placed, connection).whenComplete((operation, error) -> {
            Runnable release = error == null ? operation::close : () -> { };
            events.post(() -> {
                if (mine != attempt) {
                    release.run();
                } else if (error != null) {
                    failed(RoutingEvent.Kind.NOT_BEGUN, Waits.again(error));
                } else {
                    mine.operation = operation;
                    send(mine, connection);
                }
            }, release);
        });
    }

    private void send(RoutedAttempt<T> mine, Connection connection) {
        int left = left();
        if (left < 0) {
            stop(tooLate());
            return;
        }
        Exchange exchange = mine.operation.exchange(connection, mine.placed, left, context);
        exchange.ticket = mine.placed.shown();
        exchange.said = task.said();
        try {
            task.said().check(connection.hello().join());
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
            failed(meaning(lost), lost);
            return;
        } catch (CallException.Busy | CallException.NoResources refused) {
            failed(meaning(refused), refused);
            return;
        }
        tell(RoutingEvent.Kind.SENT);
        exchange.answer.whenComplete((answer, error) -> post(() -> {
            if (mine == attempt && error != null) {
                broke(mine, unasked(Waits.again(error)));
            } else if (mine == attempt) {
                ran(mine, answer);
            }
        }));
    }

    private void ran(RoutedAttempt<T> mine, Answer answer) {
        try {
            synchronized (argumentsLock) {
                if (cancelled) {
                    return;
                }
                current = null;
                result = mine.operation.take(mine.connection, mine.exchange, answer);
            }
        } catch (CallException wrong) {
            failed(RoutingEvent.Kind.FAILED, wrong);
            return;
        }
        attempt = null;
        done = mine.operation.measured(mine.placed.ticket(), mine.exchange, answer);
        tell(RoutingEvent.Kind.DONE);
    }

    /** The meaning of an error for a call that its client has not cancelled: if it was stopped nevertheless, it is lost. */
    private CallException unasked(CallException error) {
        if (!(error instanceof CallException.Cancelled)) {
            return error;
        }
        return left() < 0 ? tooLate() : new CallException.NoServer("`" + name + "` was stopped, and not by its client: a metaserver "
                + "that is begun anew without its state (--state) has servers stop what it does not know. It may have run in part",
                RoutedError.SERVER_GONE, false, null);
    }

    /** The meaning of a failed attempt for the next one. */
    private RoutingEvent.Kind meaning(CallException error) {
        if (bound != null && error.hasNotRun() && !BoundArguments.isForLater(error, TICKET_NOT_TAKEN)) {
            return RoutingEvent.Kind.FAILED;
        } else if (error instanceof CallException.ConnectionLost || error instanceof CallException.Crashed
                || error instanceof CallException.NoServer) {
            return error.hasNotRun() ? RoutingEvent.Kind.NOT_BEGUN : RoutingEvent.Kind.BROKEN;
        } else if (error instanceof CallException.Argument) {
            return RoutingEvent.Kind.FAILED;
        }
        return error.hasNotRun() ? RoutingEvent.Kind.NOT_BEGUN : RoutingEvent.Kind.FAILED;
    }

    /** An attempt has failed after it was sent. */
    private void broke(RoutedAttempt<T> mine, CallException error) {
        // An object whose pass has expired is opened again with the next pass.
        if (error instanceof CallException.ConnectionLost || error.code() == TICKET_NOT_TAKEN || mine.connection.isBroken()) {
            grid.forget(mine.placed, mine.connection);
        }
        RoutingEvent.Kind meaning = meaning(error);
        if (meaning == RoutingEvent.Kind.FAILED || !mayLeave(mine.exchange)) {
            // A server that calls a callback has begun, even if it reports otherwise.
            boolean lies = error.hasNotRun() && !mayRepeat(mine.exchange);
            failed(RoutingEvent.Kind.FAILED,
                    lies ? new CallException.Server(error.getMessage() + ", after it had called a function", 0) : error);
        } else {
            failed(meaning, error);
        }
    }

    /** The attempt has failed. Who looks at the metaserver is told why. */
    private void failed(RoutingEvent.Kind meaning, CallException error) {
        if (placeRequest != null && routing.last() != null) {
            meta.reason(placeRequest, routing.last().placed().ticket(), error.getMessage());
        }
        leave();
        boolean isEnded = meaning == RoutingEvent.Kind.NOT_BEGUN && task.aim().isEndedBy(error);
        tell(!isEnded && task.aim().wasLast() ? RoutingEvent.Kind.FAILED : meaning, error);
        if (isEnded) {
            stop(error);
        }
    }

    /** Reports how an attempt ended. */
    private void report(MetaserverMessages.Ticket ticket, RoutingAction.Outcome outcome) {
        boolean ran = done != null && outcome == RoutingAction.Outcome.DONE;
        AttemptReport report = ran ? done : AttemptReport.of(ticket, AttemptOutcome.valueOf(outcome.name()));
        if (placeRequest != null) {
            if (meta.over(placeRequest, report)) {
                return;
            }
            loseMetaserver();
        }
        grid.report(report);
    }

    /** The call is over. */
    private void end(RoutingAction.End end, CallException error) {
        over = true;
        leave();
        if (limit != null) {
            limit.cancel(false);
        }
        task.prepared().close();
        grid.end(this);
        List<String> tried = RoutedError.tried(routing);
        if (end == RoutingAction.End.FAILED && error != null) {
            tried.add(RoutedError.at(routing.last(), error.getMessage()));
        }
        task.aim().over(tried, routing.mayHaveRun() || error != null && !error.hasNotRun());
        if (end == RoutingAction.End.DONE) {
            future.complete(result);
        } else {
            CallException told = told(end, error);
            boolean isLost = bound != null && (error == null || error != stopped) && bound.areLost(end, error);
            future.completeExceptionally(isLost ? bound.lost(told, told.hasNotRun() && !routing.mayHaveRun()) : told);
        }
    }

    /** The error of a call that has ended like this. */
    private CallException told(RoutingAction.End end, CallException error) {
        return switch (end) {
            case UNKNOWN -> withAttempts(new CallException.NoServer("no metaserver knows it any more", RoutedError.SERVER_GONE, false, null));
            case ELSEWHERE -> withAttempts(noServer("the metaserver has named another server"));
            case RETRY_TIME -> withAttempts(noServer(NO_MORE_TIME));
            case GIVEN_UP -> error == stopped ? error : error instanceof CallException.TimedOut ? tooLate() : withAttempts(error);
            default -> error;
        };
    }

    private CallException noServer(String why) {
        return new CallException.NoServer(why, RoutedError.NO_SERVER, !routing.mayHaveRun(), null);
    }

    private CallException withAttempts(CallException error) {
        return RoutedError.withAttempts(name, routing, error);
    }
}
