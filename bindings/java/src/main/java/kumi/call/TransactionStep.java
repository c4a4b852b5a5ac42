package kumi.call;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/**
 * A recorded call of a {@link Transaction}. If its routine makes one array, it stands for that as an argument of later calls; otherwise
 * {@link #array(String)} names one.
 */
public final class TransactionStep {
    private final RecordedCall call;

    TransactionStep(RecordedCall call) {
        this.call = call;
    }

    /** Its number, counted from 0: its place in {@link TransactionReport#steps}. */
    public int number() {
        return call.number;
    }

    /**
     * An array that it makes, as an argument of later calls.
     *
     * @throws CallException.Argument it makes none of this name
     */
    public TransactionArray array(String name) {
        TransactionArray array = call.output(name);
        if (array == null) {
            throw new CallException.Argument("`" + call.of.routine().name() + "` makes no array `" + name + "`: " + call.of.routine());
        }
        return array;
    }

    /** The one array that it makes. */
    TransactionArray array() {
        List<TransactionArray> made = Arrays.stream(call.outputs).filter(Objects::nonNull).toList();
        if (made.size() != 1) {
            throw new CallException.Argument("`" + call.of.routine().name() + "` makes " + made.size()
                    + " arrays: name one of them with array(name); " + call.of.routine());
        }
        return made.get(0);
    }

    /**
     * What came back, when the transaction has ended: numbers, texts, and arrays that no other call reads or that were
     * {@link TransactionArray#wanted}.
     *
     * @throws CallException why the call failed; {@link CallException.Skipped}: it did not run, because of another
     * @throws IllegalStateException the transaction has not ended
     */
    public Result result() {
        return call.owner.result(call);
    }

    @Override
    public String toString() {
        return "call " + call.number + " (" + call.of.routine().name() + ")";
    }
}
