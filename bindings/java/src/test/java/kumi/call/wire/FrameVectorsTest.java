package kumi.call.wire;

import static kumi.call.TestVectors.whole;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import kumi.call.TestVectors;
import kumi.call.idl.Scalar;
import org.junit.jupiter.api.Test;

/** Bytes against those of the Rust code (bindings/testvectors/frames.json). */
class FrameVectorsTest {
    private final Map<?, ?> vectors;

    FrameVectorsTest() throws IOException {
        vectors = TestVectors.read("frames.json");
    }

    private List<Map<?, ?>> section(String name) {
        return TestVectors.section(vectors, name);
    }

    static BigInteger big(long unsigned) {
        return new BigInteger(Long.toUnsignedString(unsigned));
    }

    private static String bits(double value) {
        return String.format("%016x", Double.doubleToRawLongBits(value));
    }

    static List<Object> shown(List<Values.Value> values) {
        List<Object> all = new ArrayList<>();
        for (Values.Value value : values) {
            BigInteger param = BigInteger.valueOf(value.param());
            if (value.text() != null) {
                all.add(List.of(param, "t", value.text()));
            } else if (value.file() != null) {
                all.add(List.of(param, "l", big(value.file())));
            } else if (value.scalar() instanceof Scalar.Signed it) {
                all.add(List.of(param, "i", BigInteger.valueOf(it.value())));
            } else if (value.scalar() instanceof Scalar.Unsigned it) {
                all.add(List.of(param, "u", big(it.bits())));
            } else if (value.scalar() instanceof Scalar.Real it) {
                all.add(List.of(param, "f", bits(it.value())));
            } else if (value.scalar() instanceof Scalar.Complex it) {
                all.add(List.of(param, "c", bits(it.real()), bits(it.imaginary())));
            }
        }
        return all;
    }

    private static Values.Value value(List<?> json) {
        int param = ((BigInteger) json.get(0)).intValue();
        return switch ((String) json.get(1)) {
            case "t" -> new Values.Value(param, null, (String) json.get(2));
            case "i" -> new Values.Value(param, new Scalar.Signed(((BigInteger) json.get(2)).longValue()), null);
            case "u" -> new Values.Value(param, new Scalar.Unsigned(((BigInteger) json.get(2)).longValue()), null);
            case "l" -> Values.Value.file(param, ((BigInteger) json.get(2)).longValue());
            case "f" -> new Values.Value(param, new Scalar.Real(TestVectors.real(json.get(2))), null);
            default -> new Values.Value(
                    param, new Scalar.Complex(TestVectors.real(json.get(2)), TestVectors.real(json.get(3))), null);
        };
    }

    private static long bits(Object hex) {
        return Long.parseUnsignedLong((String) hex, 16);
    }

    private static List<MetaserverMessages.InputLocation> locations(List<?> json) {
        return json.stream().map(item -> (List<?>) item)
                .map(it -> new MetaserverMessages.InputLocation(whole(it.get(2)), (String) it.get(0), (String) it.get(1))).toList();
    }

    @Test
    void placesOfCalls() throws Exception {
        for (Map<?, ?> item : section("places")) {
            String hex = (String) item.get("hex");
            if (item.get("place") instanceof List<?> it) {
                MetaserverMessages.PlacementRequest placing = new MetaserverMessages.PlacementRequest(bits(it.get(0)), bits(it.get(1)), bits(it.get(2)), whole(it.get(3)),
                        whole(it.get(4)), TestVectors.real(it.get(5)), (int) whole(it.get(6)), (int) whole(it.get(7)), (int) whole(it.get(8)),
                        (Boolean) it.get(9), (Boolean) it.get(11), (String) it.get(10), locations((List<?>) it.get(12)));
                assertEquals(hex, HexFormat.of().formatHex(placing.encode()));
            } else if (item.get("over") instanceof List<?> it) {
                MetaserverMessages.AttemptReport over = new MetaserverMessages.AttemptReport(new MetaserverMessages.Ticket(bits(it.get(0)), (int) whole(it.get(1))),
                        MetaserverMessages.AttemptOutcome.values()[(int) whole(it.get(2))], whole(it.get(3)), whole(it.get(4)), whole(it.get(5)), whole(it.get(6)),
                        whole(it.get(7)), whole(it.get(8)));
                assertEquals(hex, HexFormat.of().formatHex(over.encode()));
            } else if (item.get("reason") instanceof List<?> it) {
                MetaserverMessages.Ticket ticket = new MetaserverMessages.Ticket(bits(it.get(0)), (int) whole(it.get(1)));
                assertEquals(hex, HexFormat.of().formatHex(ticket.reason((String) it.get(2))));
            } else {
                List<?> it = (List<?>) item.get("placed");
                byte[] bytes = HexFormat.of().parseHex(hex);
                MetaserverMessages.Placement placed = MetaserverMessages.Placement.decode(ByteBuffer.wrap(bytes));
                MetaserverMessages.Ticket ticket = new MetaserverMessages.Ticket(bits(it.get(0)), (int) whole(it.get(1)));
                assertEquals(new MetaserverMessages.Placement(ticket, (String) it.get(2), (String) it.get(3), (String) it.get(4)), placed);
                assertEquals(item.get("shown"), HexFormat.of().formatHex(placed.shown()));
                cutShort(bytes, placed.pass().isEmpty() ? bytes.length : bytes.length - 2 - placed.pass().length());
            }
        }
    }

