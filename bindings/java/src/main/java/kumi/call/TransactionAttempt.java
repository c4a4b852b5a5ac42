package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kumi.call.Exchange.Answer;
import kumi.call.TransactionArray.HeldElsewhere;
import kumi.call.TransactionArray.Place;
import kumi.call.TransactionReport.Moved;
import kumi.call.idl.Argument;
import kumi.call.wire.Protocol;

/** An attempt to run a call of a transaction at a server. A background thread gets its arguments ready, and may wait. */
final class TransactionAttempt {
    /** How long results stay at servers. */
    static final Duration LIFETIME = Duration.ofHours(1);
    /** Time limit for questions about arrays to the servers that hold them. */
    private static final Duration ASK = Duration.ofSeconds(5);
    /** Codes of the protocol: an array is being made, or could not be fetched from the server that holds it. */
    private static final int NOT_YET = 16;
    private static final int NO_SOURCE = 17;

    /**
     * What the transaction says of an attempt.
     *
     * @param results where the results go, by parameter
     * @param relays which arrays go through the client
     * @param settings time limit, and what is said of the call
     */
    record Conditions(ArrayRoutes.ResultRoute[] results, RelayRules relays, Call.CallSettings settings) {
        /** Bytes of results that do not come back. */
        long staying(PreparedCall prepared) {
            long bytes = 0;
            for (int param = 0; param < results.length; param++) {
                boolean isBack = results[param] == ArrayRoutes.ResultRoute.BACK || results[param] == ArrayRoutes.ResultRoute.BOTH;
                bytes += isBack ? 0 : prepared.argument(param).returned();
            }
            return bytes;
        }
    }

    /** What is known of an input after the attempt has failed. */
    enum SourceStatus {
        /** The server holds it. */
        HELD,
        /** The server does not hold it. */
        MISSING,
        /** The server does not answer. */
        UNREACHABLE
    }

    /** An input, where it was, and what is known of it. */
    record Source(TransactionArray input, Place place, SourceStatus status) {}

    final RecordedCall call;
    final TransactionServer server;
    final Conditions conditions;
    final long begun = System.nanoTime();
    /** Where the inputs are that servers hold. */
    private final Map<TransactionArray, Place> places = new HashMap<>();
    /** What was found out about the inputs when it had failed because of them. */
    private volatile List<Source> found = List.of();
    /** Why an array went through the client; null: none did. */
    private volatile String relayed;
    /** The arrays that travelled, and those of attempts before it that came to nothing. */
    private volatile Moved moved;
    private volatile boolean isAlone;
    /** Its call's own time limit is over before that of the transaction. */
    private volatile boolean hasOwnLimit;
    private int vouchers;
    /** This object's lock guards all fields below: what it waits for. */
    private Connection asked;
    private Exchange asking;
    private boolean cancelled;

    TransactionAttempt(RecordedCall call, TransactionServer server, Conditions conditions, Moved before) {
        moved = before;
        this.call = call;
        this.server = server;
        this.conditions = conditions;
    }

    List<Source> found() {
        return found;
    }

    String relayed() {
        return relayed;
    }

    Moved moved() {
        return moved;
    }

    /** Whether all its arrays go between the client and the server. */
    boolean isAlone() {
        return isAlone;
    }

    /** Whether a call has failed because of what it reads. */
    static boolean isOfInputs(CallException failure) {
        return failure instanceof CallException.HeldLost
                || failure instanceof CallException.Server && (failure.code() == NOT_YET || failure.code() == NO_SOURCE);
    }

    /** Whether an array could not be fetched from the server that holds it. */
    static boolean isOfSource(CallException failure) {
        return failure instanceof CallException.Server && failure.code() == NO_SOURCE;
    }

