package kumi.call;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

/**
 * Servers that the program has named. A call goes to the one with the fewest calls of the transaction, and of those to its inputs.
 *
 * <p>Nothing begins before all have described their routines, or the time for connecting is over. One that is silent then, or later,
 * is left alone for a while and takes calls again as soon as it gives a sign of life.
 */
final class NamedServers implements TransactionTarget {
    /** Most calls that a server gets at a time. */
    private static final int MOST_IN_FLIGHT = 8;
    /** The protocol's code: no room for arrays that are to be held. */
    private static final int HELD_FULL = 18;
    /** Pause before a silent server is asked for a sign of life. */
    private static final Duration PAUSE = Duration.ofSeconds(1);
    /** How long calls that can run nowhere else wait for that sign. */
    private static final Duration SILENCE = Duration.ofSeconds(8);

    private final List<KumiClient> clients;
    private final List<NamedServer> servers = new ArrayList<>();
    /** The routines of the calls. */
    private final Set<String> names = new LinkedHashSet<>();
    private Driver driver;
    /** Calls may begin: all servers are known, or there was time enough. */
    private boolean isOpen;
    /** The server of the call before; -1: there was none. */
    private int last = -1;

    NamedServers(List<KumiClient> clients) {
        this.clients = clients;
    }

    @Override
    public void open(List<RecordedCall> calls, Driver driver) {
        this.driver = driver;
        calls.forEach(call -> names.add(call.of.routine().name()));
        Duration most = Duration.ZERO;
        for (KumiClient client : clients) {
            servers.add(new NamedServer(TransactionServer.of(servers.size(), client)));
            most = client.options.connectTime().compareTo(most) > 0 ? client.options.connectTime() : most;
        }
        if (clients.stream().allMatch(client -> client.connection.isBroken())) {
            List<String> why = servers.stream().map(one -> one.server + ": " + one.server.connection.whyBroken()).toList();
            throw new CallException.Connect("no server of the transaction can be reached: " + String.join("; ", why), null);
        }
        servers.forEach(this::learn);
        Timer.after(most, () -> driver.post(() -> isOpen = true));
    }

    /** Asks a server for its descriptions. */
    private void learn(NamedServer one) {
        BackgroundThreads.run(() -> {
            NamedServer.Opening said = one.ask(names);
            driver.post(() -> {
                if (!one.opened(said)) {
                    rest(one);
                }
                isOpen |= servers.stream().noneMatch(NamedServer::isOpening);
            });
        });
    }

    @Override
    public void silent(TransactionServer server) {
        NamedServer one = servers.get(server.number);
        one.silent("it does not answer");
        rest(one);
    }

    /** Asks a silent server for a sign of life, after a pause. */
    private void rest(NamedServer one) {
        int silence = one.silences();
        Timer.after(PAUSE, () -> {
            CompletableFuture<Void> sign;
            try {
                sign = one.server.connection.ping();
            } catch (CallException.ConnectionLost gone) {
                sign = CompletableFuture.failedFuture(gone);
            }
            Future<?> limit = Timer.after(SILENCE, () -> ofSilence(one, silence, one::giveUp));
            sign.whenComplete((alive, gone) -> {
                limit.cancel(false);
                ofSilence(one, silence, () -> {
                    if (gone == null) {
                        learn(one);
                    } else {
                        one.giveUp();
                    }
                });
            });
        });
    }

    /** Something has come of a silence, unless the server was heard of since. */
    private void ofSilence(NamedServer one, int silence, Runnable event) {
        driver.post(() -> {
            if (one.silences() == silence) {
                event.run();
            }
        });
    }

    private static long inputsAt(TransactionServer server, RecordedCall call) {
        return call.inputs.stream().filter(input -> input.place != null && input.place.server() == server)
                .mapToLong(TransactionArray::bytes).sum();
    }

    /** The server for a call; null: all that can run it are busy, or may come back. */
    private TransactionServer choose(RecordedCall call) {
        TransactionServer best = null;
        boolean isOffered = false;
        for (int turn = 1; turn <= servers.size(); turn++) {
            // In turn, where nothing else decides.
            NamedServer named = servers.get((last + turn) % servers.size());
            if (!named.isFor(call) || !named.isOpen()) {
                isOffered |= named.isFor(call) && named.mayCome();
                continue;
            }
            isOffered = true;
            TransactionServer one = named.server;
            boolean isBetter = best == null || one.inFlight < best.inFlight
                    || one.inFlight == best.inFlight && inputsAt(one, call) > inputsAt(best, call);
            best = one.inFlight < MOST_IN_FLIGHT && isBetter ? one : best;
        }
        if (!isOffered) {
            throw none(call);
        }
        return best;
    }

    /** No server is left for a call. */
    private CallException none(RecordedCall call) {
        String why = "no server of the transaction is left for `" + call.of.routine().name() + "`: "
                + String.join("; ", servers.stream().map(one -> one.why(call)).toList());
        return call.failure == null ? new CallException.NoServer(why, 0, true, null) : call.failure.at(call.failure.getMessage() + "; then " + why);
    }

    @Override
    public boolean hasRoom() {
        // Without a server calls fail.
        return isOpen && (servers.stream().anyMatch(one -> one.isOpen() && one.server.inFlight < MOST_IN_FLIGHT)
                || servers.stream().noneMatch(NamedServer::isOpen));
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
            finish(attempt, null, Waits.again(wrong));
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
        finish(attempt, result, failure);
    }

    private void finish(TransactionAttempt attempt, Result result, CallException failure) {
        // One whose inputs were lost before it is none.
        if (failure != null && !(failure instanceof CallException.HeldLost && failure.code() == 0)) {
            attempt.call.failed.add(attempt.server, failure);
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
            servers.get(attempt.server.number).refuse(call, failure.getMessage());
            return Retry.NOW;
        }
        boolean isFull = failure instanceof CallException.Busy || failure instanceof CallException.Server && failure.code() == HELD_FULL;
        return isFull ? Retry.LATER : Retry.NONE;
    }
}
