package kumi.call;

import kumi.call.idl.Argument;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.ServerHello;
import kumi.call.wire.ServerHello.VoucherSupport;

/** A server of a running transaction. */
final class TransactionServer {
    final int number;
    final String name;
    /** Its address, at which other servers fetch arrays. */
    final String address;
    final Connection connection;
    final ServerHello hello;
    /** The client that is connected to it, or to the metaserver that has named it. */
    final KumiClient client;
    /** How a metaserver has named it; null: the program has. */
    private final Placement placed;
    /** It does not answer, although its connection is open. */
    private volatile boolean silent;
    /** Attempts that are under way; of servers that the program has named. */
    int inFlight;

    private TransactionServer(int number, String name, String address, Connection connection, KumiClient client, Placement placed) {
        this.number = number;
        this.name = name;
        this.address = address;
        this.connection = connection;
        this.hello = connection.hello().join();
        this.client = client;
        this.placed = placed;
    }

    /** A server that the program has named. */
    static TransactionServer of(int number, KumiClient client) {
        return new TransactionServer(number, client.server.name(), client.connection.address, client.connection, client, null);
    }

    /** A server that the metaserver of this client has named. */
    static TransactionServer placed(int number, KumiClient client, Placement placed, Connection connection) {
        return new TransactionServer(number, placed.server(), placed.address(), connection, client, placed);
    }

    /** A name for a result that stays there. The client of the metaserver keeps the connection for it. */
    HeldArray stay(Argument argument, String routine) {
        return placed == null ? new HeldArray(connection, argument) : new HeldArray(connection, argument,
                new HeldArray.Origin(client.grid, placed, "`" + argument.param().name() + "` of `" + routine + "`"));
    }

    boolean isLost() {
        return silent || connection.isBroken();
    }

    /** It does not answer, and arrays there are as good as lost. */
    void giveUp() {
        silent = true;
    }

    /** It has given a sign of life. */
    void isBack() {
        silent = false;
    }

    /** How a metaserver has named it; null: the program has. */
    Placement placed() {
        return placed;
    }

    @Override
    public String toString() {
        return name + " (" + address + ")";
    }

    /** Whether others get its arrays only for vouchers. */
    boolean wantsVouchers() {
        return hello.vouchers() == VoucherSupport.WANTED;
    }

    /** Whether it shows vouchers to others. */
    boolean showsVouchers() {
        return hello.vouchers() != VoucherSupport.UNKNOWN;
    }
}
