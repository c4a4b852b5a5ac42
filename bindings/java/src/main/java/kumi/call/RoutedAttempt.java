package kumi.call;

import kumi.call.wire.MetaserverMessages.Placement;

/** An attempt of a {@link RoutedCall} at a server; connection and exchange are set when it begins, what it does before. */
final class RoutedAttempt<T> {
    final Placement placed;
    RoutedOperation<T> operation;
    Connection connection;
    Exchange exchange;

    RoutedAttempt(Placement placed) {
        this.placed = placed;
    }
}
