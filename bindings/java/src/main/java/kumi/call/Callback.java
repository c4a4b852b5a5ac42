package kumi.call;

import java.util.function.DoubleUnaryOperator;

/**
 * A function of the program that a routine may call while it runs.
 *
 * <ul>
 * <li>In {@link Call#call} and {@link KumiClient#call} it runs in the thread that waits; in {@link Call#callAsync} it runs in a
 * background thread.
 * <li>The callbacks of one call run one at a time, and each sees what the earlier ones wrote. Those of several calls run
 * concurrently.
 * <li>A callback may call routines, also over the same client.
 * <li>Its time counts as time of the call. If the call ends first, the callback finishes and its result is discarded.
 * </ul>
 */
@FunctionalInterface
public interface Callback {
    /**
     * Runs the function.
     *
     * @param arguments its arguments and results
     * @throws Exception the function failed. The routine is stopped, and its call fails with {@link CallException.Callback},
     *     whose cause is this exception
     */
    void call(CallbackArguments arguments) throws Exception;

    /** A function of one real number with a real result. */
    static Callback of(DoubleUnaryOperator function) {
        return arguments -> arguments.apply(function);
    }
}
