package kumi.call;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import kumi.call.Exchange.Answer;
import kumi.call.idl.DescriptionException;
import kumi.call.idl.Routine;
import kumi.call.wire.Protocol;
import kumi.call.wire.ServerHello;
import kumi.call.wire.Values;

/** A connection to a server. Threads may share it; their calls run at the same time. */
public final class KumiClient implements AutoCloseable {
    /** How much longer than a call may take its answer is waited for. */
    private static final Duration GRACE = Duration.ofSeconds(2);

    /** A routine as this client knows it. */
    private record Known(Routine routine, long hash) {}

    private final Connection connection;
    private final ServerHello server;
    private final long memory;
    private final ClientOptions options;
    private final Map<String, Known> known = new ConcurrentHashMap<>();

    private KumiClient(Connection connection, ServerHello server, ClientOptions options) {
        this.connection = connection;
        this.server = server;
        this.memory = Math.min(server.bytes(), options.memory());
        this.options = options;
    }

    /**
     * Connects to the server that the environment's {@code KUMI_CALL_SERVER} names, or 127.0.0.1:7070.
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
     * Connects to a server at {@code HOST:PORT}, {@code tls://HOST:PORT} or {@code unix:PATH}.
     *
     * @throws CallException it cannot be reached, does not take this client, or has no version of the protocol in common
     */
    public static KumiClient connect(String address, ClientOptions options) {
        byte[] greeting = Protocol.hello(options.token(), options.program());
        Connection connection = new Connection(Transport.connect(address, options), greeting, address);
        boolean connected = false;
        try {
            ServerHello hello = connection.hello().get(
                    Math.max(1, options.connectTime().toMillis()), TimeUnit.MILLISECONDS);
            if (hello.metaserver()) {
                throw new CallException.Connect(
                        address + " is a metaserver, through which Java cannot call: give the address of a server", null);
            }
            connected = true;
            return new KumiClient(connection, hello, options);
        } catch (ExecutionException failed) {
            throw again(failed.getCause());
        } catch (TimeoutException late) {
            throw new CallException.Connect("the server at " + address + " did not greet in time", late);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CallException.Connect("the wait for the server at " + address + " was interrupted", interrupted);
        } finally {
            if (!connected) {
                connection.fail("it was given up");
            }
        }
    }

    /** The server's name. */
    public String server() {
        return server.name();
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
        Exchange exchange = Exchange.of(Protocol.LIST, bytes);
        connection.submit(exchange);
        return await(exchange).names();
    }

    /**
     * What a routine takes and gives; asked for once.
     *
     * @throws CallException there is no such routine, or the connection is lost
     */
    public Routine routine(String name) {
        return known(name).routine();
    }

    private Known known(String name) {
        Known cached = known.get(name);
        if (cached != null) {
            return cached;
        }
        Exchange exchange = ask(name);
        return learn(name, await(exchange));
    }

    private Exchange ask(String name) {
        if (!Protocol.isName(name)) {
            throw new CallException.Argument(
                    "a routine's name has 1 to " + Protocol.MOST_NAME + " bytes and no control characters");
        }
        byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
        Exchange exchange = Exchange.of(Protocol.INTERFACE, bytes);
        connection.submit(exchange);
        return exchange;
    }

    private Known learn(String name, Answer answer) {
        try {
            Known learned = new Known(Routine.fromJson(answer.json()), answer.hash());
            known.put(name, learned);
            return learned;
        } catch (DescriptionException wrong) {
            throw new CallException.Server(wrong.getMessage(), 0);
        }
    }

    /**
     * Calls a routine and waits. Arguments are those that are sent, in the order of the description; scalars that are the
     * size of a vector, or have a default, may be left out, all of them together. Results are new arrays. What is a file to the
     * routine is a {@link java.nio.file.Path} or its content as {@code byte[]}, what is a function a {@link Callback}.
     *
     * @throws CallException it failed; of arguments that do not fit nothing was sent
     */
    public Result call(String routine, Object... arguments) {
        return prepare(routine).add(arguments).call();
    }

    /** Calls a routine as {@link #call} does, without waiting; see {@link Call#callAsync}. */
    public CompletableFuture<Result> callAsync(String routine, Object... arguments) {
        return prepare(routine).add(arguments).callAsync();
    }

    /** A call that is put together piece by piece: arguments by name, places for results, a time. */
    public Call prepare(String routine) {
        return new Call(this, routine);
    }

