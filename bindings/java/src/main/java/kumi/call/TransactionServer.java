package kumi.call;

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
    /** The client that is connected to it; null: a metaserver has named it. */
    final KumiClient client;
    /** It does not answer, although its connection is open. */
    private volatile boolean silent;
    /** Attempts that are under way; of servers that the program has named. */
    int inFlight;

    TransactionServer(int number, String name, String address, Connection connection, KumiClient client) {
        this.number = number;
        this.name = name;
        this.address = address;
        this.connection = connection;
        this.hello = connection.hello().join();
        this.client = client;
    }

    boolean isLost() {
        return silent || connection.isBroken();
    }

    /** It is used no more by this transaction. */
    void giveUp() {
        silent = true;
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
