package kumi.call;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;

/** Signs of life that were asked for on a connection, by either side. With the connection's lock. */
final class PingState {
    /** Answers that wait to be sent; a server that asks without end is not answered without end. */
    private static final int MOST_ANSWERS = 16;

    private final Deque<CompletableFuture<Void>> asked = new ArrayDeque<>();
    private int answers;

    /** One is asked for; it ends when the other side has given it. */
    CompletableFuture<Void> ask() {
        CompletableFuture<Void> sign = new CompletableFuture<>();
        asked.add(sign);
        return sign;
    }

    /** One has come; what asked for it, or null. */
    CompletableFuture<Void> came() {
        return asked.poll();
    }

    /** The other side asks for one; whether it gets an answer. */
    boolean isAnswered() {
        if (answers == MOST_ANSWERS) {
            return false;
        }
        answers++;
        return true;
    }

    /** All answers are about to be sent. */
    void sent() {
        answers = 0;
    }
}
