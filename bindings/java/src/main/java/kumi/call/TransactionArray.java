package kumi.call;

import java.util.Arrays;
import kumi.call.idl.Argument;
import kumi.call.idl.Element;
import kumi.call.wire.Values.Value;

/**
 * An array that a call of a {@link Transaction} makes: an argument of later calls of the same transaction. It stays at the server if
 * others read it, and otherwise comes back.
 */
public final class TransactionArray {
    /** Where a server has it. */
    record Place(TransactionServer server, HeldArray array) {
        boolean isLost() {
            return server.isLost() || array.isLost();
        }
    }

    /** The call that makes it, and its parameter there. */
    final RecordedCall maker;
    final int param;
    final Argument argument;
    /** It comes back although others read it. */
    private volatile boolean wanted;
    /** Where it is; null: at no server. */
    volatile Place place;

    TransactionArray(RecordedCall maker, int param, Argument argument) {
        this.maker = maker;
        this.param = param;
        this.argument = argument;
    }

    /** The type of the elements. */
    public Element element() {
        return argument.element();
    }

    /** The shape. */
    public Shape shape() {
        return Shape.of(argument.sizes());
    }

    /**
     * Has the array come back although other calls read it.
     *
     * @throws IllegalStateException the transaction has begun to run
     */
    public TransactionArray wanted() {
        maker.owner.checkOpen();
        wanted = true;
        return this;
    }

    boolean isWanted() {
        return wanted;
    }

    long bytes() {
        return argument.bytes();
    }

    /** Whether it travels in one piece, and so may stay at a server. */
    boolean isWhole() {
        return argument.returned() == argument.bytes();
    }

    /** Its contents if it has come back; null: it has not. */
    Shaped here() {
        Result result = maker.result;
        Named.Array array = result == null ? null : result.arrayAt(param);
        return array == null ? null : new Shaped(array.owner(), shape(), array.order());
    }

    /** As an argument of a call, while nothing has run. */
    ArrayRoutes.HeldArgument promised(Transaction of) {
        String wrong = maker.owner != of ? "is an array of another transaction"
                : isWhole() ? null : "is a result that travels in pieces, which no later call can read";
        return new HeldElsewhere(this, wrong == null ? argument.sizes() : null, wrong, null, "", "");
    }

    /**
     * An argument that servers have, or will have.
     *
     * @param dims elements along each dimension; null: they do not count
     * @param wrong why it is no argument at all; null: it may be one
     * @param name its name at the server; null: it has none yet
     * @param address the server; empty: the one that is called
     * @param voucher what that is shown; empty: nothing
     */
    record HeldElsewhere(TransactionArray array, long[] dims, String wrong, byte[] name, String address, String voucher)
            implements ArrayRoutes.HeldArgument {
        private static final int NAME = 20;

        @Override
        public long bytes() {
            return array.bytes();
        }

        @Override
        public String misfit(Argument wanted) {
            return wrong != null ? wrong : ArrayRoutes.misfit(array.element(), dims, array.argument.param().order(), wanted);
        }

        @Override
        public Value value(int param) {
            return Value.held(param, name == null ? new byte[NAME] : name, bytes(), address, voucher);
        }
    }

    @Override
    public String toString() {
        return maker.of.routine().params().get(param).name() + " of call " + maker.number + " (" + maker.of.routine().name()
                + "), array of " + element() + ", shape " + Arrays.toString(argument.sizes());
    }
}
