package kumi.call;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;
import kumi.call.Exchange.Answer;
import kumi.call.idl.DescriptionException;
import kumi.call.idl.Element;
import kumi.call.idl.Routine;
import kumi.call.wire.Protocol;
import kumi.call.wire.ServerHello;
import kumi.call.wire.Values;

/** A client of a server, or of a metaserver and its servers. Threads may share it; their calls run concurrently. */
public final class KumiClient implements AutoCloseable {
    /** How much longer than its time limit the client waits for a call. */
    static final Duration GRACE = Duration.ofSeconds(2);
    /** Time limit for a metaserver's answers other than placements, and number of connections to try for one. */
    private static final Duration ANSWER = Duration.ofMinutes(1);
    private static final int MOST_TRIES = 4;

    /** A routine as this client knows it. */
    record KnownRoutine(Routine routine, long hash, Runnable forgotten) {
        /** Forgets a changed description; the next call fetches it again. */
        void forget() {
            forgotten.run();
        }
    }

    /** The server; null: the client uses a metaserver. */
    final Connection connection;
    final ServerHello server;
    /** The metaserver, or null. */
    final Grid grid;
    final long memory;
    final ClientOptions options;
    private final Map<String, KnownRoutine> known = new ConcurrentHashMap<>();

    private KumiClient(Handshake server, ClientOptions options) {
        connection = server.connection();
        this.server = server.hello();
        grid = null;
        memory = Math.min(server.hello().bytes(), options.memory());
        this.options = options;
    }

    private KumiClient(Grid grid, ClientOptions options) {
        connection = null;
        server = null;
        this.grid = grid;
        memory = options.memory();
        this.options = options;
    }

    /**
     * Connects to the server that the environment variable {@code KUMI_CALL_SERVER} names; default 127.0.0.1:7070.
     *
     * @throws CallException see {@link #connect(String, ClientOptions)}
     */
    public static KumiClient connect() {
        return connect(Objects.requireNonNullElse(System.getenv("KUMI_CALL_SERVER"), "127.0.0.1:7070"));
    }

    /**
     * Connects to a server.
     *
     * @throws CallException see {@link #connect(String, ClientOptions)}
     */
    public static KumiClient connect(String address) {
        return connect(address, ClientOptions.usual());
    }

    /**
     * Connects to a server or a metaserver at {@code HOST:PORT}, {@code tls://HOST:PORT} or {@code unix:PATH}. A metaserver chooses
     * a server for each call. The addresses of several metaservers are separated by commas.
     *
     * @throws CallException the server cannot be reached, denies access, or shares no version of the protocol with this client
     */
    public static KumiClient connect(String address, ClientOptions options) {
        List<String> addresses = Grid.addresses(address);
        if (addresses.size() > 1) {
            return new KumiClient(Grid.connect(addresses, options), options);
        }
        String single = addresses.isEmpty() ? address : addresses.get(0);
        Handshake greeted;
        try {
            greeted = Handshake.leading(single, options);
        } catch (CallException.Server refused) {
            if (refused.code() != Handshake.NOT_LEADING) {
                throw refused;
            }
            // Another metaserver is about to lead.
            return new KumiClient(Grid.connect(List.of(single), options), options);
        }
        return greeted.hello().metaserver()
                ? new KumiClient(Grid.of(List.of(single), greeted, options), options) : new KumiClient(greeted, options);
    }

    /** The server's name, or the metaserver's. */
    public String server() {
        return grid == null ? server.name() : grid.name();
    }

    /**
     * Names of the server's routines that contain {@code part}.
     *
     * @throws CallException the connection is lost
     */
    public List<String> names(String part) {
        byte[] bytes = part.getBytes(StandardCharsets.UTF_8);
        if (bytes.length > Protocol.MOST_NAME) {
            throw new CallException.Argument("no name has a part of " + bytes.length + " bytes");
        }
        return ask(Protocol.LIST, bytes, "names").names();
    }

    /**
     * The description of a routine. The client fetches it once.
     *
     * @throws CallException there is no such routine, or the connection is lost
     */
    public Routine routine(String name) {
        return known(name).routine();
    }

    KnownRoutine known(String name) {
        KnownRoutine cached = known.get(name);
        return cached != null ? cached : learn(name, ask(Protocol.INTERFACE, nameOf(name), name));
    }

