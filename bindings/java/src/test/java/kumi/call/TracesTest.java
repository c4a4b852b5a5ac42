package kumi.call;

import static kumi.call.Frames.CALL;
import static kumi.call.Frames.CREATE;
import static kumi.call.Frames.LISTEN;
import static kumi.call.Frames.PLACE;
import static kumi.call.Frames.RESOURCES;
import static kumi.call.Frames.TICKET;
import static kumi.call.Frames.TRACE;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import kumi.call.wire.TraceContext;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The place of a call in a trace goes with it, through the metaserver and the server into the routine. */
@Timeout(180)
class TracesTest extends SharedServer {
    private static final String PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    private static final String OTHER = PARENT.replace("4bf9", "4bf8");

    @BeforeAll
    static void start() throws Exception {
        share(ServerProcess.of("context"));
    }

    /** What a routine finds in its environment. */
    private static String found(Result result) {
        return result.text("parent");
    }

    /** A span of the same trace that is another than the caller's. */
    private static String next(String parent, String found) {
        assertEquals(parent, TraceContext.parse(found).toString().replace(found.substring(36, 52), parent.substring(36, 52)));
        assertNotEquals(parent, found);
        return found;
    }

    @Test
    void aRoutineHasASpanOfItsOwn() throws Exception {
        assertEquals(Optional.empty(), CallContext.traceparent());
        assertEquals("", found(client.call("traced")));
        List<String> found = new ArrayList<>();
        try (CallContext.Scope traced = CallContext.traced(PARENT)) {
            assertEquals(Optional.of(PARENT), CallContext.traceparent());
            found.add(found(client.call("traced")));
            found.add(found(client.call("traced")));
            found.add(found(client.callAsync("traced").get(60, TimeUnit.SECONDS)));
            try (CallContext.Scope inner = CallContext.traced(OTHER)) {
                next(OTHER, found(client.call("traced")));
                try (CallContext.Scope none = CallContext.traced(null)) {
                    assertEquals("", found(client.call("traced")));
                }
            }
            next(OTHER, found(client.prepare("traced").traceparent(OTHER).call()));
            found.add(found(client.call("traced")));
            assertThrows(IllegalArgumentException.class, () -> CallContext.traced("00-1-2-3"));
            assertThrows(IllegalArgumentException.class, () -> client.prepare("traced").traceparent("00-1-2-3"));
        }
        found.forEach(one -> next(PARENT, one));
        assertEquals(4, new HashSet<>(found).size(), "each call has a span");
        found.clear();
        found.add(found(client.prepare("traced").traceparent(PARENT).callAsync().get(60, TimeUnit.SECONDS)));
        next(PARENT, found.get(0));
        assertEquals("", found(client.call("traced")));
        assertEquals(Optional.empty(), CallContext.traceparent());
    }

    /** Functions are in the trace of their call, whatever thread runs them. */
    @Test
    void callsOfFunctions() throws Exception {
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        Callback function = it -> {
            found.add(CallContext.traceparent().orElse(""));
            found.add(found(client.call("traced")));
        };
        client.prepare("calls").function("f", function).traceparent(PARENT).call();
        client.prepare("calls").function("f", function).traceparent(PARENT).callAsync().get(60, TimeUnit.SECONDS);
        try (CallContext.Scope traced = CallContext.traced(PARENT)) {
            client.prepare("calls").function("f", function).callAsync().get(60, TimeUnit.SECONDS);
        }
        client.prepare("calls").function("f", function).call();
        assertEquals(List.of(PARENT, PARENT, PARENT, ""), List.of(found.get(0), found.get(2), found.get(4), found.get(6)));
        next(PARENT, found.get(1));
        next(PARENT, found.get(3));
        next(PARENT, found.get(5));
        assertEquals("", found.get(7));
    }

    @Test
    void aTraceGoesThroughAMetaserver() throws Exception {
        try (ServerProcess meta = ServerProcess.meta(); ServerProcess member = ServerProcess.of("context", "--meta", meta.address);
                KumiClient far = meta.client()) {
            listed(meta, member);
            next(PARENT, found(far.prepare("traced").traceparent(PARENT).call()));
            assertEquals("", found(far.call("traced")));
            List<String> found = Collections.synchronizedList(new ArrayList<>());
            far.prepare("calls").function("f", it -> found.add(found(far.call("traced")))).traceparent(PARENT).callAsync()
                    .get(60, TimeUnit.SECONDS);
            next(PARENT, found.get(0));
        }
    }

