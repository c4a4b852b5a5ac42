package kumi.call;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;

/** A process of {@code kumi call serve} with the test's routines. */
final class Served implements AutoCloseable {
    private final Process process;
    final String address;

    private Served(Process process, String address) {
        this.process = process;
        this.address = address;
    }

    /** Starts one; the test is skipped where there is nothing to start. */
    static Served start(String... options) throws IOException {
        Path bin = property("kumi.bin");
        Path routines = property("kumi.routines");
        Path command = bin.resolve("kumi");
        Assumptions.assumeTrue(Files.isExecutable(command) && Files.isExecutable(bin.resolve("kumi-call-slot")),
                "skipped: kumi and kumi-call-slot are not in -Dkumi.bin=" + bin + "; build them with cargo first");
        Assumptions.assumeTrue(Files.isRegularFile(routines),
                "skipped: the routines of the tests are not at -Dkumi.routines=" + routines + "; `make java` compiles them");
        Path descriptions = property("kumi.root").resolve("bindings/java/src/test/resources/routines.idl");
        List<String> line = new ArrayList<>(List.of(
                command.toString(), "call", "serve", "--slots", "4", "--library", routines.toString()));
        line.addAll(List.of(options));
        if (!line.contains("--listen")) {
            line.addAll(List.of("--listen", "127.0.0.1:0"));
        }
        line.add(descriptions.toString());
        Process process = new ProcessBuilder(line).redirectErrorStream(true).start();
        BufferedReader said = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        StringBuilder all = new StringBuilder();
        for (String text = said.readLine(); text != null; text = said.readLine()) {
            all.append(text).append('\n');
            int at = text.indexOf(" at ");
            if (text.startsWith("kumi: serves") && at > 0) {
                Thread rest = new Thread(() -> said.lines().forEach(more -> { }), "what the server says");
                rest.setDaemon(true);
                rest.start();
                return new Served(process, text.substring(at + " at ".length()).split("\\s")[0]);
            }
        }
        throw new IOException("the server did not start: " + all);
    }

    private static Path property(String name) {
        String value = System.getProperty(name);
        return Path.of(value == null || value.isEmpty() ? "/nowhere" : value);
    }

    KumiClient client() {
        return KumiClient.connect(address);
    }

    /** Kills it, as a power cut would. */
    void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        process.destroy();
        process.onExit().join();
    }
}
