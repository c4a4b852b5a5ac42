package kumi.call;

import java.util.List;

/** The servers of a running transaction. Only the thread that runs it calls these. */
interface TransactionTarget {
    /** Who runs a transaction. */
    interface Driver {
        /**
         * An attempt is over, with its call's result or with a failure. Any thread may say so.
         *
         * @param attempt the attempt; null: the call came to no server
         */
        void ended(RecordedCall call, TransactionAttempt attempt, Result result, CallException failure);

        /** Does this in the thread that runs the transaction, which then looks for calls that can begin. Any thread may say so. */
        void post(Runnable event);
    }

    /** What follows a failed attempt. */
    enum Retry {
        /** The call has failed. */
        NONE,
        /** It is tried again. */
        NOW,
        /** It is tried again after a pause. */
        LATER,
        /** Likewise, and this was no attempt. */
        LATER_UNCOUNTED
    }

    /**
     * Gets to know the servers before anything runs.
     *
     * @throws CallException none can be reached
     */
    void open(List<RecordedCall> calls, Driver driver);

    /** Whether a server may be free now. */
    boolean hasRoom();

    /**
     * Begins a call, of whose end the driver is told once.
     *
     * @return what cancels it; null: no server is free for it now
     * @throws CallException no server can run it
     */
    Runnable begin(RecordedCall call, TransactionAttempt.Conditions conditions);

    /** A server has not answered when it was asked for arrays. The driver counts on none that it held. */
    void silent(TransactionServer server);

    /** The driver has heard of the end of a call. */
    void over(TransactionAttempt attempt);

    /** Whether a call is tried again that has not failed because of its inputs. */
    Retry retry(RecordedCall call, TransactionAttempt attempt, CallException failure);
}