    /** The routine of a call. For an ended object this fails without asking the server. */
    private KnownRoutine known(String name, Call.CallSettings settings) {
        if (settings.object() != null) {
            settings.object().check();
        }
        // Another thread may ask than the one that calls.
        try (CallContext.Scope ofCall = settings.context().enter()) {
            return known(name);
        }
    }

    private static byte[] nameOf(String name) {
        if (!Protocol.isName(name)) {
            throw new CallException.Argument(
                    "a routine's name has 1 to " + Protocol.MOST_NAME + " bytes and no control characters");
        }
        return name.getBytes(StandardCharsets.UTF_8);
    }

    /** Asks the server, or the metaserver, and the next one if the connection is lost. */
    private Answer ask(int kind, byte[] body, String name) {
        for (int tries = 1; ; tries++) {
            Duration left = InheritedContext.ofThisThread().limit(null, name);
            boolean patient = grid != null && (left == null || left.compareTo(ANSWER) > 0);
            Connection asked = connection();
            try {
                Exchange exchange = Exchange.of(kind, body);
                asked.submit(exchange);
                return Waits.await(asked, exchange, patient ? ANSWER : left, kind == Protocol.LIST ? "the names did not come in time" : late(name));
            } catch (CallException.ConnectionLost | CallException.TimedOut lost) {
                // Who has less time than the metaserver does not give that up.
                if (grid == null || tries == MOST_TRIES || !patient && lost instanceof CallException.TimedOut) {
                    throw lost;
                }
                grid.lost(asked);
            }
        }
    }

