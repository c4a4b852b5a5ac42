package kumi.call;

import java.time.Duration;

/** A call of a {@link Transaction} in preparation, from {@link Transaction#prepare}. */
public final class TransactionCall {
    private final Transaction transaction;
    private final String routine;
    private final Arguments arguments = new Arguments();
    private Duration time;
    private Resources resources;

    TransactionCall(Transaction transaction, String routine) {
        this.transaction = transaction;
        this.routine = routine;
    }

    /** Sets input arguments in the order of the description. Arguments that are set by name are left out here. */
    public TransactionCall add(Object... values) {
        arguments.add(values);
        return this;
    }

    /** Sets an input argument; null: its default. */
    public TransactionCall set(String param, Object value) {
        arguments.set(param, value);
        return this;
    }

    /** Sets the time limit of each attempt to run the call at a server. While it waits for a place there, only the transaction's time runs. */
    public TransactionCall within(Duration time) {
        this.time = Call.checked(time);
        return this;
    }

    /** Asks for threads and memory, as {@link Call#resources} does. A server that does not give them is left for the next. */
    public TransactionCall resources(Resources resources) {
        this.resources = resources;
        return this;
    }

    /**
     * Checks the arguments and records the call.
     *
     * @throws CallException it does not fit its description, or there is no such routine; nothing is recorded
     * @throws IllegalStateException the transaction has begun to run
     */
    public TransactionStep record() {
        return transaction.record(routine, arguments, new RecordedCall.Wishes(time, resources));
    }
}
