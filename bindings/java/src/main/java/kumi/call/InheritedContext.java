package kumi.call;

import java.time.Duration;
import kumi.call.wire.TraceContext;

/**
 * What calls inherit from the call around them: the one whose function this thread runs, and the one whose routine this process runs.
 *
 * @param deadline when that is over, by {@link System#nanoTime}; null: it has no limit, or there is none
 * @param trace the place of calls in a trace; null: they are in none
 */
record InheritedContext(Long deadline, TraceContext trace) {
    /** Nothing is inherited. */
    private static final InheritedContext NONE = new InheritedContext(null, null);
    /** That of the call for which this thread runs a function, and the trace that the program has set. */
    private static final ThreadLocal<InheritedContext> OF_FUNCTION = ThreadLocal.withInitial(() -> NONE);
    private static final String DEADLINE = "KUMI_CALL_DEADLINE";

    /**
     * What calls of this thread inherit.
     *
     * @throws CallException.Argument a variable of the environment has an impossible value
     */
    static InheritedContext ofThisThread() {
        InheritedContext function = OF_FUNCTION.get();
        TraceContext trace = function.trace != null ? function.trace : trace(System.getenv("TRACEPARENT"));
        return new InheritedContext(earlier(function.deadline, deadline(System.getenv(DEADLINE))), trace);
    }

    /** The place in a trace in this variable. A text that is no {@code traceparent} counts as none: who set it may not know of calls. */
    static TraceContext trace(String variable) {
        try {
            return variable == null ? null : TraceContext.parse(variable);
        } catch (IllegalArgumentException none) {
            return null;
        }
    }

    /** Puts the calls of this thread into a trace until the scope is closed; null: into that of the environment. */
    static CallContext.Scope traced(TraceContext trace) {
        return set(new InheritedContext(OF_FUNCTION.get().deadline, trace));
    }

    private static CallContext.Scope set(InheritedContext context) {
        InheritedContext before = OF_FUNCTION.get();
        OF_FUNCTION.set(context);
        return () -> OF_FUNCTION.set(before);
    }

    /**
     * The deadline in this variable; null: there is none. The variable has nanoseconds of the monotonic clock, which all processes of a
     * machine share. {@link System#nanoTime} is that clock wherever there are servers.
     */
    static Long deadline(String variable) {
        if (variable == null || variable.isEmpty()) {
            return null;
        }
        try {
            if (variable.matches("[0-9]{1,20}")) {
                long deadline = Long.parseUnsignedLong(variable);
                // The clock does not get that far.
                return deadline < 0 ? null : (Long) deadline;
            }
        } catch (NumberFormatException beyond) {
            throw impossible(variable);
        }
        throw impossible(variable);
    }

    private static CallException.Argument impossible(String variable) {
        return new CallException.Argument(DEADLINE + " is a number of nanoseconds of the monotonic clock, not `" + variable + "`");
    }

    private static Long earlier(Long one, Long other) {
        if (one == null || other == null) {
            return one == null ? other : one;
        }
        return one - other < 0 ? one : other;
    }

    /** What calls of a function inherit whose call begins now, may take this time (null: any), and is in this trace (null: in none). */
    static InheritedContext of(Duration time, TraceContext trace) {
        return new InheritedContext(time == null ? null : (Long) (System.nanoTime() + Timer.nanoseconds(time)), trace);
    }

    /** Makes it that of this thread, which runs a function of a call, until the scope is closed. A function within a function has no more time. */
    CallContext.Scope enter() {
        InheritedContext before = OF_FUNCTION.get();
        return set(new InheritedContext(earlier(before.deadline, deadline), trace != null ? trace : before.trace));
    }

    /** The time that is left, at least zero; null: there is no limit. */
    Duration remaining() {
        return deadline == null ? null : Duration.ofNanos(Math.max(0, deadline - System.nanoTime()));
    }

    /** Whether the time is over. */
    boolean isOver() {
        return deadline != null && deadline - System.nanoTime() <= 0;
    }

    /**
     * The time limit of a call: the given one, or what is left if that is less. Null: none.
     *
     * @throws CallException.TimedOut nothing is left
     */
    Duration limit(Duration time, String name) {
        Duration left = remaining();
        if (left == null) {
            return time;
        } else if (left.isZero()) {
            throw new CallException.TimedOut("`" + name + "` was not begun: the time of the call that makes it is over", 0);
        }
        return time == null || time.compareTo(left) > 0 ? left : time;
    }
}