    /**
     * Waits for a sign of life of the server.
     *
     * @throws CallException none came in time, or the connection is lost
     */
    public void ping(Duration time) {
        try {
            connection.ping().get(Math.max(1, time.toMillis()), TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            throw again(failed.getCause());
        } catch (TimeoutException late) {
            throw new CallException.TimedOut("the server gave no sign of life in time", 0);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new CallException.Interrupted();
        }
    }

    /** Whether the connection is there. */
    public boolean isOpen() {
        return !connection.isBroken();
    }

    /** Ends the connection; calls that are under way are cancelled by the server and fail here. */
    @Override
    public void close() {
        connection.fail("it was closed");
    }

    /** A call that is under way. */
    private record Started(Exchange exchange, Prepared prepared, Future<?> limit) {}

    /** Begins a call; functions that its routine calls {@code turns} has called. */
    private Started begin(Known of, Arguments arguments, Duration time, Consumer<Runnable> turns) {
        Prepared prepared = Prepared.of(of.routine(), arguments, memory, options);
        boolean begun = false;
        try {
            Started started = begin(of, prepared, time, turns);
            begun = true;
            return started;
        } finally {
            if (!begun) {
                prepared.close();
            }
        }
    }

    private Started begin(Known of, Prepared prepared, Duration time, Consumer<Runnable> turns) {
        int milliseconds = time == null ? 0 : (int) Math.min(Integer.MAX_VALUE, Math.max(1, time.toMillis()));
        byte[] head = Values.callHead(of.hash(), milliseconds, of.routine().name(), prepared.values());
        if (head.length > Protocol.MOST_REQUEST) {
            throw new CallException.TooLarge("`" + of.routine().name() + "`: scalars and texts of " + head.length
                    + " bytes are more than a call may have", 0);
        }
        Exchange exchange = new Exchange(Protocol.CALL, head, prepared.sends(), prepared.targets(),
                prepared.functions(options.callbackBytes(), turns));
        connection.submit(exchange);
        Future<?> limit = time == null ? null : Timer.after(time.plus(GRACE), () -> late(exchange));
        return new Started(exchange, prepared, limit);
    }

    /** The server has not answered in time. */
    private void late(Exchange exchange) {
        boolean stuck = exchange.stream != 0 && !exchange.sent && !exchange.over;
        connection.abandon(exchange);
        if (stuck) {
            // A part of a frame is sent: nothing else can be sent any more.
            connection.fail("the server did not read what was sent in time");
        }
        exchange.answer.completeExceptionally(new CallException.TimedOut(stuck
                ? "the call took longer than it may while its arguments were sent"
                : "the server did not answer in time", 0));
    }

    Result run(String routine, Arguments arguments, Duration time) {
        Known of = known(routine);
        BlockingQueue<Runnable> turns = new LinkedBlockingQueue<>();
        Started started = begin(of, arguments, time, turns::add);
        return end(routine, started, () -> started.exchange().functions == null
                ? await(started.exchange()) : await(started.exchange(), turns));
    }

    /** Waits for the answer of a call, and has functions called that the routine calls meanwhile. */
    private Answer await(Exchange exchange, BlockingQueue<Runnable> turns) {
        exchange.answer.whenComplete((answer, error) -> turns.add(() -> { }));
        try {
            while (!exchange.answer.isDone()) {
                turns.take().run();
                // Of a function that was interrupted the server may have said more already; the interrupt counts all the same.
                if (Thread.currentThread().isInterrupted()) {
                    throw interrupted(exchange);
                }
            }
        } catch (InterruptedException interrupted) {
            throw interrupted(exchange);
        }
        return await(exchange);
    }

    private CallException interrupted(Exchange exchange) {
        connection.abandon(exchange);
        Thread.currentThread().interrupt();
        return new CallException.Interrupted();
    }

    private interface Wait {
        Answer answer();
    }

    private Result end(String routine, Started started, Wait wait) {
        try {
            return started.prepared().result(wait.answer().result());
        } catch (CallException failed) {
            if (failed.code() == 2) {
                // The next call asks for the description anew.
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

    CompletableFuture<Result> start(String routine, Arguments arguments, Duration time) {
        CompletableFuture<Result> future = new CompletableFuture<>();
        Known cached = known.get(routine);
        if (cached != null) {
            start(cached, routine, arguments, time, future);
            return future;
        }
        try {
            Exchange asked = ask(routine);
            // Not in the thread that reads: arguments may have to be copied.
            asked.answer.whenCompleteAsync((answer, error) -> {
                if (error != null) {
                    future.completeExceptionally(error);
                    return;
                }
                try {
                    start(learn(routine, answer), routine, arguments, time, future);
                } catch (RuntimeException | Error wrong) {
                    future.completeExceptionally(wrong);
                }
            });
        } catch (RuntimeException wrong) {
            future.completeExceptionally(wrong);
        }
        return future;
    }

    private void start(
            Known of, String routine, Arguments arguments, Duration time, CompletableFuture<Result> future) {
        if (future.isDone()) {
            return;
        }
        try {
            Started started = begin(of, arguments, time, Pool::run);
            // However the future ends: if that is not the call's end, the call is ended.
            future.whenComplete((result, error) -> {
                connection.abandon(started.exchange());
                started.exchange().answer.cancel(false);
            });
            started.exchange().answer.whenCompleteAsync((answer, error) -> {
                try {
                    future.complete(end(routine, started, () -> {
                        if (error != null) {
                            throw again(error);
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

    /** Waits for an exchange's answer; an interrupt ends it. */
    private Answer await(Exchange exchange) {
        try {
            return exchange.answer.get();
        } catch (ExecutionException failed) {
            throw again(failed.getCause());
        } catch (InterruptedException interrupted) {
            throw interrupted(exchange);
        }
    }

    /** The failure of another thread, thrown in this one. */
    private static CallException again(Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        if (cause instanceof CallException failed) {
            failed.fillInStackTrace();
            return failed;
        }
        if (cause instanceof CancellationException) {
            return new CallException.Cancelled("the call was cancelled", 0);
        }
        return new CallException.Server("the call failed: " + cause, 0);
    }
}
