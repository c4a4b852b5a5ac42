package kumi.call;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import kumi.call.Exchange.Answer;
import kumi.call.wire.MetaserverMessages.AttemptOutcome;
import kumi.call.wire.MetaserverMessages.AttemptReport;
import kumi.call.wire.MetaserverMessages.InputLocation;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.MetaserverMessages.Ticket;
import kumi.call.wire.Protocol;
import kumi.call.wire.Values;

/** The operation of a {@link RoutedCall}: a call of a routine or the creation of an object, at the server that was chosen. */
interface RoutedOperation<T> {
    /** Servers that have inputs of it already, for the metaserver's choice. */
    default List<InputLocation> inputs() {
        return List.of();
    }

    /** Bytes that come back, for the metaserver's choice. */
    default long returned(PreparedCall prepared) {
        return prepared.returned();
    }

    /** Gets ready for an attempt at a server. The future gives what that attempt does, in place of this. */
    default CompletableFuture<RoutedOperation<T>> ready(Placement placed, Connection connection) {
        return CompletableFuture.completedFuture(this);
    }

    /** Whether no further server is to be tried after this failure. */
    default boolean isEndedBy(CallException failure) {
        return false;
    }

    /** Whether an attempt that has failed is the last, wherever the metaserver would send the call. */
    default boolean wasLast() {
        return false;
    }

    /**
     * The call is over, and these attempts came to nothing.
     *
     * @param attempts the server and the reason of each
     * @param mayHaveRun the routine may have begun at some of them
     */
    default void over(List<String> attempts, boolean mayHaveRun) {}

    /** The attempt is over, or does not begin. */
    default void close() {}

    /**
     * The request for the server of this place.
     *
     * @param connection the connection over which it goes
     * @param left the time limit in milliseconds; 0: none
     * @param context what calls of its functions inherit
     */
    Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context);

    /**
     * The result, when the answer has arrived.
     *
     * @throws CallException the answer cannot be used
     */
    T take(Connection connection, Exchange exchange, Answer answer);

    /** The report of the attempt to the metaserver. */
    AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer);

    /** A call of a routine. */
    record RoutineCall(KumiClient.KnownRoutine of, PreparedCall prepared, long callbackBytes, Consumer<Runnable> turns)
            implements RoutedOperation<Result> {
        @Override
        public Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context) {
            prepared.stay(connection, placed);
            byte[] head = Values.callHead(of.hash(), left, of.routine().name(), prepared.values());
            return new Exchange(
                    Protocol.CALL, head, prepared.sends(), prepared.targets(), prepared.functions(callbackBytes, turns, context));
        }

        @Override
        public Result take(Connection connection, Exchange exchange, Answer answer) {
            return prepared.result(answer.result());
        }

        @Override
        public AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer) {
            long ran = Math.max(0, answer.result().ran());
            long waited = Math.max(0, answer.result().waited());
            long sending = exchange.headAt - exchange.begun - ran - waited;
            return new AttemptReport(ticket, AttemptOutcome.DONE, prepared.sent(), Math.max(1, sending), prepared.returned(),
                    Math.max(1, exchange.endAt - exchange.headAt), ran, waited);
        }
    }

    /** The creation of an object of a class. */
    record ObjectCreation(String name, ClientOptions options) implements RoutedOperation<RemoteObject> {
        @Override
        public Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context) {
            return Exchange.of(Protocol.CREATE, name.getBytes(StandardCharsets.UTF_8));
        }

        @Override
        public RemoteObject take(Connection connection, Exchange exchange, Answer answer) {
            return new RemoteObject(KumiClient.over(connection, options), connection, exchange, name);
        }

        @Override
        public AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer) {
            return new AttemptReport(ticket, AttemptOutcome.DONE, 0, 0, 0, 0, Math.max(0, exchange.endAt - exchange.begun), 0);
        }
    }
}
