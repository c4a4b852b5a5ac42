package kumi.call;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/** Cached daemon threads for callbacks of asynchronous calls and for the events of routed calls. */
final class BackgroundThreads {
    private static final AtomicLong NEXT = new AtomicLong();
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(body -> {
        Thread thread = new Thread(body, "kumi-call function " + NEXT.getAndIncrement());
        thread.setDaemon(true);
        return thread;
    });

    private BackgroundThreads() {}

    static void run(Runnable body) {
        THREADS.execute(body);
    }

    /** Starts a daemon thread of its own. */
    static void start(Runnable body, String name) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }
}
