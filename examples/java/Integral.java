import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.DoubleStream;
import kumi.call.CallException;
import kumi.call.Callback;
import kumi.call.KumiClient;
import kumi.call.Result;

/**
 * Integrals of functions of this program, which the routine {@code simpson} calls while it runs; several at the same time.
 * {@code java -cp 'kumi-call.jar:lib/*' Integral.java SERVER [PIECES]}
 */
public final class Integral {
    private Integral() {}

    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("usage: Integral SERVER [PIECES]");
            System.exit(64);
        }
        int pieces = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 50;
        try (KumiClient client = KumiClient.connect(arguments[0])) {
            double sine = client.call("simpson", 0, Math.PI, pieces, Callback.of(Math::sin)).real("integral");
            System.out.printf("sin from 0 to pi: %.6f, which is 2%n", sine);
            bell(client, pieces);
            refused(client, pieces);
        } catch (CallException failed) {
            System.err.println("Integral: " + failed.getMessage());
            System.exit(1);
        }
    }

    /** Parts of one integral, all of which are under way at the same time. */
    private static void bell(KumiClient client, int pieces) {
        List<CompletableFuture<Result>> parts = DoubleStream.of(-8, -4, 0, 4)
                .mapToObj(from -> client.prepare("simpson").add(from, from + 4, pieces)
                        .set("f", Callback.of(x -> Math.exp(-x * x / 2))).callAsync())
                .toList();
        double sum = parts.stream().mapToDouble(part -> part.join().real("integral")).sum();
        System.out.printf("exp(-x^2 / 2): %.6f, which is sqrt(2 pi)%n", sum);
    }

    /** What the function throws ends the routine, and is the cause of the call's failure. */
    private static void refused(KumiClient client, int pieces) {
        Callback pole = it -> {
            double x = it.real("x");
            if (x == 0) {
                throw new ArithmeticException("1 / x has a pole at 0");
            }
            it.set("y", 1 / x);
        };
        try {
            client.prepare("simpson").set("a", -1).set("b", 1).set("n", pieces).function("f", pole).call();
        } catch (CallException.Callback failed) {
            System.out.println("1 / x from -1 to 1: " + failed.getCause().getMessage());
        }
    }
}
