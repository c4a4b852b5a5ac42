package kumi.call;

import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import kumi.call.wire.Protocol;
import kumi.call.wire.ServerHello;

/** A new connection and the hello of the other side. */
record Handshake(Connection connection, ServerHello hello) {
    /** The failure code of a standby metaserver; its message is the address of the leader. */
    static final int NOT_LEADING = 23;
    /** Longest name of a site, in bytes. */
    private static final int MOST_SITE = 64;

    /** Connects to a server or a metaserver. */
    static Handshake open(String address, ClientOptions options) {
        String site = Objects.requireNonNullElse(System.getenv("KUMI_CALL_SITE"), "");
        if (site.getBytes(StandardCharsets.UTF_8).length > MOST_SITE) {
            throw new CallException.Argument("KUMI_CALL_SITE has more than " + MOST_SITE + " bytes");
        }
        byte[] greeting = Protocol.hello(options.token(), options.program(), site);
        Connection connection = new Connection(Transport.connect(address, options), greeting, address);
        boolean connected = false;
        try {
            ServerHello hello = connection.hello().get(
                    Timer.milliseconds(options.connectTime()), TimeUnit.MILLISECONDS);
            connected = true;
            return new Handshake(connection, hello);
        } catch (ExecutionException failed) {
            throw Waits.again(failed.getCause());
        } catch (TimeoutException late) {
            throw new CallException.Connect("the server at " + address + " did not greet in time", late);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CallException.Connect("the wait for the server at " + address + " was interrupted", interrupted);
        } finally {
            if (!connected) {
                connection.fail("it was given up");
            }
        }
    }

    /** Connects to a server or a metaserver; if that is a standby, connects to the leader instead. */
    static Handshake leading(String address, ClientOptions options) {
        try {
            return open(address, options);
        } catch (CallException.Server other) {
            if (other.code() != NOT_LEADING || other.getMessage().isEmpty()) {
                throw other;
            }
            // The leader gets the same scheme, so that TLS stays TLS.
            String leader = other.getMessage();
            return open(address.substring(0, scheme(address)) + leader.substring(scheme(leader)), options);
        }
    }

    private static int scheme(String address) {
        int at = address.indexOf("://");
        return at < 0 ? 0 : at + 3;
    }
}
