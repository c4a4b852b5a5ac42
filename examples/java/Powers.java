import java.util.Arrays;
import java.util.Random;
import java.util.stream.Stream;
import kumi.call.CallException;
import kumi.call.KumiClient;
import kumi.call.Transaction;
import kumi.call.TransactionReport;
import kumi.call.TransactionStep;

/**
 * Powers of a matrix in a transaction: each is a product of two others, which stay at the servers. Only the matrix goes there, and only
 * the last power comes back. {@code java -cp 'kumi-call.jar:lib/*' Powers.java SERVER[,SERVER…]|METASERVER [SIZE]}
 */
public final class Powers {
    private Powers() {}

    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("usage: Powers SERVER[,SERVER...]|METASERVER [SIZE]");
            System.exit(64);
        }
        int n = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 100;
        // Rows with a sum of 1, and so have those of all powers.
        double[] a = new double[n * n];
        Random random = new Random(1);
        for (int row = 0; row < n; row++) {
            double[] weights = random.doubles(n).toArray();
            double sum = Arrays.stream(weights).sum();
            for (int column = 0; column < n; column++) {
                a[row * n + column] = weights[column] / sum;
            }
        }
        KumiClient[] clients = Stream.of(arguments[0].split(",")).map(KumiClient::connect).toArray(KumiClient[]::new);
        try (Transaction t = Transaction.of(clients)) {
            TransactionStep two = t.call("dmmul", n, a, a);
            TransactionStep four = t.call("dmmul", n, two, two);
            TransactionStep three = t.call("dmmul", n, two, a);      // at the same time as the fourth
            TransactionStep seven = t.call("dmmul", n, four, three);
            TransactionReport report = t.run();
            double[] last = seven.result().doubles("C");
            double error = 0;
            for (int row = 0; row < n; row++) {
                error = Math.max(error, Math.abs(1 - Arrays.stream(last, row * n, (row + 1) * n).sum()));
            }
            System.out.printf("%s; sent %d bytes, received %d, kept %d at servers; largest error %.1e%n", report,
                    report.moved().sent(), report.moved().received(), report.moved().between() + report.moved().stayed(), error);
        } catch (CallException failed) {
            System.err.println("Powers: " + failed.getMessage());
            System.exit(1);
        } finally {
            Stream.of(clients).forEach(KumiClient::close);
        }
    }
}
