package kumi.call;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** TLS, by something that takes it off before a server. */
@Timeout(120)
class TlsTest {
    @TempDir
    static Path folder;
    private static Path good;
    private static Path other;

    @BeforeAll
    static void certificates() throws Exception {
        good = certificate("good", "ip:127.0.0.1");
        other = certificate("other", "dns:elsewhere.test");
    }

    private static Path certificate(String name, String subject) throws Exception {
        Path store = folder.resolve(name + ".p12");
        Path pem = folder.resolve(name + ".pem");
        keytool("-genkeypair", "-alias", "a", "-keyalg", "EC", "-dname", "CN=" + name, "-validity", "7",
                "-ext", "san=" + subject, "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", "public");
        keytool("-exportcert", "-rfc", "-alias", "a", "-file", pem.toString(), "-keystore", store.toString(),
                "-storepass", "public");
        return pem;
    }

    private static void keytool(String... arguments) throws Exception {
        String[] line = new String[arguments.length + 1];
        line[0] = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        System.arraycopy(arguments, 0, line, 1, arguments.length);
        Process process = new ProcessBuilder(line).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), said);
    }

    /** Takes TLS off, and passes on what comes. */
    private record Terminator(ServerSocket socket) implements AutoCloseable {
        static Terminator before(String address, Path pem) throws Exception {
            KeyStore store = KeyStore.getInstance("PKCS12");
            try (InputStream in = Files.newInputStream(Path.of(pem.toString().replace(".pem", ".p12")))) {
                store.load(in, "public".toCharArray());
            }
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, "public".toCharArray());
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys.getKeyManagers(), null, null);
            ServerSocket socket =
                    context.getServerSocketFactory().createServerSocket(0, 9, InetAddress.getLoopbackAddress());
            int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
            spawn(() -> {
                while (!socket.isClosed()) {
                    Socket outside = socket.accept();
                    Socket inside = new Socket(InetAddress.getLoopbackAddress(), port);
                    spawn(() -> pass(outside, inside));
                    spawn(() -> pass(inside, outside));
                }
            });
            return new Terminator(socket);
        }

        private interface Work {
            void run() throws IOException;
        }

        private static void spawn(Work work) {
            Thread thread = new Thread(() -> {
                try {
                    work.run();
                } catch (IOException gone) {
                    return;
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private static void pass(Socket from, Socket to) throws IOException {
            try (from; to) {
                from.getInputStream().transferTo(to.getOutputStream());
            }
        }

        String address() {
            return "127.0.0.1:" + socket.getLocalPort();
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private static ClientOptions trusting(Path pem) {
        return ClientOptions.usual().authority(pem).connectTime(Duration.ofSeconds(20));
    }

    @Test
    void overTls() throws Exception {
        try (ServerProcess served = ServerProcess.start(); Terminator tls = Terminator.before(served.address, good);
                KumiClient client = KumiClient.connect("tls://" + tls.address(), trusting(good))) {
            double[] x = IntStream.range(0, 1_000_000).asDoubleStream().toArray();
            assertArrayEquals(x, client.call("doubles", (Object) x).doubles("x"));
            assertEquals("a!", client.callAsync("shout", "a").get(60, TimeUnit.SECONDS).text("answer"));
            // It speaks no TLS itself.
            refused("tls://" + served.address, trusting(good), "no secure connection");
        }
    }

    @Test
    void aServerThatSpeaksTlsOnly() throws Exception {
        byte[] refusal = "KUMICALL\0\0\1\0\20\0\0\0\6\0\14\0\32\0\0\0\0\0\0\0\0\0no".getBytes(StandardCharsets.US_ASCII);
        try (FakeServer fake = new FakeServer(peer -> {
            peer.write(refusal);
            peer.drain();
        })) {
            refused(fake.address(), ClientOptions.usual(), "no");
        }
    }

    private static void refused(String address, ClientOptions options, String part) {
        refused(CallException.Tls.class, address, options, part);
    }

    private static <E extends CallException> void refused(
            Class<E> kind, String address, ClientOptions options, String part) {
        CallException wrong = assertThrows(kind, () -> KumiClient.connect(address, options));
        assertTrue(wrong.getMessage().contains(part) && wrong.hasNotRun(), wrong.getMessage());
    }

    @Test
    void whomNotToTrust() throws Exception {
        try (FakeServer fake = new FakeServer(peer -> peer.greet(1, 1)); Terminator tls = Terminator.before(fake.address(), good)) {
            refused("tls://" + tls.address(), trusting(other), "PKIX");
            refused("tls://" + tls.address(), ClientOptions.usual(), "PKIX");
            refused(CallException.Connect.class, tls.address(), trusting(good), "");
        }
        try (FakeServer silent = new FakeServer(FakeServer.Peer::drain)) {
            refused(CallException.Connect.class, "tls://" + silent.address(),
                    trusting(good).connectTime(Duration.ofMillis(200)), "timed out");
        }
        try (FakeServer fake = new FakeServer(peer -> peer.greet(1, 1)); Terminator tls = Terminator.before(fake.address(), other)) {
            refused("tls://" + tls.address(), trusting(other), "127.0.0.1");
        }
    }

    @Test
    void authorities() throws IOException {
        Path empty = Files.createFile(folder.resolve("empty.pem"));
        Path wrong = Files.writeString(folder.resolve("wrong.pem"), "no certificate");
        for (Path pem : new Path[] {empty, wrong, folder.resolve("missing.pem")}) {
            IllegalArgumentException said =
                    assertThrows(IllegalArgumentException.class, () -> ClientOptions.usual().authority(pem));
            assertTrue(said.getMessage().contains(pem.toString()), said.getMessage());
        }
    }
}
