package kumi.call;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Servers that the program has named. A call goes to the one with the fewest calls of the transaction, and of those to its inputs. */
final class NamedServers implements TransactionTarget {
    /** Most calls that a server gets at a time. */
    private static final int MOST_IN_FLIGHT = 8;
    /** The protocol's code: no room for arrays that are to be held. */
    private static final int HELD_FULL = 18;

    private final List<KumiClient> clients;
    private final List<TransactionServer> servers = new ArrayList<>();
    /** By server and routine. */
    private final Map<TransactionServer, Map<String, KumiClient.KnownRoutine>> offers = new HashMap<>();
    /** Servers that do not give a call what it asks for. */
    private final Map<RecordedCall, Set<TransactionServer>> refused = new HashMap<>();
    private Driver driver;
    /** The server of the call before; -1: there was none. */
    private int last = -1;

    NamedServers(List<KumiClient> clients) {
        this.clients = clients;
    }

    @Override
    public void open(List<RecordedCall> calls, Driver driver) {
        this.driver = driver;
        for (KumiClient client : clients) {
            if (!client.connection.isBroken()) {
                servers.add(TransactionServer.of(servers.size(), client));
            }
        }
        for (TransactionServer server : servers) {
            Map<String, KumiClient.KnownRoutine> here = new HashMap<>();
            for (RecordedCall call : calls) {
                String name = call.of.routine().name();
                if (!here.containsKey(name)) {
                    here.put(name, offered(server, name));
                }
            }
            offers.put(server, here);
        }
        if (servers.stream().allMatch(TransactionServer::isLost)) {
            throw new CallException.Connect("no server of the transaction can be reached: their connections are lost", null);
        }
    }

    /** A routine of a server; null: it has none of this name for this client. */
    private static KumiClient.KnownRoutine offered(TransactionServer server, String name) {
        try {
            return server.client.known(name);
        } catch (CallException.RoutineNotFound | CallException.NotPermitted | CallException.ConnectionLost none) {
            return null;
        }
    }

    private boolean offers(TransactionServer server, RecordedCall call) {
        KumiClient.KnownRoutine here = offers.get(server).get(call.of.routine().name());
        return here != null && here.hash() == call.of.hash();
    }

    private static long inputsAt(TransactionServer server, RecordedCall call) {
        return call.inputs.stream().filter(input -> input.place != null && input.place.server() == server)
                .mapToLong(TransactionArray::bytes).sum();
    }

    /** The server for a call; null: all that can run it are busy. */
    private TransactionServer choose(RecordedCall call) {
        TransactionServer best = null;
        boolean isOffered = false;
        for (int turn = 1; turn <= servers.size(); turn++) {
            // In turn, where nothing else decides.
            TransactionServer one = servers.get((last + turn) % servers.size());
            if (one.isLost() || !offers(one, call) || refused.getOrDefault(call, Set.of()).contains(one)) {
                continue;
            }
            isOffered = true;
            boolean isBetter = best == null || one.inFlight < best.inFlight
                    || one.inFlight == best.inFlight && inputsAt(one, call) > inputsAt(best, call);
            best = one.inFlight < MOST_IN_FLIGHT && isBetter ? one : best;
        }
        if (!isOffered) {
            throw call.failure != null ? call.failure : new CallException.NoServer("no server of the transaction that is there offers `"
                    + call.of.routine().name() + "` by the same description", 0, true, null);
        }
        return best;
    }

    @Override
    public boolean hasRoom() {
        // Without a server calls fail.
        return servers.stream().anyMatch(one -> !one.isLost() && one.inFlight < MOST_IN_FLIGHT)
                || servers.stream().allMatch(TransactionServer::isLost);
    }

    @Override
    public Runnable begin(RecordedCall call, TransactionAttempt.Conditions conditions) {
        TransactionServer server = choose(call);
        if (server == null) {
            return null;
        }
        last = server.number;
        server.inFlight++;
        TransactionAttempt attempt = new TransactionAttempt(call, server, conditions, TransactionReport.Moved.NOTHING);
        BackgroundThreads.run(() -> begin(attempt));
        return attempt::cancel;
    }

    private void begin(TransactionAttempt attempt) {
        RecordedCall call = attempt.call;
        KumiClient client = attempt.server.client;
        Call.CallSettings settings = attempt.conditions.settings();
        PreparedCall prepared = null;
        try {
            settings.said().check(client.server);
            prepared = attempt.prepare(call.of, client.memory, client.options);
            attempt.limit();
            KumiClient.StartedCall started = client.begin(call.of, prepared, settings, BackgroundThreads::run);
            Exchange exchange = started.exchange();
            exchange.answer.whenCompleteAsync((answer, error) -> end(attempt, started, answer, error), BackgroundThreads::run);
            attempt.await(client.connection, exchange);
        } catch (RuntimeException | OutOfMemoryError wrong) {
            if (prepared != null) {
                prepared.close();
            }
            attempt.finish(driver, null, Waits.again(wrong));
        }
    }

    /** The answer to a call has come. */
    private void end(TransactionAttempt attempt, KumiClient.StartedCall started, Exchange.Answer answer, Throwable error) {
        Result result = null;
        CallException failure = null;
        try {
            result = attempt.server.client.end(attempt.call.of.routine().name(), started, () -> {
                if (error != null) {
                    throw Waits.again(error);
                }
                return answer;
            });
        } catch (RuntimeException | OutOfMemoryError wrong) {
            failure = Waits.again(wrong);
        }
        attempt.finish(driver, result, failure);
    }

    @Override
    public void over(TransactionAttempt attempt) {
        attempt.server.inFlight--;
    }

    @Override
    public Retry retry(RecordedCall call, TransactionAttempt attempt, CallException failure) {
        if (failure instanceof CallException.ConnectionLost) {
            return call.of.routine().idempotent() || failure.hasNotRun() ? Retry.NOW : Retry.NONE;
        } else if (failure instanceof CallException.NoResources) {
            refused.computeIfAbsent(call, none -> new HashSet<>()).add(attempt.server);
            return Retry.NOW;
        }
        boolean isFull = failure instanceof CallException.Busy || failure instanceof CallException.Server && failure.code() == HELD_FULL;
        return isFull ? Retry.LATER : Retry.NONE;
    }
}
