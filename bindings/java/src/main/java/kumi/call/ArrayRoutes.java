package kumi.call;

import java.time.Duration;
import java.util.Arrays;
import kumi.call.idl.Argument;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import kumi.call.wire.Values.Value;

/** Which arrays of a call do not simply go from the client to the server and back. */
interface ArrayRoutes {
    /** An argument that servers have. */
    interface HeldArgument {
        /** Elements along each dimension. */
        long[] dims();

        long bytes();

        /**
         * Why it cannot be this argument; null: it can.
         *
         * @throws CallException.HeldLost it has ended
         */
        String misfit(Argument wanted);

        /** What the server is told of it. */
        Value value(int param);

        /** The array of the program that it is; null: it is one of a transaction. */
        default HeldArray own() {
            return null;
        }
    }

    /** Where a result goes. */
    enum ResultRoute {
        /** To the client. */
        BACK,
        /** It stays at the server. */
        STAYS,
        /** It stays and comes back, too. */
        BOTH,
        /** Nobody wants it. */
        NOWHERE
    }

    /**
     * What is used in place of a value of the caller's for an array: a {@link HeldArgument}, another array, or the value itself.
     *
     * @throws CallException it cannot be had
     */
    Object argument(Object value);

    /** Where the result of this parameter goes. */
    ResultRoute result(int param);

    /** How long a result stays at the server after the end of the call. */
    Duration lifetime(int param);

    /** Whether results may stay at the server. */
    boolean mayStay();

    /** A name for a result that stays; null: it gets one when the call has a place. */
    HeldArray stay(Argument argument);

    /** The client of the metaserver that binds the call to the server of its arrays; null: nobody does. */
    Grid binder();

    /** Why an array at a server cannot be this argument by its type, shape or order; null: it can. */
    static String misfit(Element element, long[] dims, Order order, Argument wanted) {
        long thick = Arrays.stream(wanted.sizes()).filter(size -> size > 1).count();
        if (wanted.sent() != wanted.bytes()) {
            return "travels in pieces, so it cannot be an array that stays at the server";
        } else if (wanted.element() != element) {
            return "has elements of " + element + ", the routine wants " + wanted.element();
        } else if (!Arrays.equals(wanted.sizes(), dims)) {
            return "has the shape " + Shape.of(dims) + ", the routine wants " + Arrays.toString(wanted.sizes());
        } else if (wanted.param().order() != order && thick > 1) {
            return "is in the order " + order + ", the routine wants " + wanted.param().order() + ": fetch it";
        }
        return null;
    }

    /**
     * Those of a call at one server: arrays that it holds, and results that stay by the caller's wish.
     *
     * @param holder where arrays may stay; null: nowhere
     * @param times how long results stay, by parameter; null: they come back
     */
    record OfOneServer(HeldPlace holder, Duration[] times) implements ArrayRoutes {
        /** An array that this server holds. */
        private record Here(HeldPlace holder, HeldArray array) implements HeldArgument {
            @Override
            public long[] dims() {
                return array.dims();
            }

            @Override
            public long bytes() {
                return array.bytes();
            }

            @Override
            public String misfit(Argument wanted) {
                return array.misfit(holder, wanted);
            }

            @Override
            public Value value(int param) {
                return Value.held(param, array.name(), array.bytes());
            }

            @Override
            public HeldArray own() {
                return array;
            }
        }

        @Override
        public Object argument(Object value) {
            return value instanceof HeldArray array ? new Here(holder, array) : value;
        }

        @Override
        public ResultRoute result(int param) {
            return times[param] == null ? ResultRoute.BACK : ResultRoute.STAYS;
        }

        @Override
        public Duration lifetime(int param) {
            return times[param];
        }

        @Override
        public boolean mayStay() {
            return holder != null;
        }

        @Override
        public HeldArray stay(Argument argument) {
            return holder.grid() == null ? new HeldArray(holder.connection(), argument) : null;
        }

        @Override
        public Grid binder() {
            return holder == null ? null : holder.grid();
        }
    }
}
