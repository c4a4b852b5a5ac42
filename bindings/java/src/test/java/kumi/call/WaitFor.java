package kumi.call;

import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** How tests wait: for a condition, and never for a time that should do. */
final class WaitFor {
    private static final long MOST_SECONDS = 60;

    private WaitFor() {}

    /** Waits until this is so. */
    static void eventually(String what, Callable<Boolean> condition) throws Exception {
        long begin = System.nanoTime();
        while (!condition.call()) {
            if (System.nanoTime() - begin > TimeUnit.SECONDS.toNanos(MOST_SECONDS)) {
                fail(what + " does not come");
            }
            Thread.sleep(10);
        }
    }

    /** Waits for another thread. */
    static void await(CountDownLatch latch) {
        try {
            if (!latch.await(MOST_SECONDS, TimeUnit.SECONDS)) {
                fail("the other thread does not come so far");
            }
        } catch (InterruptedException ended) {
            throw new IllegalStateException(ended);
        }
    }

    /** Waits for a call's end, which is this failure. */
    static <E extends CallException> E failure(Class<E> kind, CompletableFuture<?> call) {
        ExecutionException failed =
                assertThrows(ExecutionException.class, () -> call.get(MOST_SECONDS, TimeUnit.SECONDS));
        return assertInstanceOf(kind, failed.getCause());
    }

    /** Waits until a metaserver sends calls to this server; {@code more} says how the metaserver is reached. */
    static void listed(ServerProcess meta, ServerProcess server, String... more) throws Exception {
        eventually("the server " + server.address, () -> meta.status(more).contains(server.address));
    }
}
