package kumi.call.routing;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.function.Predicate;
import kumi.call.routing.RoutingAction.End;
import kumi.call.routing.RoutingAction.Outcome;

/**
 * A call through a metaserver, from the first request for a place to its one end.
 *
 * <p>The machine has no clock, no sockets and no arguments. Its driver says what has happened, with the time, and does what
 * {@link #poll} asks for. Beside the attempt goes the request at the metaserver. A metaserver that was asked while an attempt ran
 * <em>rejoins</em> it: if it names the same place, it knows the attempt. If it names another, it does not, and the call goes on
 * without a metaserver. Not safe for several threads at once.
 *
 * @param <P> a place; two of them are equal if they are the same attempt at the same server
 * @param <E> an error
 */
public final class CallRouting<P, E> {
    /**
     * What a call may do.
     *
     * @param idempotent the routine may run twice
     * @param retryTime nanoseconds after its first failed attempt in which the call may begin further ones; null: as long as the
     *     metaserver places it
     */
    public record Rules(boolean idempotent, Long retryTime) {}

    /**
     * An attempt that was not the last.
     *
     * @param place where it was
     * @param error why the server failed; null: the metaserver has moved or ended the call meanwhile
     */
    public record Tried<P, E>(P place, E error) {}

    private enum Phase {
        /** There is no place. */
        WAITING,
        /** The server is being connected. Nothing was sent. */
        CONNECTING,
        /** Arguments may have arrived. */
        RUNNING,
        /** The metaserver has given up this attempt. */
        LEAVING,
        OVER
    }

    /** The request at the metaserver. */
    private enum Request {
        /** There is none, and none is wanted: the metaserver does not know the attempt, or has ended the call. */
        ABSENT,
        /** A metaserver is to be asked. */
        WANTED,
        /** The metaserver has not yet said whether it knows the attempt. */
        REJOINING,
        /** What the metaserver says counts. */
        OPEN
    }

    private final Rules rules;
    /** Whether a place is at the only server where the call may run; null: it may run anywhere. */
    private final Predicate<P> isThere;
    private Phase phase = Phase.WAITING;
    private Request request = Request.ABSENT;
    /** The latest place: that of the attempt, if there is one. */
    private P last;
    /** What the metaserver wants instead of the attempt that is left: a place, or (null) an end with this error. */
    private P nextPlace;
    private E nextError;
    /** The report on the latest place, which a metaserver may not have yet. */
    private Outcome unreported;
    private final List<Tried<P, E>> tried = new ArrayList<>();
    private boolean mayHaveRun;
    /** When the first attempt came to nothing; null: none has. */
    private Long firstFailure;
    private final Deque<RoutingAction<P, E>> actions = new ArrayDeque<>();

    /** A call that wants a place. */
    public CallRouting(Rules rules) {
        this(rules, null);
    }

    /**
     * A call that wants a place at one server, and runs nowhere else: its arguments are there. An attempt that may have begun is its last
     * one, since the arguments may be gone with it.
     *
     * @param isThere whether a place is at that server; null: any server will do
     */
    public CallRouting(Rules rules, Predicate<P> isThere) {
        this.rules = rules;
        this.isThere = isThere;
        ask();
    }

    /** What the driver is to do next; null: nothing. */
    public RoutingAction<P, E> poll() {
        return actions.poll();
    }

    /** Whether a metaserver is still to be asked. */
    public boolean wantsMetaserver() {
        return request == Request.WANTED && phase != Phase.OVER;
    }

    /** Whether there is an attempt. */
    public boolean hasAttempt() {
        return phase == Phase.CONNECTING || phase == Phase.RUNNING || phase == Phase.LEAVING;
    }

    /** The latest place; null: there was none. */
    public P last() {
        return last;
    }

    /** The attempts that failed or were left, in their order. */
    public List<Tried<P, E>> tried() {
        return Collections.unmodifiableList(tried);
    }

    /** Whether the routine may have begun at some server. */
    public boolean mayHaveRun() {
        return mayHaveRun;
    }

    /** When {@link RoutingEvent.Kind#TICK} is due; null: never. */
    public Long wakesAt() {
        return phase == Phase.WAITING ? retryUntil() : null;
    }

    private Long retryUntil() {
        if (firstFailure == null || rules.retryTime() == null) {
            return null;
        }
        long until = firstFailure + rules.retryTime();
        return until < 0 ? Long.MAX_VALUE : until;
    }

