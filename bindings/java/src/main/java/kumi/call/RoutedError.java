package kumi.call;

import java.util.ArrayList;
import java.util.List;
import kumi.call.RoutedCall.Place;
import kumi.call.routing.CallRouting;

/** Errors of calls through a metaserver, with what happened before them. */
final class RoutedError {
    /** The protocol's codes for "no server"; with the second the call may have run in part. */
    static final int NO_SERVER = 21;
    static final int SERVER_GONE = 22;

    private RoutedError() {}

    /** What happened at each server that was tried. */
    static List<String> tried(CallRouting<Place, CallException> routing) {
        List<String> tried = new ArrayList<>();
        routing.tried().forEach(one -> tried.add(at(one.place(), one.error() == null ? "the metaserver lost it" : one.error().getMessage())));
        return tried;
    }

    /** What happened at the server of a place. */
    static String at(Place place, String what) {
        return place.placed() + ": " + what;
    }

    /** An error that says what happened at each server that was tried. */
    static CallException withAttempts(String name, CallRouting<Place, CallException> routing, CallException error) {
        List<String> tried = tried(routing);
        CallException last = null;
        for (CallRouting.Tried<Place, CallException> one : routing.tried()) {
            last = one.error() == null ? last : one.error();
        }
        if (tried.isEmpty()) {
            return error;
        } else if (last != null && tried.size() == 1 && error instanceof CallException.NoServer) {
            return last.at("`" + name + "` failed on one server: " + tried.get(0) + "; then " + error.getMessage());
        }
        boolean hasRun = routing.mayHaveRun();
        return new CallException.NoServer("`" + name + "` failed: " + String.join("; ", tried)
                + (last == error ? "" : "; " + error.getMessage()), hasRun ? SERVER_GONE : NO_SERVER, !hasRun, last == null ? error : last);
    }
}
