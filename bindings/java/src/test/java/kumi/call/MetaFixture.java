package kumi.call;

import static kumi.call.WaitFor.listed;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** Tests each of which has a metaserver of its own that sends calls to its servers in turn, and a client of that. */
abstract class MetaFixture {
    final List<ServerProcess> servers = new ArrayList<>();
    ServerProcess meta;
    KumiClient client;

    @BeforeEach
    void start() throws Exception {
        begin(count(), options());
    }

    /** Starts a metaserver, so many servers, and a client. */
    void begin(int count, String... options) throws Exception {
        meta = ServerProcess.meta(options);
        for (int at = 0; at < count; at++) {
            serve();
        }
        client = meta.client();
        for (ServerProcess one : servers) {
            listed(meta, one);
        }
    }

    /** What the metaserver is started with. */
    String[] options() {
        return new String[] {"--policy", "round-robin"};
    }

    /** How many servers there are. */
    int count() {
        return 2;
    }

    @AfterEach
    void stop() {
        if (client != null) {
            client.close();
        }
        servers.forEach(ServerProcess::close);
        if (meta != null) {
            meta.close();
        }
    }

    /** Starts one more server. */
    void serve() throws Exception {
        servers.add(ServerProcess.start("--meta", meta.address));
    }
}
