package kumi.call;

import java.util.function.DoubleUnaryOperator;

/**
 * A function of the program as an argument: the routine may call it while it runs.
 *
 * <p>Of a call that is waited for ({@link Call#call}, {@link KumiClient#call}) it runs in the thread that waits; of one that is not
 * ({@link Call#callAsync}) in a thread that is there for such functions. Of one call one function runs at a time, and what an
 * earlier one wrote the next one sees; those of several calls run at the same time. It may call routines itself, over the same client
 * too. Its time is the call's; when the call ends meanwhile, the function goes on to its end, which nobody hears of.
 */
@FunctionalInterface
public interface Callback {
    /**
     * Does what the routine wants.
     *
     * @param arguments what it is called with, and where it puts what it gives
     * @throws Exception it failed: the routine is ended, its call fails with {@link CallException.Callback}, of which this is the cause
     */
    void call(CallbackArguments arguments) throws Exception;

    /** A function that takes one real number and gives one. */
    static Callback of(DoubleUnaryOperator function) {
        return arguments -> arguments.apply(function);
    }
}
