package kumi.call;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import kumi.call.idl.Routine;
import kumi.call.routing.RoutingAction;
import kumi.call.wire.MetaserverMessages.InputLocation;
import kumi.call.wire.MetaserverMessages.Placement;

/** The arrays at a server that a call through a metaserver reads. The call runs at that server or nowhere. */
final class BoundArguments {
    /** Codes of the protocol: there is no such routine, an array is not there yet. */
    private static final int NO_ROUTINE = 1;
    private static final int NOT_YET = 16;

    private final String routine;
    /** By parameter; not empty, and all over one connection. */
    private final Map<String, HeldArray> arrays;
    /** The metaserver has said that the server is gone. Only the thread that handles the call's events uses it. */
    private boolean isGone;

    private BoundArguments(String routine, Map<String, HeldArray> arrays) {
        this.routine = routine;
        this.arrays = arrays;
    }

    /**
     * The arrays at servers that a call reads, by parameter; null: it reads none.
     *
     * @throws CallException.Argument they are at several servers
     */
    static BoundArguments of(Routine routine, HeldArray[] held) {
        Map<String, HeldArray> arrays = new LinkedHashMap<>();
        Map.Entry<String, HeldArray> first = null;
        for (int index = 0; index < held.length; index++) {
            if (held[index] == null) {
                continue;
            }
            Map.Entry<String, HeldArray> next = Map.entry(routine.params().get(index).name(), held[index]);
            first = first == null ? next : first;
            if (next.getValue().connection() != first.getValue().connection()) {
                throw apart(routine.name(), first, next);
            }
            arrays.put(next.getKey(), next.getValue());
        }
        return arrays.isEmpty() ? null : new BoundArguments(routine.name(), arrays);
    }

    private static CallException.Argument apart(String routine, Map.Entry<String, HeldArray> one, Map.Entry<String, HeldArray> other) {
        boolean isSame = one.getValue().placed().address().equals(other.getValue().placed().address());
        return new CallException.Argument("`" + routine + "`: `" + one.getKey() + "` is " + one.getValue().origin() + ", and `"
                + other.getKey() + "` is " + other.getValue().origin() + (isSame
                ? ", over another connection to it: a call has arrays of one connection; fetch one of them"
                : ": a call has arrays of one server; fetch one of them"));
    }

    private HeldArray first() {
        return arrays.values().iterator().next();
    }

    /** The connection to the server of the arrays, which go with it. */
    Connection connection() {
        return first().connection();
    }

    /** Whether this place is at the server of the arrays. */
    boolean isAt(Placement placed) {
        return placed.address().equals(first().placed().address());
    }

    /** Where the call has to run. */
    List<InputLocation> location() {
        Placement placed = first().placed();
        long bytes = arrays.values().stream().mapToLong(HeldArray::bytes).sum();
        return List.of(new InputLocation(bytes, placed.server(), placed.address()));
    }

    /** The metaserver has ended the request like this. */
    void requestEnded(CallException error) {
        // Behind attempts the server is there and has refused them.
        isGone = error != null && (error.code() == RoutedError.SERVER_GONE || error.code() == NO_ROUTINE
                || error.code() == RoutedError.NO_SERVER && error.hasNotRun());
    }

    /** Whether an error says that the server takes the call later. Other errors are for good: there is no other server. */
    static boolean isForLater(CallException error, int ticketNotTaken) {
        return error instanceof CallException.Busy || error instanceof CallException.NoServer || error.code() == ticketNotTaken;
    }

    /** Whether a call that has ended like this has lost its arrays. */
    boolean areLost(RoutingAction.End end, CallException error) {
        return switch (end) {
            case FAILED -> error instanceof CallException.Connect || error instanceof CallException.ConnectionLost
                    || error instanceof CallException.HeldLost || error.code() == NOT_YET;
            case GIVEN_UP -> isGone;
            case ELSEWHERE -> true;
            default -> false;
        };
    }

    /** The error of a call whose arrays are gone. */
    CallException.HeldLost lost(CallException why, boolean hasNotRun) {
        String what = arrays.entrySet().stream().map(one -> "`" + one.getKey() + "` is " + one.getValue().origin())
                .collect(Collectors.joining(", "));
        return new CallException.HeldLost("`" + routine + "`: " + what + ", and that is gone: " + why.getMessage()
                + "; call again what makes it", why.code(), hasNotRun, why);
    }

    /** The error of a call that waits in vain: the connection to the server is lost. */
    CallException.HeldLost connectionLost(boolean hasNotRun) {
        return lost(new CallException.ConnectionLost("the connection to the server was lost", true), hasNotRun);
    }
}
