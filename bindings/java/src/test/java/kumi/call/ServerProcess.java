package kumi.call;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A process of {@code kumi call serve} with the test's routines. */
final class ServerProcess implements AutoCloseable {
    private final Process process;
    final String address;

    private ServerProcess(Process process, String address) {
        this.process = process;
        this.address = address;
    }

    /** Starts one with the routines of {@code routines.idl}; the test is skipped where there is nothing to start. */
    static ServerProcess start(String... options) throws IOException {
        return of("routines", options);
    }

    /** Starts one with the routines of this library, which a file of the same name describes. */
    static ServerProcess of(String library, String... options) throws IOException {
        return of(Map.of(), library, options);
    }

    /** Starts one with the routines of this library, and this in its environment. */
    static ServerProcess of(Map<String, String> environment, String name, String... options) throws IOException {
        Path command = command();
        Path routines = property("kumi.routines").resolve("lib" + name + ".so");
        Skips.unless(Files.isRegularFile(routines),
                "the routines of the tests are not at -Dkumi.routines=" + routines + "; `make java` compiles them");
        Path descriptions = property("kumi.root").resolve("bindings/java/src/test/resources/" + name + ".idl");
        List<String> line = new ArrayList<>(List.of(command.toString(), "call", "serve", "--library", routines.toString()));
        line.addAll(List.of(options));
        if (!line.contains("--slots")) {
            line.addAll(List.of("--slots", "4"));
        }
        if (!line.contains("--listen")) {
            line.addAll(List.of("--listen", "127.0.0.1:0"));
        }
        line.add(descriptions.toString());
        return start(environment, line, "kumi: serves");
    }

    /** Starts a metaserver. */
    static ServerProcess meta(String... options) throws IOException {
        return meta(Map.of(), options);
    }

    /** Starts a metaserver with this in its environment. */
    static ServerProcess meta(Map<String, String> environment, String... options) throws IOException {
        List<String> line = new ArrayList<>(List.of(command().toString(), "call", "meta"));
        line.addAll(List.of(options));
        if (!line.contains("--listen")) {
            line.addAll(List.of("--listen", "127.0.0.1:0"));
        }
        return start(environment, line, "kumi: metaserver");
    }

    /** Starts a process, which says where it listens. */
    private static ServerProcess start(Map<String, String> environment, List<String> line, String greeting)
            throws IOException {
        ProcessBuilder builder = new ProcessBuilder(line).redirectErrorStream(true);
        builder.environment().putAll(environment);
        Process process = builder.start();
        BufferedReader said = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        StringBuilder all = new StringBuilder();
        for (String text = said.readLine(); text != null; text = said.readLine()) {
            all.append(text).append('\n');
            int at = text.indexOf(" at ");
            if (text.startsWith(greeting) && at > 0) {
                Thread rest = new Thread(() -> skip(said), "what the process says");
                rest.setDaemon(true);
                rest.start();
                return new ServerProcess(process, text.substring(at + " at ".length()).split("\\s")[0]);
            }
        }
        throw new IOException("it did not start: " + all);
    }

    /** The command, or the test is skipped. */
    private static Path command() {
        Path bin = property("kumi.bin");
        Path command = bin.resolve("kumi");
        Skips.unless(Files.isExecutable(command) && Files.isExecutable(bin.resolve("kumi-call-slot")),
                "kumi and kumi-call-slot are not in -Dkumi.bin=" + bin + "; build them with cargo first");
        return command;
    }

    /** What {@code kumi} says when it is given these arguments. */
    static String command(String... arguments) throws IOException {
        return command(Map.of(), arguments);
    }

    /** What {@code kumi} says with this in its environment. */
    static String command(Map<String, String> environment, String... arguments) throws IOException {
        List<String> line = new ArrayList<>(List.of(command().toString()));
        line.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(line).redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().putAll(environment);
        Process process = builder.start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        int status = process.onExit().join().exitValue();
        if (status != 0) {
            throw new IOException(line + " ended with " + status);
        }
        return said;
    }

    /** Reads what the server says, so that it can go on. */
    private static void skip(BufferedReader said) {
        try {
            said.transferTo(Writer.nullWriter());
        } catch (IOException gone) {
            // It was killed.
            return;
        }
    }

    private static Path property(String name) {
        String value = System.getProperty(name);
        return Path.of(value == null || value.isEmpty() ? "/nowhere" : value);
    }

    KumiClient client() {
        return KumiClient.connect(address);
    }

    /** What it says of itself; {@code more} are options of who asks. */
    String status(String... more) throws IOException {
        List<String> line = new ArrayList<>(List.of("call", "status", "--json", "--server", address));
        line.addAll(List.of(more));
        return command(line.toArray(String[]::new));
    }

    /** Whether this is a process of its. */
    boolean has(long pid) {
        return process.descendants().anyMatch(one -> one.pid() == pid);
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
