package kumi.call;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A real server that knows its users by tokens. */
@Timeout(120)
class UsersTest {
    @TempDir
    Path folder;

    private String token(String user, String... options) throws Exception {
        String[] line = {"call", "token", "add", user, "--file", folder.resolve("users.toml").toString()};
        String[] all = Arrays.copyOf(line, line.length + options.length);
        System.arraycopy(options, 0, all, line.length, options.length);
        return ServerProcess.command(all).strip();
    }

    private static KumiClient client(ServerProcess served, String token) {
        return KumiClient.connect(served.address, ClientOptions.usual().token(token));
    }

    private static CallException refusal(ServerProcess served, String token) {
        CallException refused = assertThrows(CallException.class, () -> {
            for (int tries = 0; tries < 6000; tries++) {
                client(served, token).close();
                Thread.sleep(10);
            }
        });
        assertTrue(refused.hasNotRun(), refused.getMessage());
        return refused;
    }

    @Test
    void whoMayCall() throws Exception {
        String ada = token("ada");
        String bob = token("bob", "--routines", "sh*");
        String soon = token("soon", "--expires", "1s");
        try (ServerProcess served = ServerProcess.start("--tokens", folder.resolve("users.toml").toString());
                KumiClient adas = client(served, ada); KumiClient bobs = client(served, bob)) {
            assertEquals("a!", adas.call("shout", "a").text("answer"));
            assertEquals("b!", bobs.call("shout", "b").text("answer"));
            CallException.NotPermitted not =
                    assertThrows(CallException.NotPermitted.class, () -> bobs.call("nap", 1));
            assertTrue(not.hasNotRun() && not.code() == 10, not.getMessage());
            assertEquals(CallException.NotPermitted.class, refusal(served, "kumi_" + "0".repeat(64)).getClass());
            assertEquals(CallException.NotPermitted.class, refusal(served, "").getClass());
            assertEquals(CallException.Expired.class, refusal(served, soon).getClass());
            ServerProcess.command("call", "token", "revoke", "bob", "--file", folder.resolve("users.toml").toString());
            assertEquals(CallException.NotPermitted.class, refusal(served, bob).getClass());
            assertThrows(CallException.NotPermitted.class, () -> bobs.call("shout", "b"));
            assertEquals("a!", adas.call("shout", "a").text("answer"));
        }
    }
}