    /** What hellos of servers say that they know. */
    @Test
    void whatServersKnow() throws Exception {
        int count = 0;
        for (Map<?, ?> item : section("welcomes")) {
            ServerHello hello = ServerHello.decode(
                    ByteBuffer.wrap(HexFormat.of().parseHex((String) item.get("hex"))).order(ByteOrder.LITTLE_ENDIAN));
            assertEquals(item.get("resources"), hello.givesResources(), item.toString());
            assertEquals(item.get("holds"), hello.holdsArrays(), item.toString());
            assertEquals(item.get("binds"), hello.bindsCalls(), item.toString());
            count++;
        }
        assertTrue(count >= 11, count + " hellos");
    }

    /** All that is too short is malformed, but for one without its last part, which may be missing. */
    private static void cutShort(byte[] bytes, int whole) {
        for (int length = 0; length < bytes.length; length++) {
            ByteBuffer cut = ByteBuffer.wrap(bytes, 0, length);
            if (length != whole) {
                assertThrows(ProtocolException.class, () -> MetaserverMessages.Placement.decode(cut));
            }
        }
    }

    @Test
    void whatIsSent() {
        HexFormat hex = HexFormat.of();
        for (Map<?, ?> item : section("hellos")) {
            byte[] hello = Protocol.hello((String) item.get("token"), (String) item.get("program"));
            assertEquals(item.get("hex"), hex.formatHex(hello));
        }
        for (Map<?, ?> item : section("heads")) {
            List<Values.Value> values = new ArrayList<>();
            ((List<?>) item.get("values")).forEach(value -> values.add(value((List<?>) value)));
            byte[] head = Values.callHead(Long.parseUnsignedLong((String) item.get("hash"), 16),
                    ((BigInteger) item.get("milliseconds")).intValue(), (String) item.get("routine"), values);
            assertEquals(item.get("hex"), hex.formatHex(head));
        }
        for (Map<?, ?> item : section("backs")) {
            List<Values.Value> values = new ArrayList<>();
            if (item.get("values") instanceof List<?> all) {
                all.forEach(value -> values.add(value((List<?>) value)));
            }
            byte[] back = item.get("failed") instanceof String text ? Values.failed(text) : Values.returned(values);
            assertEquals(item.get("hex"), hex.formatHex(back));
        }
    }

    /** A client that has asked as the vectors' has. */
    private static ConnectionState asked(RecordingSink notes) {
        ConnectionState incoming = new ConnectionState(notes);
        notes.incoming = incoming;
        incoming.begin(Protocol.INTERFACE);
        incoming.begin(Protocol.LIST);
        int call = incoming.begin(Protocol.CALL);
        incoming.expect(call, 1, 5);
        incoming.expect(call, 2, 3);
        incoming.expectFile(call, 8);
        incoming.expectFile(call, 9);
        int unwanted = incoming.begin(Protocol.CALL);
        incoming.expect(unwanted, 7, 1L << 40);
        incoming.abandon(unwanted);
        incoming.begin(Protocol.CREATE);
        return incoming;
    }

    /** Feeds the bytes in pieces of this length; whether the protocol was broken. */
    private static boolean feed(ConnectionState incoming, byte[] bytes, int piece) {
        ByteBuffer input = ByteBuffer.allocate(bytes.length + 1).order(ByteOrder.LITTLE_ENDIAN);
        try {
            for (int at = 0; at < bytes.length; at += piece) {
                input.put(bytes, at, Math.min(piece, bytes.length - at)).flip();
                incoming.take(input);
                assertTrue(incoming.needed() > input.remaining(), "nothing is left that could be used");
                input.compact();
            }
            return false;
        } catch (ProtocolException broken) {
            return true;
        }
    }

    @Test
    void whatComes() {
        for (Map<?, ?> item : section("cases")) {
            byte[] input = HexFormat.of().parseHex((String) item.get("input"));
            for (int piece : new int[] {input.length, 1, 7}) {
                RecordingSink notes = new RecordingSink();
                boolean broken = feed(asked(notes), input, piece);
                assertEquals(item.get("events"), notes.events, item.toString());
                assertEquals(item.get("arrays"), notes.arrays, item.toString());
                assertEquals(item.get("error"), broken, item.toString());
            }
        }
    }

    @Test
    void anyBytes() {
        List<byte[]> good = section("cases").stream()
                .filter(item -> item.get("about").equals("all kinds") || item.get("about").equals("functions and files"))
                .map(item -> HexFormat.of().parseHex((String) item.get("input"))).toList();
        assertEquals(2, good.size());
        Random random = new Random(20261122);
        int broken = 0;
        for (int round = 0; round < 5000; round++) {
            byte[] bytes = good.get(round % 2).clone();
            for (int change = random.nextInt(4); change >= 0; change--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            }
            broken += feed(asked(new RecordingSink()), bytes, 1 + random.nextInt(64)) ? 1 : 0;
        }
        assertTrue(broken > 1000, broken + " of 5000 were noticed");
    }
}
