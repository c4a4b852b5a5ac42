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

/** Settings of a client. Objects of this class are immutable; each method returns a changed copy. */
public final class ClientOptions {
    private final String token;
    private final String program;
    private final Duration connectTime;
    private final long memory;
    private final long fileBytes;
    private final long callbackBytes;
    private final SSLContext tls;
    /** Null: no limit. */
    private final Duration retryTime;

    private ClientOptions(String token, String program, Duration connectTime, long memory, long fileBytes,
            long callbackBytes, SSLContext tls, Duration retryTime) {
        this.token = token;
        this.program = program;
        this.connectTime = connectTime;
        this.memory = memory;
        this.fileBytes = fileBytes;
        this.callbackBytes = callbackBytes;
        this.tls = tls;
        this.retryTime = retryTime;
    }

    /**
     * The defaults: the token in {@code KUMI_CALL_TOKEN}, the authorities in the file {@code KUMI_CALL_CA}, the seconds in
     * {@code KUMI_CALL_RETRY_TIME} for further attempts, ten seconds to connect, and at most Java's maximum memory for a call.
     *
     * @throws IllegalArgumentException the file of {@code KUMI_CALL_CA} has no certificates, or the seconds are no number
     */
    public static ClientOptions usual() {
        String token = Objects.requireNonNullElse(System.getenv("KUMI_CALL_TOKEN"), "");
        String program = ProcessHandle.current().info().command().orElse("java");
        long memory = Runtime.getRuntime().maxMemory();
        ClientOptions usual = new ClientOptions(
                "", program, Duration.ofSeconds(10), memory, 1L << 34, 1L << 30, null, seconds(System.getenv("KUMI_CALL_RETRY_TIME"))).token(token);
        String authority = System.getenv("KUMI_CALL_CA");
        return authority == null || authority.isEmpty() ? usual : usual.authority(Path.of(authority));
    }

    /**
     * Sets the token of the user; empty: none. Without TLS others can read it on the network.
     *
     * @throws IllegalArgumentException the token has more than 1,024 bytes
     */
    public ClientOptions token(String token) {
        int length = token.getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
        if (length > kumi.call.wire.Protocol.MOST_TOKEN) {
            throw new IllegalArgumentException("a token of " + length + " bytes; 1024 is the most");
        }
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls, retryTime);
    }

    /** Sets the program's name for the server's logs. */
    public ClientOptions program(String program) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls, retryTime);
    }

    /** Sets the time limit for connecting. */
    public ClientOptions connectTime(Duration connectTime) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls, retryTime);
    }

    /** Sets the limit of memory for the arguments of a call, without files. A larger call fails before anything is allocated or sent. */
    public ClientOptions memory(long bytes) {
        return new ClientOptions(token, program, connectTime, bytes, fileBytes, callbackBytes, tls, retryTime);
    }

    /**
     * Sets the size limit of files that come back; default 16 GiB. A larger file makes the call fail. The limit of {@link #memory}
     * also holds for files without a path, which come back in memory.
     */
    public ClientOptions fileBytes(long bytes) {
        return new ClientOptions(token, program, connectTime, memory, notNegative(bytes), callbackBytes, tls, retryTime);
    }

    /** Sets the limit of memory for the arguments of a callback; default 1 GiB. Larger arguments make the call fail. */
    public ClientOptions callbackBytes(long bytes) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, notNegative(bytes), tls, retryTime);
    }

    private static long notNegative(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("a bound of " + bytes + " bytes");
        }
        return bytes;
    }

    /**
     * Sets how long after its first failed attempt a call through a metaserver may begin further ones. Null, the default: as long as
     * the metaserver has servers for it.
     *
     * @throws IllegalArgumentException the time is negative
     */
    public ClientOptions retryTime(Duration retryTime) {
        if (retryTime != null && retryTime.isNegative()) {
            throw new IllegalArgumentException("a time of " + retryTime + " for further attempts");
        }
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls, retryTime);
    }

    /** The time in {@code KUMI_CALL_RETRY_TIME}; null: not set. */
    static Duration seconds(String text) {
        if (text == null || text.isEmpty()) {
            return null;
        }
        if (!text.matches("[0-9]{1,18}")) {
            throw new IllegalArgumentException("KUMI_CALL_RETRY_TIME is a number of seconds, not `" + text + "`");
        }
        return Duration.ofSeconds(Long.parseLong(text));
    }

    /** Trust settings of TLS connections. */
    public ClientOptions tls(SSLContext tls) {
        return new ClientOptions(token, program, connectTime, memory, fileBytes, callbackBytes, tls, retryTime);
    }

    /**
     * Trusts only servers whose certificates an authority in this PEM file has signed.
     *
     * @throws IllegalArgumentException the file cannot be read or has no certificates
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

    Duration retryTime() {
        return retryTime;
    }

    /** The trusted authorities: the given ones, or the system's. */
    SSLContext tls() throws GeneralSecurityException {
        return tls == null ? SSLContext.getDefault() : tls;
    }
}
