package kumi.call.wire;

import static kumi.call.TestVectors.whole;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;
import kumi.call.TestVectors;
import org.junit.jupiter.api.Test;

/** Bytes about arrays that stay at servers, against those of the Rust code (bindings/testvectors/held.json). */
class HeldVectorsTest {
    private static final HexFormat HEX = HexFormat.of();
    private final Map<?, ?> vectors;

    HeldVectorsTest() throws IOException {
        vectors = TestVectors.read("held.json");
    }

    private List<Map<?, ?>> section(String name) {
        List<Map<?, ?>> items = TestVectors.section(vectors, name);
        assertTrue(items.size() >= 5, name);
        return items;
    }

    @Test
    void arraysOfCalls() {
        for (Map<?, ?> item : section("heads")) {
            Values.Value value;
            if (item.get("held") instanceof List<?> it) {
                byte[] name = HEX.parseHex((String) it.get(0));
                value = Values.Value.held(1, name, whole(it.get(1)), (String) it.get(2), (String) it.get(3));
            } else {
                List<?> it = (List<?>) item.get("keep");
                value = Values.Value.keep(2, HEX.parseHex((String) it.get(0)), (int) whole(it.get(1)), (Boolean) it.get(2));
            }
            assertEquals(item.get("hex"), HEX.formatHex(Values.callHead(0, 0, "f", List.of(value))), item.toString());
        }
    }

    @Test
    void serversWithInputs() {
        for (Map<?, ?> item : section("places")) {
            List<MetaserverMessages.InputLocation> inputs = IntStream.range(0, (int) whole(item.get("inputs"))).mapToObj(number ->
                    new MetaserverMessages.InputLocation((1L << 40) + number, "s" + number + "ä", "host" + number + ":7070")).toList();
            MetaserverMessages.PlacementRequest placing =
                    new MetaserverMessages.PlacementRequest(1, 2, 3, 4, 5, 1, 6, 7, 8, true, false, "f", inputs);
            assertEquals(item.get("hex"), HEX.formatHex(placing.encode()), item.toString());
        }
    }

    @Test
    void vouchers() {
        for (Map<?, ?> item : section("vouchers")) {
            List<?> wish = (List<?>) item.get("wish");
            byte[] name = HEX.parseHex((String) wish.get(0));
            byte[] frame = Protocol.frame(Protocol.VOUCH, 1, Protocol.vouch(name, (int) whole(wish.get(1))));
            assertEquals(item.get("wish_hex"), HEX.formatHex(frame));
            RecordingSink told = new RecordingSink();
            ConnectionState incoming = new ConnectionState(told);
            assertEquals(1, incoming.begin(Protocol.VOUCH));
            ByteBuffer input = ByteBuffer.wrap(HEX.parseHex((String) item.get("input"))).order(ByteOrder.LITTLE_ENDIAN);
            boolean isBroken = false;
            try {
                incoming.take(input);
            } catch (ProtocolException broken) {
                isBroken = true;
            }
            assertEquals(item.get("voucher") == null, isBroken, item.toString());
            // The first is the hello.
            assertEquals(isBroken ? List.of() : List.of(List.of("names", BigInteger.ONE, List.of(item.get("voucher")))),
                    told.events.subList(1, told.events.size()), item.toString());
            assertEquals(isBroken ? 1 : 0, incoming.open());
        }
    }

    @Test
    void whatServersKnow() throws Exception {
        for (Map<?, ?> item : section("welcomes")) {
            ServerHello hello = ServerHello.decode(
                    ByteBuffer.wrap(HEX.parseHex((String) item.get("hex"))).order(ByteOrder.LITTLE_ENDIAN));
            assertEquals(item.get("vouchers"), hello.vouchers().name().toLowerCase(Locale.ROOT), item.toString());
        }
    }
}
