package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.stream.LongStream;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import kumi.call.wire.Protocol;

/**
 * An array of the program that is to stay at a server.
 *
 * @param numbers the array
 * @param element the type of its elements
 * @param dims elements along each dimension
 * @param order the memory order
 */
record HeldUpload(Numbers numbers, Element element, long[] dims, Order order) {
    /** As long as the server allows, in unsigned milliseconds. */
    private static final int LIFETIME = -1;

    /**
     * The array that a caller gives, with elements of this type; null: of the array's own.
     *
     * @throws CallException.Argument it is no array of numbers, or has no elements of this type or as many as its shape says
     */
    static HeldUpload of(Object given, Element element) {
        Object shaped = matrix(given);
        Shaped known = shaped instanceof Shaped it ? it : null;
        Numbers numbers = Numbers.of(known == null ? shaped : known.array());
        if (numbers == null) {
            throw new CallException.Argument("arrays of numbers stay at a server, "
                    + (given == null ? "nothing" : given.getClass().getSimpleName()) + " is none");
        }
        Element kind = element == null ? numbers.element() : element;
        if (kind == null) {
            throw new CallException.Argument("a ByteBuffer has elements of any type: say which");
        }
        if (!numbers.fits(kind) || numbers.bytes() % kind.size() != 0) {
            throw new CallException.Argument("an array of " + numbers.bytes() + " bytes in elements of " + numbers.kind()
                    + " is none of " + kind);
        }
        long elements = numbers.bytes() / kind.size();
        long[] dims = known == null ? new long[] {elements} : known.shape().dims();
        if (elements(dims) != elements) {
            throw new CallException.Argument("the array has " + elements + " elements, and the shape " + known.shape() + " other");
        }
        return new HeldUpload(numbers, kind, dims, known == null ? Order.ROW : known.order());
    }

    private static Object matrix(Object given) {
        try {
            return given instanceof double[][] rows ? Shaped.matrix(rows) : given;
        } catch (IllegalArgumentException | ArithmeticException uneven) {
            throw new CallException.Argument("the array is no matrix: " + uneven.getMessage());
        }
    }

    /** The number of elements; -1: no array has so many. */
    private static long elements(long[] dims) {
        if (LongStream.of(dims).anyMatch(dim -> dim == 0)) {
            return 0;
        }
        long elements = 1;
        try {
            for (long dim : dims) {
                elements = Math.multiplyExact(elements, dim);
            }
            return elements;
        } catch (ArithmeticException beyond) {
            return -1;
        }
    }

    /** The body of the request to hold so many bytes by this name. */
    static byte[] head(byte[] name, long bytes) {
        ByteBuffer head = ByteBuffer.allocate(name.length + Integer.BYTES + Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        return head.put(name).putInt(LIFETIME).putLong(bytes).array();
    }

    /**
     * Sends the array, and waits until the server holds it. An interrupt ends that.
     *
     * @param time the time limit; null: none
     * @throws CallException the server has no room, or it took too long
     */
    HeldArray send(Connection connection, Duration time) {
        HeldArray made = new HeldArray(connection, element, dims, order, numbers.bytes());
        if (numbers.bytes() == 0) {
            // Nobody asks for its bytes.
            return made;
        }
        Exchange exchange = new Exchange(Protocol.HOLD, head(made.name(), numbers.bytes()),
                List.of(Exchange.Send.of(0, numbers, 0, numbers.bytes())), List.of(), null);
        Future<?> limit = null;
        boolean isThere = false;
        try {
            connection.submit(exchange);
            limit = time == null ? null : Timer.after(time, () -> Waits.late(connection, exchange));
            Waits.await(connection, exchange);
            isThere = true;
            return made;
        } finally {
            if (limit != null) {
                limit.cancel(false);
            }
            if (!isThere) {
                // It may be there although nobody knows.
                made.close();
            }
        }
    }
}
