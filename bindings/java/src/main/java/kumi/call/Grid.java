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
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import kumi.call.wire.MetaserverMessages;

/** The connections of a client to a metaserver, renewed when it is lost, and to the servers that it chooses. */
final class Grid {
    /** How long the client looks for a metaserver. */
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    /** Time limit for connecting to one of several metaservers. */
    private static final Duration CONNECT = Duration.ofSeconds(3);
    /** The longest pause between two attempts, in milliseconds. */
    private static final long LONGEST_PAUSE = 1000;
    /** Most reports that wait for a metaserver; further ones are dropped. */
    private static final int MOST_REPORTS = 10_000;

    /** What addresses begin with whose connections are encrypted. */
    private static final String TLS = "tls://";

    private final List<String> addresses;
    private final ClientOptions options;
    /** Random number that identifies this client. */
    private final long client = new SecureRandom().nextLong();
    private final AtomicLong calls = new AtomicLong();
    /** This object's lock guards all fields below. Nothing waits while it holds the lock. */
    private Handshake meta;
    /** Index of the address to try next. */
    private int next;
    private CompletableFuture<Connection> looking;
    private final Map<String, CompletableFuture<Connection>> servers = new HashMap<>();
    /** Connections that get no new calls. */
    private final List<Connection> retired = new ArrayList<>();
    /** How many arrays at servers there are, by connection. */
    private final Map<Connection, Integer> keeping = new HashMap<>();
    /** Reports that could not be sent yet. */
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

    /** A client of the metaservers at these addresses, with an open connection to one of them. */
    static Grid of(List<String> addresses, Handshake first, ClientOptions options) {
        Grid grid = new Grid(addresses, options);
        grid.meta = first;
        Heartbeat.watch(first.connection());
        return grid;
    }

    /** A client of the metaservers at these addresses; connects to one of them. */
    static Grid connect(List<String> addresses, ClientOptions options) {
        Grid grid = new Grid(addresses, options);
        grid.find(options.connectTime(), true);
        return grid;
    }

    ClientOptions options() {
        return options;
    }

    /** How many nanoseconds after its first failed attempt a call may begin further ones; null: no limit of the client. */
    Long retryTime() {
        return options.retryTime() == null ? null : Timer.nanoseconds(options.retryTime());
    }

    /** The client's number; with {@link #number()} it identifies a call. */
    long client() {
        return client;
    }

    long number() {
        return calls.getAndIncrement();
    }

    /** The metaserver's name; empty: no connection is open. */
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

    /** The connection to a metaserver; connects again if it was lost. */
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
            found(found, null, new CallException.Connect("no thread is available to look for a metaserver: " + none, none));
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

    /** Looks for a metaserver until the time is over. The first time it goes on only while a standby waits to lead. */
    private Connection find(Duration time, boolean first) {
        long begun = System.nanoTime();
        long pause = 20;
        while (true) {
            try {
                return connectOnce();
            } catch (CallException refused) {
                boolean pointless = refused instanceof CallException.NotPermitted || refused instanceof CallException.Expired
                        || refused instanceof CallException.Argument || first && refused.code() != Handshake.NOT_LEADING;
                long left = TimeUnit.NANOSECONDS.toMillis(Timer.nanoseconds(time) - (System.nanoTime() - begun));
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
        // If the connection is lost again, the metaserver learns the outcome from the servers.
        untold.forEach(over -> greeted.connection().over(null, over));
        return greeted.connection();
    }

    /** Closes a new connection if the client was closed meanwhile. */
    private void check(Connection connection) {
        try {
            check();
        } catch (CallException closed) {
            connection.fail("it was closed");
            throw closed;
        }
    }

    /** Drops a connection to a metaserver that is broken or no longer leads. */
    void lost(Connection connection) {
        connection.fail("another metaserver is asked");
        synchronized (this) {
            if (meta != null && meta.connection() == connection) {
                meta = null;
                next = (next + 1) % addresses.size();
            }
        }
    }

    /** Reports an attempt whose placement request is gone. */
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
        // The next connection sends it. Without a metaserver nobody needs it.
        metaserver();
    }

    /** A connection to the server of a placement. It gets the metaserver's pass and never the token. */
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
            refuse(placed, made, new CallException.Connect("no thread is available to connect to " + placed + ": " + none, none));
        }
        return made;
    }

    private void connect(MetaserverMessages.Placement placed, CompletableFuture<Connection> made) {
        try {
            refuseDowngrade(placed.address());
            Handshake greeted = Handshake.open(placed.address(), options.token(placed.pass()));
            if (greeted.hello().metaserver()) {
                greeted.connection().fail("it is no server");
                throw new CallException.Connect(placed + " is a metaserver, and takes no calls", null);
            }
            check(greeted.connection());
            greeted.connection().gone().thenRun(() -> serverLost(greeted.connection()));
            made.complete(greeted.connection());
        } catch (RuntimeException | Error wrong) {
            refuse(placed, made, wrong);
        }
    }

    /** Who gave a metaserver as {@code tls://} is led to no server without: it would get arrays and pass in clear. */
    private void refuseDowngrade(String address) {
        if (!address.startsWith(TLS) && addresses.stream().anyMatch(given -> given.startsWith(TLS))) {
            throw new CallException.Tls("no secure connection to " + address
                    + ": the metaserver was given as tls://, and the server that it names is not", 0, null);
        }
    }

    private void refuse(MetaserverMessages.Placement placed, CompletableFuture<Connection> made, Throwable why) {
        synchronized (this) {
            servers.remove(placed.address(), made);
        }
        made.completeExceptionally(why);
    }

    /** Uses a connection to a server for no new calls. */
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

    /** Tells calls that wait for their place of a lost connection to a server. */
    private void serverLost(Connection connection) {
        List<RoutedCall<?>> under;
        synchronized (this) {
            under = new ArrayList<>(routedCalls);
        }
        under.forEach(one -> one.serverLost(connection));
    }

    /** An array stays at the server of this connection, and goes with it. */
    synchronized void keep(Connection connection) {
        keeping.merge(connection, 1, Integer::sum);
    }

    /** The server drops such an array. */
    void letGo(Connection connection) {
        synchronized (this) {
            keeping.computeIfPresent(connection, (one, arrays) -> arrays == 1 ? null : arrays - 1);
        }
        sweep();
    }

    /** Closes connections that are no longer used. */
    void sweep() {
        List<Connection> idle = new ArrayList<>();
        synchronized (this) {
            retired.removeIf(one -> one.isIdle() && (one.isBroken() || !keeping.containsKey(one)) && idle.add(one));
        }
        idle.forEach(one -> one.fail("it is no longer used"));
    }

    /** Registers a call. */
    synchronized void begin(RoutedCall<?> routedCall) {
        check();
        routedCalls.add(routedCall);
    }

    /** Removes a finished call. */
    void end(RoutedCall<?> routedCall) {
        synchronized (this) {
            routedCalls.remove(routedCall);
        }
        sweep();
    }

    /** Closes all connections. Calls in progress fail. */
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
