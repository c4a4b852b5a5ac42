package kumi.call;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import kumi.call.wire.MetaserverMessages;

/** The connection to a metaserver, which is made anew when it is lost, and those to the servers that it names. */
final class Grid {
    /** How long a metaserver that does not answer is looked for. */
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    /** How long one may take to be connected to when there may be another. */
    private static final Duration CONNECT = Duration.ofSeconds(3);
    /** The longest pause before one is looked for again, in milliseconds. */
    private static final long LONGEST_PAUSE = 1000;
    /** Reports that wait for a metaserver; more are left out. */
    private static final int MOST_REPORTS = 10_000;

    private final List<String> addresses;
    private final ClientOptions options;
    /** Random: who this is. */
    private final long client = new SecureRandom().nextLong();
    private final AtomicLong calls = new AtomicLong();
    /** All below: with this object's lock, while which nothing is waited for. */
    private Handshake meta;
    /** Which of the addresses is tried next. */
    private int next;
    private CompletableFuture<Connection> looking;
    private final Map<String, CompletableFuture<Connection>> servers = new HashMap<>();
    /** Connections that are used for no new call. */
    private final List<Connection> retired = new ArrayList<>();
    /** What could not be told yet. */
    private final Deque<MetaserverMessages.AttemptReport> reports = new ArrayDeque<>();
    private final Set<RoutedCall<?>> routedCalls = new HashSet<>();
    private boolean closed;

    private Grid(List<String> addresses, ClientOptions options) {
        this.addresses = addresses;
        this.options = options;
    }

    /** The addresses in a list that is separated by commas. */
    static List<String> addresses(String list) {
        return Arrays.stream(list.split(",")).map(String::strip).filter(one -> !one.isEmpty()).toList();
    }

    /** The metaservers at these addresses, to one of which this is a connection. */
    static Grid of(List<String> addresses, Handshake first, ClientOptions options) {
        Grid grid = new Grid(addresses, options);
        grid.meta = first;
        Heartbeat.watch(first.connection());
        return grid;
    }

    /** The metaservers at these addresses; one of them is connected to. */
    static Grid connect(List<String> addresses, ClientOptions options) {
        Grid grid = new Grid(addresses, options);
        grid.find(options.connectTime(), true);
        return grid;
    }

    ClientOptions options() {
        return options;
    }

    /** What names a new call: whose it is, and its number. */
    long client() {
        return client;
    }

    long number() {
        return calls.getAndIncrement();
    }

    /** The metaserver's name; empty: there is none at the moment. */
    synchronized String name() {
        return meta == null ? "" : meta.hello().name();
    }

    synchronized boolean isOpen() {
        return !closed && meta != null && !meta.connection().isBroken();
    }

    private synchronized void check() {
        if (closed) {
            throw new CallException.ConnectionLost("the client was closed", true);
        }
    }

    /** The connection to the metaserver, made anew if it was lost. */
    CompletableFuture<Connection> metaserver() {
        CompletableFuture<Connection> found;
        synchronized (this) {
            if (closed) {
                return CompletableFuture.failedFuture(new CallException.ConnectionLost("the client was closed", true));
            } else if (meta != null && !meta.connection().isBroken()) {
                return CompletableFuture.completedFuture(meta.connection());
            } else if (looking != null) {
                return looking;
            }
            looking = new CompletableFuture<>();
            found = looking;
        }
        try {
            BackgroundThreads.run(() -> look(found));
        } catch (RuntimeException | OutOfMemoryError none) {
            found(found, null, new CallException.Connect("no thread can be had to look for a metaserver: " + none, none));
        }
        return found;
    }

    private void look(CompletableFuture<Connection> found) {
        try {
            found(found, find(PATIENCE, false), null);
        } catch (RuntimeException | Error wrong) {
            found(found, null, wrong);
        }
    }

    private void found(CompletableFuture<Connection> found, Connection connection, Throwable error) {
        synchronized (this) {
            looking = null;
        }
        if (error == null) {
            found.complete(connection);
        } else {
            found.completeExceptionally(error);
        }
    }

