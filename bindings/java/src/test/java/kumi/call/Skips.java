package kumi.call;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Assumptions;

/**
 * The one way in which a test is skipped.
 *
 * <p>Each skip adds a line to the file that {@code KUMI_SKIPS} names. With {@code KUMI_NO_SKIPS=1} a skip is a failure.
 */
final class Skips {
    private Skips() {
    }

    /** Skips the test unless {@code there}; {@code reason} says what is missing and how to get it. */
    static void unless(boolean there, String reason) {
        if (there) {
            return;
        }
        String record = System.getenv("KUMI_SKIPS");
        if (record != null) {
            try {
                Files.writeString(Path.of(record), "SKIPPED Java: " + reason + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        if ("1".equals(System.getenv("KUMI_NO_SKIPS"))) {
            Assertions.fail(reason + " (with KUMI_NO_SKIPS=1 a skip is a failure)");
        }
        Assumptions.abort(reason);
    }
}