    /** A program that a routine starts has the span of the server, and its calls have spans of that trace. */
    @Test
    void aProgramOfARoutine() {
        Call call = client.prepare("prints").add(ContextProgram.command(served.address)).traceparent(PARENT);
        String[] words = call.call().text("text").split(" ");
        next(words[2], next(PARENT, words[3]));
        next(PARENT, words[2]);
    }

    @Test
    void theVariable() {
        assertNull(InheritedContext.trace(null));
        assertNull(InheritedContext.trace("nothing"));
        assertEquals(PARENT, InheritedContext.trace(PARENT).toString());
    }

    private static void traced(FakeServer.Frame frame, FakeServer.Frame before) {
        assertEquals(TRACE, frame.kind());
        assertEquals(PARENT, new String(frame.body(), StandardCharsets.US_ASCII));
        assertEquals(before.stream(), frame.stream());
    }

    /** TRACE goes before all that is said of a call, and before the request for an object. */
    @Test
    void framesInTheirOrder() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greetWithField(13, 1);
            peer.describe(FakeServer.ROUTINE);
            while (true) {
                FakeServer.Frame frame = peer.next();
                frames.add(frame);
                if (frame.kind() == CALL) {
                    peer.result(frame.stream());
                }
            }
        }); KumiClient asks = fake.client()) {
            asks.prepare("f").resources(Resources.of(1, 1)).output(new CallOutput()).traceparent(PARENT).call();
            FakeServer.Frame trace = frames.take();
            assertEquals(RESOURCES, frames.take().kind());
            assertEquals(LISTEN, frames.take().kind());
            FakeServer.Frame call = frames.take();
            assertEquals(CALL, call.kind());
            traced(trace, call);
            asks.call("f");
            assertEquals(CALL, frames.take().kind(), "a call in no trace");
            try (CallContext.Scope scope = CallContext.traced(PARENT)) {
                assertThrows(CallException.TimedOut.class, () -> asks.object("f", Duration.ofMillis(50), 0));
            }
            trace = frames.take();
            FakeServer.Frame create = frames.take();
            assertEquals(CREATE, create.kind());
            traced(trace, create);
        }
    }

    /** At a metaserver it goes before PLACE, and at the server before TICKET. */
    @Test
    void framesOfPlaces() throws Exception {
        BlockingQueue<FakeServer.Frame> frames = new LinkedBlockingQueue<>();
        try (FakeServer server = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            for (int count = 0; count < 3; count++) {
                frames.add(peer.next());
            }
            peer.result(frames.stream().reduce((one, other) -> other).orElseThrow().stream());
            peer.drain();
        }); FakeServer meta = new FakeServer(peer -> {
            peer.greetAsMetaserver();
            peer.describe(FakeServer.ROUTINE);
            frames.add(peer.next());
            FakeServer.Frame place = peer.next();
            frames.add(place);
            byte[] address = server.address().getBytes(StandardCharsets.US_ASCII);
            ByteBuffer placed = ByteBuffer.allocate(12 + 2 + address.length + 2 + 1).order(ByteOrder.LITTLE_ENDIAN);
            placed.putLong(7).putInt(1).putShort((short) address.length).put(address).putShort((short) 1).put((byte) 's');
            peer.frame(33, place.stream(), 0, placed.array());
            peer.next();
            peer.frame(35, place.stream(), 0, new byte[0]);
            peer.drain();
        }); KumiClient asks = meta.client()) {
            asks.prepare("f").output(new CallOutput()).traceparent(PARENT).call();
        } catch (CallException failed) {
            throw new AssertionError(frames.toString(), failed);
        }
        FakeServer.Frame trace = frames.take();
        FakeServer.Frame place = frames.take();
        assertEquals(PLACE, place.kind());
        traced(trace, place);
        trace = frames.take();
        assertEquals(LISTEN, frames.take().kind());
        FakeServer.Frame ticket = frames.take();
        assertEquals(TICKET, ticket.kind());
        traced(trace, ticket);
    }
}
