package kumi.call;

import static kumi.call.WaitFor.eventually;
import static kumi.call.WaitFor.listed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Objects at real servers that a real metaserver chooses. */
@Timeout(180)
class MetaObjectsTest {
    private final List<AutoCloseable> all = new ArrayList<>();
    private final List<ServerProcess> servers = new ArrayList<>();
    private ServerProcess meta;
    private KumiClient client;

    /** A metaserver with so many servers, each with at most so many objects, and its client. */
    private void start(int count, int objects) throws Exception {
        meta = ServerProcess.meta("--policy", "round-robin");
        all.add(meta);
        for (int at = 0; at < count; at++) {
            ServerProcess server = ServerProcess.of("objects", "--meta", meta.address, "--objects", "" + objects);
            all.add(server);
            servers.add(server);
            listed(meta, server);
        }
        client = meta.client();
        all.add(client);
    }

    @AfterEach
    void stop() throws Exception {
        for (int at = all.size() - 1; at >= 0; at--) {
            all.get(at).close();
        }
    }

    /** Where it is. */
    private ServerProcess server(RemoteObject object) {
        long pid = object.call("pid").integer("pid");
        return servers.stream().filter(one -> one.has(pid)).findAny().orElseThrow();
    }

    private static String read(RemoteObject object) {
        return object.call("read").text("text");
    }

    private static void write(RemoteObject object, String text) {
        object.call("write", "", text);
    }

    @Test
    void theyAreMadeAtServersInTurn() throws Exception {
        start(2, 3);
        List<RemoteObject> objects = new ArrayList<>();
        Map<ServerProcess, Integer> where = new HashMap<>();
        for (int object = 0; object < 6; object++) {
            objects.add(client.object("log", Duration.ofMinutes(1), object));
            where.merge(server(objects.get(object)), 1, Integer::sum);
        }
        assertEquals(Map.of(servers.get(0), 3, servers.get(1), 3), where);
        for (int call = 0; call < 12; call++) {
            write(objects.get(call % 6), "" + call % 6);
        }
        for (int object = 0; object < 6; object++) {
            assertEquals(("" + object).repeat(2), read(objects.get(object)));
        }
        CallException none = assertThrows(CallException.class, () -> client.object("log"));
        assertTrue(none.hasNotRun() && none.getMessage().contains("objects already"), none.getMessage());
        client.call("plain");
        objects.get(0).close();
        eventually("room", () -> {
            try {
                return objects.add(client.object("log"));
            } catch (CallException full) {
                return false;
            }
        });
        assertEquals("", read(objects.get(6)));
        eventually("that nothing is left behind", () -> {
            String state = meta.status().replace(" ", "");
            return state.contains("\"running\":0") && state.contains("\"waiting\":0");
        });
    }

    @Test
    void whatCannotBeIsSaid() throws Exception {
        start(1, 2);
        CallException none = assertThrows(CallException.RoutineNotFound.class, () -> client.object("lug"));
        assertTrue(none.getMessage().contains("log"), none.getMessage());
        none = assertThrows(CallException.RoutineNotFound.class, () -> client.object("plain"));
        assertTrue(none.getMessage().contains("it is a routine"), none.getMessage());
        CallException broken = assertThrows(CallException.class, () -> client.object("broken"));
        assertTrue(broken.getMessage().contains("there_is_none"), broken.getMessage());
        for (String name : new String[] {"log", "log.read"}) {
            CallException alone = assertThrows(CallException.Argument.class, () -> client.call(name));
            assertTrue(alone.getMessage().contains("make an object of `log`"), alone.getMessage());
        }
        try (RemoteObject object = client.object("log")) {
            assertThrows(CallException.Argument.class, () -> object.prepare("read").priority(1).call());
            none = assertThrows(CallException.RoutineNotFound.class, () -> object.call("raed"));
            assertTrue(none.getMessage().contains("log.read"), none.getMessage());
            assertEquals("", read(object));
        }
    }

    @Test
    void theyGoWithTheirServerAndNotWithTheMetaserver() throws Exception {
        start(2, 4);
        try (RemoteObject one = client.object("log"); RemoteObject two = client.object("log")) {
            write(one, "1");
            write(two, "2");
            ServerProcess other = server(two);
            server(one).kill();
            eventually("its end", one::isLost);
            CallException gone = assertThrows(CallException.ObjectLost.class, () -> read(one));
            assertTrue(gone.getMessage().contains("connection"), gone.getMessage());
            RemoteObject three = client.object("log");
            assertEquals(other, server(three));
            meta.kill();
            write(two, "2");
            assertEquals("22", read(two), "the way to its server is its own");
            assertFalse(two.isLost());
            client.close();
            assertTrue(two.isLost() && three.isLost());
        }
    }
}
