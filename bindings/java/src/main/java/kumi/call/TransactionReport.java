package kumi.call;

import java.time.Duration;
import java.util.List;

/**
 * What came of a {@link Transaction}.
 *
 * @param steps one for each call, in the order of recording
 * @param moved the arrays that travelled, those of failed attempts included
 * @param took how long it took
 */
public record TransactionReport(List<Step> steps, Moved moved, Duration took) {
    /** What came of a call. */
    public enum Outcome {
        /** It has run. */
        DONE,
        /** It failed, or its results were lost. */
        FAILED,
        /** It did not run, because of another that failed. */
        SKIPPED,
        /** It was cancelled before it began. */
        CANCELLED
    }

    /**
     * A call.
     *
     * @param routine its routine
     * @param outcome what came of it
     * @param explanation that in a sentence; for a call that did not run with all calls from the failed one to it
     * @param server the address of its last server; null: it had none
     * @param begun when its last attempt began, after the beginning of the transaction; null: there was none
     * @param ended when that ended; null: there was none
     * @param attempts number of attempts
     * @param relayed why an array of another server went through the client; null: none did
     * @param failure why its last attempt failed; null: it has succeeded, or there was none
     */
    public record Step(String routine, Outcome outcome, String explanation, String server, Duration begun, Duration ended,
            int attempts, String relayed, CallException failure) {}

    /**
     * Bytes of arrays by way.
     *
     * @param sent from the client to servers
     * @param received from servers to the client
     * @param between from server to server
     * @param stayed from one call to the next at the same server
     */
    public record Moved(long sent, long received, long between, long stayed) {
        static final Moved NOTHING = new Moved(0, 0, 0, 0);

        Moved plus(Moved other) {
            return new Moved(sent + other.sent, received + other.received, between + other.between, stayed + other.stayed);
        }
    }

    /** Whether all calls have run. */
    public boolean isComplete() {
        return steps.stream().allMatch(step -> step.outcome() == Outcome.DONE);
    }

    /** A line with the number of calls that have run, and one for each other. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        long ran = steps.stream().filter(step -> step.outcome() == Outcome.DONE).count();
        text.append(ran).append(" of ").append(steps.size()).append(" calls have run");
        steps.stream().filter(step -> step.outcome() != Outcome.DONE).forEach(step -> text.append('\n').append(step.explanation()));
        return text.toString();
    }
}
