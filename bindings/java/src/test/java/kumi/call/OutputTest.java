package kumi.call;

import static kumi.call.Frames.LISTEN;
import static kumi.call.Frames.OUTPUT;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** What routines print, on its way to the caller. */
@Timeout(120)
class OutputTest {

    @Test
    void whoAsksGetsIt() throws Exception {
        try (ServerProcess served = ServerProcess.start(); KumiClient client = served.client()) {
            CallOutput output = new CallOutput();
            client.prepare("say").add("grün").output(output).call();
            CallOutput.Printed printed = output.take();
            assertEquals("grün\n", printed.text());
            assertFalse(printed.isCut());
            assertEquals(0, output.take().bytes().length, "it was taken");
            client.call("say", "nobody's");
            client.prepare("say").add("two").output(output).callAsync().get(60, TimeUnit.SECONDS);
            assertEquals("two\n", output.take().text());
        }
    }

    @Test
    void alsoThroughAMetaserver() throws Exception {
        try (ServerProcess meta = ServerProcess.meta(); ServerProcess served = ServerProcess.start("--meta", meta.address);
                KumiClient client = meta.client()) {
            listed(meta, served);
            CallOutput output = new CallOutput();
            client.prepare("say").add("far").output(output).call();
            assertEquals("far\n", output.take().text());
        }
    }

    /** A server that answers the call of a client, which listens or not, with this frame, and then a result or an error. */
    private static CallOutput.Printed answered(boolean listens, boolean fails, byte[]... frames) throws Exception {
        CallOutput output = new CallOutput();
        BlockingQueue<Integer> kinds = new LinkedBlockingQueue<>();
        try (FakeServer fake = new FakeServer(peer -> {
            peer.greet(8, Long.MAX_VALUE);
            peer.describe(FakeServer.ROUTINE);
            FakeServer.Frame first = peer.next();
            kinds.add(first.kind());
            int stream = listens ? peer.next().stream() : first.stream();
            for (byte[] body : frames) {
                peer.frame(OUTPUT, stream, 0, body);
            }
            if (fails) {
                peer.frame(11, stream, 0, "\6\0\13\0\0\0\0\0\0\0crashed".getBytes(StandardCharsets.US_ASCII));
            } else {
                peer.result(stream);
            }
            peer.drain();
        }); KumiClient client = fake.client()) {
            Call call = client.prepare("f");
            if (listens) {
                call.output(output);
            }
            if (fails) {
                assertThrows(CallException.Crashed.class, call::call);
            } else {
                call.call();
            }
            assertEquals(listens ? LISTEN : 3, kinds.take());
        }
        return output.take();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void piecesInTheirOrder() throws Exception {
        CallOutput.Printed printed = answered(true, false, bytes("\0one "), bytes("\0"), bytes("\1two"));
        assertEquals("one two", printed.text());
        assertTrue(printed.isCut(), "the server said that more was printed");
        assertEquals("before", answered(true, true, bytes("\0before")).text());
        byte[] longest = new byte[1 + (64 << 10)];
        Arrays.fill(longest, 1, longest.length, (byte) 'x');
        assertEquals(64 << 10, answered(true, false, longest).bytes().length);
        assertEquals("", answered(true, false).text(), "a server that does not know of it sends none");
    }

    /** The connection is lost because the server has broken the protocol. */
    private static void broken(Executable call) {
        String said = assertThrows(CallException.ConnectionLost.class, call).getMessage();
        assertTrue(said.contains("the server broke the protocol"), said);
    }

    @Test
    void whatIsNotAskedForOrMalformed() {
        broken(() -> answered(false, false, bytes("\0text")));
        broken(() -> answered(true, false, bytes("\2text")));
        broken(() -> answered(true, false, new byte[0]));
        broken(() -> answered(true, false, new byte[2 + (64 << 10)]));
    }

    /** On streams that are none. */
    @Test
    void forNobody() throws IOException {
        for (int other : new int[] {0, 77}) {
            try (FakeServer fake = new FakeServer(peer -> {
                peer.greet(8, Long.MAX_VALUE);
                peer.describe(FakeServer.ROUTINE);
                int stream = peer.next().stream();
                peer.frame(OUTPUT, other, 0, bytes("\0text"));
                peer.result(stream);
                peer.drain();
            }); KumiClient client = fake.client()) {
                broken(() -> client.prepare("f").output(new CallOutput()).call());
            }
        }
    }

    @Test
    void aReceiverKeepsSoMuch() {
        CallOutput output = new CallOutput();
        output.add(new byte[(4 << 20) - 1], false);
        output.add(new byte[] {1, 2}, false);
        CallOutput.Printed printed = output.take();
        assertEquals(4 << 20, printed.bytes().length);
        assertEquals(1, printed.bytes()[(4 << 20) - 1]);
        assertTrue(printed.isCut());
        output.add(new byte[1], false);
        assertFalse(output.take().isCut());
    }
}
