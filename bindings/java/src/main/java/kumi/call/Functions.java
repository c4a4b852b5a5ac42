package kumi.call;

import java.util.List;
import java.util.function.Consumer;
import kumi.call.idl.Routine;
import kumi.call.wire.Values.CallbackHead;

/** The callbacks of a call. */
final class Functions {
    /**
     * One callback.
     *
     * @param param the routine's parameter
     * @param declared its parameters and results, as a routine of its own
     * @param body its code
     */
    record Function(int param, Routine declared, Callback body) {}

    private final List<Function> list;
    private final long limit;
    private final Consumer<Runnable> turns;
    private final InheritedContext context;
    private volatile Throwable raised;
    private volatile boolean called;

    /**
     * Callbacks that run by means of {@code turns}.
     *
     * @param limit most bytes of the arguments of one callback
     * @param context what calls inherit that they make
     */
    Functions(List<Function> list, long limit, Consumer<Runnable> turns, InheritedContext context) {
        this.context = context;
        this.list = list;
        this.limit = limit;
        this.turns = turns;
    }

    Consumer<Runnable> turns() {
        return turns;
    }

    /** What calls inherit that they make; with it the time of their call. */
    InheritedContext context() {
        return context;
    }

    /** The exception of one of them; null: none. */
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

    /** Arguments of a callback as far as the head contains them; its arrays follow. */
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