    /**
     * Something has happened. What does not fit the state of the call has come too late, and changes nothing.
     *
     * @param now nanoseconds of a clock that only goes forward, not negative
     */
    public void handle(long now, RoutingEvent<P, E> event) {
        if (phase == Phase.OVER) {
            return;
        }
        switch (event.kind()) {
            case ASKED -> asked();
            case PLACED -> placed(now, event.place());
            case REQUEST_ENDED -> requestEnded(now, event.error());
            case METASERVER_LOST -> metaserverLost();
            case NO_METASERVER -> {
                if (wantsMetaserver() && !hasAttempt()) {
                    giveUp(End.GIVEN_UP, event.error());
                }
            }
            case SENT -> {
                if (phase == Phase.CONNECTING) {
                    phase = Phase.RUNNING;
                }
            }
            case DONE -> conclude(Outcome.DONE, End.DONE, null);
            case FAILED -> conclude(Outcome.FAILED, End.FAILED, event.error());
            case NOT_BEGUN -> attemptFailed(now, Outcome.NOT_BEGUN, event.error());
            case BROKEN -> attemptFailed(now, Outcome.BROKEN, event.error());
            case LEFT -> left(now);
            case STAYS -> stays();
            case STOPPED -> {
                if (hasAttempt()) {
                    conclude(Outcome.FAILED, End.FAILED, event.error());
                } else {
                    giveUp(End.GIVEN_UP, event.error());
                }
            }
            case TICK -> {
                if (!hasAttempt() && isLate(now)) {
                    giveUp(End.RETRY_TIME, null);
                }
            }
            default -> throw new IllegalArgumentException("there is no event " + event.kind());
        }
    }

    private void act(RoutingAction.Kind kind) {
        actions.add(RoutingAction.of(kind));
    }

    private void report(Outcome outcome) {
        actions.add(RoutingAction.report(last, outcome));
    }

    private void ask() {
        if (request != Request.WANTED) {
            request = Request.WANTED;
            // A driver that looks at wantsMetaserver may have left the last one there.
            RoutingAction<P, E> before = actions.peekLast();
            if (before == null || before.kind() != RoutingAction.Kind.ASK) {
                act(RoutingAction.Kind.ASK);
            }
        }
    }

    /** A metaserver that does not know the attempt would run a call twice. */
    private void askIfAllowed() {
        if (mayHaveRun && !rules.idempotent()) {
            giveUp(End.UNKNOWN, null);
        } else {
            ask();
        }
    }

    private void asked() {
        if (request != Request.WANTED) {
            return;
        }
        request = Request.OPEN;
        if (hasAttempt()) {
            request = Request.REJOINING;
        } else if (last != null && unreported != null) {
            request = Request.REJOINING;
            // The report may be lost with the metaserver that got it.
            report(unreported);
        }
    }

    private void placed(long now, P place) {
        if (!isAsked()) {
            return;
        }
        boolean rejoins = request == Request.REJOINING;
        request = Request.OPEN;
        boolean isKnown = place.equals(last);
        if (phase == Phase.WAITING) {
            if (!isKnown) {
                start(now, place);
            } else if (unreported != null && !rejoins) {
                // Named before the report on it was read. With a request that rejoins the report was sent.
                report(unreported);
            }
        } else if (!isKnown && rejoins) {
            dropRequest();
        } else if (!isKnown && phase == Phase.CONNECTING) {
            attemptOver(now, null);
            phase = Phase.WAITING;
            start(now, place);
        } else if (!isKnown) {
            leave(place, null);
        }
    }

    private void requestEnded(long now, E error) {
        if (!isAsked()) {
            return;
        }
        boolean isKnown = request == Request.OPEN;
        request = Request.ABSENT;
        if (phase == Phase.WAITING) {
            giveUp(End.GIVEN_UP, error);
        } else if (!isKnown) {
            // It does not know the attempt, which goes on.
            return;
        } else if (phase == Phase.CONNECTING) {
            attemptOver(now, null);
            giveUp(End.GIVEN_UP, error);
        } else {
            leave(null, error);
        }
    }

    private void metaserverLost() {
        if (!isAsked()) {
            return;
        }
        request = Request.ABSENT;
        if (phase == Phase.WAITING) {
            askIfAllowed();
        } else if (phase != Phase.LEAVING) {
            // While leaving it is asked when the attempt is left.
            ask();
        }
    }