    /** The connection to the server, or to the metaserver, which is made anew if it was lost. */
    private Connection connection() {
        if (grid == null) {
            return connection;
        }
        CompletableFuture<Connection> found = grid.metaserver();
        try {
            return found.get();
        } catch (ExecutionException failed) {
            throw Waits.again(failed.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CallException.Interrupted();
        }
    }

    private KnownRoutine learn(String name, Answer answer) {
        try {
            KnownRoutine learned = new KnownRoutine(
                    Routine.fromJson(answer.json()), answer.hash(), () -> known.remove(name));
            known.put(name, learned);
            return learned;
        } catch (DescriptionException wrong) {
            throw new CallException.Server(wrong.getMessage(), 0);
        }
    }

    /**
     * Calls a routine and waits. The arguments are the inputs, in the order of the description. Scalars that have a default or are
     * the size of a vector may be left out, all of them together. Results are new arrays. A file is a {@link java.nio.file.Path}
     * or its content as {@code byte[]}; a function is a {@link Callback}. The guide to calling routines (docs/guide/calling.md) explains files, callbacks
     * and retries.
     *
     * @throws CallException the call failed. If arguments do not fit, nothing was sent
     */
    public Result call(String routine, Object... arguments) {
        return prepare(routine).add(arguments).call();
    }

    /** Calls a routine as {@link #call} does, without waiting; see {@link Call#callAsync}. */
    public CompletableFuture<Result> callAsync(String routine, Object... arguments) {
        return prepare(routine).add(arguments).callAsync();
    }

    /** Prepares a call with arguments by name, destinations of results, or a time limit. */
    public Call prepare(String routine) {
        return new Call(this, routine, null);
    }

    /**
     * Creates an object of a class and waits until it exists. A metaserver chooses its server.
     *
     * @throws CallException there is no such class, it cannot be run, or the server has too many objects
     */
    public RemoteObject object(String name) {
        return object(name, null, 0);
    }

    /**
     * Creates an object as {@link #object(String)} does, with a time limit and a priority.
     *
     * @param time the time limit; null: none
     * @param priority 0 to 9, see {@link Call#priority}
     * @throws CallException as there, or the time limit was exceeded
     */
    public RemoteObject object(String name, Duration time, int priority) {
        return object(name, time, priority, null);
    }

    /**
     * Creates an object as {@link #object(String, Duration, int)} does, which asks for threads and memory. All calls on it have these.
     *
     * @param most the time limit; null: none
     * @param resources what it asks for; null: nothing
     * @throws CallException as there, or the server does not give that much
     */
    public RemoteObject object(String name, Duration most, int priority, Resources resources) {
        byte[] body = nameOf(name);
        Call.checked(priority);
        InheritedContext context = InheritedContext.ofThisThread();
        Duration time = context.limit(most == null ? null : Call.checked(most), name);
        CallMetadata said = new CallMetadata(null, resources, context.trace());
        if (grid != null) {
            return far(name, time, priority, said);
        }
        withoutPriority(name, priority);
        said.check(server);
        Exchange exchange = Exchange.of(Protocol.CREATE, body);
        exchange.said = said;
        connection.submit(exchange);
        Waits.await(connection, exchange, time, "there was no object of `" + name + "` in time");
        return new RemoteObject(this, connection, exchange, name);
    }

    private RemoteObject far(String name, Duration time, int priority, CallMetadata said) {
        KnownRoutine of = known(name);
        if (!of.routine().isConstructor()) {
            throw new CallException.RoutineNotFound(
                    "there is no class `" + name + "`: it is a routine, which is called without an object");
        }
        PreparedCall nothing = PreparedCall.of(of.routine(), new Arguments(), memory, options, null);
        RoutedCall<RemoteObject> routedCall = new RoutedCall<>(grid,
                new RoutedCall.Task<>(of, nothing, priority, time, said, new RoutedOperation.ObjectCreation(name, options)));
        grid.begin(routedCall);
        CompletableFuture<RemoteObject> made = routedCall.begin();
        return Waits.await(made, new LinkedBlockingQueue<>(), () -> {
            routedCall.cancel();
            // If the object was created nevertheless, nobody uses it.
            made.thenAccept(RemoteObject::close);
        });
    }

    /**
     * Sends an array that stays at the server, as long as the server allows, and waits until it is there. It is an argument of later calls of
     * this client, like an array that {@link Call#keep} has left there.
     *
     * <pre>{@code
     * try (HeldArray a = client.hold(Shape.of(n, n).rows(numbers))) {
     *     double[] c = client.call("dmmul", n, a, b).doubles("C");
     * }
     * }</pre>
     *
     * @param array an array or buffer of numbers, which is a vector, one with a {@link Shape}, or a {@code double[][]}, a matrix by rows
     * @throws CallException.Argument it is none, or the client has connected to a metaserver
     * @throws CallException the server has no room, or is of an earlier version
     */
    public HeldArray hold(Object array) {
        return hold(array, null, null);
    }

    /**
     * Sends an array as {@link #hold(Object)} does, with elements of this type and a time limit.
     *
     * @param element for unsigned integers, complex numbers, and a {@link java.nio.ByteBuffer}; null: as the array has them
     * @param most the time limit; null: none
     * @throws CallException as there, or the time limit was exceeded
     */
    public HeldArray hold(Object array, Element element, Duration most) {
        HeldUpload upload = HeldUpload.of(array, element);
        if (grid != null) {
            throw new CallException.Argument("a metaserver chooses servers for calls only: let a call make the array (Call.keep), or connect"
                    + " to a server");
        } else if (!server.holdsArrays()) {
            throw new CallException.Server("`" + server.name() + "` is of a version that holds only results of calls: let a routine make"
                    + " the array there", 0);
        }
        return upload.send(connection, InheritedContext.ofThisThread().limit(most == null ? null : Call.checked(most), "hold"));
    }

    /**
     * A transaction of calls at this server, or at servers that this metaserver chooses; {@link Transaction#of} for several servers.
     * Close it before the client.
     */
    public Transaction transaction() {
        return Transaction.of(this);
    }

    /** A client of an existing connection to a server, which another client closes. */
    static KumiClient over(Connection connection, ClientOptions options) {
        return new KumiClient(new Handshake(connection, connection.hello().join()), options);
    }

    /**
     * Pings the server and waits for the answer.
     *
     * @throws CallException no answer came in time, or the connection is lost
     */
    public void ping(Duration time) {
        try {
            connection().ping().get(Timer.milliseconds(time), TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            throw Waits.again(failed.getCause());
        } catch (TimeoutException late) {
            throw new CallException.TimedOut("no sign of life came in time from " + connection().address, 0);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CallException.Interrupted();
        }
    }

    /** Whether the connection is open. */
    public boolean isOpen() {
        return grid == null ? !connection.isBroken() : grid.isOpen();
    }

    /** Closes the connection. The server cancels calls in progress, and they fail here. */
    @Override
    public void close() {
        if (grid != null) {
            grid.close();
        } else {
            connection.fail("it was closed");
        }
    }

    /** A call in progress. */
    record StartedCall(Exchange exchange, PreparedCall prepared, Future<?> limit) {}

    /** Begins a call; its callbacks run by means of {@code turns}. */
    private StartedCall begin(KnownRoutine of, Arguments arguments, Call.CallSettings settings, Consumer<Runnable> turns) {
        withoutPriority(of.routine().name(), settings.priority());
        RemoteObject.check(of.routine(), settings);
        settings.said().check(server);
        PreparedCall prepared = PreparedCall.of(
                of.routine(), arguments, memory, options, settings.object() == null ? HeldPlace.at(connection) : null);
        boolean begun = false;
        try {
            StartedCall started = begin(of, prepared, settings, turns);
            begun = true;
            return started;
        } finally {
            if (!begun) {
                prepared.close();
            }
        }
    }

    private static void withoutPriority(String name, int priority) {
        if (priority > 0) {
            throw new CallException.Argument("`" + name + "`: a priority is for calls through a metaserver, and this is a connection "
                    + "to a server");
        }
    }

    /** Begins a call that was prepared for this connection. */
    StartedCall begin(KnownRoutine of, PreparedCall prepared, Call.CallSettings settings, Consumer<Runnable> turns) {
        Duration time = settings.limit(of.routine().name());
        int milliseconds = time == null ? 0 : Timer.milliseconds(time);
        byte[] head = head(of, milliseconds, prepared, settings.object());
        int kind = settings.object() == null ? Protocol.CALL : Protocol.INVOKE;
        Exchange exchange = new Exchange(kind, head, prepared.sends(), prepared.targets(),
                prepared.functions(options.callbackBytes(), turns, InheritedContext.of(time, settings.said().trace())));
        exchange.said = settings.said();
        connection.submit(exchange);
        Future<?> limit = time == null ? null : Timer.after(time, GRACE, () -> Waits.late(connection, exchange));
        return new StartedCall(exchange, prepared, limit);
    }

    static byte[] head(KnownRoutine of, int milliseconds, PreparedCall prepared, RemoteObject object) {
        byte[] call = Values.callHead(of.hash(), milliseconds, of.routine().name(), prepared.values());
        byte[] head = object == null ? call : object.head(call);
        if (head.length > Protocol.MOST_REQUEST) {
            throw new CallException.TooLarge("`" + of.routine().name() + "`: scalars and texts of " + head.length
                    + " bytes are more than a call may have", 0);
        }
        return head;
    }

    /** A call through the metaserver that has not begun. */
    private RoutedCall<Result> routedCall(KnownRoutine of, Arguments arguments, Call.CallSettings settings, Consumer<Runnable> turns) {
        RemoteObject.check(of.routine(), settings);
        PreparedCall prepared = PreparedCall.of(of.routine(), arguments, memory, options, HeldPlace.chosenBy(grid));
        boolean done = false;
        try {
            head(of, 0, prepared, null);
            Duration time = settings.limit(of.routine().name());
            RoutedCall<Result> routedCall = new RoutedCall<>(grid, new RoutedCall.Task<>(of, prepared, settings.priority(), time, settings.said(),
                    new RoutedOperation.RoutineCall(of, prepared, options.callbackBytes(), turns)));
            grid.begin(routedCall);
            done = true;
            return routedCall;
        } finally {
            if (!done) {
                prepared.close();
            }
        }
    }

    Result run(String routine, Arguments arguments, Call.CallSettings settings) {
        KnownRoutine of = known(routine, settings);
        BlockingQueue<Runnable> turns = new LinkedBlockingQueue<>();
        if (grid != null) {
            RoutedCall<Result> routedCall = routedCall(of, arguments, settings, turns::add);
            return Waits.await(routedCall.begin(), turns, routedCall::cancel);
        }
        StartedCall started = begin(of, arguments, settings, turns::add);
        Exchange exchange = started.exchange();
        return end(routine, started, () -> exchange.functions == null ? Waits.await(connection, exchange)
                : Waits.await(exchange.answer, turns, () -> connection.abandon(exchange)));
    }

    interface Wait {
        Answer answer();
    }

    /** The result of a call, when its answer has come. */
    Result end(String routine, StartedCall started, Wait wait) {
        try {
            return started.prepared().result(wait.answer().result());
        } catch (CallException failed) {
            if (failed.code() == 2) {
                // The next call fetches the description again.
                known.remove(routine);
            }
            throw failed;
        } finally {
            started.prepared().close();
            if (started.limit() != null) {
                started.limit().cancel(false);
            }
        }
    }

    CompletableFuture<Result> start(String routine, Arguments arguments, Call.CallSettings settings) {
        CompletableFuture<Result> future = new CompletableFuture<>();
        if (settings.object() != null) {
            // In order, even while the description is missing: calls on an object keep their order.
            learnAndStart(() -> known(routine, settings), routine, arguments, settings, future);
            return future;
        }
        KnownRoutine cached = known.get(routine);
        if (cached != null) {
            start(cached, routine, arguments, settings, future);
            return future;
        }
        try {
            // Begun or not, it ends with the call around it.
            Duration left = settings.context().limit(null, routine);
            if (grid != null) {
                BackgroundThreads.run(() -> learnAndStart(() -> known(routine, settings), routine, arguments, settings, future));
                return future;
            }
            Exchange asked = Exchange.of(Protocol.INTERFACE, nameOf(routine));
            connection.submit(asked);
            if (left != null) {
                Future<?> limit = Timer.after(left, () -> undescribed(routine, asked));
                asked.answer.whenComplete((answer, error) -> limit.cancel(false));
            }
            // Not in the reading thread: it may have to copy arguments.
            asked.answer.whenCompleteAsync((answer, error) -> {
                if (error != null) {
                    future.completeExceptionally(error);
                } else {
                    learnAndStart(() -> learn(routine, answer), routine, arguments, settings, future);
                }
            });
        } catch (RuntimeException | OutOfMemoryError wrong) {
            future.completeExceptionally(wrong);
        }
        return future;
    }

    /** The description of a routine has not come in time. */
    private void undescribed(String routine, Exchange asked) {
        connection.abandon(asked);
        asked.answer.completeExceptionally(new CallException.TimedOut(late(routine), 0));
    }

    private static String late(String routine) {
        return "the description of `" + routine + "` did not come in time";
    }

    private void learnAndStart(Supplier<KnownRoutine> learned, String routine, Arguments arguments, Call.CallSettings settings,
            CompletableFuture<Result> future) {
        try {
            start(learned.get(), routine, arguments, settings, future);
        } catch (RuntimeException | Error wrong) {
            future.completeExceptionally(wrong);
        }
    }

    /** Begins a call through the metaserver. If the future ends before the call, the call is cancelled. */
    private void start(KnownRoutine of, Arguments arguments, Call.CallSettings settings, CompletableFuture<Result> future) {
        RoutedCall<Result> routedCall = routedCall(of, arguments, settings, BackgroundThreads::run);
        CompletableFuture<Result> end = routedCall.begin();
        future.whenComplete((result, error) -> {
            if (!end.isDone()) {
                routedCall.cancel();
            }
        });
        end.whenComplete((result, error) -> {
            if (error == null) {
                future.complete(result);
            } else {
                future.completeExceptionally(error);
            }
        });
    }

    private void start(
            KnownRoutine of, String routine, Arguments arguments, Call.CallSettings settings, CompletableFuture<Result> future) {
        if (future.isDone()) {
            return;
        }
        try {
            if (grid != null) {
                start(of, arguments, settings, future);
                return;
            }
            StartedCall started = begin(of, arguments, settings, BackgroundThreads::run);
            // If the future ends before the call, the call is cancelled.
            future.whenComplete((result, error) -> {
                connection.abandon(started.exchange());
                started.exchange().answer.cancel(false);
            });
            started.exchange().answer.whenCompleteAsync((answer, error) -> {
                try {
                    future.complete(end(routine, started, () -> {
                        if (error != null) {
                            throw Waits.again(error);
                        }
                        return answer;
                    }));
                } catch (RuntimeException | Error wrong) {
                    future.completeExceptionally(wrong);
                }
            });
        } catch (RuntimeException | Error wrong) {
            future.completeExceptionally(wrong);
        }
    }
}
