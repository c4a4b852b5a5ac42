package kumi.call;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Objects;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** How a client connects. Objects of this class do not change; each method gives another one. */
public final class ClientOptions {
    private final String token;
    private final String program;
    private final Duration connectTime;
    private final long memory;
    private final long fileBytes;
    private final long callbackBytes;
    private final SSLContext tls;

    private ClientOptions(String token, String program, Duration connectTime, long memory, long fileBytes,
            long callbackBytes, SSLContext tls) {
        this.token = token;
        this.program = program;
        this.connectTime = connectTime;
        this.memory = memory;
        this.fileBytes = fileBytes;
        this.callbackBytes = callbackBytes;
        this.tls = tls;
    }

    /**
     * The usual ones: the token of the environment's {@code KUMI_CALL_TOKEN}, the authority of {@code KUMI_CALL_CA}, ten seconds
     * to connect, and calls of as much memory as Java may have.
     *
     * @throws IllegalArgumentException {@code KUMI_CALL_CA} names no certificates
     */
    public static ClientOptions usual() {
        String token = Objects.requireNonNullElse(System.getenv("KUMI_CALL_TOKEN"), "");
        String program = ProcessHandle.current().info().command().orElse("java");
        long memory = Runtime.getRuntime().maxMemory();
        ClientOptions usual = new ClientOptions(
                "", program, Duration.ofSeconds(10), memory, 1L << 34, 1L << 30, null).token(token);
        String authority = System.getenv("KUMI_CALL_CA");
        return authority == null || authority.isEmpty() ? usual : usual.authority(Path.of(authority));
    }

    /**
     * Who the client is; empty: nobody in particular. Without TLS it can be read on the way.
     *
     * @throws IllegalArgumentException a token of more than 1,024 bytes
     */
    public ClientOptions token(String token) {
        int length = token.getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
        if (length > kumi.call.wire.Protocol.MOST_TOKEN) {
            throw new IllegalArgumentException("a token of " + length + " bytes; 1024 is the most");
        }
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls);
    }

    /** The program's name in the server's logs. */
    public ClientOptions program(String program) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls);
    }

    /** How long connecting may take. */
    public ClientOptions connectTime(Duration connectTime) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls);
    }

    /** Most bytes that the arguments of a call may have, files not counted; of more a call is refused before anything is made or sent. */
    public ClientOptions memory(long bytes) {
        return new ClientOptions(token, program, connectTime, bytes, fileBytes, callbackBytes, tls);
    }

    /**
     * Most bytes of a file that comes back, 2^34 (16 GiB) unless given; of more the call fails. One for which no path was given comes into
     * memory, and has at most as many as {@link #memory} says, too.
     */
    public ClientOptions fileBytes(long bytes) {
        return new ClientOptions(token, program, connectTime, memory, notNegative(bytes), callbackBytes, tls);
    }

    /** Most bytes that a function of the program is called with, 2^30 unless given; of more the routine's call fails. */
    public ClientOptions callbackBytes(long bytes) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, notNegative(bytes), tls);
    }

    private static long notNegative(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("a bound of " + bytes + " bytes");
        }
        return bytes;
    }

    /** Whom connections over TLS trust. */
    public ClientOptions tls(SSLContext tls) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls);
    }

    /**
     * Trusts servers whose certificates one of the authorities in this PEM file has signed, and no others.
     *
     * @throws IllegalArgumentException it cannot be read, or has no certificates
     */
    public ClientOptions authority(Path pem) {
        try (InputStream in = Files.newInputStream(pem)) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int count = 0;
            for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                store.setCertificateEntry("authority-" + count++, one);
            }
            if (count == 0) {
                throw new IllegalArgumentException(pem + " has no certificates");
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return tls(context);
        } catch (IOException | GeneralSecurityException wrong) {
            throw new IllegalArgumentException("the certificates of " + pem + " cannot be read: " + wrong, wrong);
        }
    }

    String token() {
        return token;
    }

    String program() {
        return program;
    }

    Duration connectTime() {
        return connectTime;
    }

    long memory() {
        return memory;
    }

    long fileBytes() {
        return fileBytes;
    }

    long callbackBytes() {
        return callbackBytes;
    }

    /** Whom to trust: what was given, or the system's authorities. */
    SSLContext tls() throws GeneralSecurityException {
        return tls == null ? SSLContext.getDefault() : tls;
    }
}
