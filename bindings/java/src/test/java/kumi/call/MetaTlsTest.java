package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A metaserver and its servers that speak TLS, with certificates of one authority. */
@Timeout(180)
class MetaTlsTest {
    @TempDir
    static Path ours;
    @TempDir
    static Path others;
    private static Cluster cluster;
    private static Cluster other;

    @BeforeAll
    static void authorities() throws Exception {
        cluster = new Cluster(ours);
        other = new Cluster(others);
    }

    private static ClientOptions trusting(Cluster whose) {
        return ClientOptions.usual().authority(whose.authority());
    }

    private static void listedAt(ServerProcess meta, ServerProcess server) throws Exception {
        listed(meta, server, "--ca", cluster.authority().toString());
    }

    /** Who trusts the authority calls; the address that the metaserver tells is one of TLS. */
    @Test
    void whoTrustsTheAuthority() throws Exception {
        try (ServerProcess meta = cluster.meta(); ServerProcess server = cluster.serve(meta);
                KumiClient client = KumiClient.connect(meta.address, trusting(cluster))) {
            assertTrue(meta.address.startsWith("tls://") && server.address.startsWith("tls://"), server.address);
            listedAt(meta, server);
            double[] x = IntStream.range(0, 500_000).asDoubleStream().toArray();
            assertArrayEquals(x, client.call("doubles", (Object) x).doubles("x"));
            List<CompletableFuture<Result>> calls = new ArrayList<>();
            for (int index = 0; index < 50; index++) {
                calls.add(client.callAsync("shout", "call " + index));
            }
            for (int index = 0; index < 50; index++) {
                assertEquals("call " + index + "!", calls.get(index).get(60, TimeUnit.SECONDS).text("answer"));
            }
        }
    }

    private static CallException.Tls refused(String address, ClientOptions options) {
        CallException.Tls refused =
                assertThrows(CallException.Tls.class, () -> KumiClient.connect(address, options));
        assertTrue(refused.hasNotRun(), refused.getMessage());
        return refused;
    }

    @Test
    void whoDoesNot() throws Exception {
        try (ServerProcess meta = cluster.meta(); ServerProcess server = cluster.serve(meta)) {
            listedAt(meta, server);
            for (ServerProcess one : new ServerProcess[] {meta, server}) {
                for (ClientOptions options : new ClientOptions[] {trusting(other), ClientOptions.usual()}) {
                    CallException.Tls refused = refused(one.address, options);
                    assertTrue(refused.getMessage().contains("PKIX"), refused.getMessage());
                }
                CallException.Tls bare = refused(one.address.substring("tls://".length()), trusting(cluster));
                assertTrue(bare.getMessage().contains("tls://"), bare.getMessage());
            }
        }
    }

    /** The metaserver is trusted, and the server that it sends calls to is not. */
    @Test
    void aServerOfAnotherAuthority() throws Exception {
        try (ServerProcess meta = cluster.meta();
                ServerProcess server = other.serve(meta, "--meta-ca", cluster.authority().toString());
                KumiClient client = KumiClient.connect(meta.address, trusting(cluster))) {
            listedAt(meta, server);
            CallException.NoServer nowhere =
                    assertThrows(CallException.NoServer.class, () -> client.call("shout", "a"));
            assertTrue(nowhere.hasNotRun(), nowhere.getMessage());
            assertInstanceOf(CallException.Tls.class, nowhere.getCause());
        }
    }

    /** A metaserver names addresses without TLS, of TCP and of a Unix socket; nobody comes there. */
    @Test
    void aServerWithoutTls(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trap");
        try (ServerSocketChannel tcp = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
                ServerSocketChannel unix = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            unix.bind(UnixDomainSocketAddress.of(file));
            int port = ((InetSocketAddress) tcp.getLocalAddress()).getPort();
            for (String trap : new String[] {"127.0.0.1:" + port, "kumi://127.0.0.1:" + port, "unix:" + file}) {
                try (ServerProcess meta = cluster.meta();
                        ServerProcess server = cluster.serveInClear(meta, trap);
                        KumiClient client = KumiClient.connect(meta.address, trusting(cluster))) {
                    eventually("its routines", () -> client.names("shout").contains("shout"));
                    CallException.NoServer nowhere =
                            assertThrows(CallException.NoServer.class, () -> client.call("shout", "a"));
                    assertTrue(nowhere.hasNotRun(), nowhere.getMessage());
                    assertInstanceOf(CallException.Tls.class, nowhere.getCause());
                }
            }
            tcp.configureBlocking(false);
            unix.configureBlocking(false);
            assertNull(tcp.accept());
            assertNull(unix.accept());
        }
    }

    /** Tokens go over TLS; one that expires is refused from then on, and others are not. */
    @Test
    void users() throws Exception {
        String ada = cluster.token("ada");
        String soon = cluster.token("soon", "--expires", "1s");
        try (ServerProcess meta = cluster.metaOfUsers(); ServerProcess server = cluster.serveOnly(meta);
                KumiClient adas = KumiClient.connect(meta.address, trusting(cluster).token(ada))) {
            eventually("its routines", () -> adas.names("shout").contains("shout"));
            assertEquals("a!", adas.call("shout", "a").text("answer"));
            CallException.Expired late = expired(meta.address, soon);
            assertTrue(late.hasNotRun(), late.getMessage());
            assertThrows(CallException.NotPermitted.class,
                    () -> KumiClient.connect(meta.address, trusting(cluster).token("")));
            // A server that takes what the metaserver has sent, and nothing else.
            assertThrows(CallException.NotPermitted.class,
                    () -> KumiClient.connect(server.address, trusting(cluster).token(ada)));
            refused(meta.address, trusting(other).token(ada));
            assertEquals("b!", adas.call("shout", "b").text("answer"));
        }
    }

    /** Connects until the token has expired. */
    private static CallException.Expired expired(String address, String token) throws Exception {
        List<CallException.Expired> refusals = new ArrayList<>();
        eventually("the token's end", () -> {
            try {
                KumiClient.connect(address, trusting(cluster).token(token)).close();
            } catch (CallException.Expired late) {
                refusals.add(late);
            }
            return !refusals.isEmpty();
        });
        return refusals.get(0);
    }
}