    private void start(long now, P place) {
        if (isThere != null && !isThere.test(place)) {
            // With the request the place goes back.
            giveUp(End.ELSEWHERE, null);
            return;
        } else if (isThere != null && mayHaveRun) {
            giveUp(End.UNKNOWN, null);
            return;
        } else if (isLate(now)) {
            giveUp(End.RETRY_TIME, null);
            return;
        }
        unreported = null;
        last = place;
        phase = Phase.CONNECTING;
        actions.add(RoutingAction.start(place));
    }

    /** The metaserver has given up the attempt. If it has said so before, this word replaces that one. */
    private void leave(P place, E error) {
        nextPlace = place;
        nextError = error;
        if (phase != Phase.LEAVING) {
            phase = Phase.LEAVING;
            act(RoutingAction.Kind.LEAVE);
        }
    }

    private void left(long now) {
        if (phase == Phase.LEAVING) {
            attemptOver(now, null);
            mayHaveRun = true;
            goOn(now);
        }
    }

    /** The metaserver that gave up the attempt has asked its server, so its next word counts. */
    private void goOn(long now) {
        phase = Phase.WAITING;
        if (nextPlace == null) {
            giveUp(End.GIVEN_UP, nextError);
            return;
        }
        start(now, nextPlace);
        if (hasAttempt() && request == Request.ABSENT) {
            ask();
        }
    }

    private void stays() {
        if (phase == Phase.LEAVING) {
            phase = Phase.RUNNING;
            // Its metaserver knows it no more, and another would not.
            dropRequest();
        }
    }

    private void attemptFailed(long now, Outcome outcome, E error) {
        if (!hasAttempt()) {
            return;
        } else if (isThere != null && outcome == Outcome.BROKEN) {
            mayHaveRun = true;
            conclude(Outcome.FAILED, End.FAILED, error);
            return;
        }
        attemptOver(now, error);
        mayHaveRun |= outcome == Outcome.BROKEN;
        if (phase == Phase.LEAVING) {
            // The metaserver has given it up before it failed.
            goOn(now);
            return;
        }
        phase = Phase.WAITING;
        if (isLate(now)) {
            // The metaserver must not place the call again.
            close(Outcome.FAILED);
            giveUp(End.RETRY_TIME, null);
            return;
        }
        unreported = outcome;
        report(outcome);
        if (!isAsked()) {
            askIfAllowed();
        } else if (request == Request.REJOINING && !rules.idempotent() && outcome != Outcome.NOT_BEGUN) {
            // It may not know the attempt, and would place the call anew.
            giveUp(End.UNKNOWN, null);
        }
    }

    private void attemptOver(long now, E error) {
        if (firstFailure == null) {
            firstFailure = now;
        }
        tried.add(new Tried<>(last, error));
    }

    /** The last attempt has ended. */
    private void conclude(Outcome outcome, End end, E error) {
        if (!hasAttempt()) {
            return;
        }
        if (phase == Phase.LEAVING) {
            report(outcome);
            // The later place goes back.
            dropRequest();
        } else {
            close(outcome);
        }
        phase = Phase.OVER;
        actions.add(RoutingAction.end(end, error));
    }

    /** Reports an attempt after which the call gets no other. */
    private void close(Outcome outcome) {
        report(outcome);
        if (request == Request.OPEN) {
            // A metaserver that knows the attempt ends the request by itself.
            act(RoutingAction.Kind.CLOSE_REQUEST);
        } else if (request == Request.REJOINING) {
            act(RoutingAction.Kind.CANCEL_REQUEST);
        }
        request = Request.ABSENT;
    }

    /** Whether no further attempt may begin. */
    private boolean isLate(long now) {
        Long until = retryUntil();
        return until != null && until <= now;
    }

    /** Whether there is a request at a metaserver. */
    private boolean isAsked() {
        return request == Request.OPEN || request == Request.REJOINING;
    }

    private void dropRequest() {
        if (isAsked()) {
            act(RoutingAction.Kind.CANCEL_REQUEST);
        }
        request = Request.ABSENT;
    }

    private void giveUp(End end, E error) {
        dropRequest();
        phase = Phase.OVER;
        actions.add(RoutingAction.end(end, error));
    }
}
