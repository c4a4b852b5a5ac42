package kumi.call;

import org.junit.jupiter.api.AfterAll;

/** Tests of a class that share one server and a client of it, which the class begins with {@link #share}. */
abstract class SharedServer {
    static ServerProcess served;
    static KumiClient client;

    /** Has the tests of the class use this server. */
    static void share(ServerProcess started) {
        served = started;
        client = started.client();
    }

    @AfterAll
    static void stop() {
        // What one class had is not the next one's, should that one not start.
        KumiClient ended = client;
        ServerProcess stopped = served;
        client = null;
        served = null;
        if (ended != null) {
            ended.close();
        }
        if (stopped != null) {
            stopped.close();
        }
    }
}
