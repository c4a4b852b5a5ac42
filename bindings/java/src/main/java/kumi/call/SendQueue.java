package kumi.call;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.BiConsumer;
import kumi.call.wire.Protocol;

/** Queue of exchanges whose arrays or files are being sent, one chunk of each in turn. Only the writing thread uses it. */
final class SendQueue {
    /** The smallest room in the buffer that is used for a chunk. */
    private static final int LEAST = 4096;

    private final Deque<Exchange> left = new ArrayDeque<>();

    boolean isEmpty() {
        return left.isEmpty();
    }

    /** The head of an exchange was put into what is written next: what belongs to it follows. */
    void add(Exchange exchange) {
        if (exchange.sends.isEmpty()) {
            exchange.sent = true;
        } else {
            left.add(exchange);
        }
    }

    /** Puts how a function has ended into {@code out}, unless its call is over; what it gives back follows. */
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
     * Puts a chunk of each array in turn into {@code out}; one that is sent behind it from where it is, or null.
     *
     * @param spoil what is done with an exchange of which something cannot be read
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
