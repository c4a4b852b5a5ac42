package kumi.call;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Calls through a real metaserver, at real servers. */
@Timeout(180)
class MetaTest {
    private final List<Served> servers = new ArrayList<>();
    private Served meta;
    private KumiClient client;

    @BeforeEach
    void start() throws Exception {
        meta = Served.meta("--policy", "round-robin");
        serve();
        serve();
        client = meta.client();
        eventually(() -> status(meta).contains(servers.get(0).address) && status(meta).contains(servers.get(1).address));
    }

    @AfterEach
    void stop() {
        if (client != null) {
            client.close();
        }
        servers.forEach(Served::close);
        if (meta != null) {
            meta.close();
        }
    }

    private void serve() throws Exception {
        servers.add(Served.start("--meta", meta.address));
    }

    private static String status(Served of) {
        try {
            return Served.command("call", "status", "--json", "--server", of.address);
        } catch (java.io.IOException gone) {
            throw new IllegalStateException(gone);
        }
    }

    private static void eventually(BooleanSupplier condition) throws InterruptedException {
        for (int turn = 0; turn < 600 && !condition.getAsBoolean(); turn++) {
            Thread.sleep(100);
        }
        assertTrue(condition.getAsBoolean());
    }

    private static <E extends CallException> E failure(Class<E> kind, CompletableFuture<Result> call) {
        ExecutionException failed = assertThrows(ExecutionException.class, () -> call.get(60, TimeUnit.SECONDS));
        return assertInstanceOf(kind, failed.getCause());
    }

    @Test
    void callsGoToServers() {
        assertArrayEquals(new double[] {19, 22, 43, 50},
                client.call("dmmul", 2, new double[] {1, 2, 3, 4}, new double[] {5, 6, 7, 8}).doubles("C"));
        assertTrue(client.names("dmm").contains("dmmul"));
        assertThrows(CallException.RoutineNotFound.class, () -> client.call("dmmull", 1));
        Set<Long> processes = new HashSet<>();
        for (int turn = 0; turn < 8; turn++) {
            processes.add(client.prepare("nap").add(0).priority(turn).call().integer("pid"));
        }
        assertTrue(processes.size() >= 2, "calls go to both servers");
    }
}
