package kumi.call;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Runs short tasks later, in one thread for all clients. */
final class Timer {
    private static final ScheduledThreadPoolExecutor THREAD = make();
    /** 146 years: two of them, or one and the clock, are a number as well. */
    private static final long EVER = Long.MAX_VALUE / 2;

    private Timer() {}

    private static ScheduledThreadPoolExecutor make() {
        ScheduledThreadPoolExecutor made = new ScheduledThreadPoolExecutor(1, body -> {
            Thread thread = new Thread(body, "kumi-call timer");
            thread.setDaemon(true);
            return thread;
        });
        made.setRemoveOnCancelPolicy(true);
        return made;
    }

    static Future<?> after(Duration time, Runnable body) {
        return THREAD.schedule(body, nanoseconds(time), TimeUnit.NANOSECONDS);
    }

    /** Runs it when both times are over, one after the other. */
    static Future<?> after(Duration time, Duration more, Runnable body) {
        return THREAD.schedule(body, nanoseconds(time) + nanoseconds(more), TimeUnit.NANOSECONDS);
    }

    /** The time in nanoseconds; one that is too long is as good as for ever. */
    static long nanoseconds(Duration time) {
        try {
            return Math.min(time.toNanos(), EVER);
        } catch (ArithmeticException ever) {
            return EVER;
        }
    }

    /** The time in milliseconds, at least one; a time that is too long becomes the largest. */
    static int milliseconds(Duration time) {
        return (int) Math.min(Integer.MAX_VALUE, Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanoseconds(time))));
    }
}