    /**
     * Gets the arguments ready for the server.
     *
     * @param memory most bytes of memory there
     * @throws CallException they cannot be had, or do not fit
     */
    PreparedCall prepare(KumiClient.KnownRoutine of, long memory, ClientOptions options) {
        Map<TransactionArray, Object> inputs = new HashMap<>();
        long fetched = 0;
        boolean begins = true;
        try {
            for (TransactionArray input : call.inputs) {
                Object there = place(input);
                inputs.put(input, there);
                fetched += places.containsKey(input) && there instanceof Shaped ? input.bytes() : 0;
            }
        } catch (CallException.HeldLost lost) {
            // What it reads is made again first.
            begins = false;
            throw lost;
        } finally {
            // Also an attempt that ends while it fetches what it reads is one.
            call.attempts.addAndGet(begins ? 1 : 0);
        }
        Routes routes = new Routes(inputs);
        PreparedCall prepared = PreparedCall.routed(of.routine(), call.arguments, memory, options, routes);
        try {
            KumiClient.head(of, 0, prepared, null);
        } catch (CallException.TooLarge tooLong) {
            prepared.close();
            throw tooLong;
        }
        moved = moved.plus(moved(prepared, routes, fetched));
        isAlone = relayed == null && routes.between + routes.stayed == 0;
        return prepared;
    }

    private Moved moved(PreparedCall prepared, Routes routes, long fetched) {
        long sent = 0;
        long back = 0;
        for (int param = 0; param < conditions.results().length; param++) {
            Argument argument = prepared.argument(param);
            sent += argument.param().isArray() ? argument.sent() : 0;
            back += argument.param().isArray() ? argument.returned() : 0;
        }
        return new Moved(sent - routes.stayed - routes.between, back - conditions.staying(prepared) + fetched, routes.between,
                routes.stayed);
    }

    /** Where the server finds an input: there, at another server, or with the client. */
    private Object place(TransactionArray input) {
        Place place = input.place;
        Shaped here = input.here();
        if (place == null || place.isLost()) {
            if (here != null) {
                return here;
            }
            throw new CallException.HeldLost("an array that `" + call.of.routine().name() + "` reads is lost with its server", 0);
        }
        places.put(input, place);
        long[] dims = input.argument.sizes();
        if (place.server() == server) {
            return new HeldElsewhere(input, dims, null, place.array().name(), "", "");
        }
        String why = conditions.relays().why(call, server, place.server(), vouchers);
        if (why != null) {
            relayed = why;
            return fetched(input, place);
        }
        String voucher = place.server().wantsVouchers() ? voucher(place) : "";
        return new HeldElsewhere(input, dims, null, place.array().name(), place.server().address, voucher);
    }

    private Duration left() {
        return conditions.settings().limit(call.of.routine().name());
    }

    /**
     * How long its server may take from now on; null: any time.
     *
     * @throws CallException.TimedOut the time of the transaction is over
     */
    Duration limit() {
        Duration own = call.wishes.time();
        Duration most = conditions.settings().context().remaining();
        hasOwnLimit = own != null && (most == null || own.compareTo(most) <= 0);
        return left();
    }

    /** Whether {@link #limit} was its call's own, and not what is left of the transaction's. */
    boolean hasOwnLimit() {
        return hasOwnLimit;
    }

    /** Fetches an array that the client sends on. */
    private Shaped fetched(TransactionArray input, Place place) {
        Numbers numbers;
        try {
            numbers = Numbers.allocate(input.element(), input.argument.elements());
        } catch (ArithmeticException beyond) {
            throw new CallException.TooLarge("an array of " + input.argument.elements() + " elements is more than Java's can have, and "
                    + "cannot go through the client: " + relayed, 0);
        }
        if (input.bytes() > 0) {
            Exchange fetch = fetch(place, input.bytes(), List.of(Exchange.Target.of(0, numbers, 0, input.bytes())));
            ofHolder(place, fetch, left());
        }
        return new Shaped(numbers.owner(), input.shape(), input.argument.param().order());
    }

