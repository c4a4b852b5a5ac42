package kumi.call;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.BiConsumer;
import kumi.call.wire.Protocol;

/** Queue of exchanges whose arrays or files are being sent, one chunk of each in turn. Only the writing thread uses it. */
final class SendQueue {
    /** Least free space in the buffer that is used for a chunk. */
    private static final int LEAST = 4096;

    private final Deque<Exchange> left = new ArrayDeque<>();

    boolean isEmpty() {
        return left.isEmpty();
    }

    /** The head of an exchange is in the next write; its data follows. */
    void add(Exchange exchange) {
        if (exchange.sends.isEmpty()) {
            exchange.sent = true;
        } else {
            left.add(exchange);
        }
    }

    /** Puts the outcome of a callback into {@code out}, unless its call has ended; its results follow. */
    void giveBack(Exchange exchange, CallbackInvocation.CallbackOutcome ended, ByteBuffer out) {
        if (exchange.over) {
            return;
        }
        out.put(Protocol.callbackReturn(exchange.stream, ended.body()));
        exchange.sends.addAll(ended.sends());
        if (!exchange.sends.isEmpty() && !left.contains(exchange)) {
            exchange.sent = false;
            left.add(exchange);
        }
    }

    /**
     * Puts a chunk of each array in turn into {@code out}. Returns a buffer to send after it without a copy, or null.
     *
     * @param spoil handles an exchange whose data cannot be read
     */
    ByteBuffer fill(ByteBuffer out, BiConsumer<Exchange, CallException> spoil) {
        while (!left.isEmpty() && out.remaining() >= LEAST) {
            Exchange exchange = left.poll();
            if (exchange.over) {
                continue;
            }
            ByteBuffer place;
            try {
                place = exchange.next(out);
            } catch (IOException wrong) {
                spoil.accept(exchange, new CallException.File("a file cannot be sent: " + wrong, false));
                continue;
            }
            if (!exchange.sent) {
                left.add(exchange);
            }
            if (place != null) {
                return place;
            }
        }
        left.removeIf(rest -> rest.over);
        return null;
    }
}
