package kumi.call.routing;

/**
 * What has happened.
 *
 * @param kind what
 * @param place the place that was named; null: none
 * @param error the error, of the kinds that have one; otherwise null
 */
public record RoutingEvent<P, E>(Kind kind, P place, E error) {
    /** The kinds of events. */
    public enum Kind {
        /** A metaserver was asked for a place. */
        ASKED,
        /** The metaserver names a place. */
        PLACED,
        /** The metaserver has ended the request; has an error. */
        REQUEST_ENDED,
        /** The metaserver that was asked is lost, or does not lead. */
        METASERVER_LOST,
        /** No metaserver was found in the time that the driver has for it; has an error. */
        NO_METASERVER,
        /** From now on arguments of the attempt may have arrived. */
        SENT,
        /** The attempt has run, and the driver has its result. */
        DONE,
        /** The attempt has failed, and the call would also fail elsewhere; has an error. */
        FAILED,
        /** The attempt has failed, and has certainly not begun; has an error. */
        NOT_BEGUN,
        /** The attempt has failed, and may have run in part; has an error. */
        BROKEN,
        /** The attempt is left, as {@link RoutingAction.Kind#LEAVE} asked. */
        LEFT,
        /** The attempt cannot be left: its arguments are overwritten, or the routine has called a function of the program. */
        STAYS,
        /** The program ends the call, or its time is over; has an error. */
        STOPPED,
        /** Time has passed. */
        TICK
    }

    /** An event without place and error. */
    public static <P, E> RoutingEvent<P, E> of(Kind kind) {
        return new RoutingEvent<>(kind, null, null);
    }

    /** The metaserver names this place. */
    public static <P, E> RoutingEvent<P, E> placed(P place) {
        return new RoutingEvent<>(Kind.PLACED, place, null);
    }

    /** An event with an error. */
    public static <P, E> RoutingEvent<P, E> failed(Kind kind, E error) {
        return new RoutingEvent<>(kind, null, error);
    }
}
