package kumi.call;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import kumi.call.idl.Argument;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import kumi.call.wire.Protocol;

/**
 * An array at a server: a result that {@link Call#keep} has left there, or one that {@link KumiClient#hold} has sent. It is an argument
 * of later calls of the same client, and does not travel.
 *
 * <pre>{@code
 * try (HeldArray ab = client.prepare("dmmul").add(n, a, b).keep("C").call().held("C")) {
 *     double[] c = client.call("dmmul", n, ab, a).doubles("C");
 * }
 * }</pre>
 *
 * <p>It ends when it is closed or nothing references it any more, with its client, and after the time that the server allows. Calls
 * that use it later fail with {@link CallException.HeldLost}. A call that is under way keeps it. Threads may share it.
 */
public final class HeldArray implements AutoCloseable {
    /** Bytes of a name: random ones, and an index. */
    private static final int SECRET = 16;
    private static final byte[] PROCESS = new byte[SECRET];
    private static final AtomicInteger NEXT = new AtomicInteger();
    private static final Cleaner CLEANER = Cleaner.create(body -> {
        Thread thread = new Thread(body, "kumi-call held arrays");
        thread.setDaemon(true);
        return thread;
    });

    static {
        // Who knows a name may have the array.
        new SecureRandom().nextBytes(PROCESS);
    }

    /** Has the server drop the array, once. It must not reference the array's object, which could never go. */
    private record Drop(Connection connection, byte[] name, AtomicBoolean closed) implements Runnable {
        @Override
        public void run() {
            if (closed.getAndSet(true)) {
                return;
            }
            try {
                connection.submit(Exchange.of(Protocol.DROP, name));
            } catch (CallException.ConnectionLost gone) {
                // The array goes with its connection.
                return;
            }
        }
    }

    private final Drop drop;
    private final Cleaner.Cleanable dropped;
    private final Element element;
    private final long[] dims;
    private final Order order;
    private final long bytes;

    /** A new name for the result of this parameter at the server of the connection. */
    HeldArray(Connection connection, Argument argument) {
        this(connection, argument.element(), argument.sizes(), argument.param().order(), argument.bytes());
    }

    /** A new name for an array of this type, shape, order and length. */
    HeldArray(Connection connection, Element element, long[] dims, Order order, long bytes) {
        ByteBuffer name = ByteBuffer.allocate(SECRET + Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        name.put(PROCESS).putInt(NEXT.incrementAndGet());
        this.element = element;
        this.dims = dims;
        this.order = order;
        this.bytes = bytes;
        drop = new Drop(connection, name.array(), new AtomicBoolean());
        dropped = CLEANER.register(this, drop);
    }

    /** The type of the elements. */
    public Element element() {
        return element;
    }

    /** The shape. */
    public Shape shape() {
        return Shape.of(dims);
    }

    /** The memory order. */
    public Order order() {
        return order;
    }

    /** Whether it has ended, as far as the client knows without asking. */
    public boolean isLost() {
        return drop.closed().get() || drop.connection().isBroken();
    }

    /**
     * A copy: a new array of the matching Java type ({@code double[]} for doubles), in the order of {@link #order}.
     *
     * @throws CallException.HeldLost the array has ended
     * @throws CallException the connection is lost
     */
    public Object fetch() {
        try {
            Numbers numbers = Numbers.allocate(element, elements());
            fetch(numbers, null);
            return numbers.owner();
        } catch (ArithmeticException beyond) {
            throw new CallException.TooLarge("an array of " + elements() + " elements is more than Java's can have: give a"
                    + " buffer to fetchInto", 0);
        }
    }

    /**
     * A copy of an array of doubles.
     *
     * @throws CallException as {@link #fetch}
     * @throws CallException.Argument the elements are no doubles
     */
    public double[] doubles() {
        if (element != Element.F64 && element != Element.C128) {
            throw new CallException.Argument("the array has elements of " + element + ", no doubles");
        }
        return (double[]) fetch();
    }

    /**
     * Copies the array to an array or a buffer of the same type and length.
     *
     * @param time the time limit; null: none
     * @throws CallException as {@link #fetch}, or the time limit was exceeded
     * @throws CallException.Argument the place does not fit
     */
    public void fetchInto(Object place, Duration time) {
        Numbers numbers = Numbers.of(place);
        if (numbers == null || numbers.isReadOnly() || !numbers.fits(element) || numbers.bytes() != bytes) {
            throw new CallException.Argument("the place is no writable array of " + elements() + " elements of " + element);
        }
        fetch(numbers, time == null ? null : Call.checked(time));
    }

    private void fetch(Numbers into, Duration most) {
        check();
        Duration time = InheritedContext.ofThisThread().limit(most, "fetch");
        if (bytes == 0) {
            return;
        }
        byte[] name = drop.name();
        ByteBuffer body = ByteBuffer.allocate(name.length + 2 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        body.put(name).putLong(0).putLong(bytes);
        Exchange exchange = new Exchange(
                Protocol.FETCH, body.array(), List.of(), List.of(Exchange.Target.of(0, into, 0, bytes)), null);
        drop.connection().submit(exchange);
        Waits.await(drop.connection(), exchange, time, "the array did not come in time");
        // Otherwise the array could be dropped before it is asked for.
        java.lang.ref.Reference.reachabilityFence(this);
    }

    /**
     * Checks that the array exists, as far as the client knows.
     *
     * @throws CallException.HeldLost it has ended
     */
    private void check() {
        if (isLost()) {
            throw new CallException.HeldLost("the array is not at the server any more: "
                    + (drop.closed().get() ? "it was closed" : "its connection was lost") + "; call again what makes it, or send it again", 0);
        }
    }

    /**
     * Why a call over this connection cannot have it for this argument; null: it can.
     *
     * @throws CallException.HeldLost it has ended
     */
    String misfit(Connection connection, Argument wanted) {
        check();
        if (connection != drop.connection()) {
            return "is an array at the server of another connection, or the call is no routine's there: fetch it, or call there";
        }
        return ArrayRoutes.misfit(element, dims, order, wanted);
    }

    private long elements() {
        return bytes / element.size();
    }

    byte[] name() {
        return drop.name();
    }

    long bytes() {
        return bytes;
    }

    /** Elements along each dimension. */
    long[] dims() {
        return dims;
    }

    /** Has the server drop the array, after the calls that were begun with it. Closing it again has no effect. */
    @Override
    public void close() {
        dropped.clean();
    }

    @Override
    public String toString() {
        return "array of " + element() + " at a server, shape " + shape() + (isLost() ? ", lost" : "");
    }
}
