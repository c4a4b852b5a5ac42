package kumi.call;

import java.util.ArrayList;
import java.util.List;

/** The attempts of a call of a transaction that came to nothing, those whose results were lost included. Threads may share it. */
final class FailedAttempts {
    private final List<String> tried = new ArrayList<>();
    private boolean mayHaveRun;

    /** An attempt has failed. */
    void add(TransactionServer server, CallException failure) {
        addAll(List.of(server + ": " + failure.getMessage()), !failure.hasNotRun());
    }

    /** An attempt has run, and its result is lost. */
    void addLost(TransactionServer server) {
        addAll(List.of(server + ": its result was lost"), true);
    }

    /**
     * Attempts have failed.
     *
     * @param attempts the server and the reason of each
     * @param mayHaveRun the routine may have begun at some of them
     */
    synchronized void addAll(List<String> attempts, boolean mayHaveRun) {
        tried.addAll(attempts);
        this.mayHaveRun |= mayHaveRun;
    }

    /** The error of a call that has failed for good: the last failure, which then names all attempts. */
    synchronized CallException error(String routine, CallException failure) {
        String text = failure.getMessage();
        String all = text;
        boolean isLast = !tried.isEmpty() && tried.get(tried.size() - 1).endsWith(text);
        // The error of a call through a metaserver may name them already.
        if (!tried.stream().allMatch(text::contains) && !(isLast && tried.size() == 1)) {
            all = "`" + routine + "` failed " + (tried.size() == 1 ? "on one server: " : "in " + tried.size() + " attempts: ") + this
                    + (isLast ? "" : "; then " + text);
        }
        if (failure.hasNotRun() && mayHaveRun) {
            return new CallException.NoServer(all, RoutedError.SERVER_GONE, false, failure);
        }
        return all.equals(text) ? failure : failure.at(all);
    }

    @Override
    public synchronized String toString() {
        return String.join("; ", tried);
    }
}
