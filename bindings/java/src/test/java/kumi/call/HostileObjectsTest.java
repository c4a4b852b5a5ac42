package kumi.call;

import static kumi.call.Frames.CANCEL;
import static kumi.call.Frames.CREATED;
import static kumi.call.Frames.INVOKE;
import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.failure;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Servers that lie about objects: errors, and no hang. */
@Timeout(120)
class HostileObjectsTest {

    /** A method that takes and gives nothing, of this class. */
    private static String method(String of) {
        return "{\"version\":1,\"name\":\"log.f\",\"class\":\"" + of
                + "\",\"params\":[],\"target\":{\"language\":\"c\",\"symbol\":\"f\",\"arguments\":[]}}";
    }

    private static byte[] error(int code, String text) {
        byte[] body = new byte[10 + text.length()];
        body[0] = (byte) code;
        for (int at = 0; at < text.length(); at++) {
            body[10 + at] = (byte) text.charAt(at);
        }
        return body;
    }

    /** A server that takes so many streams, and does this. */
    private static FakeServer fake(int streams, FakeServer.Script script) throws IOException {
        return new FakeServer(peer -> {
            peer.greet(streams, Long.MAX_VALUE);
            script.run(peer);
            peer.drain();
        });
    }

    /** Makes the object that is asked for; its stream. */
    private static int make(FakeServer.Peer peer) throws IOException {
        int stream = peer.next().stream();
        peer.frame(CREATED, stream, 0, new byte[0]);
        return stream;
    }

    /** What asking for an object comes to, when the server does this. */
    private static void asking(String part, FakeServer.Script script) throws IOException {
        try (FakeServer fake = fake(8, script); KumiClient client = fake.client()) {
            CallException wrong = assertThrows(CallException.class, () -> client.object("log"));
            assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
        }
    }

    /** What a call on an object comes to, when the server does this with the object's stream and the call's. */
    private static void calling(String part, InvokeScript script) throws Exception {
        try (FakeServer fake = fake(8, peer -> {
            int object = make(peer);
            peer.describe(method("log"));
            FakeServer.Frame call = peer.next();
            assertEquals(INVOKE, call.kind());
            script.run(peer, object, call.stream());
        }); KumiClient client = fake.client(); RemoteObject object = client.object("log")) {
            CallException wrong = failure(CallException.class, object.callAsync("f"));
            assertTrue(wrong.getMessage().contains(part), wrong.getMessage());
            eventually("that the object is lost", object::isLost);
        }
    }

    /** What a server does with an object's stream and a call's. */
    private interface InvokeScript {
        void run(FakeServer.Peer peer, int object, int call) throws IOException;
    }

    @Test
    void objectsThatWereNotAskedFor() throws IOException {
        asking("answers nothing", peer -> peer.frame(CREATED, peer.next().stream() + 1, 0, new byte[0]));
        asking("1 bytes of at most 0", peer -> peer.frame(CREATED, peer.next().stream(), 0, new byte[1]));
        asking("answers nothing", peer -> peer.result(peer.next().stream()));
        asking("answers nothing", peer -> peer.frame(4, peer.next().stream(), 1, new byte[8]));
        asking("none left", peer -> peer.frame(11, peer.next().stream(), 0, error(5, "none left")));
        asking("closed", peer -> {
            peer.next();
            peer.end();
        });
    }

    @Test
    void streamsOfObjectsBringNothing() throws Exception {
        calling("answers nothing", (peer, object, call) -> peer.frame(CREATED, object, 0, new byte[0]));
        calling("answers nothing", (peer, object, call) -> peer.frame(CREATED, call, 0, new byte[0]));
        calling("answers nothing", (peer, object, call) -> peer.result(object));
        calling("more bytes than argument 1", (peer, object, call) -> peer.frame(4, object, 1, new byte[8]));
        calling("answers nothing", (peer, object, call) -> peer.frame(12, object, 0, new byte[4]));
        calling("closed", (peer, object, call) -> peer.end());
    }

    @Test
    void callsEndByTheirOwnErrors() throws Exception {
        calling("late", (peer, object, call) -> {
            peer.frame(11, object, 0, error(6, "crashed"));
            peer.frame(11, call, 0, error(32, "late"));
        });
        try (FakeServer fake = fake(8, peer -> {
            int object = make(peer);
            peer.describe(method("log"));
            int call = peer.next().stream();
            peer.frame(11, object, 0, error(6, "gone"));
            peer.result(call);
        }); KumiClient client = fake.client(); RemoteObject object = client.object("log")) {
            // What is under way when the object is said to be no more may have run all the same.
            assertEquals("log.f", object.method("f").name());
            object.call("f");
            eventually("that it is lost", object::isLost);
            CallException.ObjectLost lost = assertThrows(CallException.ObjectLost.class, () -> object.call("f"));
            assertEquals("the object of `log` is no more: gone", lost.getMessage());
        }
    }

    @Test
    void methodsOfAnotherClass() throws Exception {
        try (FakeServer fake = fake(8, peer -> {
            make(peer);
            peer.describe(method(""));
            peer.describe(method("log.f"));
            peer.describe(method("lo"));
        }); KumiClient client = fake.client(); RemoteObject object = client.object("log")) {
            assertThrows(CallException.Argument.class, () -> object.call("f"));
            assertThrows(CallException.Argument.class, () -> object.call("g"), "it says that it is a class");
            assertThrows(CallException.Server.class, () -> object.call("h"), "its name is none of that class");
        }
    }

    @Test
    void oneThatComesTooLateIsGivenBack() throws Exception {
        CompletableFuture<Integer> asked = new CompletableFuture<>();
        CompletableFuture<FakeServer.Frame> left = new CompletableFuture<>();
        try (FakeServer fake = fake(8, peer -> {
            int stream = peer.next().stream();
            asked.complete(stream);
            left.complete(peer.next());
            peer.frame(CREATED, stream, 0, new byte[0]);
            peer.frame(11, stream, 0, error(8, "cancelled"));
            make(peer);
        }); KumiClient client = fake.client()) {
            CompletableFuture<Object> end = new CompletableFuture<>();
            Thread waits = new Thread(() -> {
                try {
                    end.complete(client.object("log"));
                } catch (CallException stopped) {
                    end.completeExceptionally(stopped);
                }
            });
            waits.start();
            int stream = asked.get();
            waits.interrupt();
            failure(CallException.Interrupted.class, end);
            assertEquals(new FakeServer.Frame(CANCEL, stream, 0, left.get().body()), left.get());
            assertFalse(client.object("log").isLost(), "the connection goes on");
        }
        try (FakeServer fake = fake(8, peer -> { }); KumiClient client = fake.client()) {
            CallException.TimedOut late =
                    assertThrows(CallException.TimedOut.class, () -> client.object("log", Duration.ofMillis(1), 0));
            assertTrue(late.getMessage().contains("no object of `log` in time"), late.getMessage());
        }
    }

    @Test
    void objectsLeaveAStreamForCalls() throws Exception {
        ConcurrentLinkedQueue<Integer> kinds = new ConcurrentLinkedQueue<>();
        try (FakeServer fake = fake(2, peer -> {
            make(peer);
            peer.describe(method("log"));
            FakeServer.Frame call = peer.next();
            kinds.add(call.kind());
            peer.result(call.stream());
        }); KumiClient client = fake.client(); RemoteObject object = client.object("log")) {
            CallException.Busy full = assertThrows(CallException.Busy.class, () -> client.object("log"));
            assertTrue(full.hasNotRun());
            object.call("f");
            assertEquals(List.of(INVOKE), List.copyOf(kinds));
        }
    }
}
