package kumi.call;

import java.time.Duration;
import java.util.Optional;
import kumi.call.wire.TraceContext;

/**
 * The call in which a thread makes calls: the one whose function this thread runs, or the one whose routine runs this program. And the
 * trace in which it makes them.
 */
public final class CallContext {
    private CallContext() {}

    /** A part of a thread's time, which ends when it is closed. The thread that began it closes it. */
    public interface Scope extends AutoCloseable {
        @Override
        void close();
    }

    /**
     * The time that is left of the call for which this thread runs a {@link Callback}, or a routine this program. Zero: it is over. Empty:
     * there is no such call, or no limit. Calls that this thread makes end within that time.
     *
     * @throws CallException.Argument the variable {@code KUMI_CALL_DEADLINE} has an impossible value
     */
    public static Optional<Duration> remaining() {
        return Optional.ofNullable(InheritedContext.ofThisThread().remaining());
    }

    /**
     * The place of this thread's calls in a trace, as OpenTelemetry and W3C Trace Context write it: that of {@link #traced}, or of the call
     * whose {@link Callback} it runs, or else the {@code TRACEPARENT} with which the program was started. Empty: they are in none.
     */
    public static Optional<String> traceparent() {
        return Optional.ofNullable(InheritedContext.ofThisThread().trace()).map(TraceContext::toString);
    }

    /**
     * Puts the calls that this thread begins into a trace until the scope is closed.
     *
     * <pre>{@code
     * try (CallContext.Scope span = CallContext.traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")) {
     *     client.call("dmmul", n, a, b);
     * }
     * }</pre>
     *
     * @param traceparent the place in the trace; null: that of the environment
     * @throws IllegalArgumentException the text is no {@code traceparent}
     */
    public static Scope traced(String traceparent) {
        return InheritedContext.traced(traceparent == null ? null : TraceContext.parse(traceparent));
    }
}
