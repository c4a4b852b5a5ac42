package kumi.call;

import com.fasterxml.jackson.core.JsonFactory;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;

/** A program that a routine starts: it tells what it knows of the call, and what a call knows that it makes. */
final class ContextProgram {
    private ContextProgram() {}

    /** The line of the shell that runs it against this server. */
    static String command(String address) {
        String java = ProcessHandle.current().info().command().orElse("java");
        Path classes = place(CallContext.class);
        String path = classes + ":" + classes.resolveSibling("test-classes") + ":" + place(JsonFactory.class);
        return "'" + java + "' -cp '" + path + "' " + ContextProgram.class.getName() + " " + address;
    }

    private static Path place(Class<?> of) {
        return Path.of(URI.create(of.getProtectionDomain().getCodeSource().getLocation().toString()));
    }

    /** Prints nanoseconds that are left of the call and of one that it makes (-1: it has no limit), and the places of both in a trace. */
    public static void main(String[] arguments) {
        long own = CallContext.remaining().map(Duration::toNanos).orElse(-1L);
        try (KumiClient client = KumiClient.connect(arguments[0])) {
            String parent = client.call("traced").text("parent");
            System.out.println(own + " " + client.call("left").integer("ns") + " " + CallContext.traceparent().orElse("none") + " " + parent);
        }
    }
}
