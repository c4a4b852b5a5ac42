package kumi.call;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;

/** The pending pings of a connection, in both directions. Its methods need the connection's lock. */
final class PingState {
    /** Most answers that may wait to be sent, so that a flood of pings costs a bounded amount of memory. */
    private static final int MOST_ANSWERS = 16;

    private final Deque<CompletableFuture<Void>> asked = new ArrayDeque<>();
    private int answers;

    /** Notes a ping to the other side; the future completes with the answer. */
    CompletableFuture<Void> ask() {
        CompletableFuture<Void> sign = new CompletableFuture<>();
        asked.add(sign);
        return sign;
    }

    /** Takes the oldest ping for an answer that has arrived; null: there is none. */
    CompletableFuture<Void> came() {
        return asked.poll();
    }

    /** Notes a ping of the other side; true if it is answered. */
    boolean isAnswered() {
        if (answers == MOST_ANSWERS) {
            return false;
        }
        answers++;
        return true;
    }

    /** Notes that all answers are about to be sent. */
    void sent() {
        answers = 0;
    }
}
