package kumi.call;

import java.time.Duration;
import java.util.Optional;

/** The call in which a thread makes calls: the one whose function this thread runs, or the one whose routine runs this program. */
public final class CallContext {
    private CallContext() {}

    /**
     * The time that is left of the call for which this thread runs a {@link Callback}, or a routine this program. Zero: it is over. Empty:
     * there is no such call, or no limit. Calls that this thread makes end within that time.
     *
     * @throws CallException.Argument the variable {@code KUMI_CALL_DEADLINE} has an impossible value
     */
    public static Optional<Duration> remaining() {
        return Optional.ofNullable(InheritedContext.ofThisThread().remaining());
    }
}
