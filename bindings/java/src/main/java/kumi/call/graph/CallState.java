package kumi.call.graph;

/**
 * The state of a call.
 *
 * @param kind which
 * @param number the server of {@link Kind#DONE}, and the call of {@link Kind#SKIPPED}; otherwise -1
 * @param why the reason of {@link Kind#FAILED}; otherwise null
 */
public record CallState(Kind kind, int number, String why) {
    /** The kinds of states. */
    public enum Kind {
        /** It waits for other calls. */
        WAITING,
        /** It can be started. */
        READY,
        /** It runs. */
        RUNNING,
        /** It has ended, and the server of this number has its results. */
        DONE,
        /** It failed. */
        FAILED,
        /** It does not run, because the call of this number, which it would read, failed or was skipped. */
        SKIPPED,
        /** It was cancelled before it started. */
        CANCELLED
    }

    static final CallState WAITING = new CallState(Kind.WAITING, -1, null);
    static final CallState READY = new CallState(Kind.READY, -1, null);
    static final CallState RUNNING = new CallState(Kind.RUNNING, -1, null);
    static final CallState CANCELLED = new CallState(Kind.CANCELLED, -1, null);

    static CallState done(int server) {
        return new CallState(Kind.DONE, server, null);
    }

    static CallState failed(String why) {
        return new CallState(Kind.FAILED, -1, why);
    }

    static CallState skipped(int from) {
        return new CallState(Kind.SKIPPED, from, null);
    }

    /** Whether it may still run. */
    public boolean isOpen() {
        return kind == Kind.WAITING || kind == Kind.READY || kind == Kind.RUNNING;
    }

    /** Whether its results will not be made. */
    boolean isUnmade() {
        return kind == Kind.FAILED || kind == Kind.SKIPPED || kind == Kind.CANCELLED;
    }
}
