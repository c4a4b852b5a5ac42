package kumi.call;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import kumi.call.idl.Argument;
import kumi.call.idl.Param;
import kumi.call.idl.Routine;
import kumi.call.idl.Type;

/** A recorded call of a transaction: its arguments, what it reads and makes, and what has come of it. */
final class RecordedCall {
    /** What a caller says of a call besides its arguments. */
    record Wishes(Duration time, Resources resources) {}

    final Transaction owner;
    final int number;
    final KumiClient.KnownRoutine of;
    final Arguments arguments;
    final Wishes wishes;
    /** Its sizes. */
    final PreparedCall rehearsed;
    /** The arrays of other calls that it reads. */
    final Set<TransactionArray> inputs = new LinkedHashSet<>();
    /** The arrays that it makes, by parameter; null: it makes none there. */
    final TransactionArray[] outputs;
    /** The calls that read its arrays, by parameter. */
    final List<List<RecordedCall>> readers = new ArrayList<>();

    /** Set by the thread that runs the transaction; arrays in it are read by attempts. */
    volatile Result result;
    /** Why its last attempt failed. */
    CallException failure;
    /** What came of attempts before. */
    final FailedAttempts failed = new FailedAttempts();
    /** Attempts that have begun; those of background threads too. */
    final AtomicInteger attempts = new AtomicInteger();

    /**
     * Checks a call.
     *
     * @param memory most bytes of memory at the server
     * @throws CallException.Argument it does not fit
     */
    RecordedCall(Transaction owner, int number, KumiClient.KnownRoutine of, Arguments arguments, Wishes wishes, long memory) {
        this.owner = owner;
        this.number = number;
        this.of = of;
        this.wishes = wishes;
        check(of.routine());
        this.arguments = arguments.recorded(of.routine());
        rehearsed = PreparedCall.rehearse(of.routine(), this.arguments, memory, new Recording());
        List<Param> params = of.routine().params();
        outputs = new TransactionArray[params.size()];
        for (int param = 0; param < params.size(); param++) {
            boolean isMade = params.get(param).isArray() && params.get(param).mode().isReturned();
            outputs[param] = isMade ? new TransactionArray(this, param, rehearsed.argument(param)) : null;
            readers.add(new ArrayList<>());
        }
    }

    private static void check(Routine routine) {
        if (!routine.className().isEmpty()) {
            throw new CallException.Argument("`" + routine.name() + "` is of a class: calls of transactions are of routines, not of objects");
        }
        for (Param param : routine.params()) {
            if (param.type() instanceof Type.File || param.type() instanceof Type.Callback) {
                throw new CallException.Argument("`" + routine.name() + "`: `" + param.name()
                        + "` is a file or a function, which calls of transactions do not take");
            }
        }
    }

    /** The array of this name that it makes; null: it makes none. */
    TransactionArray output(String name) {
        int index = of.routine().indexOf(name);
        return index < 0 ? null : outputs[index];
    }

    /** It is recorded: those whose arrays it reads know. */
    void link() {
        inputs.forEach(input -> input.maker.readers.get(input.param).add(this));
    }

    /** The arguments while nothing has run. */
    private final class Recording implements ArrayRoutes {
        @Override
        public Object argument(Object value) {
            TransactionArray array = arrayOf(value);
            if (array != null) {
                inputs.add(array);
                return array.promised(owner);
            } else if (value instanceof HeldArray) {
                throw new CallException.Argument("`" + of.routine().name() + "`: an array that stays at a server is no argument of a "
                        + "transaction: record the call that makes it, or fetch it");
            }
            return value;
        }

        @Override
        public ResultRoute result(int param) {
            return ResultRoute.BACK;
        }

        @Override
        public Duration lifetime(int param) {
            return Duration.ZERO;
        }

        @Override
        public boolean mayStay() {
            return false;
        }

        @Override
        public HeldArray stay(Argument argument) {
            throw new IllegalStateException("nothing stays before it has run");
        }

        @Override
        public Grid binder() {
            return null;
        }
    }

    /** The array of another call that a value of the caller's stands for; null: none. */
    static TransactionArray arrayOf(Object value) {
        return value instanceof TransactionStep step ? step.array() : value instanceof TransactionArray array ? array : null;
    }
}
