package kumi.call;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Runs short tasks later, in one thread for all clients. */
final class Timer {
    private static final ScheduledThreadPoolExecutor THREAD = make();

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

    /** The time in nanoseconds; one that is too long is as good as for ever. */
    static long nanoseconds(Duration time) {
        try {
            return time.toNanos();
        } catch (ArithmeticException ever) {
            return Long.MAX_VALUE / 2;
        }
    }
}
