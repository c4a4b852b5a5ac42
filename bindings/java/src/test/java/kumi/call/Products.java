package kumi.call;

import static org.junit.jupiter.api.Assertions.assertThrows;

/** Products of matrices that stay at servers, and calls that are refused. */
final class Products {
    static final double[] A = {1, 2, 3, 4};
    static final double[] B = {5, 6, 7, 8};
    static final double[] AB = {19, 22, 43, 50};

    private Products() {}

    /** AB, which a call has left at its server. */
    static HeldArray product(KumiClient client) {
        return client.prepare("dmmul").add(2, A, B).keep("C").call().held("C");
    }

    /** Why the arguments of a call do not fit. */
    static String wrong(Call call) {
        return assertThrows(CallException.Argument.class, call::call).getMessage();
    }
}
