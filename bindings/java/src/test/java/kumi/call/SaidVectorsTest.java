package kumi.call;

import static kumi.call.TestVectors.whole;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import kumi.call.wire.Protocol;
import kumi.call.wire.TraceContext;
import org.junit.jupiter.api.Test;

/** What is said of calls, against the bytes of the Rust code (bindings/testvectors/frames.json). */
class SaidVectorsTest {
    private static byte[] frames(List<?> said) {
        int threads = (int) whole(said.get(2));
        long memory = whole(said.get(3));
        String parent = (String) said.get(1);
        CallMetadata metadata = new CallMetadata((Boolean) said.get(0) ? new CallOutput() : null,
                threads == 0 && memory == 0 ? null : Resources.of(threads, memory), parent.isEmpty() ? null : TraceContext.parse(parent));
        ByteBuffer out = ByteBuffer.allocate(1024).order(ByteOrder.LITTLE_ENDIAN);
        metadata.put(1, out);
        byte[] bytes = new byte[out.flip().remaining()];
        out.get(bytes);
        return bytes;
    }

    @Test
    void whatGoesBeforeACall() throws IOException {
        int count = 0;
        for (Object item : (List<?>) TestVectors.read("frames.json").get("said")) {
            Map<?, ?> vector = (Map<?, ?>) item;
            byte[] made;
            if (vector.get("said") instanceof List<?> said) {
                made = frames(said);
            } else {
                List<?> hold = (List<?>) vector.get("hold");
                made = Protocol.frame(Protocol.HOLD, 1, HeldUpload.head(HexFormat.of().parseHex((String) hold.get(0)), whole(hold.get(1))));
            }
            assertEquals(vector.get("hex"), HexFormat.of().formatHex(made), vector.toString());
            count++;
        }
        assertTrue(count >= 6, "all kinds");
    }
}