    private static Exchange fetch(Place place, long bytes, List<Exchange.Target> targets) {
        byte[] name = place.array().name();
        ByteBuffer body = ByteBuffer.allocate(name.length + 2 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        return new Exchange(Protocol.FETCH, body.put(name).putLong(0).putLong(bytes).array(), List.of(), targets, null);
    }

    private String voucher(Place place) {
        vouchers++;
        Duration left = left();
        Duration time = left == null || left.compareTo(LIFETIME) > 0 ? LIFETIME : left.plus(ASK);
        byte[] wish = Protocol.vouch(place.array().name(), Timer.milliseconds(time));
        return ofHolder(place, Exchange.of(Protocol.VOUCH, wish), ASK).names().get(0);
    }

    /** Asks a server about an array. A failure of it does not blame the server of the call. */
    private Answer ofHolder(Place place, Exchange exchange, Duration time) {
        try {
            return ask(place.server().connection, exchange, time);
        } catch (CallException.HeldLost | CallException.Cancelled failed) {
            throw failed;
        } catch (CallException failed) {
            throw new CallException.Server("an array could not be fetched from the server at " + place.server().address + ": "
                    + failed.getMessage(), NO_SOURCE);
        }
    }

    private Answer ask(Connection connection, Exchange exchange, Duration time) {
        connection.submit(exchange);
        await(connection, exchange);
        try {
            return Waits.await(connection, exchange, time, "no answer came in time");
        } finally {
            synchronized (this) {
                asking = null;
            }
        }
    }

    /** It waits for this exchange, which ends when it is cancelled. */
    void await(Connection connection, Exchange exchange) {
        synchronized (this) {
            asked = connection;
            asking = exchange;
            if (!cancelled) {
                return;
            }
        }
        cancel();
    }

    /** Ends it: nothing of it is sent any more. */
    void cancel() {
        Connection connection;
        Exchange exchange;
        synchronized (this) {
            cancelled = true;
            connection = asked;
            exchange = asking;
        }
        if (exchange != null) {
            connection.abandon(exchange);
            exchange.answer.completeExceptionally(new CallException.Cancelled("`" + call.of.routine().name()
                    + "` was cancelled with its transaction", 0));
        }
    }

    /** It is over: tells the driver, after a look at its inputs if it has failed because of them. */
    void finish(TransactionTarget.Driver driver, Result result, CallException failure) {
        if (isOfInputs(failure)) {
            found = probe();
        }
        driver.ended(call, this, result, failure);
    }

    private List<Source> probe() {
        List<Source> sources = new ArrayList<>();
        places.forEach((input, place) -> sources.add(new Source(input, place, probe(place))));
        return sources;
    }

    /** Whether a server still holds an array: it is asked for no byte of it. */
    private SourceStatus probe(Place place) {
        if (place.isLost()) {
            return SourceStatus.UNREACHABLE;
        }
        try {
            ask(place.server().connection, fetch(place, 0, List.of()), ASK);
            return SourceStatus.HELD;
        } catch (CallException.ConnectionLost | CallException.TimedOut silent) {
            return SourceStatus.UNREACHABLE;
        } catch (CallException gone) {
            return SourceStatus.MISSING;
        }
    }

    /** Where the arrays of this attempt are. */
    private final class Routes implements ArrayRoutes {
        private final Map<TransactionArray, Object> inputs;
        private long stayed;
        private long between;

        Routes(Map<TransactionArray, Object> inputs) {
            this.inputs = inputs;
        }

        @Override
        public Object argument(Object value) {
            TransactionArray array = RecordedCall.arrayOf(value);
            if (array == null) {
                return value;
            }
            Object there = inputs.get(array);
            if (there instanceof HeldElsewhere held) {
                stayed += held.address().isEmpty() ? held.bytes() : 0;
                between += held.address().isEmpty() ? 0 : held.bytes();
            }
            return there;
        }

        @Override
        public ResultRoute result(int param) {
            return conditions.results()[param];
        }

        @Override
        public Duration lifetime(int param) {
            return LIFETIME;
        }

        @Override
        public boolean mayStay() {
            return true;
        }

        @Override
        public HeldArray stay(Argument argument) {
            return server.stay(argument, call.of.routine().name());
        }

        @Override
        public Grid binder() {
            // Arrays that are elsewhere are fetched.
            return null;
        }
    }
}
