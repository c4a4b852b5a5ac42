package kumi.call;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A cluster in a folder of its own, whose authority makes the certificates of metaservers and servers. */
final class Cluster {
    private final Path folder;
    private final Map<String, String> environment;

    Cluster(Path folder) throws IOException {
        this.folder = folder;
        // Whom the program of the tests trusts is no matter of these.
        environment = Map.of("KUMI_DIR", folder.toString(), "KUMI_CALL_CA", authority().toString());
        ServerProcess.command(environment, "cluster", "init", "--local", "1");
    }

    /** The authority's certificate. */
    Path authority() {
        return folder.resolve("default").resolve("tls").resolve("ca.pem");
    }

    /** The file of users. */
    private String users() {
        return folder.resolve("users.toml").toString();
    }

    /** A new token of a user. */
    String token(String user, String... options) throws IOException {
        return ServerProcess.command(environment, line(options, "call", "token", "add", user, "--file", users())).strip();
    }

    /** A metaserver with a certificate of this authority. */
    ServerProcess meta(String... options) throws IOException {
        return ServerProcess.meta(environment, line(options, "--tls-cluster"));
    }

    /** A metaserver that knows the users, too. */
    ServerProcess metaOfUsers() throws IOException {
        return meta("--tokens", users());
    }

    /** A server with a certificate of this authority, at a metaserver that it trusts by the same or by another. */
    ServerProcess serve(ServerProcess meta, String... options) throws IOException {
        return ServerProcess.of(environment, "routines", line(options, "--tls-cluster", "--meta", meta.address));
    }

    /** A server without a certificate, at a metaserver with one of this authority, that says to be at this address. */
    ServerProcess serveInClear(ServerProcess meta, String advertised) throws IOException {
        return ServerProcess.of(environment, "routines", "--meta", meta.address, "--meta-ca", authority().toString(),
                "--advertise", advertised);
    }

    /** A server that takes no calls but those that the metaserver, which knows it by a token, has sent. */
    ServerProcess serveOnly(ServerProcess meta, String... options) throws IOException {
        Path token = Files.writeString(Files.createTempFile(folder, "token", ""), token("node", "--server"));
        Files.setPosixFilePermissions(token, PosixFilePermissions.fromString("rw-------"));
        return serve(meta, line(options, "--meta-token-file", token.toString(), "--meta-only"));
    }

    private static String[] line(String[] options, String... first) {
        List<String> line = new ArrayList<>(List.of(first));
        line.addAll(List.of(options));
        return line.toArray(String[]::new);
    }
}
