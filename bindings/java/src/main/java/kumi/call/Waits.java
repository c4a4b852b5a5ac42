package kumi.call;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import kumi.call.Exchange.Answer;

/** How threads wait for answers and calls. */
final class Waits {
    private Waits() {}

    /** The server has not answered in time. */
    static void late(Connection connection, Exchange exchange) {
        boolean stuck = connection.late(exchange);
        exchange.answer.completeExceptionally(new CallException.TimedOut(stuck
                ? "the call took longer than it may while its arguments were sent to " + connection.address
                : "the server at " + connection.address + " did not answer in time", 0));
    }

    /** Waits for the end of a call and runs its callbacks meanwhile. An interrupt cancels the call. */
    static <T> T await(CompletableFuture<T> end, BlockingQueue<Runnable> turns, Runnable leave) {
        end.whenComplete((answer, error) -> turns.add(() -> { }));
        try {
            while (!end.isDone()) {
                turns.take().run();
                // After an interrupted callback the server may have sent more; the interrupt decides nevertheless.
                if (Thread.currentThread().isInterrupted()) {
                    throw interrupted(leave);
                }
            }
            return end.get();
        } catch (ExecutionException failed) {
            throw again(failed.getCause());
        } catch (InterruptedException interrupted) {
            throw interrupted(leave);
        }
    }

    private static CallException interrupted(Runnable leave) {
        leave.run();
        Thread.currentThread().interrupt();
        return new CallException.Interrupted();
    }

    static Answer await(Connection asked, Exchange exchange) {
        return await(asked, exchange, null, null);
    }

    /**
     * Waits for an exchange's answer, at most this time; null: no limit. {@code late} is the message when the time is over, and
     * gets the address behind it. An interrupt ends the wait.
     */
    static Answer await(Connection asked, Exchange exchange, Duration time, String late) {
        try {
            return time == null ? exchange.answer.get() : exchange.answer.get(Timer.nanoseconds(time), TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            throw again(failed.getCause());
        } catch (TimeoutException over) {
            asked.abandon(exchange);
            throw new CallException.TimedOut(late + " from " + asked.address, 0);
        } catch (InterruptedException interrupted) {
            throw interrupted(() -> asked.abandon(exchange));
        }
    }

    /** The failure of another thread, thrown in this one. */
    static CallException again(Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        if (cause instanceof CallException failed) {
            failed.fillInStackTrace();
            return failed;
        }
        if (cause instanceof CancellationException) {
            return new CallException.Cancelled("the call was cancelled", 0);
        }
        return new CallException.Server("the call failed: " + cause, 0);
    }
}
