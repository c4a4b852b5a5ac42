import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import kumi.call.CallException;
import kumi.call.KumiClient;
import kumi.call.Result;

/**
 * A product of matrices in blocks: each product of two blocks is a call of {@code dmmul}, and all are under way at the same
 * time. {@code java -cp 'kumi-call.jar:lib/*' Blocks.java SERVER [SIZE [BLOCK]]}
 */
public final class Blocks {
    private Blocks() {}

    /** What a block adds to the product. */
    private record Part(int row, int column, CompletableFuture<Result> product) {}

    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("usage: Blocks SERVER [SIZE [BLOCK]]");
            System.exit(64);
        }
        int size = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 400;
        int block = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 100;
        if (size < 1 || block < 1 || size % block != 0) {
            System.err.println("the size is a multiple of the block");
            System.exit(64);
        }
        double[][] a = random(size, 1);
        double[][] b = random(size, 2);
        try (KumiClient client = KumiClient.connect(arguments[0])) {
            System.out.println(client.server() + " offers " + client.routine("dmmul"));
            double[][] c = multiply(client, a, b, block);
            System.out.printf("%d x %d in blocks of %d: largest error %.1e%n", size, size, block, error(a, b, c));
        } catch (CallException failed) {
            System.err.println("Blocks: " + failed.getMessage());
            System.exit(1);
        }
    }

    private static double[][] multiply(KumiClient client, double[][] a, double[][] b, int block) {
        List<Part> parts = new ArrayList<>();
        for (int row = 0; row < a.length; row += block) {
            for (int column = 0; column < a.length; column += block) {
                for (int k = 0; k < a.length; k += block) {
                    CompletableFuture<Result> product = client.prepare("dmmul")
                            .add(block, cut(a, row, k, block), cut(b, k, column, block))
                            .within(Duration.ofMinutes(1)).callAsync();
                    parts.add(new Part(row, column, product));
                }
            }
        }
        double[][] c = new double[a.length][a.length];
        for (Part part : parts) {
            double[] product = part.product().join().doubles("C");
            for (int i = 0; i < product.length; i++) {
                c[part.row() + i / block][part.column() + i % block] += product[i];
            }
        }
        return c;
    }

    private static double[] cut(double[][] matrix, int row, int column, int block) {
        double[] cut = new double[block * block];
        for (int i = 0; i < block; i++) {
            System.arraycopy(matrix[row + i], column, cut, i * block, block);
        }
        return cut;
    }

    private static double[][] random(int size, int seed) {
        Random random = new Random(seed);
        double[][] matrix = new double[size][];
        for (int row = 0; row < size; row++) {
            matrix[row] = random.doubles(size).toArray();
        }
        return matrix;
    }

    private static double error(double[][] a, double[][] b, double[][] c) {
        double largest = 0;
        for (int i = 0; i < a.length; i++) {
            double[] row = new double[a.length];
            for (int k = 0; k < a.length; k++) {
                for (int j = 0; j < a.length; j++) {
                    row[j] += a[i][k] * b[k][j];
                }
            }
            for (int j = 0; j < a.length; j++) {
                largest = Math.max(largest, Math.abs(row[j] - c[i][j]));
            }
        }
        return largest;
    }
}
