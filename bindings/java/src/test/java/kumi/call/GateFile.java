package kumi.call;

import static kumi.call.WaitFor.eventually;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A file that a routine waits for; beside it a letter for each time that it has begun to. */
record GateFile(Path path) {
    /** The argument of the routine. */
    String name() {
        return path.toString();
    }

    private Path begun() {
        return Path.of(path + ".begun");
    }

    /** Waits until somebody waits for it. */
    void untilBegun() throws Exception {
        eventually("the routine's begin", () -> Files.exists(begun()) && Files.size(begun()) > 0);
    }

    /** How often somebody has begun to wait for it. */
    long times() throws IOException {
        return Files.size(begun());
    }

    void open() throws IOException {
        Files.createFile(path);
    }
}
