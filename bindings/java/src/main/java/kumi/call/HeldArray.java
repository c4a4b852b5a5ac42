package kumi.call;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import kumi.call.idl.Argument;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import kumi.call.wire.MetaserverMessages.Placement;
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
 * <p>Through a metaserver it is at the server that ran the call which made it. Calls that have it run there and nowhere else, so all
 * arrays of a call are at one server. They fail at once if that server is gone.
 *
 * <p>It ends when it is closed or nothing references it any more, with its client or the connection to its server, and after the time
 * that the server allows. Calls that use it later fail with {@link CallException.HeldLost}. A call that is under way keeps it. Threads
 * may share it.
 */
public final class HeldArray implements AutoCloseable {
    /** Bytes of a name: random ones, and an index. */
    private static final int SECRET = 16;
    static final int NAME = SECRET + Integer.BYTES;
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

    /**
     * Where a metaserver has placed the call that made an array.
     *
     * @param grid the client of the metaserver
     * @param placed the place
     * @param madeBy the result of which call it is, for errors
     */
    record Origin(Grid grid, Placement placed, String madeBy) {
        @Override
        public String toString() {
            return madeBy + " at " + placed;
        }
    }

    /**
     * Has the server drop the array, once it is closed and no call waits to be sent with it. It must not reference the array's object,
     * which could never go.
     */
    private static final class Drop implements Runnable {
        private final Connection connection;
        private final byte[] name;
        /** The client of the metaserver, which keeps the connection for the array; null: there is none. */
        private final Grid keeper;
        private boolean closed;
        private int uses;

        Drop(Connection connection, byte[] name, Grid keeper) {
            this.connection = connection;
            this.name = name;
            this.keeper = keeper;
        }

        synchronized boolean isClosed() {
            return closed;
        }

        /** A call keeps the array until {@link #release}; false: it is closed. */
        synchronized boolean retain() {
            uses += closed ? 0 : 1;
            return !closed;
        }

        void release() {
            synchronized (this) {
                uses--;
                if (!closed || uses > 0) {
                    return;
                }
            }
            send();
        }

        @Override
        public void run() {
            synchronized (this) {
                if (closed) {
                    return;
                }
                closed = true;
                if (uses > 0) {
                    return;
                }
            }
            send();
        }

        private void send() {
            try {
                connection.submit(Exchange.of(Protocol.DROP, name));
            } catch (CallException.ConnectionLost gone) {
                // The array goes with its connection.
                return;
            } finally {
                if (keeper != null) {
                    keeper.letGo(connection);
                }
            }
        }
    }

    private final Drop drop;
    /** Null: the client is connected to the server itself. */
    private final Origin origin;
    private final Cleaner.Cleanable dropped;
    private final Element element;
    private final long[] dims;
    private final Order order;
    private final long bytes;

    /** A new name for the result of this parameter at the server of the connection. */
    HeldArray(Connection connection, Argument argument) {
        this(connection, argument.element(), argument.sizes(), argument.param().order(), argument.bytes());
    }

    /** A new name for the result of this parameter at the server where a metaserver has placed the call. */
    HeldArray(Connection connection, Argument argument, Origin origin) {
        this(connection, argument.element(), argument.sizes(), argument.param().order(), argument.bytes(), origin);
    }

    /** A new name for an array of this type, shape, order and length. */
    HeldArray(Connection connection, Element element, long[] dims, Order order, long bytes) {
        this(connection, element, dims, order, bytes, null);
    }

    private HeldArray(Connection connection, Element element, long[] dims, Order order, long bytes, Origin origin) {
        ByteBuffer name = ByteBuffer.allocate(NAME).order(ByteOrder.LITTLE_ENDIAN);
        name.put(PROCESS).putInt(NEXT.incrementAndGet());
        this.element = element;
        this.dims = dims;
        this.order = order;
        this.bytes = bytes;
        this.origin = origin;
        if (origin != null) {
            origin.grid().keep(connection);
        }
        drop = new Drop(connection, name.array(), origin == null ? null : origin.grid());
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

    /** The name of its server. */
    public String server() {
        return origin == null ? drop.connection.hello().join().name() : origin.placed().server();
    }

    /** The address of its server, if a metaserver has named it; otherwise null. */
    public String address() {
        return origin == null ? null : origin.placed().address();
    }

    /** Whether it has ended, as far as the client knows without asking. */
    public boolean isLost() {
        return drop.isClosed() || drop.connection.isBroken();
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
        byte[] name = drop.name;
        ByteBuffer body = ByteBuffer.allocate(name.length + 2 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        body.put(name).putLong(0).putLong(bytes);
        Exchange exchange = new Exchange(
                Protocol.FETCH, body.array(), List.of(), List.of(Exchange.Target.of(0, into, 0, bytes)), null);
        try {
            drop.connection.submit(exchange);
            Waits.await(drop.connection, exchange, time, "the array did not come in time");
        } catch (CallException.ConnectionLost | CallException.HeldLost lost) {
            if (origin == null) {
                throw lost;
            }
            throw new CallException.HeldLost(origin + " is gone: " + lost.getMessage() + "; call again what makes it", lost.code(), true, lost);
        }
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
            String what = origin == null ? "the array is not at the server any more: " : origin + " is gone: ";
            throw new CallException.HeldLost(what + (drop.isClosed() ? "it was closed" : "its connection was lost")
                    + "; call again what makes it" + (origin == null ? ", or send it again" : ""), 0);
        }
    }

    /**
     * Why a call whose arrays may be there cannot have it for this argument; null: it can.
     *
     * @param place null: nowhere
     * @throws CallException.HeldLost it has ended
     */
    String misfit(HeldPlace place, Argument wanted) {
        check();
        long thick = Arrays.stream(wanted.sizes()).filter(size -> size > 1).count();
        if (place == null || place.grid() != (origin == null ? null : origin.grid())
                || place.connection() != null && place.connection() != drop.connection) {
            return "is an array at the server of another connection, or the call is no routine's there: fetch it, or call there";
        } else if (wanted.sent() != wanted.bytes()) {
            return "travels in pieces, so it cannot be an array that stays at the server";
        } else if (wanted.element() != element()) {
            return "has elements of " + element() + ", the routine wants " + wanted.element();
        } else if (!Arrays.equals(wanted.sizes(), dims)) {
            return "has the shape " + shape() + ", the routine wants " + Arrays.toString(wanted.sizes());
        } else if (wanted.param().order() != order() && thick > 1) {
            return "is in the order " + order() + ", the routine wants " + wanted.param().order() + ": fetch it";
        }
        return null;
    }

    private long elements() {
        return bytes / element.size();
    }

    /**
     * A call keeps it until {@link #release}.
     *
     * @throws CallException.HeldLost it was closed
     */
    void retain() {
        if (!drop.retain()) {
            check();
        }
    }

    void release() {
        drop.release();
    }

    Connection connection() {
        return drop.connection;
    }

    /** Where a metaserver has placed the call that made it, and which one that was; null: none has. */
    Origin origin() {
        return origin;
    }

    /** Where a metaserver has placed the call that made it. */
    Placement placed() {
        return origin.placed();
    }

    byte[] name() {
        return drop.name;
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
