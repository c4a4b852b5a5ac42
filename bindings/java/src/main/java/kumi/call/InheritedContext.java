package kumi.call;

import java.time.Duration;

/**
 * What calls inherit from the call around them: the one whose function this thread runs, and the one whose routine this process runs.
 *
 * @param deadline when that is over, by {@link System#nanoTime}; null: it has no limit, or there is none
 */
record InheritedContext(Long deadline) {
    /** Nothing is inherited. */
    private static final InheritedContext NONE = new InheritedContext(null);
    /** That of the call for which this thread runs a function. */
    private static final ThreadLocal<InheritedContext> OF_FUNCTION = ThreadLocal.withInitial(() -> NONE);
    private static final String DEADLINE = "KUMI_CALL_DEADLINE";

    /** A part of a thread's time. */
    interface Scope extends AutoCloseable {
        @Override
        void close();
    }

    /**
     * What calls of this thread inherit.
     *
     * @throws CallException.Argument a variable of the environment has an impossible value
     */
    static InheritedContext ofThisThread() {
        InheritedContext function = OF_FUNCTION.get();
        return new InheritedContext(earlier(function.deadline, deadline(System.getenv(DEADLINE))));
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

    /** What calls of a function inherit whose call begins now and may take this time; null: it has no limit. */
    static InheritedContext of(Duration time) {
        return new InheritedContext(time == null ? null : (Long) (System.nanoTime() + Timer.nanoseconds(time)));
    }

    /** Makes it that of this thread, which runs a function of a call, until the scope is closed. A function within a function has no more time. */
    Scope enter() {
        InheritedContext before = OF_FUNCTION.get();
        OF_FUNCTION.set(new InheritedContext(earlier(before.deadline, deadline)));
        return () -> OF_FUNCTION.set(before);
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
