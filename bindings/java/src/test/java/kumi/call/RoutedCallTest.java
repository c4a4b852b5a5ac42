package kumi.call;

import static kumi.call.Frames.PLACE;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import kumi.call.Exchange.Answer;
import kumi.call.wire.MetaserverMessages.AttemptReport;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.MetaserverMessages.Ticket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a call through a metaserver keeps, and releases. */
@Timeout(120)
class RoutedCallTest {
    /** An operation that counts how often it was released, and gets ready when a test says. */
    private record Operation(CompletableFuture<RoutedOperation<Result>> isReady, CompletableFuture<Void> isAsked, CompletableFuture<Void> closed,
            AtomicInteger closings) implements RoutedOperation<Result> {
        Operation() {
            this(new CompletableFuture<>(), new CompletableFuture<>(), new CompletableFuture<>(), new AtomicInteger());
        }

        @Override
        public CompletableFuture<RoutedOperation<Result>> ready(Placement placed, Connection connection) {
            isAsked.complete(null);
            return isReady;
        }

        @Override
        public void close() {
            closings.incrementAndGet();
            closed.complete(null);
        }

        @Override
        public Exchange exchange(Connection connection, Placement placed, int left, InheritedContext context) {
            throw new IllegalStateException("it was cancelled before");
        }

        @Override
        public Result take(Connection connection, Exchange exchange, Answer answer) {
            throw new IllegalStateException("it was never sent");
        }

        @Override
        public AttemptReport measured(Ticket ticket, Exchange exchange, Answer answer) {
            throw new IllegalStateException("it was never sent");
        }
    }

    /** Arguments that are ready when the call is over already hold arrays at servers: nobody else would let them go. */
    @Test
    void whatGetsReadyTooLateIsReleased() throws Exception {
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.drain();
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(FakeServer.ROUTINE);
            FakeServer.Frame place = peer.next();
            assertEquals(PLACE, place.kind());
            peer.place(place.stream(), 1, 1, server.address());
            peer.drain();
        }); KumiClient client = meta.client()) {
            Operation operation = new Operation();
            KumiClient.KnownRoutine of = client.known("f");
            PreparedCall nothing = PreparedCall.of(of.routine(), new Arguments(), client.memory, client.options, null);
            RoutedCall<Result> call = new RoutedCall<>(client.grid,
                    new RoutedCall.Task<>(of, nothing, 0, null, CallMetadata.NONE, operation));
            client.grid.begin(call);
            CompletableFuture<Result> end = call.begin();
            operation.isAsked.get(60, TimeUnit.SECONDS);
            call.cancel();
            failure(CallException.Cancelled.class, end);
            operation.isReady.complete(operation);
            operation.closed.get(60, TimeUnit.SECONDS);
            assertEquals(1, operation.closings.get());
        }
    }
}
