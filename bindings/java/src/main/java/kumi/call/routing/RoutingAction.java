package kumi.call.routing;

/**
 * What the driver is to do.
 *
 * @param kind what
 * @param place the place of {@link Kind#START} and {@link Kind#REPORT}; otherwise null
 * @param outcome the outcome of {@link Kind#REPORT}; otherwise null
 * @param end the end of {@link Kind#END}; otherwise null
 * @param error the error of an end that has one; otherwise null
 */
public record RoutingAction<P, E>(Kind kind, P place, Outcome outcome, End end, E error) {
    /** The kinds of actions. */
    public enum Kind {
        /** Ask a metaserver for a place, until {@link RoutingEvent.Kind#ASKED}. A running attempt must not wait for that. */
        ASK,
        /** Connect to the server of this place and send the call there. */
        START,
        /** Leave the attempt, and say {@link RoutingEvent.Kind#LEFT} or {@link RoutingEvent.Kind#STAYS}. */
        LEAVE,
        /** Tell the metaserver how this attempt ended, on the request if there is one. */
        REPORT,
        /** Give up the request. A place that the metaserver has named on it goes back. */
        CANCEL_REQUEST,
        /** Forget the request: the metaserver ends it by itself. */
        CLOSE_REQUEST,
        /** The call is over. Nothing follows. */
        END
    }

    /** How an attempt ended, for the metaserver. */
    public enum Outcome {
        /** The call has run. */
        DONE,
        /** The routine has certainly not begun. */
        NOT_BEGUN,
        /** The routine may have run in part. */
        BROKEN,
        /** The call failed, and would also fail elsewhere. */
        FAILED
    }

    /** The end of a call. */
    public enum End {
        /** The result of the last attempt is that of the call. */
        DONE,
        /** The error of the last attempt is that of the call. */
        FAILED,
        /** The metaserver has ended the call, none was found, or the program has stopped it; has that error. */
        GIVEN_UP,
        /** An attempt may have run, and no metaserver knows it. */
        UNKNOWN,
        /** The time for further attempts is over. */
        RETRY_TIME,
        /** The metaserver has named another server than the only one where the call may run. */
        ELSEWHERE
    }

    static <P, E> RoutingAction<P, E> of(Kind kind) {
        return new RoutingAction<>(kind, null, null, null, null);
    }

    static <P, E> RoutingAction<P, E> start(P place) {
        return new RoutingAction<>(Kind.START, place, null, null, null);
    }

    static <P, E> RoutingAction<P, E> report(P place, Outcome outcome) {
        return new RoutingAction<>(Kind.REPORT, place, outcome, null, null);
    }

    static <P, E> RoutingAction<P, E> end(End end, E error) {
        return new RoutingAction<>(Kind.END, null, null, end, error);
    }
}
