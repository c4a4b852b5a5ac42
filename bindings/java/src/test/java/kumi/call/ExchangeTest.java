package kumi.call;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

class ExchangeTest {
    private static final double[] SENT = {1398, -1, 0.5};

    private static ByteBuffer bytes(int from, int to) {
        ByteBuffer all = ByteBuffer.allocate(SENT.length * Double.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        all.asDoubleBuffer().put(SENT);
        return all.slice(from, to - from);
    }

    /** A connection may break within a number. The next attempt begins with a whole one. */
    @Test
    void attemptsThatBreakWithinNumbers() throws Exception {
        for (int broken = 0; broken <= SENT.length * Double.BYTES; broken++) {
            double[] got = new double[SENT.length];
            Exchange.Target target = Exchange.Target.of(0, Numbers.of(got), 0, got.length * Double.BYTES);
            target.put(bytes(0, broken));
            Exchange.Target again = target.again();
            for (int at = 0; at < SENT.length * Double.BYTES; at += 3) {
                again.put(bytes(at, Math.min(at + 3, SENT.length * Double.BYTES)));
            }
            assertArrayEquals(SENT, got, "broken after " + broken + " bytes");
        }
    }
}