    /** Looks for a metaserver for so long, or at the beginning, as long as another is about to lead. */
    private Connection find(Duration time, boolean first) {
        long begun = System.nanoTime();
        long pause = 20;
        while (true) {
            try {
                return connectOnce();
            } catch (CallException refused) {
                boolean pointless = refused instanceof CallException.NotPermitted || refused instanceof CallException.Expired
                        || refused instanceof CallException.Argument || first && refused.code() != Handshake.NOT_LEADING;
                long left = time.minusNanos(System.nanoTime() - begun).toMillis();
                if (pointless || left <= pause) {
                    throw refused;
                }
            }
            check();
            try {
                Thread.sleep(pause);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new CallException.Connect("the wait for a metaserver was interrupted", interrupted);
            }
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    private Connection connectOnce() {
        ClientOptions quick = addresses.size() > 1 && options.connectTime().compareTo(CONNECT) > 0
                ? options.connectTime(CONNECT) : options;
        CallException last = new CallException.Argument("no address of a metaserver is given");
        int begin;
        synchronized (this) {
            begin = next;
        }
        for (int turn = 0; turn < addresses.size(); turn++) {
            int at = (begin + turn) % addresses.size();
            try {
                Handshake greeted = Handshake.leading(addresses.get(at), quick);
                if (greeted.hello().metaserver()) {
                    return take(greeted, at);
                }
                greeted.connection().fail("it is no metaserver");
                last = new CallException.Argument(addresses.get(at) + " is a server and no metaserver");
            } catch (CallException refused) {
                last = refused;
            }
        }
        throw last;
    }

    private Connection take(Handshake greeted, int at) {
        List<MetaserverMessages.AttemptReport> untold;
        synchronized (this) {
            if (!closed) {
                meta = greeted;
                next = at;
            }
            untold = new ArrayList<>(reports);
            reports.clear();
        }
        check(greeted.connection());
        Heartbeat.watch(greeted.connection());
        // If it is lost again the metaserver finds out from the servers.
        untold.forEach(over -> greeted.connection().over(null, over));
        return greeted.connection();
    }

    /** Ends a connection that was made while the client was closed. */
    private void check(Connection connection) {
        try {
            check();
        } catch (CallException closed) {
            connection.fail("it was closed");
            throw closed;
        }
    }

    /** A connection to a metaserver is of no use any more, for whoever has asked on it. */
    void lost(Connection connection) {
        connection.fail("another metaserver is asked");
        synchronized (this) {
            if (meta != null && meta.connection() == connection) {
                meta = null;
                next = (next + 1) % addresses.size();
            }
        }
    }

    /** How an attempt went, of which the stream at the metaserver is gone. */
    void report(MetaserverMessages.AttemptReport over) {
        synchronized (this) {
            if (closed || reports.size() >= MOST_REPORTS) {
                return;
            }
            if (meta != null && meta.connection().over(null, over)) {
                return;
            }
            reports.add(over);
        }
        // Who finds one tells it. If there is none, there is nobody to be told.
        metaserver();
    }

    /** A connection to the server of a place, which is shown what the metaserver has given, and never the token. */
    CompletableFuture<Connection> server(MetaserverMessages.Placement placed) {
        CompletableFuture<Connection> made = new CompletableFuture<>();
        synchronized (this) {
            check();
            CompletableFuture<Connection> there = servers.get(placed.address());
            if (there != null && (!there.isDone() || !there.join().isBroken())) {
                return there;
            }
            servers.put(placed.address(), made);
        }
        try {
            BackgroundThreads.run(() -> connect(placed, made));
        } catch (RuntimeException | OutOfMemoryError none) {
            refuse(placed, made, new CallException.Connect("no thread can be had to connect to " + placed + ": " + none, none));
        }
        return made;
    }

    private void connect(MetaserverMessages.Placement placed, CompletableFuture<Connection> made) {
        try {
            Handshake greeted = Handshake.open(placed.address(), options.token(placed.pass()));
            if (greeted.hello().metaserver()) {
                greeted.connection().fail("it is no server");
                throw new CallException.Connect(placed + " is a metaserver, and takes no calls", null);
            }
            check(greeted.connection());
            made.complete(greeted.connection());
        } catch (RuntimeException | Error wrong) {
            refuse(placed, made, wrong);
        }
    }

    private void refuse(MetaserverMessages.Placement placed, CompletableFuture<Connection> made, Throwable why) {
        synchronized (this) {
            servers.remove(placed.address(), made);
        }
        made.completeExceptionally(why);
    }

    /** No new call goes over a connection to a server. */
    void forget(MetaserverMessages.Placement placed, Connection connection) {
        synchronized (this) {
            CompletableFuture<Connection> there = servers.get(placed.address());
            if (there != null && there.isDone() && there.join() == connection) {
                servers.remove(placed.address());
                retired.add(connection);
            }
        }
        sweep();
    }

    /** Ends connections that are used no more. */
    void sweep() {
        List<Connection> idle = new ArrayList<>();
        synchronized (this) {
            retired.removeIf(one -> one.isIdle() && idle.add(one));
        }
        idle.forEach(one -> one.fail("it is used no more"));
    }

    /** A call begins. */
    synchronized void begin(RoutedCall<?> routedCall) {
        check();
        routedCalls.add(routedCall);
    }

    /** A call is over. */
    void end(RoutedCall<?> routedCall) {
        synchronized (this) {
            routedCalls.remove(routedCall);
        }
        sweep();
    }

    /** Ends all connections; calls that are under way fail. */
    void close() {
        List<RoutedCall<?>> under;
        List<Connection> open;
        synchronized (this) {
            closed = true;
            under = new ArrayList<>(routedCalls);
            open = new ArrayList<>(retired);
            retired.clear();
            servers.values().stream().filter(one -> one.isDone()).forEach(one -> open.add(one.join()));
            open.addAll(meta == null ? Collections.emptyList() : List.of(meta.connection()));
        }
        under.forEach(RoutedCall::close);
        open.forEach(one -> one.fail("it was closed"));
    }
}
