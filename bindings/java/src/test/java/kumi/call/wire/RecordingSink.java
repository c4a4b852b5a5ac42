package kumi.call.wire;

import static kumi.call.wire.FrameVectorsTest.big;
import static kumi.call.wire.FrameVectorsTest.shown;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Notes what it is told. */
final class RecordingSink implements Sink {
    final List<Object> events = new ArrayList<>();
    final Map<String, Object> arrays = new TreeMap<>();
    private final Map<String, ByteArrayOutputStream> coming = new TreeMap<>();
    /** The connection whose frames these are; set before any comes. */
    ConnectionState incoming;

    private static Object number(int stream) {
        return BigInteger.valueOf(stream);
    }

    private static Object failure(Failure failure) {
        return List.of(number(failure.code()), BigInteger.valueOf(failure.detail()), failure.text());
    }

    @Override
    public void hello(ServerHello hello) {
        events.add(hello.refusal() != null ? List.of("refused", failure(hello.refusal()))
                : List.of("hello", number(hello.version()), hello.name(), number(hello.streams()),
                        BigInteger.valueOf(hello.bytes())));
    }

    @Override
    public void description(int stream, long hash, byte[] json) {
        String text = new String(json, StandardCharsets.UTF_8);
        events.add(List.of("description", number(stream), String.format("%016x", hash), text));
    }

    @Override
    public void names(int stream, List<String> names) {
        events.add(List.of("names", number(stream), names));
    }

    @Override
    public void result(int stream, Values.ResultHead head) {
        events.add(List.of("result", number(stream), big(head.waited()), big(head.ran()), shown(head.values())));
    }

    @Override
    public void data(int stream, int argument, ByteBuffer bytes) {
        byte[] here = new byte[bytes.remaining()];
        bytes.get(here);
        String key = stream + "." + argument;
        coming.computeIfAbsent(key, none -> new ByteArrayOutputStream()).writeBytes(here);
        arrays.put(key, HexFormat.of().formatHex(coming.get(key).toByteArray()));
    }

    @Override
    public void callback(int stream, Values.CallbackHead head) {
        events.add(List.of("callback", number(stream), number(head.param()), shown(head.values())));
        // Functions of even parameters are called, with as many bytes in parameter 6 as the parameter says.
        if (head.param() % 2 == 0) {
            incoming.accept(stream, head.param() == 0 ? Map.of() : Map.of(6, (long) head.param()));
        } else {
            incoming.refuse(stream);
            assertTrue(incoming.returned(stream, false) && !incoming.returned(stream, true));
        }
    }

    @Override
    public void called(int stream) {
        events.add(List.of("called", number(stream)));
        assertTrue(incoming.returned(stream, true) && !incoming.returned(stream, true));
    }

    @Override
    public void created(int stream) {
        events.add(List.of("created", number(stream)));
    }

    @Override
    public void placed(int stream, MetaserverMessages.Placement placed) {
        throw new AssertionError("nothing was to be placed: " + placed);
    }

    @Override
    public void output(int stream, byte[] bytes, boolean isCut) {
        throw new AssertionError("nothing has asked for output");
    }

    @Override
    public void done(int stream) {
        events.add(List.of("done", number(stream)));
    }

    @Override
    public void failed(int stream, Failure failure) {
        events.add(List.of("failed", number(stream), failure(failure)));
    }

    @Override
    public void ended(Failure failure) {
        events.add(List.of("ended", failure(failure)));
    }

    @Override
    public void closed(int stream) {}

    @Override
    public void ping(byte[] pong) {
        assertEquals(Protocol.HEADER + 8, pong.length);
    }

    @Override
    public void pong() {
        events.add(List.of("pong"));
    }
}
