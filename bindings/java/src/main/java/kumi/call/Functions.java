package kumi.call;

import java.util.List;
import java.util.function.Consumer;
import kumi.call.idl.Routine;
import kumi.call.wire.Values.CallbackHead;

/** The functions of a call. */
final class Functions {
    /**
     * One of them.
     *
     * @param param the routine's parameter
     * @param declared what it takes and gives, as a routine of its own
     * @param body what it does
     */
    record Function(int param, Routine declared, Callback body) {}

    private final List<Function> list;
    private final long limit;
    private final Consumer<Runnable> turns;
    private volatile Throwable raised;
    private volatile boolean called;

    /**
     * Functions that {@code turns} has called.
     *
     * @param limit most bytes of what one is called with
     */
    Functions(List<Function> list, long limit, Consumer<Runnable> turns) {
        this.list = list;
        this.limit = limit;
        this.turns = turns;
    }

    Consumer<Runnable> turns() {
        return turns;
    }

    /** What one of them has thrown; null: nothing. */
    Throwable raised() {
        return raised;
    }

    /** Whether the routine has called one. */
    boolean wereCalled() {
        return called;
    }

    void raise(Throwable thrown) {
        raised = thrown;
    }

    /** What a function is called with, as far as the head says; its arrays are still to come. */
    CallbackInvocation begin(CallbackHead head) throws CallbackInvocation.ArgumentMismatch {
        called = true;
        for (Function function : list) {
            if (function.param() == head.param()) {
                return CallbackInvocation.of(this, function, head.values(), limit);
            }
        }
        throw new CallbackInvocation.ArgumentMismatch("the server calls what is no function");
    }
}
